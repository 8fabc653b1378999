"""State, model, charts, keys, sizes and themes of the page, in a browser."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys


def post(url: str, path: str, body: Any) -> Any:
    data = json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def test_what_is_served(page: Any, embedder: str) -> None:
    page.open(embedder)
    page.wait_until_serving()
    assert page.text("#state") == "Serving"
    assert "version 0.1.0" in page.text("#facts")
    facts = dict(zip(page.texts("#models dt"), page.texts("#models dd"), strict=True))
    with urllib.request.urlopen(f"{embedder}status", timeout=60) as response:
        (model,) = json.load(response)["models"]
    assert page.text("#models h3") == model["name"]
    assert facts["Task"] == "embeds"
    assert facts["CUDA graphs"] == "none on a CPU"
    assert facts["Dimensions"] == "384"
    assert facts["Fingerprint"] == model["fingerprint"]
    assert page.texts("#replicas h3") == ["this process"]
    assert page.texts("#replicas .pill") == ["ready"]


def test_nothing_comes_from_elsewhere(page: Any, embedder: str) -> None:
    page.open(embedder)
    page.wait_until_serving()
    names = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
    assert [name for name in page.run(names) if not name.startswith(embedder)] == []
    # The policy is there and bites: a script from inside the document does not run.
    page.run(
        "const script = document.createElement('script'); script.textContent = 'window.hit = 1';"
        "document.body.append(script)"
    )
    assert page.run("return window.hit") is None
    assert any("Content Security Policy" in complaint for complaint in page.complaints())


def test_charts_move_with_the_work(page: Any, embedder: str) -> None:
    page.open(embedder)
    page.wait_until_serving()

    def shown(chart: int) -> list[str]:
        return page.texts(f".chart:nth-child({chart}) .readout b")

    def work() -> bool:
        post(embedder, "v2/rerank", {"query": "ivy", "documents": ["a wall", "a rose"]})
        answered, tokens, p50 = shown(1)[0], shown(2)[0], shown(4)[0]
        return answered not in "–0" and tokens not in "–0" and p50.endswith("s")

    page.wait_for("work in the charts", work)
    trace = ".chart:nth-child(1) .trace"
    page.wait_for("line", lambda: "L" in page.find(trace).get_attribute("d"))
    label = page.find(".chart:nth-child(4) svg").get_attribute("aria-label")
    assert label.startswith("Latency, line chart. p50 ")


def test_a_chart_is_read_with_keys(page: Any, embedder: str) -> None:
    page.open(embedder)
    page.wait_until_serving()
    chart = page.find(".chart svg")
    page.run("arguments[0].focus()", chart)
    chart.send_keys(Keys.ARROW_LEFT)
    assert len(page.all(".chart:first-child .cursor")) == 1
    assert page.text(".chart:first-child .when").count(":") == 2
    chart.send_keys(Keys.ESCAPE)
    assert page.all(".cursor") == []


def test_pausing_holds_the_charts(page: Any, embedder: str) -> None:
    page.open(embedder)
    page.wait_until_serving()
    page.find("#pause").click()
    assert page.find("#pause").get_attribute("aria-pressed") == "true"
    trace = ".chart:nth-child(3) .trace"
    before = page.find(trace).get_attribute("d")
    uptime = page.text("#facts")
    page.wait_for("next look", lambda: page.text("#facts") != uptime)
    assert page.find(trace).get_attribute("d") == before
    page.find("#pause").click()
    page.wait_for("moving chart", lambda: page.find(trace).get_attribute("d") != before)


def test_a_key_is_asked_for_and_used(page: Any, serve: Any) -> None:
    with serve("demo", "--http-address", "127.0.0.1:0", "--api-key", "secret") as server:
        page.open(f"{server.http}/")
        page.wait_for("form for the key", lambda: page.find("#key-form").is_displayed())
        assert page.text("#state") == "Key needed"
        page.submit("#rerank")
        assert page.text("#rerank-error").startswith("Error 401: no api key supplied")
        page.find("#key").send_keys("wrong", Keys.ENTER)
        page.wait_for(
            "refusal", lambda: page.text("#trouble") == "The server does not know this key."
        )
        page.find("#key").send_keys("secret", Keys.ENTER)
        page.wait_until_serving()
        assert not page.find("#key-form").is_displayed()
        assert not page.find("#trouble").is_displayed()
        page.submit("#rerank")
        assert len(page.ranked()) == 5
        assert "Bearer $IVY_API_KEY" in page.text(".curl pre")
        assert "secret" not in page.driver.page_source
        page.leave()
    assert all("401" in complaint or "ERR_" in complaint for complaint in page.complaints())


def test_a_server_that_is_gone(page: Any, serve: Any) -> None:
    with serve("demo", "--http-address", "127.0.0.1:0") as server:
        page.open(f"{server.http}/")
        page.wait_until_serving()
        server.stop()
        page.wait_for("state Unreachable", lambda: page.text("#state") == "Unreachable")
        assert page.text("#trouble").startswith("No answer: the server cannot be reached")
        assert page.find("#trouble").get_attribute("role") == "alert"
        # What was known is still there.
        assert page.text("#models h3") != ""
        page.submit("#rerank")
        assert page.text("#rerank-error").startswith("No answer: the server cannot be reached")
        page.leave()
    assert all("ERR_" in complaint for complaint in page.complaints())


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_is_wider_than_the_screen(page: Any, embedder: str, width: int) -> None:
    page.resize(width, 844)
    page.open(embedder)
    page.wait_until_serving()
    page.rerank("wide", ["long" * 400, "https://example.org/" + "a/" * 300, "short"])
    assert page.run("return document.documentElement.scrollWidth") <= width


def test_themes(page: Any, embedder: str) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    page.open(embedder)
    light = page.run(ground)
    page.prefer("dark")
    dark = page.run(ground)
    assert dark != light
    button = page.find("#theme")
    button.click()
    assert (button.text, page.run(ground)) == ("Theme: light", light)
    page.driver.refresh()
    assert (page.find("#theme").text, page.run(ground)) == ("Theme: light", light)
    page.prefer("light")
    page.find("#theme").click()
    assert (page.find("#theme").text, page.run(ground)) == ("Theme: dark", dark)


def test_every_control_has_a_name(page: Any, embedder: str) -> None:
    page.open(embedder)
    page.wait_until_serving()
    page.submit("#rerank")
    controls = page.all("a, button, input, select, textarea, summary, svg[tabindex], [role=tab]")
    shown = [control for control in controls if control.is_displayed()]
    assert len(shown) > 12
    nameless = [
        control.get_attribute("outerHTML") for control in shown if not control.accessible_name
    ]
    assert nameless == []


def test_the_page_of_the_fields(page: Any, embedder: str) -> None:
    page.driver.get(f"{embedder}docs")
    page.wait_for("routes", lambda: "/v2/rerank" in page.texts("summary code"))
    assert {"OpenAI", "Cohere", "Jina", "TEI"} <= set(page.texts("h2"))
