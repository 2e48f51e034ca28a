"""A model of many tasks is imported for one: its text stands before each source, as written by hand."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import heedful, text
from pretrained_models import FAMILIES, end_sooner
from small_tokenizers import phrases

from heedful import Translator, load_bundle
from heedful.errors import InteropError, TokenizerError
from heedful.tasks.exchange import import_model
from heedful.text.special_tokens import SpecialTokens

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using the model-agnostic default `max_length`"),
    pytest.mark.filterwarnings("ignore:builtin type .*has no __module__ attribute:DeprecationWarning"),
]
TASK, PREFIX = "translation_en_to_de", "translate English to German: "
# As T5's config.json has them.
TASKS = {
    "summarization": {"length_penalty": 2.0, "min_length": 3, "num_beams": 4, "prefix": "summarize: "},
    TASK: {"early_stopping": True, "max_length": 12, "num_beams": 3, "prefix": PREFIX},
}
LINES = [*phrases()[0][:12], "", "  two  spaces", "<extra_id_0> begins"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Any]]:
    """A T5 without generation_config.json, as the published ones were."""
    directory = tmp_path_factory.mktemp("t5")
    model = FAMILIES["t5"].save(directory, num_beams=1)
    end_sooner(model, 4.0)
    model.save_pretrained(directory)
    (directory / "generation_config.json").unlink()
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "task_specific_params": TASKS}))
    yield directory, model


def imported(directory: Path, output: Path, **options: Any) -> tuple[Translator, list[str]]:  # noqa: ANN401
    notes: list[str] = []
    import_model(directory, output=output, **options, notify=notes.append)
    return Translator(load_bundle(output)), notes


def generated(directory: Path, model: Any, name: str, lines: list[str]) -> list[str]:  # noqa: ANN401
    """The outputs of transformers with the task's text before each line, and its search."""
    from transformers import T5Tokenizer

    tokenizer = T5Tokenizer.from_pretrained(directory)
    search = {key: value for key, value in TASKS[name].items() if key != "prefix"}
    never = [[i] for i in range(len(tokenizer) - 100, model.config.vocab_size)]
    outputs = []
    for line in lines:
        batch = tokenizer([f"{TASKS[name]['prefix']}{line}"], return_tensors="pt")
        with torch.no_grad():
            ids = model.generate(**batch, **search, bad_words_ids=never)[0].tolist()
        outputs.append(tokenizer.decode(ids, skip_special_tokens=True).strip())
    return outputs


@pytest.mark.parametrize("name", TASKS)
def test_outputs_equal_those_of_a_text_written_by_hand(
    name: str, saved: tuple[Path, Any], tmp_path: Path
) -> None:
    directory, model = saved
    translator, notes = imported(directory, tmp_path / "bundle", task=name)
    lines = [line for line in LINES if line]
    assert translator.translate(lines) == generated(directory, model, name, lines)
    assert any(str(TASKS[name]["prefix"]) in note for note in notes)
    assert translator.translate([""]) == [""]
    without, notes = imported(directory, tmp_path / "without")
    assert any(TASK in note for note in notes)
    search = translator.codec.default
    by_hand = without.translate([f"{TASKS[name]['prefix']}{line}" for line in lines], options=search)
    assert translator.translate(lines) == by_hand


def test_every_verb_puts_the_text_before_a_source(saved: tuple[Path, Any], tmp_path: Path) -> None:
    imported(saved[0], tmp_path / "with", task=TASK)
    imported(saved[0], tmp_path / "without")
    english, german = phrases()[0][:6], phrases()[1][:6]
    files = {"plain": english, "by-hand": [f"{PREFIX}{line}" for line in english], "de": german}
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    search = ("--beam-size", "3", "--max-length", "11", "--early-stopping", "first")
    verbs = {
        "score": ("--src", "--tgt", ()),
        "evaluate": ("--src", "--ref", (*search, "--resamples", "0", "--json")),
    }
    for verb, (src, tgt, options) in verbs.items():
        own, by_hand = (
            heedful(verb, tmp_path / bundle, src, tmp_path / source, tgt, tmp_path / "de", *options)
            for bundle, source in (("with", "plain"), ("without", "by-hand"))
        )
        assert own.code == by_hand.code == 0, own.err + by_hand.err
        assert _numbers(own.out) == _numbers(by_hand.out)


def _numbers(output: str) -> object:
    if not output.startswith("{"):
        return output
    return {
        key: value
        for key, value in json.loads(output).items()
        if isinstance(value, float) and key != "seconds"
    }


def test_a_fine_tuned_model_keeps_the_text(saved: tuple[Path, Any], tmp_path: Path) -> None:
    imported(saved[0], tmp_path / "bundle", task=TASK)
    for name, lines in (("en", [*phrases()[0][:20]]), ("de", [*phrases()[1][:20]])):
        (tmp_path / f"t.{name}").write_bytes(text(lines))
    settings = {
        "batch.tokens": 512, "data.allow_overlap": "true", "schedule.name": "constant", "schedule.peak": 1e-3,
        "schedule.warmup_steps": 1, "train.max_steps": 2, "train.processes": 1, "train.threads": 1,
        "train.average_checkpoints": 1, "valid.decode_sentences": 0, "valid.every_steps": 2,
        "train.precision": "float32",
    }  # fmt: skip
    files = [f"--{side}={tmp_path / 't'}.{lang}" for side, lang in (("src", "en"), ("tgt", "de"))]
    files += [f"--valid-{side}={tmp_path / 't'}.{lang}" for side, lang in (("src", "en"), ("tgt", "de"))]
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    outcome = heedful("train", "--init", tmp_path / "bundle", *files, "--output", tmp_path / "run", *options)
    assert outcome.code == 0, outcome.err
    bundle = load_bundle(tmp_path / "run" / "last")
    template = SpecialTokens.of(bundle.config, bundle.tokenizers)
    assert bundle.config.languages.src_prefix == PREFIX
    assert [*template.src_prefix] == bundle.tokenizers.src.encode(PREFIX)


def test_a_text_that_the_tokenizer_joins_with_the_source_is_refused(
    saved: tuple[Path, Any], tmp_path: Path
) -> None:
    imported(saved[0], tmp_path / "bundle")
    bundle = load_bundle(tmp_path / "bundle")
    for prefix in ("to:", "<extra_id_0>x"):
        languages = bundle.config.languages.replace(src_prefix=prefix)
        with pytest.raises(TokenizerError, match="src_prefix"):
            SpecialTokens.of(bundle.config.replace(languages=languages.model_dump()), bundle.tokenizers)
    with pytest.raises(InteropError, match=TASK):
        imported(saved[0], tmp_path / "other", task="translation_en_to_xx")


def test_the_begin_token_that_an_older_bart_forces_is_forced(tmp_path: Path) -> None:
    """By force_bos_token_to_be_generated in config.json, where no generation_config.json replaces it."""
    from transformers import GenerationConfig

    model = FAMILIES["bart"].save(tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").unlink()
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config |= {"force_bos_token_to_be_generated": True, "max_length": 9}
    config.pop("forced_bos_token_id", None)
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    translator, _ = imported(tmp_path / "model", tmp_path / "bundle")
    theirs = GenerationConfig.from_model_config(
        type(model.config).from_pretrained(tmp_path / "model")
    ).forced_bos_token_id
    assert translator.codec.special_tokens.tgt_prefix == (theirs,)
    assert replace(translator.codec.default).forced_first_id is None
