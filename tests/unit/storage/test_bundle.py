import hashlib
import json
import re
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import heedful
from full_disk import files_limited_to, record_syncs
from safetensors.torch import load_file, save, save_file
from small_models import assert_same_weights, small_config
from tiny_bundle import memorised, save_memorised

from heedful.errors import BundleError, HeedfulError, OptionError
from heedful.model.transformer import Transformer
from heedful.settings.run import Config, TokenizerConfig
from heedful.storage.bundle import Bundle, load_bundle, load_model, save_bundle, save_model
from heedful.storage.description import FORMAT_VERSION, resolve_bundle
from heedful.storage.torch_weights import load_weights
from heedful.text import TokenizerPair, train_tokenizers

pytestmark = pytest.mark.by_class


LINES = ["ab ba", "abba baab abab", "a", "bab bab", "b a b"]
FILES = ["README.md", "config.json", "model.safetensors", "tokenizer.model"]


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return train_tokenizers(LINES * 4, LINES * 4, TokenizerConfig(kind="char", vocab_size=20), seed=1)


@pytest.mark.parametrize("changes", [{}, {"tied": "none", "output_bias": True, "positions": "learned"}])
def test_weights_are_the_bytes_that_safetensors_writes(
    changes: dict[str, Any], tokenizers: TokenizerPair, tmp_path: Path
) -> None:
    bundle = make(tokenizers, **changes)
    save_bundle(bundle, tmp_path / "best", card="")
    weights = {name: weight.detach() for name, weight in bundle.model.named_parameters()}
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert (tmp_path / "best" / "model.safetensors").read_bytes() == (
        tmp_path / "model.safetensors"
    ).read_bytes()


def make(tokenizers: TokenizerPair, seed: int = 1, **changes: Any) -> Bundle:  # noqa: ANN401
    size = tokenizers.src.vocab_size
    config = Config(model=small_config(src_vocab_size=size, tgt_vocab_size=size).replace(**changes))
    torch.manual_seed(seed)
    return Bundle(config, tokenizers, Transformer.from_config(config.model), scores={"bleu": 12.5})


@pytest.fixture
def saved(tokenizers: TokenizerPair, tmp_path: Path) -> Path:
    save_bundle(make(tokenizers), tmp_path / "best", card="# A card\n")
    return tmp_path / "best"


Change = Callable[[dict[str, Any]], object]
HUGE = 10**9


def rewrite(path: Path, change: Change, *, settings_sum: bool = False) -> None:
    """Change config.json, as an adversary would: with a fitting checksum where asked for."""
    file = path / "config.json"
    description = json.loads(file.read_text(encoding="utf-8"))
    change(description)
    if settings_sum:
        settings = {key: description[key] for key in ("config", "scores")}
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        description["sha256"]["settings"] = digest
    file.write_text(json.dumps(description), encoding="utf-8")


def write_description(path: Path, content: bytes) -> None:
    (path / "config.json").write_bytes(content)


def rewrite_settings(path: Path, section: str, **values: object) -> None:
    rewrite(path, lambda description: description["config"][section].update(values), settings_sum=True)


def replace_file(path: Path, name: str, content: bytes) -> None:
    """Write a file of a bundle, with a fitting checksum."""
    (path / name).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    rewrite(path, lambda description: description["sha256"].update({name: digest}))


def rewrite_weights(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the weights and the checksum with them."""
    weights = load_file(path / "model.safetensors")
    change(weights)
    replace_file(path, "model.safetensors", save(weights))


def refusal(path: Path) -> str:
    with pytest.raises(HeedfulError) as caught:
        load_bundle(path)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, BundleError)
    return str(caught.value)


@pytest.mark.parametrize("changes", [{}, {"tied": "none", "norm": "pre", "d_k": 3, "positions": "learned"}])
def test_a_loaded_bundle_is_the_saved_one_ready_for_use(
    tokenizers: TokenizerPair, tmp_path: Path, changes: dict[str, Any]
) -> None:
    bundle = make(tokenizers, **changes)
    save_bundle(bundle, tmp_path / "best", card="# A card\n")
    found = load_bundle(tmp_path / "best")
    assert found.config == bundle.config
    assert found.scores == {"bleu": 12.5}
    assert found.path == tmp_path / "best"
    assert found.tokenizers.fingerprint() == tokenizers.fingerprint()
    assert found.tokenizers.joint
    assert not found.model.training
    assert_same_weights(found.model, bundle.model)
    src, tgt_in = torch.tensor([[4, 5, 3]]), torch.tensor([[2, 6]])
    assert torch.equal(found.model(src, tgt_in), bundle.model.eval()(src, tgt_in))
    assert (tmp_path / "best" / "README.md").read_text(encoding="utf-8") == "# A card\n"


def test_a_bundle_is_these_files_and_nothing_beside_it(saved: Path) -> None:
    assert sorted(file.name for file in saved.iterdir()) == FILES
    assert len({file.stat().st_mode for file in saved.iterdir()}) == 1  # who may read one may read all
    assert [each.name for each in saved.parent.iterdir()] == ["best"]


def test_every_file_of_a_bundle_is_synced(
    tokenizers: TokenizerPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = record_syncs(monkeypatch)
    save_bundle(make(tokenizers), tmp_path / "best", card="")
    assert {file.stat().st_ino for file in (tmp_path / "best").iterdir()} <= synced


def test_separate_tokenizers_are_two_files(tmp_path: Path) -> None:
    config = TokenizerConfig(kind="char", vocab_size=20, joint=False)
    pair = train_tokenizers(LINES * 4, [line.upper() for line in LINES] * 4, config, seed=1)
    bundle = make(pair, tied="target")
    save_bundle(bundle, tmp_path / "best", card="")
    assert {"source.model", "target.model"} <= {file.name for file in (tmp_path / "best").iterdir()}
    assert not load_bundle(tmp_path / "best").tokenizers.joint


def test_the_model_alone_is_loaded_from_any_bundle_and_run(saved: Path) -> None:
    for path in (saved, saved.parent, str(saved)):
        model = load_model(path)
        assert not model.training
        assert_same_weights(model, load_bundle(saved).model)
    assert load_model(saved, dtype=torch.float64).output.weight.dtype == torch.float64
    (saved / "tokenizer.model").unlink()
    with pytest.raises(BundleError, match=r"tokenizer\.model"):
        load_model(saved)


def test_a_bundle_may_have_no_tokenizer_and_then_works_on_ids_alone(tmp_path: Path) -> None:
    config = Config(model=small_config())
    model = Transformer.from_config(config.model)
    save_model(model, tmp_path / "ids", config=config, card="# A card\n")
    assert sorted(file.name for file in (tmp_path / "ids").iterdir()) == FILES[:3]
    found = load_model(tmp_path / "ids")
    assert found.config == config.model
    assert_same_weights(found, model)
    assert "this bundle has no tokenizer; it works on ids" in refusal(tmp_path / "ids")


def test_a_shared_matrix_is_written_once_and_shared_again_when_loaded(saved: Path) -> None:
    weights = load_file(saved / "model.safetensors")
    assert [name for name in weights if "tokens" in name or name.startswith("output")] == [
        "encoder.embedding.tokens.weight"
    ]
    model = load_bundle(saved).model
    assert model.output.weight is model.decoder.embedding.tokens.weight
    assert model.output.weight is model.encoder.embedding.tokens.weight


def test_weights_are_stored_in_float32_and_loaded_as_asked(tokenizers: TokenizerPair, tmp_path: Path) -> None:
    bundle = make(tokenizers)
    bundle.model.bfloat16()
    save_bundle(bundle, tmp_path / "best", card="")
    weights = load_file(tmp_path / "best" / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    for dtype in (torch.float32, torch.bfloat16):
        model = load_model(tmp_path / "best", dtype=dtype)
        assert {parameter.dtype for parameter in model.parameters()} == {dtype}


def test_loading_touches_no_random_generator(saved: Path) -> None:
    torch.manual_seed(3)
    wanted = torch.randn(2)
    torch.manual_seed(3)
    load_bundle(saved)
    assert torch.equal(torch.randn(2), wanted)


def test_nothing_in_a_bundle_is_a_pickle(saved: Path) -> None:
    """The weights are a header in JSON and plain numbers; no file starts as a pickle or a zip of one does."""
    for file in saved.iterdir():
        assert not file.read_bytes().startswith((b"\x80", b"PK"))
    content = (saved / "model.safetensors").read_bytes()
    [length] = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert all(entry["dtype"] == "F32" for name, entry in header.items() if name != "__metadata__")


@pytest.mark.parametrize("name", [name for name in FILES if name != "README.md"])
@pytest.mark.parametrize("damage", ["truncate", "alter", "empty", "remove"])
def test_a_damaged_file_is_one_line_that_names_it(saved: Path, name: str, damage: str) -> None:
    content = (saved / name).read_bytes()
    middle = len(content) // 2
    (saved / name).unlink()
    if damage != "remove":
        altered = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        (saved / name).write_bytes({"truncate": content[:middle], "alter": altered, "empty": b""}[damage])
    if (name, damage) == ("config.json", "remove"):  # which makes it no bundle
        assert "no bundle" in refusal(saved)
    else:
        assert re.search(rf"{name}.*(altered|missing)", refusal(saved))


def test_a_file_is_not_replaced_by_a_bundle(saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("keep", encoding="utf-8")
    with pytest.raises(BundleError, match="notes"):
        save_bundle(load_bundle(saved), file)
    assert file.read_text(encoding="utf-8") == "keep"


def test_the_model_card_may_be_edited(saved: Path) -> None:
    (saved / "README.md").write_text("# Another card\n", encoding="utf-8")
    load_bundle(saved)


def test_a_newer_format_is_refused_before_anything_else_is_read(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    rewrite(saved, lambda description: description.update(format_version=FORMAT_VERSION + 1, config=None))
    assert f"format_version {FORMAT_VERSION + 1} " in refusal(saved)


@pytest.mark.parametrize(
    ("change", "settings_sum"),
    [
        (lambda description: description["config"]["model"].update(num_heads=4), False),
        (lambda description: description["scores"].update(bleu=99.0), False),
        *((lambda description, key=key: description.pop(key), False) for key in ("sha256", "config")),
        (lambda description: description.pop("format_version"), False),
        (lambda description: description.update(format_version="1"), False),
        (lambda description: description.update(sha256="none"), False),
        (lambda description: description.update(sha256={}), False),
        (lambda description: description.update(scores=None), False),
        (lambda description: description["sha256"].update({"../other.txt": "0" * 64}), True),
        (lambda description: description["sha256"].update({"/etc/passwd": "0" * 64}), True),
        (lambda description: description["sha256"].update({"": "0" * 64}), True),
        (lambda description: description["scores"].update(bleu="high"), True),
        (lambda description: description["scores"].update(bleu=[1]), True),
    ],
)
def test_an_altered_description_is_one_line(saved: Path, change: Change, settings_sum: bool) -> None:
    rewrite(saved, change, settings_sum=settings_sum)
    assert "config.json: " in refusal(saved)
    assert heedful("inspect", saved).err.count("\n") == 1


INNER = "encoder.layers.0.feed_forward.inner.weight"
BIAS = "decoder.layers.0.feed_forward_norm.bias"
BEYOND_MEMORY = {"d_model": 2**20, "num_heads": 2**16, "d_ff": 2**20, "positions": "alibi"}
LARGER = memorised().tokenizers.src.to_files()[".model"]
NO_OBJECTS = [b"[]", b"3", b"null", b"{", b"\xff\xfe", b"\xed\xa0\x80", b"[" * 100_000]
# Changes by somebody who writes checksums too, and what is named.
FORGED: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: rewrite_settings(path, "model", size=4), "model.size"),
    (lambda path: rewrite_settings(path, "model", **BEYOND_MEMORY), "has shape"),
    (lambda path: replace_file(path, "model.safetensors", b"x" * 100), "model.safetensors: "),
    (lambda path: rewrite_weights(path, lambda weights: weights.pop(BIAS)), f"'{BIAS}'"),
    (lambda path: rewrite_weights(path, lambda weights: weights.update(more=torch.zeros(3))), "'more'"),
    (lambda path: rewrite_weights(path, lambda weights: weights.update({INNER: torch.ones(3, 8)})), INNER),
    (lambda path: replace_file(path, "tokenizer.model", LARGER), "source tokenizer"),
    *((partial(write_description, content=content), "config.json: ") for content in NO_OBJECTS),
]  # fmt: skip


@pytest.mark.parametrize(("change", "named"), FORGED)
def test_what_does_not_belong_together_is_named(
    saved: Path, change: Callable[[Path], object], named: str
) -> None:
    change(saved)
    assert named in refusal(saved)


def test_a_wrong_shape_is_found_before_any_weight_is_changed(tokenizers: TokenizerPair) -> None:
    model, untouched = make(tokenizers).model, make(tokenizers).model
    weights = {name: torch.zeros_like(weight) for name, weight in model.named_parameters()}
    weights["encoder.layers.0.feed_forward_norm.bias"] = torch.zeros(3)
    with pytest.raises(BundleError, match="has shape"):
        load_weights(model, weights, Path("somewhere"))
    assert_same_weights(model, untouched)


def test_saving_replaces_an_older_bundle_as_a_whole_and_nothing_else(
    tokenizers: TokenizerPair, saved: Path
) -> None:
    (saved / "source.model").write_text("of an older bundle", encoding="utf-8")
    (saved / "photos").mkdir()
    (saved / "notes.txt").write_text("mine", encoding="utf-8")
    newer = make(tokenizers, seed=2)
    save_bundle(newer, saved, card="# Newer\n")
    assert sorted(file.name for file in saved.iterdir()) == sorted([*FILES, "notes.txt", "photos"])
    assert (saved / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert [each.name for each in saved.parent.iterdir()] == ["best"]
    assert_same_weights(load_bundle(saved).model, newer.model)


@pytest.mark.parametrize("limit", [0, 1000, 4000])
def test_a_full_disk_is_one_line_and_the_older_bundle_is_still_there(
    tokenizers: TokenizerPair, saved: Path, limit: int
) -> None:
    assert limit < (saved / "model.safetensors").stat().st_size
    with files_limited_to(limit), pytest.raises(BundleError) as caught:
        save_bundle(make(tokenizers, seed=2), saved, card="# Newer\n")
    assert "best: cannot be written" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [each.name for each in saved.parent.iterdir()] == ["best"]
    assert_same_weights(load_bundle(saved).model, make(tokenizers).model)


def test_a_place_that_cannot_be_written_is_one_line(tokenizers: TokenizerPair, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(BundleError, match="best: cannot be written"):
        save_bundle(make(tokenizers), tmp_path / "file" / "best", card="")


def test_an_interruption_leaves_the_older_bundle(
    tokenizers: TokenizerPair, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("heedful.storage.bundle.replace_directory", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_bundle(make(tokenizers, seed=2), saved, card="")
    assert_same_weights(load_bundle(saved).model, make(tokenizers).model)
    monkeypatch.undo()
    save_bundle(make(tokenizers, seed=2), saved, card="")  # what was left does not stand in the way
    assert [each.name for each in saved.parent.iterdir()] == ["best"]


@pytest.mark.parametrize("error", [OSError("disk gone"), KeyboardInterrupt()])
def test_failing_at_the_very_last_puts_the_older_bundle_back(
    tokenizers: TokenizerPair, saved: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name.endswith(".heedful-writing"):
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises((BundleError, KeyboardInterrupt)):
        save_bundle(make(tokenizers, seed=2), saved, card="")
    assert_same_weights(load_bundle(saved).model, make(tokenizers).model)


def test_a_bundle_that_is_being_replaced_can_be_loaded(tokenizers: TokenizerPair, saved: Path) -> None:
    """Another process was killed between two renames, or has its next one before it."""
    saved.rename(saved.with_name(".best.heedful-old"))
    assert_same_weights(load_bundle(saved.parent).model, make(tokenizers).model)
    shutil.copytree(saved.with_name(".best.heedful-old"), saved)
    assert resolve_bundle(saved.parent) == saved


def test_a_run_stands_for_its_best_bundle_else_its_last_else_itself(saved: Path) -> None:
    run = saved.parent
    shutil.copytree(saved, run / "last")
    assert resolve_bundle(run) == run / "best"
    assert resolve_bundle(str(run / "last")) == run / "last"
    shutil.rmtree(run / "best")
    assert resolve_bundle(run) == run / "last"
    assert load_bundle(run).path == run / "last"


@pytest.mark.parametrize("verb", ["inspect", "plot", "average -o averaged"])
def test_a_directory_of_runs_is_refused_with_the_name_of_one(verb: str, tmp_path: Path) -> None:
    """As `heedful train --seeds` leaves it."""
    (tmp_path / "seeds/seed-1").mkdir(parents=True)
    (tmp_path / "seeds/seed-1/config.toml").touch()
    name, *options = verb.split()
    outcome = heedful(name, str(tmp_path / "seeds"), *options)
    assert outcome.code == 1
    assert str(tmp_path / "seeds/seed-1") in outcome.err


def test_what_is_no_bundle_says_what_to_give(tmp_path: Path) -> None:
    assert "holds no bundle; give a run directory or a bundle" in refusal(tmp_path)
    assert "no such directory" in refusal(tmp_path / "none")
    (tmp_path / "config.toml").write_text("", encoding="utf-8")
    assert "this run has no bundle yet" in refusal(tmp_path)


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
    saved: Path, section: str, key: str, value: object
) -> None:
    values = {key: value}
    if section == "model" and ("vocab_size" in key or "pad_id" in key):
        values[key.replace("src", "tgt")] = value  # one matrix for both sides
    rewrite_settings(saved, section, **values)
    for load in (load_bundle, load_model):
        with pytest.raises(BundleError, match=f"{section}.{key}") as caught:
            load(saved)
        assert str(caught.value).count("\n") == 0
        assert len(str(caught.value)) < 400 + len(str(saved))


def test_a_model_with_more_tokens_than_its_tokenizer_writes_nothing_for_them(tmp_path: Path) -> None:
    bundle = load_bundle(save_memorised(tmp_path / "bundle"))
    size = bundle.tokenizers.tgt.vocab_size
    assert bundle.tokenizers.tgt.decode([size, size + 10**6]) == ""
    assert bundle.tokenizers.tgt.tokens([size + 5]) == [f"<{size + 5}>"]


def test_arguments_of_another_type_are_one_line(saved: Path) -> None:
    with pytest.raises(OptionError, match="dtype='float64'"):
        load_model(saved, dtype="float64")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="model"):
        save_model(None, saved)  # type: ignore[arg-type]
    with pytest.raises(BundleError, match="configuration"):
        load_model(saved, into=3)  # type: ignore[arg-type]
