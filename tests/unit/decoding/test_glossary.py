"""Glossaries: files, which terms apply to a text, and translations that use them, on both backends."""

import io
import math
import unicodedata
import zipfile
from collections.abc import Sequence
from pathlib import Path
from unittest import TestCase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_class import need_native
from tiny_bundle import PAIRS, memorised
from tolerances import FLOAT32, FLOAT64, close

from heedful import Translator
from heedful.decoding.backends.choice import EngineChoice
from heedful.decoding.glossary import (
    Entry,
    Glossary,
    TermText,
    continuing_tokens,
    placed_terms,
    term_of,
    words_of,
)
from heedful.decoding.options import SearchOptions
from heedful.decoding.shortlist import Shortlist
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.protocol import Greedy
from heedful.decoding.strategies.sampling import Sampling
from heedful.errors import HeedfulError, InputError

SOURCES = [source for source, _ in PAIRS]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "terms.tsv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_has_forms_endings_case_and_literal_signs(tmp_path: Path) -> None:
    glossary = Glossary.load(
        written(tmp_path, "\ufefffire truck\tFeuerwehr| Löschzug*\r\n\nUS\tUSA\tcase\na\\|b\t\\*c\\\\|\\d\n")
    )
    assert glossary.entries == (
        Entry(TermText("fire truck"), (TermText("Feuerwehr"), TermText("Löschzug", any_ending=True))),
        Entry(TermText("US"), (TermText("USA"),), match_case=True),
        Entry(TermText("a|b"), (TermText("*c\\"), TermText("\\d"))),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a\tb\nman Mann\n", "line 2: has no second column"),
        ("\tb\n", "line 1: has no source term"),
        ("a\t \n", "line 1: has no target form"),
        ("a\tb||c\n", "line 1: has no target form"),
        ("a|b\tc\n", "line 1: has several source terms"),
        ("a\tb\n\na\tc\n", "line 3: 'a' is in line 1 already"),
        ("a\tb\tCASE\n", "line 1: the third column"),
        ("a\tb\tcase\tx\n", "line 1: the third column"),
        ("a\tb*c\n", "line 1: a * stands for the ending"),
        ("a\tb\0\n", "line 1, byte 3"),
        (f"a\t{'sehr ' * 61}\n", "line 1: has a target form of more than 300 characters"),
        ("", "empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, reason: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(HeedfulError) as error:
        Glossary.load(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert reason in message
    assert "\n" not in message


def workbook(rows: Sequence[Sequence[str]]) -> bytes:
    """A workbook as Excel writes it: shared strings, one of them with formats and a phonetic hint."""
    names = [*dict.fromkeys(cell for row in rows for cell in row)]
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    relations = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    cells = [
        [
            f'<c r="{"AB"[at]}{row}" t="s"><v>{names.index(cell)}</v></c>'
            for at, cell in enumerate(of_row)
            if cell
        ]
        for row, of_row in enumerate(rows, start=1)
    ]
    sheet_rows = [f'<row r="{number}">{"".join(row)}</row>' for number, row in enumerate(cells, start=1)]
    strings = [
        f"<si><r><t>{name[:1]}</t></r><r><t>{name[1:]}</t></r><rPh><t>x</t></rPh></si>" for name in names
    ]
    parts = {
        "xl/workbook.xml": f'<workbook {main} xmlns:r="{relations}"><sheets>'
        '<sheet name="a" sheetId="1" r:id="r7"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": '<Relationships><Relationship Id="r7" Target="worksheets/sheet1.xml"/>'
        "</Relationships>",
        "xl/worksheets/sheet1.xml": f"<worksheet {main}><sheetData>{''.join(sheet_rows)}</sheetData>"
        "</worksheet>",
        "xl/sharedStrings.xml": f"<sst {main}>{''.join(strings)}</sst>",
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as package:
        for name, content in parts.items():
            package.writestr(name, content)
    return file.getvalue()


TABLES = {
    "a.csv": b"house,Haus\nold man,Greis\n",
    "head.csv": b"\xef\xbb\xbfSource,Target\r\nhouse,Haus\r\nold man,Greis\r\n",
    "semicolons.csv": b'en;de\nhouse;Haus\n"old man";"Greis"\n',
    "deepl.csv": b"house,Haus,EN,DE\nold man,Greis,en,de-AT\n",
    "tabs.csv": b"house\tHaus\nold man\tGreis\n",
    "head.tsv": b"English\tGerman\nhouse\tHaus\nold man\tGreis\n",
    "a.txt": "en-US\tde\r\nhouse\tHaus\r\nold man\tGreis\r\n".encode("utf-16"),
    "utf16.csv": "source;target\nhouse;Haus\nold man;Greis\n".encode("utf-16"),
    "a.xlsx": workbook([["house", "Haus"], ["", ""], ["old man", "Greis"]]),
    "head.xlsx": workbook([["source", "target"], ["house", "Haus"], ["old man", "Greis"]]),
}


def test_a_cell_of_csv_may_have_a_comma(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("uncle;Vater, alt\n")
    assert Glossary.load(tmp_path / "a.csv") == Glossary.of({"uncle": "Vater, alt"})


def test_a_first_row_of_languages_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("no\tne\nhouse\tHaus\n")
    with TestCase().assertLogs() as logs:
        assert Glossary.load(tmp_path / "a.tsv") == Glossary.of({"house": "Haus"})
    assert "the languages no and ne" in logs.output[0]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_in_each_form_that_people_have(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(TABLES[name])
    assert Glossary.load(tmp_path / name) == Glossary.of({"house": "Haus", "old man": "Greis"})


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.csv", b"a,b\nc\n", "line 2: has no second column"),
        ("a.csv", b'a,b\nc,"d\n', "line 2: "),
        ("a.csv", b"a,b\nc,d,e\n", "line 2: the third column"),
        ("a.tsv", b"target\tsource\na\tb\n", "line 1: the target is before the source"),
        ("a.txt", b"\xff\xfea", "UTF-16"),
        ("a.xlsx", workbook([["a", "b"], ["c", ""]]), "line 2: has no second column"),
        ("a.xlsx", workbook([["a", "b"]])[:200], "no workbook of Excel"),
        ("a.tsv", b"en\ten\n\x00\tb\n", "line 2, byte 0"),
    ],
)
def test_a_bad_table_is_named_with_its_line(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(HeedfulError) as error:
        Glossary.load(tmp_path / name)
    message = str(error.value)
    assert message.startswith(f"{tmp_path / name}: ")
    assert reason in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("target", "lacking"), [("Kater", None), ("猫|Kater", None), ("Kater|猫", None), ("Kater 猫", "猫")]
)
def test_a_term_that_cannot_be_written_is_refused(tmp_path: Path, target: str, lacking: str | None) -> None:
    glossary = Glossary.load(written(tmp_path, f"dog\tHund\n\ncat\t{target}\n"))
    tokenizer = memorised().tokenizers.tgt
    if lacking is None:
        glossary.check_writable(tokenizer, "terms.tsv")
        return
    with pytest.raises(InputError, match=rf"terms\.tsv: line 3: .* has '{lacking}', which the vocabulary"):
        glossary.check_writable(tokenizer, "terms.tsv")


@pytest.mark.parametrize("prefix", ["🐱 der", "der 🐱", "🐱"])
def test_a_prefix_that_cannot_be_written_is_refused(prefix: str) -> None:
    translator = Translator(memorised())
    for write in (
        translator.translate,
        lambda texts, prefixes: translator.score(texts, SOURCES[:2], prefixes=prefixes),
    ):
        with pytest.raises(InputError, match=r"line 2: the prefix has '🐱', which the vocabulary lacks"):
            write(SOURCES[:2], prefixes=["der", prefix])


def test_a_first_term_is_no_head(tmp_path: Path) -> None:
    glossary = Glossary.load(written(tmp_path, "no\tno\nFrench\tfranzösisch\n"))
    assert len(glossary.entries) == 2


def test_what_is_no_utf_8_or_not_there_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    with pytest.raises(HeedfulError, match=r"terms\.tsv"):
        Glossary.load(path)
    path.write_bytes(b"a\tb\nc\t\xff\n")
    with pytest.raises(HeedfulError, match="line 2"):
        Glossary.load(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The fire truck.", ["fire truck"]),
        ("Fire! A FIRE   TRUCK came.", ["fire", "fire truck"]),
        ("Firefly, campfire, fire-truck", ["fire"]),
        ("truck fire truck fire truck", ["fire truck"]),
        ("the US and us", ["US"]),
        ("us", []),
        ("dogs and dog's", ["dog*"]),
        ("polish Polish", ["Polish"]),
        ("He works in 東京都.", ["東京"]),
        ("l’eau", ["l'eau"]),
        ("यह कला है", []),  # art; कल is tomorrow
        ("कल, nai\u0308ve", ["कल", "na\u00efve"]),
        ("", []),
    ],
)
def test_the_longest_whole_words_apply(tmp_path: Path, text: str, expected: list[str]) -> None:
    lines = ["fire\tx", "fire truck\tx", "US\tx", "dog*\tx", "Polish\tx\tcase", "東京\tx", "l'eau\tx"]
    lines += ["कल\tx", "na\u00efve\tx"]
    glossary = Glossary.load(written(tmp_path, "\n".join(lines)))
    assert [str(entry.source) for entry in glossary.applicable(text)] == expected


def naively_applicable(glossary: Glossary, text: str) -> list[Entry]:
    """Compare each term with the words at each place of a text."""
    words, at, found = words_of(text), 0, list[Entry]()
    while at < len(words):
        here: list[tuple[int, int, bool, Entry]] = []
        for entry in glossary.entries:
            own, source = words_of(entry.source.text), entry.source
            there = words[at : at + len(own)]
            is_exact = entry.match_case or (source.text.isupper() and len(source.text) > 1)
            if not is_exact:
                own, there = [each.casefold() for each in own], [each.casefold() for each in there]
            if source.any_ending and len(there) == len(own):
                there[-1] = there[-1][: len(own[-1])]
            if there == own:
                here.append((len(own), len(source.text), is_exact, entry))
        longest = max(here, key=lambda each: each[:3], default=None)
        found += [] if longest is None or longest[3] in found else [longest[3]]
        at += 1 if longest is None else longest[0]
    return found


TERMS = st.lists(st.sampled_from(["a", "A", "ab", "AB", "abc", "b", "B"]), min_size=1, max_size=3).map(
    " ".join
)


@given(
    st.lists(
        st.tuples(TERMS, st.booleans(), st.booleans()), max_size=12, unique_by=lambda each: each[0].lower()
    ),
    st.lists(st.sampled_from(["a", "A", "ab", "aB", "AB", "abc", "abcd", "b", "."]), max_size=12),
)
def test_an_index_finds_what_a_search_through_all_terms_finds(
    terms: list[tuple[str, bool, bool]], words: list[str]
) -> None:
    entries = [Entry(TermText(text, stem), (TermText("x"),), match_case=case) for text, stem, case in terms]
    # Terms of equally many words and letters that stand at one place differ in case or ending alone.
    by_form = {(each.source.text.casefold(), len(each.source.text)): each for each in entries}
    glossary, text = Glossary(tuple(by_form.values())), " ".join(words)
    assert glossary.applicable(text) == naively_applicable(glossary, text)


@pytest.mark.parametrize(
    ("translation", "form"),
    [
        ("ein Hund .", "ein Hund"),
        ("Ein Hund!", "ein Hund"),
        ("Da ist Ein Hund", None),
        ("kein Hund", None),
        ("ein Hunde", None),
        ("die Katzen", "Katz*"),
        ("ein Hund-artiger", "ein Hund"),
    ],
)
def test_forms_are_whole_words_of_a_translation(translation: str, form: str | None) -> None:
    entry = Entry(TermText("dog"), (TermText("ein Hund"), TermText("Katz", any_ending=True)))
    assert placed_terms([entry], translation)[0].target == form


@pytest.mark.parametrize(
    ("translation", "places"),
    [
        ("Ein Hund und ein Hund, kein Hund.", ["Ein Hund", "ein Hund"]),
        ("\U0001f408\u200d\u2b1b ein  Hund, zwei Katzen, Katz", ["ein  Hund", "Katzen", "Katz"]),
        ("Katzen ein\nHund", ["Katzen", "ein\nHund"]),
        ("Katz-Hund", ["Katz"]),
        ("Hund", []),
    ],
)
def test_every_form_of_a_term_is_found_where_it_stands(translation: str, places: list[str]) -> None:
    entry = Entry(TermText("dog"), (TermText("ein Hund"), TermText("Katz", any_ending=True)))
    [term] = placed_terms([entry], translation)
    assert [translation[start:end] for start, end in term.spans] == places
    assert (term.target is not None) == bool(places)


def test_terms_may_share_a_place() -> None:
    entries = Glossary.of({"fire truck": "das Auto", "car": "Auto"}).entries
    assert [term.spans for term in placed_terms(entries, "da ist das Auto")] == [((7, 15),), ((11, 15),)]


FORMS = ["Fuß", "Caf\u00e9", "\u304c", "\ud55c\uad6d", "a b", "l'eau", "x\u0323\u0301"]
OTHERS = [
    "\U0001f408\u200d\u2b1b",
    "y\u0323\u0301z",
    "12",
    ",",
    "\u0915\u093f",
    "\u0f73\u0323",
    "\u1100\u1161",
    "\n",
]


@given(
    words=st.lists(st.sampled_from(FORMS + OTHERS), max_size=8),
    form=st.sampled_from(["NFC", "NFD"]),
    apostrophe=st.sampled_from("'\u2019"),
)
def test_the_text_at_each_place_is_the_form_and_no_place_is_missing(
    words: list[str], form: str, apostrophe: str
) -> None:
    words = ["\U0001f600", *(unicodedata.normalize(form, each).replace("'", apostrophe) for each in words)]
    text = " ".join(words)
    starts = [len(" ".join([*words[:n], ""])) for n in range(len(words))]
    for target in FORMS:
        expected = [
            (start, start + len(word))
            for start, word in zip(starts, words, strict=True)
            if words_of(word) == words_of(target)
        ]
        [term] = placed_terms(Glossary.of({"x": target}).entries, text)
        assert list(term.spans) == expected


@pytest.mark.slow
@given(st.text(), st.text(max_size=3))
def test_places_are_of_whole_words_in_any_text(text: str, target: str) -> None:
    if words_of(target):
        [term] = placed_terms(Glossary.of({"x": target}).entries, text)
        for start, end in term.spans:
            own, found = words_of(target), words_of(text[start:end])
            assert found in (own, [own[0][:1].upper() + own[0][1:], *own[1:]])


def test_terms_are_tokens_as_in_a_sentence_and_as_at_its_start() -> None:
    tgt = memorised().tokenizers.tgt
    term = term_of(Entry(TermText("x"), (TermText("hund"),)), tgt)
    assert term is not None
    within, first = term.forms
    assert (tgt.decode(within.ids), within.is_first) == ("hund", False)
    assert (tgt.decode(first.ids), first.is_first) == ("Hund", True)
    continues = continuing_tokens(tgt)
    assert [continues[i] for i in tgt.encode("Kater")] == [False, True, True, True]  # K at e r
    assert not continues[tgt.eos_id]


def test_a_term_without_tokens_is_left_out_and_reported() -> None:
    translator = Translator(memorised(), engine="torch")
    glossary = Glossary.of({"cat": "猫"})
    options = SearchOptions(glossary=glossary)
    [translation] = translator.translations([SOURCES[0]], options=options)
    assert translation.text == translator.translate([SOURCES[0]])[0]
    assert [(term.source, term.target) for term in translation.terms] == [("cat", None)]


GLOSSARIES = {
    "another word": {"cat": "Hund"},
    "present": {"cat": "Katze"},
    "alternatives": {"cat": ["Hunde", "Hund"], "dog": ["schläft", "Katze"]},
    "phrases": {"the cat": "den Hund", "sleeps": "sieht die"},
    "overlapping": {"the": "der Hund", "sleeps": "Hund schläft", "sees": "sieht der"},
    "a word in parts": {"cat": "Kastell", "dog": "Kater"},
}


@pytest.mark.representatives(8)
@pytest.mark.by_class
@pytest.mark.parametrize("beam_size", [1, 4, 5])
@pytest.mark.parametrize("name", GLOSSARIES)
def test_terms_are_placed_and_equal_on_both_backends(name: str, beam_size: int) -> None:
    need_native()
    bundle, glossary = memorised(), Glossary.of(GLOSSARIES[name])
    options = SearchOptions(strategy=BeamSearch(beam_size=beam_size), glossary=glossary)
    native, torch = (Translator(bundle, engine=engine) for engine in ("native", "torch"))
    found, expected = (each.translations(SOURCES, options=options) for each in (native, torch))
    assert [each.text for each in found] == [each.text for each in expected]
    for source, translation in zip(SOURCES, found, strict=True):
        applicable = glossary.applicable(source)
        assert [term.source for term in translation.terms] == [str(each.source) for each in applicable]
        assert all(term.target is not None for term in translation.terms)
    for one, source in zip(found, SOURCES, strict=True):
        assert native.translations([source], options=options) == [one]


@pytest.mark.by_class
@pytest.mark.parametrize("glossary", [Glossary(()), Glossary.of({"elephant": "Elefant"})])
def test_without_applicable_terms_nothing_changes_to_the_last_bit(glossary: Glossary) -> None:
    need_native()
    translator = Translator(memorised(), engine="native")
    for strategy in (BeamSearch(beam_size=1), BeamSearch(beam_size=5), DiverseBeamSearch(beam_size=4)):
        plain = SearchOptions(strategy=strategy)
        with_glossary = SearchOptions(strategy=strategy, glossary=glossary)
        assert translator.translations(SOURCES, options=with_glossary) == translator.translations(
            SOURCES, options=plain
        )


@pytest.mark.by_class
def test_lines_without_terms_do_not_notice_those_with_some() -> None:
    need_native()
    translator, glossary = Translator(memorised(), engine="native"), Glossary.of({"dog": "Katze"})
    without = [source for source in SOURCES if not glossary.applicable(source)]
    options = SearchOptions(strategy=BeamSearch(beam_size=5))
    with_glossary = SearchOptions(strategy=options.strategy, glossary=glossary)
    found = dict(zip(SOURCES, translator.translations(SOURCES, options=with_glossary), strict=True))
    assert 0 < len(without) < len(SOURCES)
    assert [found[source] for source in without] == translator.translations(without, options=options)


def test_translate_takes_a_glossary() -> None:
    translator = Translator(memorised(), engine="torch")
    [text] = translator.translate([SOURCES[0]], glossary=Glossary.of({"cat": "Hund"}))
    assert "Hund" in text.split()


def test_the_probability_of_a_term_is_the_product_over_its_tokens() -> None:
    translator = Translator(memorised(), engine="torch")
    form = translator.bundle.tokenizers.tgt.encode("Kater")
    [translation] = translator.translations(SOURCES[:1], glossary=Glossary.of({"cat": "Kater", "the": "猫"}))
    [output, *_] = translation.hypotheses
    assert len(form) > 1
    [at] = [i for i in range(len(output.ids)) if [*output.ids[i : i + len(form)]] == form]
    product = math.exp(sum(output.token_log_probs[at : at + len(form)]))
    probabilities = {each.source: each.probability for each in translation.terms}
    assert probabilities == {"cat": close(product, FLOAT64.ROW), "the": None}


def test_a_line_in_segments_has_the_probability_of_the_best_place() -> None:
    translator, glossary = Translator(memorised(), engine="torch"), Glossary.of({"cat": "Kater"})
    alone = [translator.translations([source], glossary=glossary)[0] for source in SOURCES[:2]]
    expected = max(term.probability or 0 for each in alone for term in each.terms)
    most = max(len(translator.bundle.tokenizers.src.encode(source)) for source in SOURCES[:2]) + 1
    [line] = translator.translations([" ".join(SOURCES[:2])], glossary=glossary, max_source_tokens=most)
    assert line.text == " ".join(each.text for each in alone)
    assert [term.probability for term in line.terms] == [close(expected, FLOAT32.SENTENCE)]


@pytest.mark.parametrize("strategy", [Greedy(), Sampling()])
def test_other_searches_refuse_a_glossary(strategy: Greedy | Sampling) -> None:
    with pytest.raises(InputError, match=r"^glossary"):
        SearchOptions(strategy=strategy, glossary=Glossary(()))


@pytest.mark.by_class
@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_shortlist_has_the_tokens_of_the_terms(engine: EngineChoice) -> None:
    if engine == "native":
        need_native()
    bundle = memorised()
    src, tgt = (
        side.encode_batch([pair[i] for pair in PAIRS])
        for i, side in enumerate((bundle.tokenizers.src, bundle.tokenizers.tgt))
    )
    shortlist = Shortlist.learn(src, tgt, bundle, candidates=1, frequent=1, record={})
    translator = Translator(bundle, engine=engine, shortlist=shortlist)
    [translation] = translator.translations(
        SOURCES[:1], options=SearchOptions(glossary=Glossary.of({"cat": "Kastell"}))
    )
    assert [term.target for term in translation.terms] == ["Kastell"]
