import json
import random
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from tolerances import FLOAT64, close

from heedful.errors import ConfigError, CorpusError
from heedful.evaluation.metrics import EvaluationReport, edit_distance, evaluate_texts

HYPOTHESES = ["Der Hund bellt.", "Ein Mann, der liest !", "Zwei Kinder spielen im Park", ""]
REFERENCES = ["Der Hund bellt laut.", "Ein Mann, der liest!", "Zwei kinder spielen in dem Park", "Nichts."]
OTHERS = ["der Hund bellt.", "Ein Leser", "Kinder spielen im Park", "Nichts ist da."]
SOURCES = ["The dog barks.", "A man who reads!", "Two children play in the park", "Nothing."]


def test_bleu_chrf_and_ter_equal_sacrebleus_functions() -> None:
    for references in ([REFERENCES], [REFERENCES, OTHERS]):
        report = evaluate_texts(SOURCES, HYPOTHESES, references, ["bleu", "chrf", "ter"])
        assert report.scores == {
            "bleu": sacrebleu.corpus_bleu(HYPOTHESES, references).score,
            "chrf": sacrebleu.corpus_chrf(HYPOTHESES, references).score,
            "ter": sacrebleu.corpus_ter(HYPOTHESES, references, case_sensitive=True).score,
        }
        assert list(report.scores) == list(report.signatures) == ["bleu", "chrf", "ter"]
        assert report.num_sentences == 4


def test_lowercase_reaches_every_metric_and_its_signature() -> None:
    metrics = ["bleu", "chrf", "ter", "wer", "item_error_rate", "per", "exact"]
    shouted = [line.upper() for line in REFERENCES]
    cased = evaluate_texts(SOURCES, shouted, [REFERENCES], metrics)
    lowered = evaluate_texts(SOURCES, shouted, [REFERENCES], metrics, lowercase=True)
    assert lowered.scores == close(
        {"bleu": 100, "chrf": 100, "ter": 0, "wer": 0, "item_error_rate": 0, "per": 0, "exact": 100},
        FLOAT64.ROW,
    )
    assert cased.scores["exact"] == 0
    for name in metrics:
        assert "case:mixed" in cased.signatures[name]
        assert "case:lc" in lowered.signatures[name]


def test_scores_and_signature_equal_the_command_line_of_sacrebleu(tmp_path: Path) -> None:
    for name, lines in (("hyp", HYPOTHESES), ("ref", REFERENCES), ("ref2", OTHERS)):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    command = ["sacrebleu", str(tmp_path / "ref"), str(tmp_path / "ref2"), "-i", str(tmp_path / "hyp")]
    code = "import sys; from sacrebleu.sacrebleu import main; sys.argv = sys.argv[1:]; main()"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            *command,
            "-w",
            "6",
            "-m",
            "bleu",
            "chrf",
            "ter",
            "--ter-case-sensitive",
        ],
        capture_output=True,
        check=True,
        text=True,
    )
    bleu, chrf, ter = json.loads(done.stdout)
    report = evaluate_texts(SOURCES, HYPOTHESES, [REFERENCES, OTHERS], ["bleu", "chrf", "ter"])
    assert report.scores["bleu"] == close(bleu["score"], FLOAT64.ROW.printed(6))
    assert report.scores["chrf"] == close(chrf["score"], FLOAT64.ROW.printed(6))
    assert report.scores["ter"] == close(ter["score"], FLOAT64.ROW.printed(6))
    assert report.signatures == {
        "bleu": bleu["signature"],
        "chrf": chrf["signature"],
        "ter": ter["signature"],
    }


def test_lines_of_one_source_are_one_item_of_the_error_rate() -> None:
    sources = ["READ", "LEAD", "READ", "CAT", "DOG"]
    references = ["R EH D", "L IY D", "R IY D", "K AE T", "D AO G"]
    outputs = ["R IY D", "L EH D", "R IY D", "K AE T", "D G"]
    report = evaluate_texts(sources, outputs, [references], ["item_error_rate", "per", "exact"])
    assert report.scores["item_error_rate"] == 50.0  # LEAD and DOG of four items
    assert report.scores["per"] == close(100 * 2 / 12, FLOAT64.ROW)
    assert report.scores["exact"] == 40.0  # the first READ differs from the reference of its own line
    heedful = version("heedful")
    assert report.signatures == {
        "item_error_rate": "items:4|correct:any listed reference|sources:grouped|unit:line|case:mixed"
        f"|heedful:{heedful}",
        "per": "items:4|distance:closest listed reference|sources:grouped|unit:token|case:mixed"
        f"|heedful:{heedful}",
        "exact": f"lines:5|correct:any reference|unit:line|case:mixed|heedful:{heedful}",
    }


def test_the_order_of_lines_does_not_change_a_score() -> None:
    sources = ["READ", "LEAD", "READ", "LEAD", "DOG"]
    references = ["R EH D", "L IY D", "R IY D", "L EH D Z", "D AO G"]
    outputs = ["R IY D", "L EH D", "R OW", "L", "D G"]
    metrics = ["wer", "item_error_rate", "per", "exact", "bleu", "chrf", "ter"]
    first = evaluate_texts(sources, outputs, [references], metrics)
    for seed in range(5):
        order = random.Random(seed).sample(range(5), 5)
        shuffled = [[side[i] for i in order] for side in (sources, outputs, references)]
        again = evaluate_texts(shuffled[0], shuffled[1], [shuffled[2]], metrics)
        assert again.scores == close(first.scores, FLOAT64.ROW)
    assert first.scores["item_error_rate"] == 100.0  # an item is correct when all that was put out for it is


@pytest.mark.parametrize(
    ("outputs", "references", "wanted"),
    [
        # a substitution, a deletion and an insertion over 4 words and 2
        (["the cat sat", "a big dog"], [["the dog sat down", "a dog"]], 100 * 3 / 6),
        (["one two three four"], [["one"]], 300.0),  # insertions alone may be more than the words
        ([""], [["x y"]], 100.0),
        (["x"], [[""]], 100.0),  # no words to be divided by
        (["a b"], [["a c d e"], ["a c"]], 50.0),  # the closest reference, and its length
        (["a b", "c d"], [["a b", "x y"]], 50.0),
    ],
)
def test_the_word_error_rate_is_that_counted_by_hand(
    outputs: list[str], references: list[list[str]], wanted: float
) -> None:
    sources = ["s"] * len(outputs)  # equal sources are not grouped
    report = evaluate_texts(sources, outputs, references, ["wer"])
    assert report.scores["wer"] == close(wanted, FLOAT64.ROW)
    assert report.signatures["wer"].startswith(
        f"lines:{len(outputs)}|distance:closest reference|unit:word|case:mixed|"
    )


def test_white_space_does_not_make_an_error() -> None:
    report = evaluate_texts(["a"], [" x  y\t"], [["x y"]], ["wer", "item_error_rate", "exact"])
    assert report.scores == {"wer": 0.0, "item_error_rate": 0.0, "exact": 100.0}


def test_the_closest_of_several_references_counts() -> None:
    report = evaluate_texts(["a"], ["x y"], [["p q r s"], ["x z"]], ["per", "wer", "item_error_rate"])
    assert report.scores == {"per": 50.0, "wer": 50.0, "item_error_rate": 100.0}


def test_an_unknown_metric_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"'blue'.*'bleu'"):
        evaluate_texts(["a"], ["b"], [["c"]], ["blue"])
    with pytest.raises(ConfigError, match="item_error_rate"):
        evaluate_texts(["a"], ["b"], [["c"]], ["xyzzy"])
    with pytest.raises(ConfigError, match="none given"):
        evaluate_texts(["a"], ["b"], [["c"]], [])


@pytest.mark.parametrize(
    ("sources", "outputs", "references", "message"),
    [
        (["a"], ["b", "b"], [["c", "c"]], "sources: 1 lines but there are 2 outputs"),
        (["a", "a"], ["b", "b"], [["c", "c"], ["c"]], "reference 2: 1 lines but there are 2 outputs"),
        (["a"], ["b"], [], "references: none given"),
        ([], [], [[]], "no lines to score"),
    ],
)
def test_numbers_of_lines_that_differ_are_refused(
    sources: list[str], outputs: list[str], references: list[list[str]], message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        evaluate_texts(sources, outputs, references, ["bleu"])


@given(st.lists(st.sampled_from("abc"), max_size=5), st.lists(st.sampled_from("abc"), max_size=5))
def test_the_edit_distance_equals_its_recursive_definition(left: list[str], right: list[str]) -> None:
    def distance(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        substituted = distance(i - 1, j - 1) + (left[i - 1] != right[j - 1])
        return min(distance(i - 1, j) + 1, distance(i, j - 1) + 1, substituted)

    assert edit_distance(left, right) == distance(len(left), len(right))


def test_a_report_becomes_one_flat_json_object() -> None:
    report = EvaluationReport({"bleu": 31.5, "wer": 20.0}, {"bleu": "nrefs:1", "wer": "items:2"}, 2)
    expected = {
        "bleu": 31.5,
        "wer": 20.0,
        "signatures": {"bleu": "nrefs:1", "wer": "items:2"},
        "sentences": 2,
    }
    assert report.as_dict() == expected
    assert json.loads(json.dumps(report.as_dict())) == expected
