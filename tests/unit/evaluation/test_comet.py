"""COMET as a metric, with a package that has the functions of unbabel-comet 2.2.7 and simple scores."""

import re
import sys
from pathlib import Path

import pytest
from tolerances import FLOAT64, close

from heedful.errors import ConfigError, InputError, MissingExtraError
from heedful.evaluation.comet import Comet
from heedful.evaluation.measurement import Texts
from heedful.evaluation.metrics import compare_systems, evaluate_texts
from heedful.evaluation.tokenization import tokenization_of

# The score of a line: a hundredth for each equal character, of the source's length too.
STUB = """
import sys
from pathlib import Path
from types import SimpleNamespace

loaded = []


def load_from_checkpoint(checkpoint_path, reload_hparams=False, strict=False, local_files_only=False):
    if not local_files_only:
        raise AssertionError("would download")
    if Path(checkpoint_path).read_text() == "no tokenizer":
        raise OSError("cannot load the tokenizer of xlm-roberta-large")
    if Path(checkpoint_path).read_text() == "no hparams.yaml":
        raise Exception("hparams.yaml file is missing")
    loaded.append(checkpoint_path)
    return Model(Path(checkpoint_path).read_text())


class Model:
    def __init__(self, kind):
        self.kind = kind

    def requires_references(self):
        return self.kind != "quality estimation"

    def predict(
        self, samples, batch_size=16, gpus=1, devices=None, mc_dropout=0, progress_bar=True,
        accelerator="auto", num_workers=None, length_batching=True,
    ):
        wanted = {"src", "mt", "ref"} if self.requires_references() else {"src", "mt"}
        assert all(set(sample) == wanted for sample in samples)
        scores = [
            (len(each["src"]) + sum(a == b for a, b in zip(each["mt"], each.get("ref", "")))) / 100
            for each in samples
        ]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))
"""
SOURCES, OUTPUTS, REFERENCES = ["abcd", "ab"], ["xyz", "q"], ["xyA", "Q"]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory like those of published models, and the package on Python's path."""
    package = tmp_path / "site"
    (package / "comet").mkdir(parents=True)
    (package / "comet" / "__init__.py").write_text(STUB)
    (package / "unbabel_comet-2.2.7.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: unbabel-comet\nVersion: 2.2.7\n"
    (package / "unbabel_comet-2.2.7.dist-info" / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(package)
    monkeypatch.delitem(sys.modules, "comet", raising=False)
    folder = tmp_path / "models--Unbabel--wmt22-comet-da" / "snapshots" / "1a2b"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "model.ckpt").write_text("with references")
    return folder


def test_comet_scores_sources_outputs_and_references(model: Path) -> None:
    name = f"comet={model}"
    report = evaluate_texts(SOURCES, OUTPUTS, [REFERENCES], [name])
    assert report.scores == close({name: (4 + 2 + 2) / 2}, FLOAT64.ROW)  # in hundredths: 0.04 is 4
    signature = report.signatures[name]
    assert "model:Unbabel/wmt22-comet-da" in signature
    assert {"nrefs:1", "scale:100", "unbabel-comet:2.2.7"} <= set(signature.split("|"))
    lowered = evaluate_texts(SOURCES, OUTPUTS, [REFERENCES], [name], lowercase=True)
    assert lowered.scores[name] == close((4 + 2 + 2) / 2 + 1 / 2, FLOAT64.ROW)  # q is right, and a is not z


def test_a_model_of_quality_estimation_sees_no_references(model: Path) -> None:
    (model / "checkpoints" / "model.ckpt").write_text("quality estimation")
    name = f"comet={model / 'checkpoints' / 'model.ckpt'}"
    several = evaluate_texts(SOURCES, OUTPUTS, [REFERENCES, REFERENCES], [name])
    assert several.scores == close({name: 3.0}, FLOAT64.ROW)
    assert several.signatures[name].startswith("nrefs:0|")


def test_systems_are_compared_by_one_loaded_model(model: Path) -> None:
    name = f"comet={model}"
    first, second = compare_systems(SOURCES, [OUTPUTS, ["xy", "Q"]], [REFERENCES], [name], num_resamples=100)
    assert second.scores[name] > first.scores[name]
    assert set(second.confidence) == set(second.p_values) == {name}
    import comet  # type: ignore[import-not-found]

    assert comet.loaded == [str(model / "checkpoints" / "model.ckpt")]


def test_what_comet_lacks_is_said_before_anything_is_scored(model: Path, tmp_path: Path) -> None:
    for text in ("", str(tmp_path / "nowhere"), str(tmp_path)):
        with pytest.raises(ConfigError):
            Comet(text)
    texts = Texts(
        SOURCES, OUTPUTS, [REFERENCES, REFERENCES], lowercase=False, tokenization=tokenization_of([])
    )
    with pytest.raises(ConfigError, match="one reference"):
        Comet(str(model))(texts)
    with pytest.raises(InputError, match="--src"):
        evaluate_texts(None, OUTPUTS, [REFERENCES], [f"comet={model}"])
    (model / "checkpoints" / "model.ckpt").write_text("no tokenizer")
    with pytest.raises(ConfigError, match="xlm-roberta-large"):
        evaluate_texts(SOURCES, OUTPUTS, [REFERENCES], [f"comet={model}"])
    (model / "checkpoints" / "model.ckpt").write_text("no hparams.yaml")
    with pytest.raises(ConfigError, match=re.escape(str(model))):
        evaluate_texts(SOURCES, OUTPUTS, [REFERENCES], [f"comet={model}"])


def test_without_the_package_comet_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.evaluation.comet.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="unbabel-comet"):
        evaluate_texts(SOURCES, OUTPUTS, [REFERENCES], ["comet"])
