"""Bundles whose checksums are right and whose numbers are not: anybody can write one."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import heedful
from small_models import small_model
from tiny_bundle import save_memorised

from heedful.errors import BundleError, HeedfulError
from heedful.settings.run import Config
from heedful.storage.bundle import load_bundle, load_model
from heedful.storage.model_files import save_model

Change = Callable[[dict[str, Any]], object]
HUGE = 10**9


def rewritten(path: Path, change: Change) -> Path:
    """Change config.json of a bundle, and its checksum with it."""
    file = path / "config.json"
    description = json.loads(file.read_text(encoding="utf-8"))
    change(description)
    settings = {key: description[key] for key in ("config", "scores")}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    description["sha256"]["settings"] = digest
    file.write_text(json.dumps(description), encoding="utf-8")
    return path


def with_settings(section: str, **values: object) -> Change:
    return lambda description: description["config"][section].update(values)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        *(("model", "decoder_start_id", value) for value in (HUGE, 10**30, 5_000, -1)),
        *(("model", "src_pad_id", value) for value in (HUGE, -1)),
        *(("model", "src_vocab_size", value) for value in (0, HUGE, 10**30)),
        *(("model", key, 10**12) for key in ("d_model", "d_ff", "num_heads", "max_positions")),
        *(("model", key, 10**12) for key in ("relative_buckets", "relative_max_distance")),
        *(("decode", "forced_first_id", value) for value in (HUGE, 10**30, -1)),
        *(("decode", "forced_last_id", value) for value in (HUGE, -1)),
        *(("decode", "suppressed_ids", value) for value in ([1, HUGE], [-1])),
        *(("decode", key, HUGE) for key in ("beam_size", "n_best", "max_length", "max_length_offset")),
        ("decode", "min_length", HUGE),
    ],
)
def test_numbers_that_no_model_has_are_one_line_that_names_them(
    tmp_path: Path, section: str, key: str, value: object
) -> None:
    values = {key: value}
    if section == "model" and ("vocab_size" in key or "pad_id" in key):
        values[key.replace("src", "tgt")] = value  # one matrix for both sides
    path = rewritten(save_memorised(tmp_path / "bundle"), with_settings(section, **values))
    for load in (load_bundle, load_model):
        with pytest.raises(BundleError, match=f"{section}.{key}") as caught:
            load(path)
        assert str(caught.value).count("\n") == 0
        assert len(str(caught.value)) < 400 + len(str(path))


def test_the_command_line_says_so_in_one_line(tmp_path: Path) -> None:
    path = save_memorised(tmp_path / "bundle")
    rewritten(path, with_settings("model", decoder_start_id=HUGE))
    for engine in ("native", "torch"):
        outcome = heedful("translate", path, "--engine", engine, stdin=b"the cat sleeps .\n")
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
        assert f"model.decoder_start_id={HUGE} must be below model.tgt_vocab_size=" in outcome.err


def test_sizes_that_weights_do_not_have_are_found_before_any_memory_is_taken(tmp_path: Path) -> None:
    path = save_memorised(tmp_path / "bundle")
    rewritten(path, with_settings("model", d_model=2**20, num_heads=2**16, d_ff=2**20, positions="alibi"))
    with pytest.raises(BundleError, match="has shape"):
        load_bundle(path)


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(tmp_path: Path) -> None:
    tokenizer = (save_memorised(tmp_path / "other") / "tokenizer.model").read_bytes()
    path, model = tmp_path / "bundle", small_model()
    save_model(model, Config(model=model.config), path, card="")
    (path / "tokenizer.model").write_bytes(tokenizer)
    digest = hashlib.sha256(tokenizer).hexdigest()
    rewritten(path, lambda description: description["sha256"].update({"tokenizer.model": digest}))
    with pytest.raises(BundleError, match=r"source tokenizer has the id \d+, but the model has 11 tokens"):
        load_bundle(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda description: description["sha256"].update({"../other.txt": "0" * 64}),
        lambda description: description["sha256"].update({"/etc/passwd": "0" * 64}),
        lambda description: description["sha256"].update({"": "0" * 64}),
        lambda description: description["scores"].update(bleu="high"),
        lambda description: description["scores"].update(bleu=[1]),
    ],
)
def test_names_that_leave_the_bundle_and_scores_that_are_none_are_altered(
    tmp_path: Path, change: Change
) -> None:
    path = rewritten(save_memorised(tmp_path / "bundle"), change)
    with pytest.raises(HeedfulError, match=r"config\.json: .*copy the bundle again"):
        load_bundle(path)
    assert heedful("inspect", path).err.count("\n") == 1


def test_a_description_of_endless_depth_is_one_line(tmp_path: Path) -> None:
    path = save_memorised(tmp_path / "bundle")
    (path / "config.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(BundleError, match=r"config\.json"):
        load_bundle(path)


def test_a_model_with_more_tokens_than_its_tokenizer_writes_nothing_for_them(tmp_path: Path) -> None:
    bundle = load_bundle(save_memorised(tmp_path / "bundle"))
    size = bundle.tokenizers.tgt.vocab_size
    assert bundle.tokenizers.tgt.decode([size, size + 10**6]) == ""
    assert bundle.tokenizers.tgt.tokens([size + 5]) == [f"<{size + 5}>"]
