"""What notebooks show of results: well-formed HTML, all text escaped, nothing fetched or run."""

import xml.etree.ElementTree as ET

from tiny_bundle import PAIRS, memorised
from tolerances import FLOAT64, close

from heedful.analysis.attention_maps import attention_maps
from heedful.analysis.plotting import readable_tokens
from heedful.decoding.options import SearchOptions
from heedful.decoding.translator import Translator
from heedful.evaluation.metrics import evaluate_texts
from heedful.notebook_html import text_table

HOSTILE = "<script>alert(1)</script> & \"the' cat"


def cells(html: str) -> list[list[str]]:
    """The texts of a table, the caption first; XML is stricter than HTML."""
    root = ET.fromstring(html)
    assert root.find(".//script") is None
    assert not {"src", "href"} & {name for each in root.iter() for name in each.attrib}
    caption = root.find(".//caption")
    assert caption is not None
    return [[caption.text or ""], *([cell.text or "" for cell in row] for row in root.iter("tr"))]


def test_text_is_escaped_wherever_it_comes_from() -> None:
    assert cells(text_table(HOSTILE, [HOSTILE], [[HOSTILE]])) == [[HOSTILE]] * 3


def test_a_translation_shows_its_hypotheses() -> None:
    options = SearchOptions(n_best=2)
    found, empty = Translator(memorised()).translations([PAIRS[0][0], ""], options=options)
    caption, header, *rows = cells(found._repr_html_())
    assert (caption, header) == ([PAIRS[0][0]], ["translation", "score", "log-probability"])
    assert [row[0] for row in rows] == [each.text for each in found.hypotheses]
    assert [float(row[1]) for row in rows] == close(
        [each.score for each in found.hypotheses], FLOAT64.ELEMENT.printed(4)
    )
    assert cells(empty._repr_html_()) == [[""], header]


def test_a_report_shows_its_signatures() -> None:
    report = evaluate_texts(["a"] * 1200, ["b c"] * 1200, [["b c"] * 1200], ["exact", "chrf"])
    assert cells(report._repr_html_()) == [
        ["1,200 sentences"],
        ["metric", "score", "signature"],
        ["exact", "100.00", report.signatures["exact"]],
        ["chrf", "100.00", report.signatures["chrf"]],
    ]


def test_attention_shows_the_mean_of_the_last_cross_attention() -> None:
    bundle = memorised()
    maps = attention_maps(bundle, HOSTILE, bundle.tokenizers.tgt.encode("die Katze"))
    html = maps._repr_html_()
    caption, header, *rows = cells(html)
    assert caption == ["cross-attention, layer 2, mean of 4 heads"]
    assert header == ["", *readable_tokens(maps.source_tokens)]
    assert [row[0] for row in rows] == readable_tokens(maps.target_tokens)
    shown = [
        [float(cell.get("title") or 0) for cell in row.iter("td")] for row in ET.fromstring(html).iter("tr")
    ][1:]
    expected = maps.of("cross")[-1].weights.mean(axis=0)
    for row, weights in zip(shown, expected, strict=True):
        assert row == close(weights.tolist(), FLOAT64.ELEMENT.printed(2))
