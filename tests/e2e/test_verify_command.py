"""`heedful verify`: what a bundle recorded of itself is compared, and a change is named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import heedful, refusal, text
from safetensors.numpy import load, save
from ten_pairs import ENGLISH, as_options, write_pairs
from tiny_bundle import SOURCES, save_memorised

import heedful as library
from heedful.evaluation.verification import VERIFICATION_FILE, Record
from heedful.storage.description import WEIGHTS_FILE, add_file
from heedful.tasks.verify import Verification, verify

CHANGED = "decoder.layers.1.feed_forward.inner.weight"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with a record of its own sentences."""
    path = tmp_path_factory.mktemp("recorded") / "bundle"
    save_memorised(path)
    source = path.with_name("important.en")
    source.write_bytes(text(SOURCES))
    assert heedful("verify", path, "--write", "--src", source).code == 0
    return path


@pytest.fixture
def bundle(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "bundle"))


def verdicts(found: Verification) -> dict[str, str]:
    return {finding.part: finding.verdict for finding in found.findings}


def change_weights(bundle: Path, name: str, change: Callable[[np.ndarray], None]) -> None:
    weights = load((bundle / WEIGHTS_FILE).read_bytes())
    weights[name] = weights[name].copy()
    change(weights[name])
    add_file(bundle, WEIGHTS_FILE, save(weights))


def test_a_model_says_what_it_said(recorded: Path) -> None:
    record = Record.read(recorded)
    assert record is not None
    assert record.sources == SOURCES
    assert {"native float32", "torch float32"} <= record.answers.keys()
    found = verdicts(verify(recorded))
    assert {*found.values()} == {"equal"}
    assert {"weights", "tokens", "layers", *record.answers} == found.keys()


def test_one_weight_that_changed_by_a_hundredth_is_named(bundle: Path) -> None:
    def by_a_hundredth(weight: np.ndarray) -> None:
        weight.flat[7] *= 1.01

    change_weights(bundle, CHANGED, by_a_hundredth)
    outcome = heedful("verify", bundle, "--json")
    assert outcome.code == 1
    printed = json.loads(outcome.out)
    assert not printed["is_right"]
    [differing] = [finding for finding in printed["findings"] if finding["verdict"] == "differs"]
    assert differing["part"] == "weights"
    assert CHANGED in differing["detail"]


def test_the_first_layer_that_returns_something_else_is_named(bundle: Path) -> None:
    def to_nothing(weight: np.ndarray) -> None:
        weight[:] = 0

    change_weights(bundle, CHANGED, to_nothing)
    found = {finding.part: finding for finding in verify(bundle).findings}
    assert found["layers"].verdict == "differs"
    assert found["layers"].detail.startswith("from decoder.layers.1 on:")
    assert found["native float32"].verdict == found["torch float32"].verdict == "differs"
    assert found["tokens"].verdict == "equal"


def test_an_engine_without_a_record_is_compared_with_another(bundle: Path) -> None:
    record = Record.read(bundle)
    assert record is not None
    of_one = record.model_copy(update={"answers": {"torch float32": record.answers["torch float32"]}})
    add_file(bundle, VERIFICATION_FILE, of_one.model_dump_json().encode())
    found = {finding.part: finding for finding in verify(bundle).findings}
    assert "to torch float32's" in found["native float32"].detail
    assert found["native float32"].verdict == "equal"
    assert found["native int8"].verdict == "near"


def test_a_vocabulary_without_words_is_enough(tmp_path: Path) -> None:
    save_memorised(tmp_path / "bundle")
    assert library.verify(tmp_path / "bundle", write=True).is_right
    record = Record.read(tmp_path / "bundle")
    assert record is not None
    assert len(record.sources) > 100


def test_what_cannot_be_verified_is_refused(bundle: Path, tmp_path: Path) -> None:
    save_memorised(tmp_path / "new")
    assert "heedful verify" in refusal(heedful("verify", tmp_path / "new"))
    assert "--write" in refusal(heedful("verify", bundle, "--src", tmp_path / "s"))
    (tmp_path / "empty").write_bytes(b"\n\n")
    assert "no sentences" in refusal(heedful("verify", bundle, "--write", "--src", tmp_path / "empty"))
    add_file(bundle, VERIFICATION_FILE, b'{"sources": 1}')
    assert "verify --write" in refusal(heedful("verify", bundle))


def test_training_records_the_best_model(tmp_path: Path) -> None:
    steps = as_options({"train.max_steps": 5, "valid.every_steps": 5})
    assert heedful("train", *write_pairs(tmp_path), *steps, "--output", tmp_path / "run").code == 0
    record = Record.read(tmp_path / "run" / "best")
    assert record is not None
    assert record.sources == [*ENGLISH]
    assert verify(tmp_path / "run").is_right


def test_a_service_does_not_start_with_a_model_that_says_something_else(bundle: Path) -> None:
    change_weights(bundle, CHANGED, lambda weight: np.negative(weight, out=weight))
    assert CHANGED in refusal(heedful("serve", f"en-de={bundle}", "--verify", "--port", "0"))
