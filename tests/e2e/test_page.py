"""The page of `heedful serve`, in a real browser, over a model that knows six sentences."""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tiny_bundle import PAIRS, save_memorised
from translation_server import TranslationServer, translation_server

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("there is no Chromium; $CHROMIUM says where one is", allow_module_level=True)

ENGLISH, GERMAN = PAIRS[0]
MOST_BYTES = 150_000
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

    def evaluate(self, code: str) -> object:
        return self.page.evaluate(code)


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_memorised(tmp_path_factory.mktemp("page") / "tiny")


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[TranslationServer]:
    with translation_server(f"en-de,de-en={bundle}") as running:
        yield running


def visited(browser: "playwright.Browser", url: str, **context: object) -> Visit:
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


@pytest.fixture
def visit(browser: "playwright.Browser", server: TranslationServer) -> Iterator[Visit]:
    """A visit that must end without complaints and without a request to another host."""
    found = visited(browser, server.url, viewport={"width": 1100, "height": 900})
    yield found
    found.page.close()
    assert found.complaints == []
    assert [each for each in found.requests if not each.startswith(server.url)] == []


def test_a_text_is_translated_as_it_is_typed(visit: Visit) -> None:
    visit.type(ENGLISH)
    visit.shows(GERMAN)
    visit.type(PAIRS[2][0])
    visit.shows(PAIRS[2][1])
    expect(visit.page.locator("#live")).to_have_text(PAIRS[2][1])
    visit.page.locator("#clear").click()
    visit.shows("")
    expect(visit.page.locator("#examples button").first).to_be_visible()


def test_the_language_is_detected_and_a_text_in_the_target_language_turns_the_direction(visit: Visit) -> None:
    visit.page.locator("#from").select_option("auto")
    visit.page.locator("#to").select_option("en")
    visit.page.locator("#source").fill("The old house is small, and the children are playing in the garden.")
    expect(visit.page.locator("#to")).to_have_value("de")
    expect(visit.page.locator("#from option").first).to_have_text("English (detected)")


def test_a_late_answer_does_not_take_the_place_of_a_newer_one(visit: Visit) -> None:
    waiting: list[playwright.Route] = []

    def hold_the_first(route: "playwright.Route") -> None:
        if waiting:
            route.continue_()
        else:
            waiting.append(route)

    visit.page.route("**/translate", hold_the_first)
    visit.type(ENGLISH)
    visit.page.wait_for_timeout(400)
    assert len(waiting) == 1
    visit.type(PAIRS[1][0])
    visit.shows(PAIRS[1][1])
    waiting[0].abort()
    visit.page.wait_for_timeout(200)
    visit.shows(PAIRS[1][1])
    visit.complaints.clear()  # the browser reports the request that was given up


def test_a_word_lights_up_with_what_it_attended_to(visit: Visit) -> None:
    visit.explained()
    visit.page.locator("#output .w", has_text="Katze").hover()
    expect(visit.page.locator("#output .w.on")).to_have_text("Katze")
    assert visit.page.locator("#mirror .w.lit").count() >= 1
    expect(visit.page.locator("#word")).to_contain_text("Katze: ")
    expect(visit.page.locator("#word")).to_contain_text("%")
    box = visit.page.locator("#mirror .w", has_text="cat").bounding_box()
    assert box is not None
    visit.page.mouse.move(box["x"] + 5, box["y"] + 5)  # the text field lies above it
    expect(visit.page.locator("#mirror .w.on")).to_have_text("cat")
    assert visit.page.locator("#output .w.lit").count() >= 1


def test_words_light_up_from_the_keyboard(visit: Visit) -> None:
    visit.explained()
    visit.page.locator("#output").focus()
    visit.page.keyboard.press("ArrowRight")
    expect(visit.page.locator("#output .w.on")).to_have_text("die")
    visit.page.keyboard.press("ArrowRight")
    expect(visit.page.locator("#output .w.on")).to_have_text("Katze")
    expect(visit.page.locator("#live")).to_contain_text("Katze: ")
    visit.page.locator("#source").focus()
    visit.page.keyboard.press("Home")
    expect(visit.page.locator("#mirror .w.on")).to_have_text("the")


def test_tabs_are_switched_from_the_keyboard(visit: Visit) -> None:
    visit.explained()
    visit.page.locator("#tab-attention").focus()
    visit.page.keyboard.press("ArrowRight")
    expect(visit.page.locator("#tab-beam")).to_be_focused()
    expect(visit.page.locator("#tab-beam")).to_have_attribute("aria-selected", "true")
    expect(visit.page.locator("#panel-attention")).to_be_hidden()
    expect(visit.page.locator("#panel-beam .tree .segment.best").first).to_contain_text("die")
    expect(visit.page.locator("#panel-beam tbody tr")).to_have_count(4)
    visit.page.keyboard.press("Home")
    expect(visit.page.locator("#panel-attention")).to_be_visible()


def test_maps_are_chosen_by_kind_layer_and_head(visit: Visit) -> None:
    visit.explained()
    panel = visit.page.locator("#panel-attention")
    expect(panel.locator(".head")).to_have_count(2)  # one for each layer
    for kind in ("encoder", "decoder", "cross"):
        panel.get_by_label("Kind of attention").select_option(kind)
        panel.get_by_label("Layer", exact=True).select_option("2")
        expect(panel.locator(".head")).to_have_count(5)  # the mean, and four heads
        panel.locator(".head").nth(3).click()
        expect(panel.locator(".head").nth(3)).to_have_attribute("aria-pressed", "true")
        expect(panel.locator(".heat canvas")).to_have_attribute("aria-label", re.compile("head 3"))
    panel.locator(".heat canvas").focus()
    visit.page.keyboard.press("ArrowDown")
    expect(panel.locator(".readout")).to_contain_text(" → ")


def test_other_translations_are_listed(visit: Visit) -> None:
    visit.type(ENGLISH)
    expect(visit.page.locator("#alternatives li")).not_to_have_count(0)
    assert GERMAN not in visit.page.locator("#alternatives li span").all_inner_texts()


def test_languages_are_swapped_where_there_is_a_way_back(visit: Visit) -> None:
    visit.type(ENGLISH)
    visit.shows(GERMAN)
    visit.page.locator("#swap").click()
    expect(visit.page.locator("#source")).to_have_value(GERMAN)
    expect(visit.page.locator("#from")).to_have_value("de")
    expect(visit.page.locator("#to")).to_have_value("en")


def test_a_link_brings_the_text_back_and_the_server_never_sees_it(
    visit: Visit, browser: "playwright.Browser", server: TranslationServer
) -> None:
    visit.page.locator("#from").select_option("en")
    visit.type(ENGLISH)
    visit.shows(GERMAN)
    visit.page.wait_for_function(
        "text => new URLSearchParams(location.hash.slice(1)).get('text') === text", arg=ENGLISH
    )
    address = visit.page.url
    assert "cat" not in address.split("#")[0]
    other = visited(browser, address)
    other.shows(GERMAN)
    expect(other.page.locator("#from")).to_have_value("en")
    assert not any("cat" in each.split("#")[0] for each in other.requests)
    other.page.close()


def test_a_mistake_is_told_in_the_servers_words(visit: Visit) -> None:
    visit.page.locator("#source").fill("a" * 5001)
    expect(visit.page.locator("#problem")).to_contain_text("request (5001) exceeds text limit (5000)")
    visit.type(ENGLISH)
    visit.shows(GERMAN)
    expect(visit.page.locator("#problem")).to_be_hidden()
    assert all("400" in each for each in visit.complaints)  # the browser's own lines
    visit.complaints.clear()


def test_too_many_requests_are_counted_down_and_asked_again(visit: Visit) -> None:
    asked = []

    def refuse_the_first(route: "playwright.Route") -> None:
        asked.append(route)
        if len(asked) > 1:
            return route.continue_()
        body = '{"error": "Slowdown: 60 per 1 minute"}'
        return route.fulfill(status=429, headers={"Retry-After": "2"}, body=body)

    visit.page.route("**/translate", refuse_the_first)
    visit.page.locator("#source").fill(ENGLISH)
    expect(visit.page.locator("#problem")).to_contain_text("Slowdown: 60 per 1 minute")
    expect(visit.page.locator("#problem")).to_contain_text("Trying again in 1 second.")
    visit.shows(GERMAN)
    visit.complaints.clear()


def test_without_torch_the_tabs_are_hidden(visit: Visit) -> None:
    visit.page.route("**/explain", lambda route: route.fulfill(status=501, body='{"error": "no torch"}'))
    visit.type(ENGLISH)
    visit.shows(GERMAN)
    visit.page.wait_for_timeout(300)
    expect(visit.page.locator("#inside")).to_be_hidden()
    expect(visit.page.locator("#problem")).to_be_hidden()
    asked = sum(each.endswith("/explain") for each in visit.requests)
    visit.type(PAIRS[1][0])
    visit.shows(PAIRS[1][1])
    assert sum(each.endswith("/explain") for each in visit.requests) == asked == 1
    visit.complaints.clear()


@pytest.mark.parametrize("text", [ENGLISH, " ".join(english for english, _ in PAIRS * 3), "W" * 300])
def test_a_phone_needs_no_scrolling_sideways(
    browser: "playwright.Browser", server: TranslationServer, text: str
) -> None:
    visit = visited(browser, server.url, viewport={"width": 360, "height": 700})
    wide = "() => document.documentElement.scrollWidth"
    assert visit.evaluate(wide) == 360
    visit.page.locator("#source").fill(text)
    visit.page.locator("#output .w").first.wait_for()
    for tab in ("#tab-attention", "#tab-beam"):
        visit.page.locator(tab).click()
        assert visit.evaluate(wide) == 360
    assert visit.complaints == []
    visit.page.close()


def test_text_from_right_to_left_is_set_so(visit: Visit) -> None:
    visit.page.locator("#source").fill("החתול ישן .")
    visit.page.locator("#output .w").first.wait_for()
    directions = (
        "() => ['source', 'mirror'].map((id) => getComputedStyle(document.getElementById(id)).direction)"
    )
    assert visit.evaluate(directions) == ["rtl", "rtl"]


def test_the_theme_is_the_systems_until_one_is_chosen(
    browser: "playwright.Browser", server: TranslationServer
) -> None:
    visit = visited(browser, server.url, color_scheme="dark")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    dark = visit.evaluate(ground)
    visit.page.locator("#theme").click()
    light = visit.evaluate(ground)
    assert light != dark
    visit.page.reload()
    assert visit.evaluate(ground) == light
    visit.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: "playwright.Browser", server: TranslationServer, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    visit = visited(browser, server.url, color_scheme=scheme, bypass_csp=True)
    found = axe.run(visit.page).response["violations"]
    visit.explained()
    for tab in ("#tab-beam", "#tab-attention"):
        visit.page.locator(tab).click()
        found += axe.run(visit.page).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
    visit.page.close()


def test_the_page_is_small_and_allows_no_script_but_its_own(visit: Visit, server: TranslationServer) -> None:
    visit.explained()
    sent = {each.split("#")[0] for each in visit.requests if "/static/" in each or each == f"{server.url}/"}
    paths = [each.removeprefix(server.url) or "/" for each in sent] + ["/"]
    assert sum(len(server.ask("GET", path).body) for path in set(paths)) < MOST_BYTES
    front = server.ask("GET", "/")
    assert "default-src 'self'" in front.headers["content-security-policy"]
    assert b"style=" not in front.body
    again = server.ask("GET", "/", headers={"If-None-Match": front.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert server.ask("GET", "/static/..%2Fpage.py").status == 404


def test_a_server_that_is_gone_is_told(browser: "playwright.Browser", bundle: Path) -> None:
    with translation_server(f"en-de={bundle}") as own:
        visit = visited(browser, own.url)
        visit.type(ENGLISH)
        visit.shows(GERMAN)
        own.terminate()
        visit.type(PAIRS[1][0])
        expect(visit.page.locator("#problem")).to_contain_text("The server does not answer")
        expect(visit.page.locator("#problem button")).to_have_text("Try again")
        visit.page.close()
