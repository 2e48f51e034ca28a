"""A model as the page of `heedful serve` shows it: words, attention, the beam, and doubt."""

import itertools
import math
import re

import pytest
from page_visits import (
    ENGLISH,
    GERMAN,
    LONG,
    UNSURE,
    Visit,
    chromium,
    expect,
    flawless_visit,
    page_server,
    playwright,
    visited,
)
from tiny_bundle import PAIRS
from translation_server import TranslationServer

__all__ = ["chromium", "flawless_visit", "page_server"]  # fixtures: browser, visit, server


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
        expect(panel.locator(".heat").get_by_role("img")).to_have_attribute(
            "aria-label", re.compile("head 3")
        )
    panel.locator(".heat").get_by_role("img").focus()
    visit.page.keyboard.press("ArrowDown")
    expect(panel.locator(".readout")).to_contain_text(" → ")


def test_an_explanation_is_announced_and_nothing_moves_when_it_comes(visit: Visit) -> None:
    waiting = visit.hold("**/explain")
    with visit.page.expect_request("**/explain"):
        visit.page.locator("#source").fill(ENGLISH)
    reading = visit.page.get_by_text("Reading the attention")
    expect(reading).to_be_visible()
    expect(visit.page.get_by_role("tab")).to_have_count(0)
    tops = "() => ['#legend', '#others', '#inside'].map((id) => document.querySelector(id).offsetTop)"
    before = visit.evaluate(tops)
    waiting[0].continue_()
    visit.page.locator("#output .w").first.wait_for()
    expect(visit.page.get_by_role("tab")).to_have_count(2)
    expect(reading).to_be_hidden()
    assert visit.evaluate(tops) == before
    visit.page.unroute("**/explain")


def test_a_translation_of_improbable_words_says_so_in_a_sentence_instead_of_lines(visit: Visit) -> None:
    visit.page.locator("#to").select_option("fr")
    visit.page.locator("#source").fill(ENGLISH)
    expect(visit.page.locator("#remark")).to_have_text(UNSURE)
    word = visit.page.locator("#output .w").first
    expect(word).to_have_class(re.compile("p0"))
    expect(word).to_have_css("text-decoration-line", "none")
    expect(visit.page.locator("#legend")).to_be_hidden()
    visit.page.locator("#to").select_option("de")
    visit.shows(GERMAN)
    expect(visit.page.locator("#remark")).to_be_empty()
    expect(visit.page.locator("#legend")).to_be_visible()


def test_a_language_in_between_is_named_and_why_there_is_no_attention(visit: Visit) -> None:
    visit.page.locator("#from").select_option("de")
    visit.page.locator("#to").select_option("fr")
    visit.page.locator("#source").fill(GERMAN)
    expect(visit.page.locator("#remark")).to_have_text("Translated through English")
    expect(visit.page.locator("#beyond")).to_contain_text("No attention to show: two models translated")
    expect(visit.page.locator("#inside")).to_be_hidden()
    expect(visit.page.locator("#legend")).to_be_hidden()
    visit.page.locator("#to").select_option("en")
    visit.page.locator("#output .w").first.wait_for()
    expect(visit.page.locator("#beyond")).to_be_hidden()
    assert sum(each.endswith("/explain") for each in visit.requests) <= 2  # none of two models


LABELS = """
const write = CanvasRenderingContext2D.prototype.fillText;
window.labels = new Map();
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const at = this.getTransform();
  const place = at.transformPoint(new DOMPoint(x, y));
  const label = { text, x: place.x, y: place.y, angle: Math.atan2(at.b, at.a), size: parseFloat(this.font) };
  if (!labels.has(this.canvas)) labels.set(this.canvas, []);
  labels.get(this.canvas).push(label);
  return write.apply(this, [text, x, y]);
};
const resize = Object.getOwnPropertyDescriptor(HTMLCanvasElement.prototype, "height");
Object.defineProperty(HTMLCanvasElement.prototype, "height", {
  ...resize, set(value) { labels.delete(this); resize.set.call(this, value); },
});
"""  # what is written on the canvases now


@pytest.mark.parametrize(("text", "width"), [(ENGLISH, 1280), (ENGLISH, 360), (LONG, 1280), (LONG, 360)])
def test_labels_of_a_map_do_not_overlap(
    browser: "playwright.Browser", server: TranslationServer, text: str, width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900})
    context.add_init_script(LABELS)
    visit = visited(context, server.url)
    visit.page.locator("#source").fill(text)
    visit.page.locator("#panel-attention .head").first.wait_for()
    written = visit.evaluate(
        "() => [...document.querySelectorAll('.heat canvas')].map((each) => labels.get(each) ?? [])"
    )
    assert isinstance(written, list)
    assert sum(map(len, written)) >= 2 * len(text.split()[:6])
    for labels in written:
        for one, other in itertools.pairwise(labels):
            if one["angle"] == other["angle"]:
                across = (other["x"] - one["x"]) * math.sin(one["angle"])
                down = (other["y"] - one["y"]) * math.cos(one["angle"])
                assert abs(down - across) >= one["size"]
    context.close()


def test_a_token_that_is_a_space_is_shown_as_a_dot(
    browser: "playwright.Browser", server: TranslationServer
) -> None:
    context = browser.new_context()
    context.add_init_script(LABELS)
    visit = visited(context, server.url)
    visit.page.locator("#source").fill("the cat 5 sleeps .")  # a space and an unknown character
    visit.page.locator("#panel-attention .head").first.wait_for()
    texts = visit.evaluate("() => [...labels.values()].flat().map(({ text }) => text)")
    assert isinstance(texts, list)
    assert "·" in texts
    assert not any("▁" in each for each in texts)
    context.close()


@pytest.mark.parametrize("text", [ENGLISH, LONG], ids=len)
def test_a_map_and_the_heads_fill_the_card(
    browser: "playwright.Browser", server: TranslationServer, text: str
) -> None:
    visit = visited(browser, server.url, viewport={"width": 1280, "height": 900})
    visit.page.locator("#source").fill(text)
    visit.page.locator("#panel-attention .head").first.wait_for()
    edges = """() => {
      const box = (selector) => document.querySelector(selector).getBoundingClientRect();
      const [all, map, heads] = ['.maps', '.heat [role=img]', '.head'].map(box);
      return [all.left, all.right, map.right, heads.left, heads.top - map.bottom];
    }"""
    left, right, end_of_map, heads, below = visit.evaluate(edges)
    if below < 0:  # the heads are beside the map
        assert end_of_map <= heads <= end_of_map + 40
    else:
        assert end_of_map - left >= 0.9 * (right - left)
    visit.page.close()


def test_without_torch_the_tabs_are_hidden(visit: Visit) -> None:
    visit.page.route("**/explain", lambda route: route.fulfill(status=501, body='{"error": "no torch"}'))
    with visit.page.expect_response("**/explain"):
        visit.page.locator("#source").fill(ENGLISH)
    visit.shows(GERMAN)
    expect(visit.page.locator("#inside")).to_be_hidden()
    expect(visit.page.locator("#legend")).to_be_hidden()
    expect(visit.page.locator("#problem")).to_be_hidden()
    asked = sum(each.endswith("/explain") for each in visit.requests)
    visit.type(PAIRS[1][0])
    visit.shows(PAIRS[1][1])
    assert sum(each.endswith("/explain") for each in visit.requests) == asked == 1
    visit.complaints.clear()
