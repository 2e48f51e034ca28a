"""The page of `heedful serve`, in a real browser: typing, the translations, and what goes wrong."""

import itertools
import math
import re
import shutil
from pathlib import Path

import pytest
from page_visits import (
    ENGLISH,
    GERMAN,
    LONG,
    PHONE,
    SEVERAL,
    UNSURE,
    Visit,
    chromium,
    expect,
    flawless_visit,
    page_server,
    playwright,
    visited,
)
from tiny_bundle import CALIBRATION, PAIRS, save_memorised
from translation_server import TranslationServer, translation_server

from heedful.serving.access import make_key
from heedful.storage.description import store_calibration

__all__ = ["chromium", "flawless_visit", "page_server"]  # fixtures: browser, visit, server

OUTDATED = "Translation of an earlier text"
MOST_BYTES = 150_000


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_memorised(tmp_path_factory.mktemp("own") / "tiny")


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


def test_other_translations_are_listed(visit: Visit) -> None:
    visit.type(ENGLISH)
    expect(visit.page.locator("#alternatives li")).not_to_have_count(0)
    assert GERMAN not in visit.page.locator("#alternatives .other").all_inner_texts()


def test_translations_that_are_far_less_probable_are_said_to_be(visit: Visit) -> None:
    with visit.page.expect_response("**/explain") as explained:
        visit.page.locator("#source").fill(ENGLISH)
    (sentence,) = explained.value.json()["sentences"]
    log_probs = {each["text"]: each["log_prob"] for each in sentence["hypotheses"]}
    others = visit.page.locator("#alternatives .other").all_text_contents()
    improbable = [each for each in others if log_probs[GERMAN] - log_probs.get(each, 0.0) > math.log(20)]
    assert improbable
    expect(visit.page.locator("#alternatives .other.improbable")).to_have_text(improbable)
    expect(visit.page.locator("#alternatives .note:visible")).to_have_count(len(improbable))


def in_common(one: list[str], other: list[str]) -> int:
    """The length of a longest common subsequence: of all, by trying."""
    subsequences = [
        {chosen for n in range(len(each) + 1) for chosen in itertools.combinations(each, n)}
        for each in (one, other)
    ]
    return max(map(len, subsequences[0] & subsequences[1]))


def test_words_that_differ_from_the_first_translation_are_marked(visit: Visit) -> None:
    with visit.page.expect_response("**/translate") as answered:
        visit.page.locator("#source").fill(ENGLISH)
    others = answered.value.json()["alternatives"]
    expect(visit.page.locator("#alternatives .other")).to_have_text(others)
    for place, other in enumerate(others):
        item = visit.page.locator("#alternatives .other").nth(place)
        marked = sum(len(each.split()) for each in item.locator("mark").all_text_contents())
        assert len(other.split()) - marked == in_common(other.split(), GERMAN.split())


def test_a_long_translation_is_opened_from_the_keyboard_and_shows_where_it_differs_before_that(
    browser: "playwright.Browser", server: TranslationServer
) -> None:
    visit = visited(browser, server.url, viewport=PHONE)
    with visit.page.expect_response("**/translate") as answered:
        visit.page.locator("#source").fill(SEVERAL)
    item = visit.page.locator("#alternatives li").first
    button = item.get_by_role("button", name="Show all")
    expect(button).to_have_attribute("aria-expanded", "false")
    difference, shown = item.locator("mark").first.bounding_box(), item.locator(".other").bounding_box()
    assert difference is not None
    assert shown is not None
    assert difference["y"] + difference["height"] <= shown["y"] + shown["height"] + 4
    button.focus()
    visit.page.keyboard.press("Enter")
    opened = item.get_by_role("button", name="Show less")
    expect(opened).to_be_focused()
    expect(opened).to_have_attribute("aria-expanded", "true")
    assert item.locator(".other").text_content() == answered.value.json()["alternatives"][0]
    assert item.locator(".other").evaluate("each => each.scrollHeight <= each.clientHeight")
    opened.click()
    expect(item.locator(".other")).to_have_css("height", f"{shown['height']:g}px")
    assert visit.evaluate("() => document.documentElement.scrollWidth") == PHONE["width"]
    visit.page.close()


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


def test_a_refusal_is_told_in_the_servers_words(
    browser: "playwright.Browser", bundle: Path, tmp_path: Path
) -> None:
    key = make_key(tmp_path / "keys.json", "ann")
    with translation_server(f"en-de={bundle}", "--keys", tmp_path / "keys.json") as own:
        visit = visited(browser, own.url)
        visit.page.locator("#source").fill(ENGLISH)
        expect(visit.page.locator("#problem")).to_contain_text(
            own.post("/translate", {"q": ENGLISH, "source": "en", "target": "de"}).json["error"]
        )
        visit.page.get_by_label("API key").fill(key)
        visit.page.keyboard.press("Enter")
        visit.shows(GERMAN)
        expect(visit.page.locator("#problem")).to_be_hidden()
        visit.page.close()


def test_a_text_over_the_limit_is_not_sent_and_the_counter_says_by_how_much_to_shorten_it(
    visit: Visit,
) -> None:
    sent: list[str] = []
    visit.page.on("request", lambda request: sent.append(request.post_data or ""))
    visit.explained()
    visit.page.locator("#source").fill("a" * 5200)
    expect(visit.page.locator("#count")).to_have_text("5,200 of 5,000 characters")
    expect(visit.page.locator("#count")).to_have_css("color", "rgb(163, 52, 31)")
    expect(visit.page.locator("#shorten")).to_have_text("Shorten the text by 200 characters.")
    expect(visit.page.locator("#shorten")).to_be_in_viewport()
    expect(visit.page.locator("#source")).to_have_attribute("aria-invalid", "true")
    expect(visit.page.locator("#live")).to_have_text("Shorten the text by 200 characters.")
    expect(visit.page.locator("#remark")).to_have_text(OUTDATED)
    expect(visit.page.locator("#copy")).to_be_disabled()
    visit.page.locator("#source").fill("a" * 5001)
    expect(visit.page.locator("#shorten")).to_have_text("Shorten the text by 1 character.")
    visit.page.locator("#source").fill(PAIRS[1][0])
    visit.shows(PAIRS[1][1])
    expect(visit.page.locator("#shorten")).to_be_empty()
    expect(visit.page.locator("#remark")).to_be_empty()
    expect(visit.page.locator("#source")).to_have_attribute("aria-invalid", "false")
    assert max(map(len, sent)) < 5000


def test_a_translation_of_an_earlier_text_is_marked_and_cannot_be_copied(visit: Visit) -> None:
    visit.explained()
    copies = visit.page.get_by_role("button", name=re.compile("^Copy(:|$)"))
    expect(copies).to_have_count(4)  # the translation, and three others
    visit.page.route("**/translate", lambda route: route.abort())
    visit.page.locator("#source").fill(PAIRS[1][0])
    expect(visit.page.locator("#problem")).to_contain_text("The server does not answer")
    visit.shows(GERMAN)
    expect(visit.page.locator("#remark")).to_have_text(OUTDATED)
    for button in [visit.page.locator("#copy"), *visit.page.locator("#alternatives .copy").all()]:
        expect(button).to_be_disabled()
    expect(visit.page.locator("#output .w")).to_have_count(0)
    assert visit.evaluate("() => document.getElementById('inside').inert") is True
    visit.page.unroute("**/translate")
    visit.page.locator("#problem button").click()
    visit.shows(PAIRS[1][1])
    expect(visit.page.locator("#copy")).to_be_enabled()
    expect(visit.page.locator("#remark")).to_be_empty()
    visit.page.locator("#output .w").first.wait_for()
    assert visit.evaluate("() => document.getElementById('inside').inert") is False
    visit.complaints.clear()  # the browser's own lines on the requests that were broken off


def test_an_earlier_translation_cannot_be_copied_while_a_new_one_is_awaited(visit: Visit) -> None:
    visit.type(ENGLISH)
    visit.shows(GERMAN)
    expect(visit.page.locator("#copy")).to_be_enabled()
    waiting = visit.hold("**/translate")
    with visit.page.expect_request("**/translate"):
        visit.page.locator("#source").fill(PAIRS[1][0])
    expect(visit.page.locator("#copy")).to_be_disabled()
    waiting[0].continue_()
    visit.shows(PAIRS[1][1])
    expect(visit.page.locator("#copy")).to_be_enabled()


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


@pytest.mark.parametrize("text", [ENGLISH, " ".join([SEVERAL] * 2), LONG, "W" * 300])
def test_a_phone_needs_no_scrolling_sideways(
    browser: "playwright.Browser", server: TranslationServer, text: str
) -> None:
    visit = visited(browser, server.url, viewport=PHONE)
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


def violations(visit: Visit) -> list[tuple[str, list[str]]]:
    """Return what axe finds on a page that was opened without its content security policy."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    found = axe.run(visit.page).response["violations"]
    return [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: "playwright.Browser", server: TranslationServer, scheme: str) -> None:
    visit = visited(browser, server.url, color_scheme=scheme, bypass_csp=True)
    assert violations(visit) == []
    visit.explained()
    for tab in ("#tab-beam", "#tab-attention"):
        visit.page.locator(tab).click()
        assert violations(visit) == []
    visit.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_a_translation_that_is_unsure_and_then_outdated(
    browser: "playwright.Browser", server: TranslationServer, scheme: str
) -> None:
    visit = visited(browser, server.url, color_scheme=scheme, bypass_csp=True, viewport=PHONE)
    visit.page.locator("#to").select_option("fr")
    visit.page.locator("#source").fill(SEVERAL)
    expect(visit.page.locator("#remark")).to_have_text(UNSURE)
    visit.page.locator("#alternatives .open:visible").first.click()
    assert violations(visit) == []
    visit.page.locator("#source").fill("a" * 5200)
    expect(visit.page.locator("#shorten")).not_to_be_empty()
    expect(visit.page.locator("#remark")).to_have_text(OUTDATED)
    assert violations(visit) == []
    visit.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_a_problem_and_a_translation_through_another_language(
    browser: "playwright.Browser", server: TranslationServer, scheme: str
) -> None:
    visit = visited(browser, server.url, color_scheme=scheme, bypass_csp=True)
    visit.page.locator("#from").select_option("de")
    visit.page.locator("#to").select_option("fr")
    visit.page.locator("#source").fill(GERMAN)
    expect(visit.page.locator("#beyond")).to_be_visible()
    assert violations(visit) == []
    visit.page.route("**/translate", lambda route: route.abort())
    visit.page.locator("#source").fill(ENGLISH)
    expect(visit.page.locator("#problem")).to_be_visible()
    assert violations(visit) == []
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
        visit.page.locator("#source").fill(PAIRS[1][0])
        expect(visit.page.locator("#problem")).to_contain_text("The server does not answer")
        expect(visit.page.locator("#problem button")).to_have_text("Try again")
        expect(visit.page.locator("#copy")).to_be_disabled()
        expect(visit.page.locator("#remark")).to_have_text(OUTDATED)
        visit.page.close()


def test_a_sentence_that_a_calibrated_model_is_unsure_of_is_marked_and_named(
    browser: "playwright.Browser", bundle: Path, tmp_path: Path
) -> None:
    path = tmp_path / "sure"
    shutil.copytree(bundle, path)
    store_calibration(path, CALIBRATION)
    with translation_server(f"en-de={path}") as own:
        visit = visited(browser, own.url, bypass_csp=True)
        marks = visit.page.locator("#output mark.unsure")
        visit.page.locator("#source").fill(f"{PAIRS[0][0]}\nsleep does cat\n{PAIRS[1][0]}")
        expect(visit.page.locator("#remark")).to_have_text("The model is unsure of sentence 2 of 3.")
        expect(marks).to_have_count(1)
        expect(marks).to_have_attribute(
            "title", re.compile(r"The model is unsure of this sentence: [1-7]?\d % confidence")
        )
        visit.page.locator("#output mark.unsure .w").first.hover()
        expect(visit.page.locator("#word")).to_have_text(re.compile(r"\d %, confidence \d+ %, attended to"))
        expect(visit.page.locator("#output .w")).not_to_have_count(0)
        text = visit.page.locator("#output").text_content()
        assert text is not None
        assert text.split("\n")[::2] == [PAIRS[0][1], PAIRS[1][1]]
        assert marks.text_content() == text.split("\n")[1]
        assert violations(visit) == []
        visit.page.locator("#source").fill("sleep does cat")
        expect(visit.page.locator("#remark")).to_have_text("The model is unsure of this sentence.")
        visit.page.locator("#source").fill(ENGLISH)
        visit.shows(GERMAN)
        expect(marks).to_have_count(0)
        expect(visit.page.locator("#remark")).to_be_empty()
        visit.page.close()


def test_a_translation_that_is_corrected_stays_so_until_it_is_undone(
    browser: "playwright.Browser", bundle: Path, tmp_path: Path
) -> None:
    with translation_server(f"en-de={bundle}", "--memories", tmp_path) as own:
        visit = visited(browser, own.url, bypass_csp=True, viewport=PHONE)
        visit.type(ENGLISH)
        visit.shows(GERMAN)
        for better in (GERMAN.replace(" ", "  "), f"{GERMAN}!"):
            visit.page.get_by_role("button", name="Correct").click()
            field = visit.page.get_by_label("Better translation")
            expect(field).to_have_value(visit.page.locator("#output").inner_text())
            field.fill(better)
            assert violations(visit) == []
            visit.page.get_by_role("button", name="Keep").click()
            visit.shows(better)
        visit.page.get_by_role("button", name="Undo").click()
        visit.shows(GERMAN.replace(" ", "  "))
        visit.page.get_by_role("button", name="Correct").click()
        visit.page.get_by_label("Better translation").fill(ENGLISH)
        visit.page.get_by_role("button", name="Keep").click()
        expect(visit.page.locator("#correction-says")).to_contain_text("not used")
        visit.page.get_by_role("button", name="Use it").click()
        visit.shows(ENGLISH)
        assert visit.complaints == []
        visit.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_terms_of_a_glossary_are_marked_and_those_that_are_missing_are_named(
    browser: "playwright.Browser", bundle: Path, tmp_path: Path, scheme: str
) -> None:
    path = tmp_path / "sure"
    shutil.copytree(bundle, path)
    store_calibration(path, CALIBRATION)
    with translation_server(f"en-de={path}", "--glossaries", tmp_path / "glossaries.json") as own:
        cats = {"name": "Cats", "source_lang": "en", "target_lang": "de"}
        entries = "cat\tKater\ndog\tHund\nsees the dog\tder Kater\nsleeps\t猫"  # no model writes the last
        assert own.post("/v2/glossaries", {**cats, "entries": entries}).status == 201
        visit = visited(browser, own.url, color_scheme=scheme, bypass_csp=True, viewport=PHONE)
        visit.page.locator("#to").select_option("de")
        visit.page.get_by_label("Glossary").select_option("Cats")
        with visit.page.expect_response("**/translate") as answered:
            lines = ["🐈\u200d⬛ 12", "does the dog sleep ?", "the cat sees the dog .", "the cat sleeps ."]
            visit.page.locator("#source").fill("\n".join(lines))
        answer = answered.value.json()
        expect(visit.page.locator("#remark")).to_have_text(
            re.compile(r"The model is unsure of .*\. Not kept: sleeps\.$")
        )
        expect(visit.page.locator("#output")).to_have_text(answer["translatedText"])
        marks = visit.page.locator("#output .term")
        text = answer["translatedText"]
        placed = [
            (span["start"], span["end"], term["source"]) for term in answer["terms"] for span in term["spans"]
        ]
        shown = marks.evaluate_all("marks => marks.map((each) => [each.textContent, each.title])")
        assert {word for mark, _ in shown for word in mark.split()} == {"der", "Kater", "Hund"}
        for start, end, source in placed:
            entry = f"{source} → {text[start:end]}"
            assert any(text[start:end] in mark and entry in title for mark, title in shown)
        assert all(title.endswith(", from the glossary") for _, title in shown)
        assert visit.page.locator("#output .unsure .term").count() > 0
        assert violations(visit) == []

        described = visit.page.locator("#output").aria_snapshot()
        assert described.count("mark: ") >= len(shown)
        visit.page.locator("#output").focus()
        visit.page.keyboard.press("ArrowRight")
        expect(visit.page.locator("#word")).to_have_text(shown[0][1])
        expect(visit.page.locator("#live")).to_have_text(shown[0][1])
        visit.page.keyboard.press("Shift+Tab")
        visit.page.emulate_media(forced_colors="active")
        expect(marks.first).to_have_css("text-decoration-line", "underline")
        visit.page.get_by_label("Glossary").select_option("None")
        expect(marks).to_have_count(0)
        expect(visit.page.locator("#remark")).to_be_empty()
        assert visit.complaints == []
        visit.page.close()
