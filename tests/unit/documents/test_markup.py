"""Markup in translations: nothing is lost or doubled, and what was well nested stays so."""

import re
import xml.parsers.expat
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.documents.markup import TagRules, html_rules, read_text, xml_rules
from heedful.documents.template import Template
from heedful.documents.tokens import Kind, tokenize
from heedful.spans.placeholders import find, placeholders
from heedful.spans.projection import project
from heedful.spans.sentences import Routed, join, split, without_placeholders
from heedful.spans.spanned_text import SpannedText
from heedful.spans.words import Aligned, Links, words

SCRAPS = st.lists(
    st.sampled_from(
        ["<b>", "</b>", "<i>", "</i>", "<p>", "</p>", "<br>", "<!-- c -->", "<code>", "</code>",
         "<a href='x'>", "</a>", "red ", " dog", ". ", "&amp;", "&nbsp;", "<", ">", "%1$s",
         "http://a.b/c ", "\n", "3", "<![", "<!doctype x>", "</", "<b", "]]>", '"', "<pre>", "</pre>",
         "<span translate=no>", "</span>"]
    ),
    max_size=16,
).map("".join)  # fmt: skip
TEXTS = st.text(alphabet="ab. <&%", max_size=30)


def translated(
    text: str, translate: dict[str, str], rules: TagRules | None = None, *, links: Links | None = None
) -> str:
    """The text with the translations of its sentences."""
    template = read_text(text, rules or html_rules())
    return joined(template, lambda sentence: project(sentence, translate[text_of(sentence)], links))


def joined(template: Template, translation: Callable[[SpannedText], SpannedText]) -> str:
    """The text with what a function returns for each sentence."""
    segments = [split(each.source) for each in template.units]
    new = [join(each, list(map(translation, each.sentences))) for each in segments]
    return template.joined([unit.written(text) for unit, text in zip(template.units, new, strict=True)])


def sentences_in(text: str, rules: TagRules | None) -> list[SpannedText]:
    return [each for unit in read_text(text, rules).units for each in split(unit.source).sentences]


def sentences(text: str, rules: TagRules | None) -> list[str]:
    return [text_of(each) for each in sentences_in(text, rules)]


def text_of(sentence: SpannedText) -> str:
    """The text that a model reads, if it reads all of a sentence."""
    return Routed(sentence, is_whole=True).text


@given(SCRAPS, st.booleans())
def test_tokens_are_the_document(document: str, xml: bool) -> None:
    assert "".join(token.raw for token in tokenize(document, xml=xml)) == document


LINKS = st.none() | st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12)


@given(SCRAPS, st.lists(st.sampled_from(["rot", "Hund", ".", "auf"]), max_size=8), st.booleans(), LINKS)
@settings(max_examples=300)
def test_every_tag_is_there_once_whatever_the_translation_is(
    document: str, output: list[str], xml: bool, links: Links | None
) -> None:
    template = read_text(document, xml_rules() if xml else html_rules())
    result = joined(template, lambda sentence: project(sentence, " ".join(output), links))
    tags = Counter(each.raw for each in tokenize(document, xml=xml) if each.kind is not Kind.TEXT)
    assert {raw: result.count(raw) for raw, count in tags.items() if result.count(raw) < count} == {}


class _Nesting(HTMLParser):
    """Notes whether tags are properly nested."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.good = True

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.good = self.good and bool(self.open) and self.open.pop() == tag


def well_nested(document: str) -> bool:
    parser = _Nesting()
    parser.feed(document)
    parser.close()
    return parser.good and not parser.open


ELEMENTS = st.recursive(
    st.sampled_from(["red", " dog ", "Runs. ", "Two men. ", " %s "]),
    lambda inner: st.tuples(st.sampled_from(["b", "i", "p", "u"]), st.lists(inner, max_size=3)).map(
        lambda made: f"<{made[0]}>{''.join(made[1])}</{made[0]}>"
    ),
    max_leaves=8,
)


@given(
    st.lists(ELEMENTS, max_size=4).map("".join),
    st.sampled_from(["der rote Hund", "Hund", "", "a b c d e f"]),
    LINKS,
)
@settings(max_examples=300)
def test_what_is_well_nested_stays_so(document: str, output: str, links: Links | None) -> None:
    template = read_text(document, html_rules())
    result = joined(template, lambda sentence: project(without_placeholders(sentence).spanned, output, links))
    assert well_nested(result)
    assert Counter(re.findall(r"<[^<>]*>", result)) == Counter(re.findall(r"<[^<>]*>", document))
    assert placeholders(result) == placeholders(document)


def test_an_element_is_put_around_the_words_that_are_aligned_with_its_content() -> None:
    document = "<p>The <b>red dog</b> is in <img> the <i>street</i>.</p>"
    spoken = {"The red dog is in the street.": "Auf der Straße ist ein roter Hund."}
    #        The red dog is in the street .
    links = [(4, 0), (5, 1), (6, 2), (3, 3), (0, 4), (1, 5), (2, 6), (7, 7)]
    assert translated(document, spoken, links=links) == (
        "<p>Auf <img> der <i>Straße</i> ist ein <b>roter Hund</b>.</p>"
    )


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("<b>A dog</b> runs", "Rennt <b>ein Hund</b>"),
        ("A dog <b>runs</b>", "<b>Rennt</b> ein Hund"),
        ("<b>A <i>dog</i></b> <u>runs</u>", "<u>Rennt</u> <b>ein <i>Hund</i></b>"),
        ("<p><b>A</b> dog <i><u>runs</u></i></p>", "<p><i><u>Rennt</u></i> <b>ein</b> Hund</p>"),
        ("<b>A dog runs</b>", "<b>Rennt ein Hund</b>"),
        ("<p><b>A dog runs</b></p> <b>3</b>", "<p><b>Rennt ein Hund</b></p> <b>3</b>"),
        ("<b> A dog</b> runs", "<b> Rennt ein Hund</b>"),  # it begins before the sentence
    ],
)
def test_an_element_at_the_edge_of_a_sentence_is_around_its_words(document: str, expected: str) -> None:
    spoken = {"A dog runs": "Rennt ein Hund"}
    assert translated(document, spoken, links=[(2, 0), (0, 1), (1, 2)]) == expected


def test_the_nearest_word_stands_for_an_element_that_nothing_is_aligned_with() -> None:
    spoken = {"she sleeps now": "Sie schläft."}
    assert translated("she sleeps <b>now</b>", spoken, links=[(0, 0), (1, 1)]) == "Sie <b>schläft</b>."


def test_an_element_with_words_is_not_around_a_sign_of_the_translation_alone() -> None:
    # The full stop is the translation's own, and aligned with whatever there is.
    links = [(0, 0), (1, 1), (2, 2), (2, 3), (0, 3), (1, 3)]
    assert translated("two thumbs <b>up</b>", {"two thumbs up": "zwei Daumen hoch."}, links=links) == (
        "zwei Daumen <b>hoch</b>."
    )
    assert translated("<b>two</b> thumbs up", {"two thumbs up": "zwei Daumen hoch."}, links=[(0, 3)]) == (
        "<b>zwei</b> Daumen hoch."
    )
    links = [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert translated(
        "two thumbs <b>up!</b> <i>Now</i>", {"two thumbs up!": "zwei Daumen hoch!", "Now": "Nun"}, links=links
    ) == ("zwei Daumen <b>hoch!</b> <i>Nun</i>")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The dog's well-known: 3.5 x_1 -- (a)!", "The|dog's|well-known|:|3|.|5|x_1|-|-|(|a|)|!"),
        ("हिन्दी में", "हिन्दी|में"),  # vowel signs are marks
        ("e\u0301te\u0301 d’été", "e\u0301te\u0301|d’été"),
        ("我爱你。OK 3天", "我|爱|你|。|OK|3|天"),
        ("ที่นี่ a", "ที่|นี่|a"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("'tis rock-' n' \u0301", "'|tis|rock|-|'|n|'|\u0301"),
        ("", ""),
    ],
)
def test_words_are_those_that_tags_can_stand_between(text: str, expected: str) -> None:
    assert "|".join(text[start:end] for start, end in words(text)) == expected


def test_the_span_is_that_with_most_words_for_it_and_fewest_against() -> None:
    def span(links: Links, first: int, behind: int, num_targets: int) -> tuple[int, int] | None:
        return Aligned(links, 4, num_targets).span(first, behind)

    # A word in the middle that is aligned with nothing, or with another part, does not end it.
    assert span([(1, 2), (1, 4), (2, 5)], 1, 3, 8) == (2, 6)
    assert span([(1, 2), (1, 3), (0, 4), (2, 5), (2, 6)], 1, 3, 8) == (2, 7)
    # One that is beyond three words of others is still inside; beyond five it is left out.
    assert span([(1, 0), (0, 1), (0, 2), (0, 3), (1, 4), (2, 5)], 1, 3, 6) == (0, 6)
    assert span([(1, 0), *((0, each) for each in range(1, 6)), (1, 6), (2, 7)], 1, 3, 8) == (6, 8)
    assert span([(1, 0), *((each, 0) for each in (0, 2, 3, 3))], 1, 2, 1) is None
    assert span([], 0, 1, 3) is None


def test_the_gap_is_beside_the_words_that_are_aligned_with_its_neighbours() -> None:
    def gaps(links: Links, num_targets: int, wanted: list[tuple[int, int]]) -> list[int]:
        aligned = Aligned(links, 4, num_targets)
        return [aligned.gap(before, near=near) for before, near in wanted]

    swapped = [(0, 2), (1, 3), (2, 0), (3, 1)]
    assert gaps(swapped, 4, [(before, before) for before in range(5)]) == [0, 3, 0, 1, 4]
    straight = [(0, 0), (1, 1), (2, 2)]
    assert gaps(straight, 3, [(before, 0) for before in range(4)]) == [0, 1, 2, 3]
    assert gaps([(0, 0), (1, 3)], 4, [(1, near) for near in (0, 2, 4)]) == [1, 2, 3]
    assert gaps([], 0, [(1, 0)]) == [0]


LINKS_OF_WORDS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 8)), max_size=14)


@given(LINKS_OF_WORDS, st.integers(0, 7), st.integers(0, 7), st.integers(0, 9))
def test_spans_and_gaps_are_the_best_of_all(links: Links, first: int, behind: int, near: int) -> None:
    aligned = Aligned(links, 7, 9)

    def value(low: int, high: int) -> int:
        return sum(4 if first <= src < behind else -1 for src, tgt in links if low <= tgt < high)

    spans = [(low, high) for low in range(9) for high in range(low + 1, 10)]
    best = max((value(*span), span[0] - span[1]) for span in spans)
    found = aligned.span(first, behind)
    assert (found is None and best[0] <= 0) or (
        found in spans and (value(*found), found[0] - found[1]) == best
    )

    def cost(gap: int) -> float:
        crossing = (src for src, tgt in links if (src < first) != (tgt < gap))
        return round(sum(0.5 ** (first - 1 - src if src < first else src - first) for src in crossing), 9)

    assert aligned.gap(first, near=near) == min(range(10), key=lambda gap: (cost(gap), abs(gap - near)))


def test_an_element_whose_content_is_not_found_keeps_its_part_of_the_sentence() -> None:
    spoken = {"One two three four.": "Eins zwei drei vier."}
    assert translated("One two <b>three</b> four.", spoken) == "Eins zwei <b>drei</b> vier."


def test_an_element_of_several_sentences_is_opened_and_closed_once() -> None:
    spoken = {"A dog runs.": "Ein Hund rennt.", "A cat sleeps.": "Die Katze schläft."}
    document = "<b>A dog runs. A cat</b> sleeps."
    assert translated(document, spoken) == "<b>Ein Hund rennt. Die Katze</b> schläft."


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ("<p>A dog\n runs.</p><p>A cat.</p>", ["A dog runs.", "A cat."]),
        ("A dog<br>A cat", ["A dog", "A cat"]),
        ("<pre>A dog\nA cat</pre>", ["A dog", "A cat"]),
        ("Tom &amp; Mary &lt;3", ["Tom & Mary <3"]),
        ("Run <code>rm x</code> now.", ["Run now."]),
        ("Run <span translate='no'>rm x</span>.", ["Run."]),
        ("脚注<img src='x'>在这里 <img>a", ["脚注在这里 a"]),
        ("Run <a class='mention hashtag' rel='tag'>#<span>dog</span></a>.", ["Run."]),
        ("<a class='u-url mention'>@bob</a> runs <b class=mention>now</b>", ["runs now"]),
        ("<script>if (a < b) run()</script><style>p {}</style>", []),
        ("<!-- a comment --> 3 &mdash; 4", []),
        ("<x-foo>A dog</x-foo> runs. <0>A cat</0> sleeps.", ["A dog runs.", "A cat sleeps."]),
        ("A do<wbr>g <foo>A cat</foo>", ["A dog", "A cat"]),
        ("Caf&eacute; &quot;A&quot; &ndash; &#66;", ['Caf\u00e9 "A" \u2013 B']),
        ("&copy; &#169; {count, plural, one {<b>#</b> dog} other {# dogs}} &rarr;", []),
        ("A dog <!-- runs. A cat", ["A dog"]),  # as in browsers, a comment without an end
        ("A <b title='x > y'>dog</b>. I <3 a <b and c", ["A dog.", "I <3 a <b and c"]),
        ("<?php a(); $b->c ?>A dog<% a %><title>A <b>cat</title>", ["A dog", "A <b>cat"]),
        ("<a href='x>A dog</a> is here.", ["A dog is here."]),  # a quote without an end is no quote
        ("<script>if (a <b>c) '</p>'</script>A dog<SCRIPT>run()", ["A dog"]),
        # An end tag that is omitted, or an element whose end tag ends another (13.1.2.4 of HTML).
        ("<ul><li translate=no>Acme X<li>A dog</ul>A cat", ["A dog", "A cat"]),
        ("<ul><li translate=no>Acme<ul><li>X</ul></ul>A cat", ["A cat"]),
        ("<p translate=no>Acme <b>X<p>A dog", ["A dog"]),
        ("<p translate=no>Acme<hr>A dog</p>", ["A dog"]),
        ("<table><tr translate=no><td>X<td>Y<tr><td class=notranslate>Z<td>A dog</table>", ["A dog"]),
        ("<dl><dt translate=no>X<dd>A dog<dt>A cat<dd translate=no>Y</dl>", ["A dog", "A cat"]),
        ("<p translate=no>X <span translate=yes>A dog</span> Y</p>", ["A dog"]),
        (
            "<p translate=no>X <b translate='yes'>A dog <i translate=no>Z</i></b> Y</p>A cat",
            ["A dog", "A cat"],
        ),
        ("A dog<img src=a>runs", ["A dog runs"]),
        ("<div translate=no>A dog", ["A dog"]),  # must have an end tag, and has none
    ],
)
def test_what_is_translated_in_html(document: str, found: list[str]) -> None:
    assert sentences(document, html_rules()) == found


def test_tags_of_xml_have_the_meaning_that_they_are_given() -> None:
    document = "<seg>A dog</seg><seg>A cat</seg> <x>rm</x>"
    assert sentences(document, xml_rules()) == ["A dogA cat rm"]
    assert sentences(document, xml_rules(splitting=["seg"], ignored=["x"])) == ["A dog", "A cat"]


@pytest.mark.parametrize(
    "before",
    [
        "",
        '<?xml version="1.0"?>',
        "<!DOCTYPE a>",
        "<!DOCTYPE a SYSTEM 'x>y.dtd' [ ]>",
        '<!DOCTYPE a [<!ENTITY x "y">]>',
        '<?xml version="1.0"?> <!DOCTYPE a [<!ENTITY x "]> &lt;b>">\n<!-- it\'s ]> --><?p ]>"?>] >',
        '<!DOCTYPE a [<!ENTITY l0 "lol">'
        + "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))
        + '<!ENTITY x "&l9;">]>',
    ],
)
@pytest.mark.parametrize("output", ["Hund", "Ein roter Hund rennt . < & ]]>", ""])
def test_what_is_well_formed_in_xml_stays_so_with_its_declarations(before: str, output: str) -> None:
    reference = "&x; " if "ENTITY x" in before else ""
    document = (
        f"{before}<a>A <Ä:_1 b='x > y'>red</Ä:_1> dog {reference}<_c/>runs &lt; &#38; <![CDATA[<&x;]]>.</a>"
    )
    (sentence,) = sentences(document, xml_rules())
    assert not re.search("lol|ENTITY|&x;", sentence)
    result = joined(read_text(document, xml_rules()), lambda source: project(source, output, ()))
    assert result.startswith(before)
    assert result.count("&x;") == document.count("&x;")
    for text in (document, result):  # the parser checks that it is well-formed, and expands no entity
        parser = xml.parsers.expat.ParserCreate()
        parser.DefaultHandler = lambda _: None
        parser.Parse(text.encode(), True)


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ("<row><cell>A dog</cell>\n<cell>A cat</cell></row>", ["A dog", "A cat"]),
        ("<a>one</a> and <b>two</b>", ["one and two"]),
        ("<p>你好<x id='1'/>世界</p><p>家很小<br/>狗睡觉</p>", ["你好世界", "家很小", "狗睡觉"]),
        ("</x><a>one</a><a>two", ["one", "two"]),
        # A name that is inside a text here, and around one there.
        ("<p>A <b>red</b> dog</p><row><b>A dog</b><b>A cat</b></row>", ["A red dog", "A dog", "A cat"]),
        ("<a>A <n>one</n></a><list>\n<n>two</n>\n<n>three</n>\n</list>", ["A one", "two", "three"]),
        ("<p>a <b>red</b> dog</p><p><b>Two</b> <i>men</i></p>", ["a red dog", "Two men"]),
        ("<row><cell/><code>rm</code><cell>A cat</cell></row>", ["A cat"]),
    ],
)  # fmt: skip
def test_the_outline_of_xml_separates_sentences(document: str, found: list[str]) -> None:
    assert sentences(document, xml_rules(ignored=["code"], outline=True)) == found


SPELLED = "A &amp; B & C &copy; © &#39;d&#39; 3 > 2 &gt; 1 R&D &mdash; &nbsp;x"


@pytest.mark.parametrize("xml", [True, False])
def test_characters_are_written_as_in_the_source(xml: bool) -> None:
    rules = xml_rules() if xml else html_rules()
    for document in (SPELLED, f"<p>{SPELLED}</p>", f"{SPELLED} <b>{SPELLED}</b>"):
        same = joined(read_text(document, rules), lambda sentence: project(sentence, sentence.text, None))
        assert same == document
    (sentence,) = sentences(SPELLED, rules)
    assert (
        translated(SPELLED, {sentence: "'é' © & B &copy; >"}, rules)
        == "&#39;é&#39; © &amp; B &amp;copy; &gt;"
    )
    assert translated("A & b", {"A & b": "A &copy B"}, rules) == "A &amp;copy B"
    assert translated("a &lt; b", {"a < b": "b <"}, rules) == "b &lt;"


@pytest.mark.parametrize("xml", [True, False])
@pytest.mark.parametrize("output", ["<b>", "a </p> b", "<!-- b", "<script>f(1)</script>", "3 < <i b> 4"])
def test_a_translation_adds_no_markup_beside_bare_characters(xml: bool, output: str) -> None:
    rules, source = xml_rules() if xml else html_rules(), "1 < 2 > dogs"
    written = translated(f"<p>{source}</p>", {source: output}, rules)
    assert [each.raw for each in tokenize(written, xml=xml) if each.kind is not Kind.TEXT] == ["<p>", "</p>"]
    assert "".join(each.text for each in tokenize(written, xml=xml) if each.kind is Kind.TEXT) == output


def test_an_entity_without_a_semicolon_does_not_merge_with_a_translation() -> None:
    assert translated("<p>A &eacute</p>", {"A é": "é;"}) == "<p>é;</p>"
    assert translated("<p>A &eacute</p>", {"A é": "é b"}) == "<p>&eacute b</p>"


def test_names_of_xml_have_capital_letters() -> None:
    document = "<Seg>A dog</Seg><Seg>A cat</Seg> <X>rm</X><x>up</x>"
    rules = xml_rules(splitting=["Seg"], ignored=["X"])
    assert sentences(document, rules) == ["A dog", "A cat", "up"]


@pytest.mark.parametrize(
    "start", ["<b a='<'>", '<b a="</b>">', "<b a='x>", "<b a=x c=y>", "<b a>", "<b a='x>y'>"]
)
@pytest.mark.parametrize("rules", [xml_rules(), html_rules(), None])
def test_an_element_has_both_of_its_tags_whatever_its_attributes_are(
    start: str, rules: TagRules | None
) -> None:
    assert sentences(f"{start}A man</b> runs.", rules) == ["A man runs."]


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "unit",
    ["<!DOCTYPE a [", "<!DOCTYPE a [<!-- ' -->", "<!--", "<?", "<![CDATA[", "<a b='", "<a \"'", "<a '\"'"],
)
def test_markup_of_xml_without_an_end_is_text(unit: str) -> None:
    document = unit * 100_000  # which would take hours if each looked for its end by itself
    assert "".join(each.raw for each in tokenize(document, xml=True)) == document


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        *("<a ", "<a b='", '<a " ="', "<a <", "<a = ", "<!--", "<!", "</", "</a", "<?php", "<%", "<title>"),
        *("<script>", "<![CDATA[", "{a,", "a<wbr>", "<b>", "&"),
    ],
)
def test_html_without_an_end_takes_no_longer_than_other_html(unit: str) -> None:
    document = unit * 100_000  # the standard library's parser takes hours for some of them
    assert "".join(each.raw for each in tokenize(document)) == document


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        *(
            "http://)",
            "http://",
            "www.",
            "a@",
            "a.b@c.d",
            "@a",
            ":a",
            "{",
            "{a,",
            "{{",
            "{a}",
            "${",
            "%",
            "%1",
        ),
        *("%a.", "%(", "%<", "$a", "$a(", "<a b='", "<a b='<a b=\"", "<%", "&a", "\u00a9", "a"),
        *("{{'", "{{ '", "{{ 'a\\'b\"", "@:(", "@.a:", "<a b ", "<a b>", "<a b></c>"),
    ],
)
def test_placeholders_are_found_in_one_pass(unit: str) -> None:
    text = unit * 100_000
    spans = find("http://" + text)
    assert all(0 <= start < end <= len(text) + 7 for start, end in spans)
    bare = without_placeholders(SpannedText("http://" + text, (), tuple(spans))).spanned
    assert len(bare.text) <= len(text) + 7


@pytest.mark.parametrize(
    "tag",
    ['<p title="' + "<a " * 100_000 + '"', "<a" + " class=x" * 100_000, '<a class="' + "a " * 100_000 + '"'],
)
@pytest.mark.parametrize("says", ["translate=no", "class='a notranslate'", "translate=yes", ""])
def test_a_tag_is_read_in_one_pass_however_much_is_in_it(tag: str, says: str) -> None:
    document = f"{tag} {says}>"  # would take hours if each part were tried as a beginning
    expected = {"": None, "translate=yes": True}.get(says, False)
    assert [(each.raw, each.translated) for each in tokenize(document)] == [(document, expected)]


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["\u4ef6{aaaa}", "a %s ", "a {n, plural, one {b. C}}d. ", "\u4ef6%1$s"])
def test_a_text_full_of_placeholders_is_cut_between_them(unit: str) -> None:
    text = unit * 5_000
    bare: list[SpannedText] = []

    def translation(sentence: SpannedText) -> SpannedText:
        bare.append(without_placeholders(sentence).spanned)
        return project(bare[-1], "\u732b" * 100, [(1, 1)])

    assert placeholders(joined(read_text(text, None), translation)) == placeholders(text)
    assert max(len(each.text) for each in bare) <= 2000


def test_untranslated_elements_stand_where_they_stood() -> None:
    spoken = {"Run now.": "Jetzt laufen.", "See.": "Siehe."}
    assert translated("Run <code>x</code> now.", spoken) == "Jetzt <code>x</code> laufen."
    assert translated("See <code>x</code>.", spoken) == "Siehe <code>x</code>."


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # gettext, C, Python, Objective-C, Android
        ("Hello %1$s, you have %d of 100% messages.", "%1$s %d"),
        ("%(count)s files, 5 % done, 50%d", "%(count)s %d"),
        ("%d\u4ef6\u306e\u30d5\u30a1\u30a4\u30eb \u6f22\u5b57%1$s\u6f22\u5b57 %s\u043e", "%d %1$s %s"),
        ("%zu of %lld (%p), %-5.2f%% of %*d, %'d, %@cat, %2$@", "%zu %lld %p %-5.2f %% %*d %'d %@ %2$@"),
        ("the %1$ss cat, %dMB, %dx%d", "%1$ss %dMB %dx %d"),  # with the rest of the word
        ("3 %Y old, at 3 %H:%M", "%Y %H %M"),
        ("100%sure, 100 %sicher, 100%ige, 5 % der", ""),
        # strftime, Qt, boost, Ruby, Symfony
        ("%Y-%m-%d at %H:%M", "%Y %m %d %H %M"),
        ("%1 of %2, %L1, %1%", "%1 %2 %L1 %1%"),
        ("%{count} cats, %<name>s", "%{count} %<name>s"),
        ("#{name}, %name% and %d%%", "#{name} %name% %d %%"),
        # Python, .NET, Java, ICU, Fluent
        ("{} {0} {name!r:>10} {0,-10:N2} {a.b[0]}", "{} {0} {name!r:>10} {0,-10:N2} {a.b[0]}"),
        (
            "a {count, plural, one {# dog. A} other {# dogs}} b",
            "{count, plural, one {# dog. A} other {# dogs}}",
        ),
        ("{0,choice,0#no files|1<{0} files}", "{0,choice,0#no files|1<{0} files}"),
        ("{ $n -> [one] a dog *[other] dogs } {-brand}", "{ $n -> [one] a dog *[other] dogs } {-brand}"),
        ("{as one says} {note: two dogs} {one, two}", ""),  # prose
        # Handlebars, Jinja, i18next, JavaScript, ERB
        ("{{{raw}}} {{ name }} {{#if a}} {{a}}", "{{{raw}}} {{ name }} {{#if a}} {{a}}"),
        ("{% if x %}a cat{% endif %}{# no #}", "{% if x %} {% endif %} {# no #}"),
        ("$t(name, {'a': 1}) ${a + b} <%= x %>", "$t(name, {'a': 1}) ${a + b} <%= x %>"),
        # shells, PHP, MediaWiki, Laravel, Vue
        ("$HOME, $user->name and $user.name.", "$HOME $user->name $user.name"),
        ("$1 of $2, but $5.00, $1,000, $5m, US$5", "$1 $2"),
        (":name is :Attribute, note:this, 12:30, std::string", ":name :Attribute"),
        ("@count of @:a.key, at a@b", "@count @:a.key"),
        ("{'@'} @:(a.b) @.lower:(a.b) @:{'a b'}, a@:b", "{'@'} @:(a.b) @.lower:(a.b) @:{'a b'}"),
        # braces in the strings of an expression, or in an inner one
        ("{{ x | default('}}') }} {% if x == '%}' %}", "{{ x | default('}}') }} {% if x == '%}' %}"),
        ("${a${b}} ${`a${'}'}`} {'{'} a {'}'}", "${a${b}} ${`a${'}'}`} {'{'} {'}'}"),
        (
            "{{ name's }} it's {n, plural, one {it's {x}} other {'a'}}",
            "{{ name's }} {n, plural, one {it's {x}} other {'a'}}",
        ),
        # elements in a text
        (
            "<b translate=no>a</b> <a href='x>y'>b</a> <a b='<'/>",
            "<b translate=no> </b> <a href='x>y'> </a> <a b='<'/>",
        ),
        ("<p a b=c d>x</p>, <see below>, <q r/> <a b", "<p a b=c d> </p> <q r/>"),
        ('<0>cat</0> <a href="x">b</a> <br/> a < b > c <3', '<0> </0> <a href="x"> </a> <br/>'),
        # subjects on social networks
        ("A book #house, #\u0434\u043e\u043c and issue #12, C#, a#b, ## x", "#house #\u0434\u043e\u043c"),
        # addresses
        ("See https://example.org/a?b=c. Or www.x.org!", "https://example.org/a?b=c www.x.org"),
        ("(https://a.org/b_(c)), https://a.org/{id}.", "https://a.org/b_(c) https://a.org/{id}"),
        ("Write to a.b@c.org, {name} or {{ other }} or ${x}", "a.b@c.org {name} {{ other }} ${x}"),
        ("me@x.orghttps://a.org/x?y=1 %shttps://a.org", "me@x.org https://a.org/x?y=1 %s https://a.org"),
        ("\u30e1\u30fc\u30eb\u306fme@x.org\u307e\u3067\u3002", "me@x.org"),
        # symbols and characters by name
        (
            "\u00a9 2024 \U0001f44d\U0001f3fd 1\ufe0f\u20e3 \u20ac5 &copy; &#x41;",
            "\u00a9 \U0001f44d\U0001f3fd 1\ufe0f\u20e3 &copy; &#x41;",
        ),
        ("A dog. AT&T \u201csays\u201d 5 \u2013 6 \u2026", ""),
    ],
)
def test_placeholders_are_found(text: str, found: str) -> None:
    assert " ".join(text[start:end] for start, end in find(text)) == found


@given(TEXTS)
def test_placeholders_that_are_taken_out_come_back(text: str) -> None:
    for sentence in sentences_in(text + " x %1$s and %s y", None):
        bare = without_placeholders(sentence).spanned
        assert not placeholders(bare.text) or bare.text != sentence.text
        assert placeholders(project(bare, "etwas anderes", None).text) == placeholders(sentence.text)


def test_deep_markup_is_no_problem() -> None:
    document = "<b>" * 3000 + "a dog" + "</b>" * 3000
    assert translated(document, {"a dog": "ein Hund"}) == document.replace("a dog", "ein Hund")
