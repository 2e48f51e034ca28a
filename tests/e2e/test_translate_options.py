"""What `heedful translate` can be asked for besides a beam, through the command line."""

import json
from pathlib import Path

import pytest
from command_line import assert_one_clear_line, heedful, text
from tagged_bundle import nllb_like
from tiny_bundle import SOURCES, TARGETS

from heedful.decoding.translator import Translator
from heedful.storage.bundle import save_bundle


def test_samples_come_from_a_seed(run: Path) -> None:
    settings = ["--sample", "--temperature", 4, "--top-k", 20, "--n-best", 3, "--json"]
    outcome = heedful("translate", run, *settings, stdin=text(SOURCES))
    found = [json.loads(line) for line in outcome.out.splitlines()]
    assert all(len(each["hypotheses"]) == 3 for each in found)
    assert all(each["text"] == each["hypotheses"][0]["text"] for each in found)
    assert len({each["text"] for line in found for each in line["hypotheses"]}) > 9
    again = heedful("translate", run, *settings, "--seed", 0, "--batch-tokens", 9, stdin=text(SOURCES[::-1]))
    texts = [[each["text"] for each in line["hypotheses"]] for line in found]
    again_texts = [
        [each["text"] for each in json.loads(line)["hypotheses"]] for line in again.out.splitlines()
    ]
    assert again_texts[::-1] == texts
    other = heedful("translate", run, *settings, "--seed", 1, stdin=text(SOURCES))
    assert other.out != outcome.out


def test_cut_offs_leave_what_is_known_by_heart(run: Path) -> None:
    for settings in (["--top-p", 0.5], ["--min-p", 0.9], ["--epsilon", 0.6], ["--top-k", 1]):
        outcome = heedful("translate", run, "--sample", *settings, stdin=text(SOURCES))
        assert outcome.out == text(TARGETS).decode()


def test_the_most_agreed_upon_of_many_samples_is_taken(run: Path) -> None:
    settings = ["--mbr", 12, "--temperature", 1.5, "--seed", 3]
    outcome = heedful("translate", run, *settings, "--n-best", 2, "--json", stdin=text([*SOURCES, ""]))
    *found, empty = [json.loads(line) for line in outcome.out.splitlines()]
    assert [each["text"] for each in found] == TARGETS
    assert all(0 < each["score"] <= 100 for each in found)
    assert empty == {"source": "", "text": "", "score": 0.0, "confidence": None, "hypotheses": []}
    ranked = [[each["score"] for each in line["hypotheses"]] for line in found]
    assert all(scores == sorted(scores, reverse=True) and len(scores) <= 2 for scores in ranked)


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("greedy", ["--beam-size", 1]),
        ("beam:beam_size=3,early_stopping=first", ["--beam-size", 3, "--early-stopping", "first"]),
        ("diverse-beam:diversity_penalty=3", ["--beam-size", 4, "--num-groups", 2, "--diversity-penalty", 3]),
        (
            "sampling:temperature=4,top_k=20,seed=2",
            ["--sample", "--temperature", 4, "--top-k", 20, "--seed", 2],
        ),
        ("mbr:samples=12,temperature=1.5", ["--mbr", 12, "--temperature", 1.5]),
    ],
)
def test_a_strategy_by_its_name_is_that_of_the_options(
    run: Path, strategy: str, options: list[object]
) -> None:
    by_name = heedful("translate", run, "--strategy", strategy, "--json", stdin=text(SOURCES))
    assert by_name.code == 0
    assert by_name.out == heedful("translate", run, *options, "--json", stdin=text(SOURCES)).out


def test_outputs_begin_as_the_prefix_file_says(run: Path, tmp_path: Path) -> None:
    (tmp_path / "prefixes").write_bytes(text(["der Hund", "", "der"]))
    outcome = heedful("translate", run, "--prefix", tmp_path / "prefixes", stdin=text(SOURCES[:3]))
    first, second, third = outcome.out.splitlines()
    assert (first, second) == ("der Hund schläft .", TARGETS[1])
    assert third.startswith("der")


def test_lengths_and_repetitions_are_held_to_what_is_asked(run: Path) -> None:
    def pieces(*settings: object) -> list[list[str]]:
        outcome = heedful("translate", run, *settings, stdin=text(SOURCES))
        return [line.split() for line in outcome.out.splitlines()]

    assert max(map(len, pieces("--max-length", 2))) <= 2
    assert min(map(len, pieces("--min-length", 30, "--max-length", 30))) > max(map(len, pieces()))
    repeating = ["--min-length", 30, "--max-length", 30, "--beam-size", 1]
    once = [*repeating, "--no-repeat-ngram-size", 1]
    assert all(len(set(line)) < len(line) for line in pieces(*repeating))
    assert all(line.count(".") <= 1 for line in pieces(*once))
    assert pieces(*repeating, "--repetition-penalty", 2) != pieces(*repeating)


@pytest.mark.parametrize(
    ("settings", "code", "name"),
    [
        (["--n-best", 3, "--beam-size", 2], 2, "n_best=3"),
        (["--precision", "int3"], 2, "--precision"),
        (["--scores", "--json"], 2, "--json"),
        (["--beam-size", "0"], 2, "--beam-size"),
        (["--bean-size", "2"], 2, "--bean-size"),
        (["--beam-size", 4, "--num-groups", 3], 2, "num_groups=3"),
        (["--seed", 0], 2, "--sample"),
        (["--sample", "--beam-size", 4], 2, "--beam-size"),
        (["--strategy", "beam", "--beam-size", 4], 2, "--strategy"),
        (["--strategy", "beem"], 2, "'beam'"),
        (["--strategy", "greedy", "--n-best", 2], 2, "n_best=2"),
        (["--input", "nothing.txt"], 1, "nothing.txt"),
        (["--ensemble", "nothing"], 1, "nothing"),
    ],
)
def test_options_that_cannot_be_are_refused(run: Path, settings: list[object], code: int, name: str) -> None:
    """Values of each option are refused in tests/unit/decoding/test_search_options.py."""
    assert_one_clear_line(heedful("translate", run, *settings, stdin=text(SOURCES)), code, name)


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_an_unknown_value_of_heedful_bf16_is_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setenv("HEEDFUL_BF16", "maybe")
    outcome = heedful("translate", run, "--engine", engine, stdin=text(SOURCES))
    assert_one_clear_line(outcome, 2, "HEEDFUL_BF16=maybe")


@pytest.mark.parametrize("content", [b"der\n", b"der\n\nder\ndie\n", b"der\n\xff\n"])
def test_a_prefix_file_that_does_not_fit_is_named(run: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "prefixes").write_bytes(content)
    outcome = heedful("translate", run, "--prefix", tmp_path / "prefixes", stdin=text(SOURCES[:3]))
    assert outcome.code == 1
    assert "prefix" in outcome.err


def test_groups_of_a_beam_write_different_things(run: Path) -> None:
    settings = ["--beam-size", 4, "--n-best", 4, "--num-groups", 4, "--diversity-penalty", 30]
    outcome = heedful("translate", run, *settings, stdin=text(SOURCES))
    rows = [line.split(" ||| ") for line in outcome.out.splitlines()]
    for number, target in enumerate(TARGETS):
        found = [row[1] for row in rows if row[0] == str(number)]
        assert found[0] == target
        assert len({output.split(" ")[0] for output in found}) == 4


def test_several_models_translate_together(run: Path) -> None:
    more = ["--ensemble", run, "--ensemble", run / "best"]
    assert heedful("translate", run, *more, stdin=text(SOURCES)).out == text(TARGETS).decode()


def test_the_help_lists_options_under_headings() -> None:
    lines = heedful("translate", "--help-all").out.splitlines()
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings == [
        "Arguments:", "Options:", "Search:", "Output constraints:", "Marks:", "Sampling:",
        "Computing:", "Examples:",
    ]  # fmt: skip
    assert lines.index("Sampling:") < next(i for i, line in enumerate(lines) if "--top-p" in line)


LINES = "the house\na cat and a dog\n"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "bundle"
    save_bundle(nllb_like(), path, card="# Many languages\n")
    return path


def test_translate_takes_the_languages(bundle: Path) -> None:
    outcome = heedful(
        "translate", bundle, "--src-lang", "deu_Latn", "--tgt-lang", "fra_Latn", stdin=LINES.encode()
    )
    expected = Translator(nllb_like()).for_languages(src_lang="deu_Latn", tgt_lang="fra_Latn")
    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines() == expected.translate(LINES.splitlines())


def test_evaluate_takes_the_languages(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "src").write_text(LINES)
    outputs = tmp_path / "outputs"
    files = ["--src", tmp_path / "src", "--ref", tmp_path / "src", "--output", outputs]
    outcome = heedful("evaluate", bundle, *files, "--tgt-lang", "fra_Latn")
    assert outcome.code == 0, outcome.err
    expected = Translator(nllb_like()).for_languages(tgt_lang="fra_Latn")
    assert outputs.read_text().splitlines() == expected.translate(LINES.splitlines())


def test_an_unknown_language_is_one_line_and_writes_nothing(bundle: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    outcome = heedful("translate", bundle, "--tgt-lang", "fra", "-o", output, stdin=LINES.encode())
    assert_one_clear_line(outcome, 1, "tgt_lang", "'fra_Latn'")
    assert not output.exists()
