"""The page of `heedful serve` in a real browser: a model knows six sentences, another one nothing."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from tiny_bundle import PAIRS, save_memorised, save_untrained
from translation_server import TranslationServer, translation_server

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("there is no Chromium; $CHROMIUM says where one is", allow_module_level=True)

ENGLISH, GERMAN = PAIRS[0]
LONG = "the cat sees the dog " * 12 + "."  # one sentence
SEVERAL = "\n".join(english for english, _ in PAIRS * 2)
PHONE = {"width": 360, "height": 700}
UNSURE = "The model is unsure of this translation."
expect = playwright.expect
expect.set_options(timeout=30_000)  # the machine may have much else to do


@dataclass
class Visit:
    """A page that is open, and what the browser had to say about it."""

    page: "playwright.Page"
    url: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def type(self, text: str) -> None:
        self.page.locator("#source").fill("")
        self.page.locator("#source").press_sequentially(text)

    def shows(self, text: str) -> None:
        expect(self.page.locator("#output")).to_have_text(text)

    def explained(self, text: str = ENGLISH) -> None:
        """Type a text, and wait until its words are known."""
        self.type(text)
        self.page.locator("#output .w").first.wait_for()

    def hold(self, pattern: str) -> "list[playwright.Route]":
        """Let requests wait; return the list to which each will be added."""
        waiting: list[playwright.Route] = []

        def wait(route: "playwright.Route") -> None:
            waiting.append(route)

        self.page.route(pattern, wait)
        return waiting

    def evaluate(self, code: str) -> object:
        return self.page.evaluate(code)


@pytest.fixture(scope="module", name="browser")
def chromium() -> Iterator["playwright.Browser"]:
    """Run Chromium."""
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module", name="server")
def page_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TranslationServer]:
    """Serve both models; French is of the one that knows nothing."""
    folder = tmp_path_factory.mktemp("page")
    known, untrained = save_memorised(folder / "tiny"), save_untrained(folder / "untrained")
    with translation_server(f"en-de,de-en={known}", f"en-fr={untrained}") as running:
        yield running


def visited(browser: "playwright.Browser | playwright.BrowserContext", url: str, **context: object) -> Visit:
    page = browser.new_page(**context)
    page.set_default_timeout(30_000)
    visit = Visit(page, url)
    page.on("console", lambda said: said.type in ("error", "warning") and visit.complaints.append(said.text))
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    page.on("request", lambda request: visit.requests.append(request.url))
    page.goto(url)
    expect(page.locator("#from option")).not_to_have_count(0)
    if "#" not in url:
        page.locator("#from").select_option("en")
    return visit


@pytest.fixture(name="visit")
def flawless_visit(browser: "playwright.Browser", server: TranslationServer) -> Iterator[Visit]:
    """Visit the page; at the end there must be no complaints, and no request to another host."""
    found = visited(browser, server.url, viewport={"width": 1100, "height": 900})
    yield found
    found.page.close()
    assert found.complaints == []
    assert [each for each in found.requests if not each.startswith(server.url)] == []
