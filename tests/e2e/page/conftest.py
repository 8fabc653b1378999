"""A real browser before the gateway's page; without one these tests are skipped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("selenium", reason="the tests of the page need selenium (extra `dev`)")

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

WAIT_SECONDS = 30.0


class Page:
    """The page in a browser, and short ways to look at it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """A fresh visit: nothing is remembered of the one before."""
        self.driver.execute_cdp_cmd(
            "Storage.clearDataForOrigin", {"origin": url, "storageTypes": "all"}
        )
        self.driver.get(url)
        self.run("sessionStorage.clear(); localStorage.clear()")
        self.driver.refresh()

    def leave(self) -> None:
        """The page asks no more: what it complains about ends here."""
        self.driver.get("about:blank")

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)  # type: ignore[no-untyped-call]

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """Text of each, at one moment: parts of the page are made anew each second."""
        found = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"
        return list(self.run(found, selector))

    def text(self, selector: str) -> str:
        (text,) = self.texts(selector)
        return text

    def fill(self, selector: str, text: str) -> None:
        """Puts a text into a field at once, as pasting does."""
        self.run(
            "const [field, text] = arguments; field.value = text;"
            "field.dispatchEvent(new Event('input', { bubbles: true }))",
            self.find(selector),
            text,
        )

    def choose(self, selector: str, value: str) -> None:
        self.run(
            "const [field, value] = arguments; field.value = value;"
            "field.dispatchEvent(new Event('change', { bubbles: true }))",
            self.find(selector),
            value,
        )

    def wait_for(self, what: str, condition: Callable[[], Any]) -> Any:
        wait = WebDriverWait(
            self.driver,
            WAIT_SECONDS,
            0.05,
            [StaleElementReferenceException, IndexError, ValueError],
        )
        return wait.until(lambda _: condition(), f"no {what}")

    def wait_until_serving(self) -> None:
        self.wait_for("state Serving", lambda: self.text("#state") == "Serving")

    def rerank(self, query: str, documents: list[str]) -> list[tuple[int, float, str]]:
        """Rank, score and text of each entry that is shown."""
        self.fill("#query", query)
        self.choose("#separator", "json")
        self.fill("#documents", json.dumps(documents))
        self.submit("#rerank")
        return self.ranked()

    def submit(self, panel: str) -> None:
        """Sends the form, and waits for its results or its error."""
        self.run("document.querySelector(arguments[0]).replaceChildren()", f"{panel}-results")
        self.run("document.querySelector(arguments[0]).hidden = true", f"{panel}-error")
        self.find(f"{panel}-form [type=submit]").click()
        done = (
            "const [results, error] = [...arguments].map((one) => document.querySelector(one));"
            "return results.childElementCount > 0 || !error.hidden"
        )
        self.wait_for("answer", lambda: self.run(done, f"{panel}-results", f"{panel}-error"))

    def ranked(self) -> list[tuple[int, float, str]]:
        entries = self.run(
            "return [...document.querySelectorAll('.ranked > li')].map((one) =>"
            " ['.rank', '.score', '.text'].map((part) => one.querySelector(part).textContent))"
        )
        return [(int(rank.rstrip(".")), float(score), text) for rank, score, text in entries]

    def complaints(self) -> list[str]:
        """What the browser complained about since the last call, failed requests included."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]


@pytest.fixture(scope="session")
def chrome() -> Iterator[webdriver.Chrome]:
    browser = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    steered_by = shutil.which("chromedriver")
    if browser is None or steered_by is None:
        pytest.skip(
            "no chromium with chromedriver (Debian: apt-get install chromium chromium-driver)"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    # In a container there is neither a sandbox for root nor a large /dev/shm.
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(steered_by))
    yield driver
    driver.quit()


@pytest.fixture
def page(chrome: webdriver.Chrome) -> Iterator[Page]:
    """On a desktop, light; a test fails if the browser complained and nobody asked about what."""
    page = Page(chrome)
    page.resize(1280, 1000)
    page.prefer("light")
    page.complaints()
    yield page
    page.leave()
    complaints = page.complaints()
    assert complaints == []


@pytest.fixture(scope="package")
def embedder(serve: Any) -> Iterator[str]:
    """Address of a server of an embedding model."""
    with serve("demo", "--http-address", "127.0.0.1:0") as server:
        yield f"{server.http}/"
