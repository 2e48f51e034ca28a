"""What the export to ONNX and the runner refuse, in one line and before anything is written."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from onnx_models import random_bundle

from heedful import SearchOptions
from heedful.errors import InputError, InteropError, MissingExtraError, TokenizerError, install_hint
from heedful.interop.onnx.export import export_onnx
from heedful.interop.onnx.runtime import OnnxBackend, OnnxTranslator, settings_of
from heedful.model.positions import SinusoidalPositions, sinusoids


def names_in(directory: Path) -> set[str]:
    return {file.name for file in directory.iterdir()}


def test_positions_without_a_graph_are_refused_by_name(tmp_path: Path) -> None:
    def spirals(length: int, d_model: int) -> Any:  # noqa: ANN401
        return sinusoids(length, d_model)

    bundle = random_bundle()
    bundle.model.encoder.embedding.positions = SinusoidalPositions(20, spirals)
    with pytest.raises(InteropError, match="positions by spirals cannot be exported"):
        export_onnx(bundle, tmp_path / "model")
    assert names_in(tmp_path) == set()


def test_a_tag_that_the_tokenizer_lacks_is_refused(tmp_path: Path) -> None:
    bundle = random_bundle(sections={"languages": {"tgt_tag": "de"}})
    with pytest.raises(TokenizerError, match="'de' is not a tag of this model"):
        export_onnx(bundle, tmp_path / "model")
    assert names_in(tmp_path) == set()


@pytest.mark.parametrize("library", ["onnx", "onnxscript"])
def test_a_missing_exporter_is_named(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    message = f"needs onnx and onnxscript: {install_hint('interop')}"
    with pytest.raises(MissingExtraError, match=re.escape(message)):
        export_onnx(random_bundle(), tmp_path / "model")
    assert names_in(tmp_path) == set()


def test_a_missing_runtime_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=re.escape(f"needs onnxruntime: {install_hint('interop')}")):
        OnnxTranslator.load(tmp_path)


def files_without_graphs(directory: Path) -> Path:
    bundle = random_bundle()
    bundle.tokenizers.save(directory)
    (directory / "onnx_model.json").write_text(settings_of(bundle).model_dump_json())
    return directory


def test_a_directory_without_settings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InteropError, match=r"onnx_model\.json: No such file .* export --to onnx wrote"):
        OnnxTranslator.load(tmp_path)


@pytest.mark.parametrize(
    "change", [("{", "["), ('"eos_id":3,', ""), ('"format_version":1', '"format_version":2')]
)
def test_damaged_or_newer_settings_are_refused(change: tuple[str, str], tmp_path: Path) -> None:
    file = files_without_graphs(tmp_path) / "onnx_model.json"
    text = file.read_text()
    assert change[0] in text
    file.write_text(text.replace(*change))
    with pytest.raises(InteropError, match=r"onnx_model\.json: damaged, or of a newer heedful"):
        OnnxTranslator.load(tmp_path)


def test_a_missing_or_damaged_graph_is_refused(tmp_path: Path) -> None:
    files_without_graphs(tmp_path)
    with pytest.raises(InteropError, match=r"encoder\.onnx: missing; export the model again"):
        OnnxTranslator.load(tmp_path)
    (tmp_path / "encoder.onnx").write_bytes(b"no graph at all")
    with pytest.raises(InteropError, match=r"encoder\.onnx: ONNX Runtime cannot load it: .+") as error:
        OnnxTranslator.load(tmp_path)
    assert "\n" not in str(error.value)


def test_texts_and_options_that_cannot_be_are_refused() -> None:
    bundle = random_bundle(positions="learned", max_positions=4)
    translator = OnnxTranslator(OnnxBackend(None, None, src_pad_id=0), settings_of(bundle), bundle.tokenizers)
    with pytest.raises(InputError, match="texts: one string given"):
        translator.translate("r5 r6")
    with pytest.raises(InputError, match="give beam_size or options, not both"):
        translator.translate(["r5"], beam_size=2, options=SearchOptions())
    with pytest.raises(InputError, match="beam_size=0: must be at least 1"):
        translator.translate(["r5"], beam_size=0)
    with pytest.raises(InputError, match="line 2: 5 tokens, but this model's positions end at 4"):
        translator.translate(["r5", "r5 r6 r7 r8"])


@pytest.mark.parametrize("change", [{"start_id": 99}, {"src_suffix": [99]}])
def test_ids_beyond_the_vocabulary_are_refused(change: dict[str, object], tmp_path: Path) -> None:
    file = files_without_graphs(tmp_path) / "onnx_model.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InteropError, match=r"onnx_model\.json: id 99 is beyond the vocabulary"):
        OnnxTranslator.load(tmp_path)
