"""Outputs that end at their length limit are counted, and the limit comes from the training text."""

import json
import math
from pathlib import Path

import pytest
from command_line import heedful, text
from ten_pairs import as_options
from tiny_bundle import PAIRS, SOURCES, TARGETS, memorised, save_memorised

from heedful.decoding.options import SearchOptions
from heedful.decoding.translator import Translator
from heedful.storage.bundle import load_bundle
from heedful.training.events import CUT_OUTPUTS

TINY: dict[str, object] = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.num_heads": 2,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.dropout": 0.0,
    "data.cache_dir": "cache",
    "tokenizer.kind": "char",
    "tokenizer.vocab_size": 60,
    "batch.tokens": 2000,
    "train.max_steps": 2,
    "train.threads": 1,
    "train.processes": 1,
    "train.precision": "float32",
    "train.ema_decay": 0.0,
    "valid.every_steps": 2,
}
# Targets of many more characters than their sources, as from Chinese into English.
SHORT = ["老师买书。", "孩子卖车。", "医生看花。", "妹妹找信。"]
LONG = [
    "the teacher of our small village school bought another interesting book about old ships.",
    "the youngest child of the family next door sold a small red car with four new wheels.",
    "the doctor from the hospital by the river looked at a bunch of beautiful flowers.",
    "my younger sister who lives in the city searched for the long letter from abroad.",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with text."""
    monkeypatch.chdir(tmp_path)
    for name, lines in {"t.zh": SHORT, "t.en": LONG, "v.zh": SHORT[::-1], "v.en": LONG}.items():
        Path(name).write_bytes(text(lines))
    Path("v.en").write_bytes(text([line.upper() for line in LONG[::-1]]))
    return tmp_path


def train(output: str, *arguments: object, src: str = "t.zh", tgt: str = "t.en", **settings: object) -> str:
    named = {key.replace("__", "."): value for key, value in settings.items()}
    files = ["--src", src, "--tgt", tgt, "--valid-src", "v.zh", "--valid-tgt", "v.en"]
    outcome = heedful(
        "train", "--preset", "tiny", *files, *as_options(TINY | named), *arguments, "--output", output
    )
    assert outcome.code == 0, outcome.err
    return outcome.err


def validations(run: str) -> list[dict[str, float]]:
    events = map(json.loads, Path(run, "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [event for event in events if event["event"] == "validation"]


@pytest.mark.parametrize(
    "settings",
    [{}, {"tokenizer__kind": "byte"}, {"tokenizer__joint": "false", "model__tied": "target"}],
    ids=["char", "byte", "separate"],
)
def test_the_limit_is_that_of_the_training_text(folder: Path, settings: dict[str, object]) -> None:
    """6.1's limit, the source + 50, is for one vocabulary of both languages; a bundle states its own."""
    train("run", **settings)
    bundle = load_bundle("run/last")
    options, tokenizers = SearchOptions.from_config(bundle.config.decode), bundle.tokenizers
    lengths = [
        (len(tokenizers.src.encode(src)) + 1, len(tokenizers.tgt.encode(tgt)) + 1)
        for src, tgt in zip(SHORT, LONG, strict=True)
    ]
    assert any(tgt > src + 50 for src, tgt in lengths)
    assert all(tgt + 50 <= options.length_limit(src) for src, tgt in lengths)
    assert options.max_length_ratio == math.ceil(100 * max(tgt / src for src, tgt in lengths)) / 100
    [source] = Translator(bundle).codec.encode([SHORT[0]], None, options, first_line=1).sources
    assert source.limit == options.length_limit(lengths[0][0])


def test_outputs_that_end_at_the_limit_are_in_the_log_and_no_score(folder: Path) -> None:
    err = train("run")  # after two steps a model does not end its outputs
    [event] = validations("run")
    assert event[CUT_OUTPUTS] == 4
    assert "4 outputs" in err
    assert "warning: line" not in err
    assert CUT_OUTPUTS not in load_bundle("run/last").scores


def test_a_limit_that_is_set_stays(folder: Path) -> None:
    train("run", decode__max_length_ratio=3)
    assert load_bundle("run/last").config.decode.max_length_ratio == 3
    train("other", "--init", "run")  # a base model's limit is no lower than that of the new text
    assert load_bundle("other/last").config.decode.max_length_ratio > 3
    train("third", "--init", "other", src="t.en", tgt="t.zh", data__allow_overlap="true")
    assert (
        load_bundle("third/last").config.decode.max_length_ratio
        == load_bundle("other/last").config.decode.max_length_ratio
    )


def test_prepared_text_and_a_resumed_run_have_the_same_limit(folder: Path) -> None:
    train("run")
    prepared = [*as_options({key: TINY[key] for key in TINY if key.startswith(("tokenizer", "data"))})]
    outcome = heedful("prepare", "--src", "t.zh", "--tgt", "t.en", *prepared, "--output", "ids")
    assert outcome.code == 0, outcome.err
    files = ["--pairs", "ids", "--valid-src", "v.zh", "--valid-tgt", "v.en"]
    outcome = heedful("train", "--preset", "tiny", *files, *as_options(TINY), "--output", "of-ids")
    assert outcome.code == 0, outcome.err
    outcome = heedful("train", "--resume", "--output", "run", *as_options({"train.max_steps": 3}))
    assert outcome.code == 0, outcome.err
    first, of_ids, resumed = (
        load_bundle(name).config.decode for name in ("run/best", "of-ids/last", "run/last")
    )
    assert first.max_length_ratio == of_ids.max_length_ratio == resumed.max_length_ratio


def test_translate_and_evaluate_say_how_many_outputs_are_cut(run: Path, tmp_path: Path) -> None:
    limit = ["--max-length", 3]  # two words and a half of each
    outcome = heedful("translate", run, "--json", *limit, stdin=text([*SOURCES, ""]))
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert [[each["finished"] for each in row["hypotheses"]] for row in rows] == [[False]] * 6 + [[]]
    assert outcome.err.count("warning: ") == 1
    assert "6" in outcome.err
    assert "warning" not in heedful("translate", run, stdin=text(SOURCES)).err
    (tmp_path / "src").write_bytes(text([*SOURCES, SOURCES[0]]))  # translated once, counted twice
    (tmp_path / "ref").write_bytes(text([*TARGETS, TARGETS[0]]))
    files = ["--src", tmp_path / "src", "--ref", tmp_path / "ref", "--resamples", 0]
    assert json.loads(heedful("evaluate", run, *files, "--json").out)[CUT_OUTPUTS] == 0
    assert json.loads(heedful("evaluate", run, *files, "--json", *limit).out)[CUT_OUTPUTS] == 7
    assert "7 outputs" in heedful("evaluate", run, *files, *limit).out


def test_of_shards_each_has_its_number_in_the_manifest(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, lines in (("a", SOURCES), ("b", SOURCES[:2])):
        (tmp_path / "in" / name).write_bytes(text(lines))
    for name, limit, numbers in (("cut", ["--max-length", 3], [6, 2]), ("whole", [], [0, 0])):
        outcome = heedful("translate", run, "-i", tmp_path / "in", "-o", tmp_path / name, *limit)
        manifest = json.loads((tmp_path / name / "manifest.json").read_text(encoding="utf-8"))
        assert [shard["num_cut"] for shard in manifest["parts"].values()] == numbers
        assert outcome.err.count("warning: ") == bool(limit)


def test_a_translation_says_whether_it_is_finished() -> None:
    translator = Translator(memorised())
    whole, empty = translator.translations([SOURCES[0], ""])
    [cut] = translator.translations([SOURCES[0]], options=SearchOptions(max_length=2))
    assert (whole.finished, empty.finished, cut.finished) == (True, True, False)


@pytest.mark.parametrize("verb", ["distill", "back-translate"])
def test_pairs_of_cut_outputs_are_left_out(folder: Path, verb: str) -> None:
    save_memorised(folder / "model" / "best")
    lengths = [len(memorised().tokenizers.tgt.encode(target)) + 1 for target in TARGETS]
    limit = sorted(lengths)[3]
    complete = sum(length <= limit for length in lengths)
    assert 0 < complete < len(PAIRS)
    Path("s.en").write_bytes(text([*SOURCES, ""]))
    Path("few.en").write_bytes(text(SHORT))
    Path("few.de").write_bytes(text(LONG))
    texts = (
        ["--src", "s.en"] if verb == "distill" else ["--mono", "s.en", "--src", "few.en", "--tgt", "few.de"]
    )
    settings = TINY | {"tokenizer.bundle": "false", "decode.max_length": 20}
    outcome = heedful(
        verb, "model", *texts, "--valid-src", "v.zh", "--valid-tgt", "v.en", "--preset", "tiny",
        "--max-length", limit, *as_options(settings), "-o", "run",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    written = next(Path("run/synthetic").glob("translated*")).read_text(encoding="utf-8").split("\n")
    assert [*filter(None, written)] == [
        target for target, length in zip(TARGETS, lengths, strict=True) if length <= limit
    ]
    assert f"{len(PAIRS) - complete} whose translation ended at the length limit" in outcome.err
    assert "ended at the length limit" in Path("run/last/README.md").read_text(encoding="utf-8")
