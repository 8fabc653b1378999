"""The playgrounds of the page, in a browser: what people type, and what comes back."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys


@pytest.fixture
def opened(page: Any, embedder: str) -> Any:
    page.open(embedder)
    page.wait_until_serving()
    return page


def test_ranks_as_the_route_does(opened: Any, embedder: str) -> None:
    query, documents = "a plant that climbs", ["A brick.", "Ivy climbs up walls.", "Roses bloom."]
    ranked = opened.rerank(query, documents)
    body = json.dumps({"query": query, "documents": documents}).encode()
    request = urllib.request.Request(
        f"{embedder}v2/rerank", body, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        results = json.load(response)["results"]
    assert [text for _, _, text in ranked] == [documents[result["index"]] for result in results]
    assert ranked[0][2] == "Ivy climbs up walls."
    assert [rank for rank, _, _ in ranked] == [1, 2, 3]
    scores = [result["relevance_score"] for result in results]
    assert [score for _, score, _ in ranked] == pytest.approx(scores, abs=6e-5)
    widths = opened.run(
        "return [...document.querySelectorAll('.ranked .bar')].map((bar) =>"
        " bar.firstElementChild.getBoundingClientRect().width / bar.getBoundingClientRect().width)"
    )
    assert widths == pytest.approx([abs(score) for score in scores], abs=0.01)


def test_tells_where_the_time_went(opened: Any) -> None:
    opened.submit("#rerank")
    parts = [text.rsplit(" ", 2) for text in opened.texts(".time-list li")]
    names = ["tokenize", "queue", "compute", "gateway", "network and browser"]
    assert [name for name, _, _ in parts] == names
    compute = next(float(value) for name, value, _ in parts if name == "compute")
    assert compute > 0
    summary = opened.texts(".summary > *")
    assert summary[1] == "5 documents"
    assert summary[2].endswith(" tokens")


def test_the_command_asks_the_same(opened: Any, embedder: str) -> None:
    opened.rerank('it\'s a "quoted" query', ["don't", "$HOME `id`"])
    command = opened.text(".curl pre")
    assert command.startswith(f"curl '{embedder}v2/rerank'")
    assert """it'\\''s a \\"quoted\\" query""" in command


def test_documents_are_text_and_never_html(opened: Any) -> None:
    hostile = [
        "<img src=x onerror='window.hit = 1'>",
        "</p></li><script>window.hit = 2</script>",
        "<svg onload=window.hit=3>",
        "&lt;b&gt; &amp; <b>bold</b>",
        "javascript:window.hit=4",
    ]
    ranked = opened.rerank("<script>window.hit = 5</script>", hostile)
    assert sorted(text for _, _, text in ranked) == sorted(hostile)
    inside = ".ranked img, .ranked script, .ranked svg, .ranked b"
    assert opened.all(inside) == []
    assert opened.run("return window.hit") is None


def test_directions_follow_the_text(opened: Any) -> None:
    texts = ["שלום עולם, זה מבחן", "Left to right", "مرحبا بالعالم"]
    opened.rerank("سلام", texts)
    directions = opened.run(
        "return Object.fromEntries([...document.querySelectorAll('.ranked .text')].map((text) =>"
        " [text.textContent, getComputedStyle(text).direction]))"
    )
    assert directions == {texts[0]: "rtl", texts[1]: "ltr", texts[2]: "rtl"}
    assert (
        opened.run("return getComputedStyle(document.querySelector('#query')).direction") == "rtl"
    )


def test_long_texts_are_folded_and_unfold(opened: Any) -> None:
    long = "a wall of words " * 200
    opened.rerank("words", [long, "short"])
    (button,) = opened.all(".ranked .link")
    text = opened.find(".ranked .text.clamped")
    folded = text.size["height"]
    assert button.text == f"Show all {len(long):,} characters"
    button.click()
    assert text.size["height"] > 3 * folded
    assert (button.text, button.get_attribute("aria-expanded")) == ("Show less", "true")
    button.click()
    assert text.size["height"] == folded


def test_cut_documents_are_reported(opened: Any) -> None:
    opened.rerank("words", ["word " * 2000, "short"])
    (warning,) = opened.texts(".warnings li")
    assert warning.startswith("documents[0] was truncated: ")


def test_many_documents(opened: Any) -> None:
    opened.rerank("number", [f"document number {number}" for number in range(250)])
    assert len(opened.ranked()) == 100
    more = opened.find("#rerank-results > button")
    assert more.text == "Show all 250"
    more.click()
    ranked = opened.ranked()
    assert [rank for rank, _, _ in ranked] == list(range(1, 251))
    assert len({text for _, _, text in ranked}) == 250


def test_separators_and_top_n(opened: Any) -> None:
    opened.fill("#documents", "one\nline each\n\n  \nthird")
    opened.choose("#separator", "line")
    assert opened.text("#document-count") == "(3)"
    opened.choose("#separator", "blank")
    assert opened.text("#document-count") == "(2)"
    opened.find("#top-n").send_keys("1")
    opened.submit("#rerank")
    assert len(opened.ranked()) == 1


@pytest.mark.parametrize(
    ("query", "documents", "top_n", "message"),
    [
        ("  ", '["a"]', "", "Query: write something to rank by."),
        ("q", "[]", "", "Documents: write at least one."),
        ("q", "not json", "", "Documents are not JSON: "),
        ("q", '{"a": 1}', "", "Documents must be a JSON list of strings."),
        ("q", '["a", 1]', "", "Documents: entry 1 of the JSON list is not a string."),
        ("q", '["a"]', "-3", "Number of results: must be a whole number, at least 1."),
        # What only the server knows.
        ("q", json.dumps(["a"] * 10_001), "", "Error 400: invalid request: documents: has 10001"),
    ],
)
def test_what_is_wrong_is_said(
    opened: Any, query: str, documents: str, top_n: str, message: str
) -> None:
    opened.choose("#separator", "json")
    opened.fill("#query", query)
    opened.fill("#documents", documents)
    opened.fill("#top-n", top_n)
    opened.run("document.querySelector('#rerank-form').noValidate = true")
    opened.submit("#rerank")
    assert opened.text("#rerank-error").startswith(message)
    assert opened.find("#rerank-error").is_displayed()
    assert opened.all(".ranked") == []
    # The browser notes the 400; nothing else.
    assert all("status of 400" in complaint for complaint in opened.complaints())


def test_keys_alone_are_enough(opened: Any) -> None:
    field = opened.find("#documents")
    field.send_keys(Keys.CONTROL, Keys.ENTER)
    opened.wait_for("results", lambda: len(opened.ranked()) == 5)
    tab = opened.find("#rerank-tab")
    tab.send_keys(Keys.ARROW_RIGHT)
    focused = opened.driver.switch_to.active_element
    assert focused.get_attribute("id") == "similarity-tab"
    assert opened.find("#similarity").is_displayed()
    assert not opened.find("#rerank").is_displayed()


def test_similarities(opened: Any) -> None:
    opened.find("#similarity-tab").click()
    opened.fill("#texts", "A cat sleeps.\nThe kitten naps.\nRates rose again.")
    opened.submit("#similarity")
    rows = opened.run(
        "return [...document.querySelectorAll('.matrix tbody tr')].map((row) =>"
        " [...row.querySelectorAll('td')].map((cell) => cell.textContent))"
    )
    cosines = [[float(text) for text in row] for row in rows]
    assert [cosines[index][index] for index in range(3)] == [1.0, 1.0, 1.0]
    assert cosines[0][1] == cosines[1][0]
    assert cosines[0][1] > 0.4 > cosines[0][2]
    assert opened.texts(".matrix tbody th")[1] == "2. The kitten naps."
    opened.fill("#texts", "alone")
    opened.submit("#similarity")
    assert opened.text("#similarity-error") == "Texts: two are needed to compare, there is 1."
