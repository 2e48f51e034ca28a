"""COMET (Rei et al., 2020; the package unbabel-comet) as a metric: `comet=MODEL`.

MODEL is a checkpoint on this machine. Nothing is downloaded: neither the model nor the tokenizer of its
encoder, which must be in the cache of the Hugging Face hub. unbabel-comet 2.2.7 needs numpy below 2 and
transformers below 5: install it with heedful, without extras, in a virtual environment of its own.
"""

from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from heedful.errors import ConfigError, MissingExtraError
from heedful.evaluation.measurement import Measurement, Texts
from heedful.settings.parsing import short

_HOW = "heedful evaluate --metric comet=MODEL"
_GET = "python -c \"import comet; print(comet.download_model('Unbabel/wmt22-comet-da'))\""


class Comet:
    """Scores translations by a trained model, from sources, outputs and references, or without references.

    Args:
        model: a COMET checkpoint, or the directory that has checkpoints/model.ckpt and hparams.yaml.

    Raises:
        MissingExtraError: unbabel-comet is not installed.
        ConfigError: no model is given, or it cannot be loaded.
    """

    def __init__(self, model: str) -> None:
        """Check that there is a model; it is loaded when it is first called."""
        if find_spec("comet") is None:
            raise MissingExtraError("comet needs unbabel-comet: pip install unbabel-comet")
        if not model:
            raise ConfigError(f"comet needs the path of its model: {_HOW}; to download one: {_GET}")
        path = Path(model).expanduser()
        self._path = path / "checkpoints" / "model.ckpt" if path.is_dir() else path
        if not self._path.is_file():
            raise ConfigError(f"{self._path}: there is no COMET model; to download one: {_GET}")

    def __call__(self, texts: Texts) -> Measurement:
        """Return 100 times the mean score of the lines.

        Raises:
            InputError: the sources are not known.
            ConfigError: the model cannot be loaded, or takes one reference and there are several.
        """
        sources, needs_references = texts.sources_for("comet"), self._model.requires_references()
        columns = {"src": sources, "mt": texts.hypotheses}
        if needs_references:
            if len(texts.references) > 1:
                raise ConfigError(f"comet takes one reference, and there are {len(texts.references)}")
            columns["ref"] = texts.references[0]
        if texts.lowercase:
            columns = {name: [line.lower() for line in lines] for name, lines in columns.items()}
        samples = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        gpus = 1 if import_module("torch").cuda.is_available() else 0
        scores = self._model.predict(samples, batch_size=16, gpus=gpus, progress_bar=False).scores
        signature = (
            f"nrefs:{int(needs_references)}|case:{'lc' if texts.lowercase else 'mixed'}|scale:100"
            f"|model:{self._name}|unbabel-comet:{version('unbabel-comet')}"
        )
        return Measurement.percentage([(score, 1) for score in scores], signature)

    @cached_property
    def _model(self) -> Any:  # noqa: ANN401
        try:
            return import_module("comet").load_from_checkpoint(str(self._path), local_files_only=True)
        except Exception as error:  # errors of torch, pickle and comet have no common class
            remedy = f"a checkpoint is in a folder beside its hparams.yaml; to download one: {_GET}"
            if isinstance(error, OSError):
                remedy = "the tokenizer of its encoder may have to be downloaded first"
            reason = f"{type(error).__name__}: {short(str(error))}"
            raise ConfigError(f"{self._path}: cannot be loaded ({reason}); {remedy}") from error

    @property
    def _name(self) -> str:
        """The model's name: of the hub, models--Unbabel--wmt22-comet-da, or of its directory."""
        of_hub = [part for part in self._path.parts if part.startswith("models--")]
        folder = of_hub[-1] if of_hub else self._path.parent.parent.name
        return folder.removeprefix("models--").replace("--", "/")
