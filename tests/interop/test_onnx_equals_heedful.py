"""An exported model gives heedful's own numbers and outputs, at any batch size and length."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from command_line import Outcome, heedful
from onnx_models import backend_of, random_bundle, random_ids, random_texts, stepwise_log_probs
from option_models import LLAMA, OPTIONS
from tolerances import FLOAT32, assert_close, close
from torch import Tensor

from heedful import SearchOptions, Translator
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.protocol import Greedy, Strategy
from heedful.decoding.strategies.sampling import MinimumBayesRisk, Sampling
from heedful.errors import InputError, InteropError, MissingExtraError, TokenizerError, install_hint
from heedful.interop.onnx.export import ComputedSinusoids, export_onnx, exportable
from heedful.interop.onnx.runtime import OnnxBackend, OnnxSettings, OnnxTranslator, onnx_settings
from heedful.model.positions import SinusoidalPositions, sinusoids
from heedful.model.transformer import SINUSOIDS
from heedful.storage.bundle import Bundle, save_bundle

SIZES = [(1, 1, 1), (1, 1, 7), (3, 5, 2), (2, 1, 3), (4, 29, 31), (1, 70, 3)]  # rows, source, target
# Options that stand for many others: no other test here exports a model, which takes seconds.
MIXED = LLAMA | {"d_v": 3, "embedding_norm": True, "output_bias": True}
ONE_LAYER = {"num_encoder_layers": 1, "num_decoder_layers": 1}
MORE: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "learned": {"positions": "learned", "max_positions": 70},
    "gelu": {"activation": "gelu"},
    "encoder-norm": {"embedding_norm": "encoder"},
    "norms": {"embedding_norm": True, "final_norm": True, "layer_norm_eps": 1e-2},
    "no-scale": {"scale_embeddings": False},
    "output-bias": {"output_bias": True},
    "untied": {"tied": "none", "num_encoder_layers": 1, "num_decoder_layers": 3},
    "alibi-six-heads": {"positions": "alibi", "num_heads": 6, "d_k": 4, "d_v": 4},
}
EVERY = OPTIONS | MORE
TEXTS = [*random_texts(16, longest=12), "", " "]


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Path]:
    """Exported by the command, which says nothing but where to."""
    folder = tmp_path_factory.mktemp("paper")
    bundle = random_bundle(num_encoder_layers=1)
    save_bundle(bundle, folder / "bundle", card="")
    outcome = heedful("export", folder / "bundle", "--to", "onnx", "--output", folder / "exported")
    assert outcome == Outcome(0, f"{folder / 'exported'}\n", "")
    return bundle, folder / "exported"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Path]:
    directory = tmp_path_factory.mktemp("mixed") / "exported"
    bundle = random_bundle(**MIXED, **ONE_LAYER)
    export_onnx(bundle, directory)
    return bundle, directory


@pytest.fixture(params=["paper", pytest.param("mixed", marks=pytest.mark.slow)])
def exported(request: pytest.FixtureRequest) -> tuple[Bundle, Path]:
    found: tuple[Bundle, Path] = request.getfixturevalue(request.param)
    return found


def assert_log_probs_are_equal(bundle: Bundle, directory: Path) -> None:
    for rows, src_length, tgt_length in SIZES:
        src, tgt_in = random_ids(rows, src_length, tgt_length)
        with torch.no_grad():
            ours = bundle.model(src, tgt_in).log_softmax(dim=-1)
        assert_close(stepwise_log_probs(directory, src, tgt_in), ours, FLOAT32.MODEL)


def test_log_probabilities_are_equal(exported: tuple[Bundle, Path]) -> None:
    assert_log_probs_are_equal(*exported)


@pytest.mark.slow
@pytest.mark.parametrize("changes", EVERY.values(), ids=EVERY)
def test_log_probabilities_are_equal_with_every_option(changes: dict[str, Any], tmp_path: Path) -> None:
    bundle = random_bundle(**changes)
    export_onnx(bundle, tmp_path / "model")
    assert_log_probs_are_equal(bundle, tmp_path / "model")


@pytest.mark.parametrize("name", [name for name, changes in EVERY.items() if "positions" in changes])
def test_positions_of_the_graphs_are_those_of_the_model(name: str) -> None:
    model = random_bundle(**EVERY[name]).model
    copy = exportable(model)
    src, tgt_in = random_ids(3, 61, 67)
    with torch.no_grad():
        assert_close(copy(src, tgt_in), model(src, tgt_in), FLOAT32.MODEL)


def assert_outputs_are_equal(translator: Translator, theirs: OnnxTranslator, beam_size: int) -> None:
    options = SearchOptions(strategy=BeamSearch(beam_size=beam_size), n_best=beam_size, max_length_offset=20)
    translations = translator.translations(TEXTS, options=options)
    ours = [[(each.ids, each.finished) for each in translation.hypotheses] for translation in translations]
    found = theirs.translations(TEXTS, options=options)
    assert [[(each.ids, each.finished) for each in translation.hypotheses] for translation in found] == ours
    assert theirs.translate(TEXTS, options=options) == [translation.text for translation in translations]
    assert len({ids for hypotheses in ours for ids, _ in hypotheses}) > 5


@pytest.mark.parametrize("d_model", [2, 14])
@pytest.mark.parametrize("formula", SINUSOIDS.values(), ids=SINUSOIDS)
def test_sinusoids_of_the_graphs_have_no_end(formula: Callable[[int, int], Tensor], d_model: int) -> None:
    computed = ComputedSinusoids(SinusoidalPositions(d_model, formula))(9000, 3)
    assert_close(computed, formula(9003, d_model)[9000:], FLOAT32.ELEMENT)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_outputs_are_equal(exported: tuple[Bundle, Path], beam_size: int) -> None:
    bundle, directory = exported
    assert_outputs_are_equal(Translator(bundle), OnnxTranslator.load(directory, threads=1), beam_size)


SEARCHES: dict[str, dict[str, Any]] = {
    "default": {},
    "greedy": {"decode": {"beam_size": 1}},
    "other-penalty": {"decode": {"beam_size": 3, "length_normalization": "power", "length_penalty": 2.0}},
    "other-end": {"decode": {"beam_size": 3, "early_stopping": "first"}},
    "forced": {"decode": {"forced_first_id": 11, "forced_last_id": 12, "max_length": 9}},
    "renormalized": {"decode": {"suppressed_ids": (5,), "renormalize": True}},
    "suppressed": {"decode": {"suppressed_ids": (5, 17), "max_length_offset": 3}},
    "ratio": {"decode": {"max_length_ratio": 1.7, "max_length_offset": 1}},
    "small-batches": {"decode": {"batch_tokens": 20, "n_best": 2}},
    "tags": {"languages": {"src_tag": "[SOS]", "tgt_tag": "<s>"}},
    "tag-last": {"languages": {"src_tag": "[SOS]", "src_tag_position": "last"}},
    "start": {"model": {"decoder_start_id": 3}},
}


@pytest.mark.representatives(1)
@pytest.mark.parametrize("sections", SEARCHES.values(), ids=SEARCHES)
def test_the_bundles_own_search_goes_with_the_files(
    paper: tuple[Bundle, Path], sections: dict[str, Any]
) -> None:
    bundle, directory = paper
    changed = {name: getattr(bundle.config, name).replace(**values) for name, values in sections.items()}
    bundle = replace(bundle, config=bundle.config.replace(**changed))
    written = onnx_settings(bundle).model_dump_json()
    settings = OnnxSettings.model_validate_json(written)
    theirs = OnnxTranslator(backend_of(directory, settings.src_pad_id), settings, bundle.tokenizers)
    ours = Translator(bundle).translations(TEXTS)
    assert theirs.translate(TEXTS) == [translation.text for translation in ours]
    assert theirs.translate(TEXTS, beam_size=2) == Translator(bundle).translate(
        TEXTS,
        options=replace(
            SearchOptions.from_config(bundle.config.decode),
            strategy=BeamSearch(beam_size=2, early_stopping=bundle.config.decode.early_stopping),
        ),
    )
    changes: dict[str, Any] = {"max_length": 3, "min_length": 2, "beam_size": 3}
    assert theirs.translate(iter(TEXTS), **changes) == Translator(bundle).translate(TEXTS, **changes)  # type: ignore[arg-type]
    assert len({translation.text for translation in ours}) > 5


def python_blocks(directory: Path) -> list[str]:
    text = (directory / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_readme_translates(
    paper: tuple[Bundle, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, directory = paper
    monkeypatch.chdir(directory)
    with_heedful, without = python_blocks(directory)
    exec(with_heedful.replace("...", TEXTS[0]), {})
    translator = Translator(bundle)
    assert capsys.readouterr().out == f"{translator.translate(TEXTS[:1])}\n"
    names: dict[str, Any] = {}
    exec(without, names)
    options = SearchOptions(strategy=BeamSearch(beam_size=1))
    for translation in translator.translations(TEXTS[:8], options=options):
        (hypothesis,) = translation.hypotheses
        end = [bundle.tokenizers.tgt.eos_id] if hypothesis.finished else []
        source_ids = bundle.tokenizers.src.encode(translation.source)
        assert names["greedy"](source_ids) == [*hypothesis.ids, *end]


def test_the_files_are_valid_and_say_nothing_of_where_they_were_made(paper: tuple[Bundle, Path]) -> None:
    _, directory = paper
    assert {file.name for file in directory.iterdir()} == {
        "README.md", "decoder_step.onnx", "encoder.onnx", "onnx_model.json", "source.model", "target.model",
    }  # fmt: skip
    for name in ("encoder.onnx", "decoder_step.onnx"):
        model = onnx.load(directory / name)
        onnx.checker.check_model(model, full_check=True)
        assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 18)]
        assert b"attention.py" not in (directory / name).read_bytes()


def test_an_export_leaves_the_model_as_it_was() -> None:
    bundle = random_bundle(**EVERY["relative"])
    before = str(bundle.model), {name: p.clone() for name, p in bundle.model.named_parameters()}
    exportable(bundle.model)
    after = dict(bundle.model.named_parameters())
    assert str(bundle.model) == before[0]
    assert all(torch.equal(after[name], weight) for name, weight in before[1].items())


STRATEGIES: dict[str, tuple[Strategy, int]] = {
    "greedy": (Greedy(), 1),
    "beam": (BeamSearch(beam_size=4), 4),
    "diverse beam": (DiverseBeamSearch(beam_size=4, num_groups=2), 4),
    "sampling": (Sampling(top_k=5, seed=3), 5),
    "minimum Bayes risk": (MinimumBayesRisk(samples=6, sampling=Sampling(seed=3)), 2),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_and_scores_over_the_backend(paper: tuple[Bundle, Path], name: str) -> None:
    bundle, directory = paper
    backend = backend_of(directory, bundle.config.model.src_pad_id)
    translator = Translator(bundle, engine=backend)
    assert (translator.engine_in_use, translator.precision_in_use) == ("onnx", "float32")
    strategy, n_best = STRATEGIES[name]
    options = SearchOptions(strategy=strategy, n_best=n_best, max_length_offset=5)
    for found in translator.translations(TEXTS[:6], options=options):
        assert len(found.hypotheses) == n_best
        ids = [each.written_ids for each in found.hypotheses]
        for other in (translator, Translator(bundle, engine="torch")):
            scored = other.score([found.source] * n_best, ids, options=options)
            wanted = [each.log_prob for each in found.hypotheses]
            assert [each.log_prob for each in scored] == close(wanted, FLOAT32.SENTENCE)


def test_a_shortlist_is_refused(paper: tuple[Bundle, Path]) -> None:
    bundle, directory = paper
    backend = backend_of(directory, bundle.config.model.src_pad_id)
    allowed = [np.arange(5)]
    with pytest.raises(InputError, match="shortlist"), backend.step([[5, 3]], allowed=allowed):
        pass


def names_in(directory: Path) -> set[str]:
    return {file.name for file in directory.iterdir()}


def spirals(length: int, d_model: int) -> Tensor:
    return sinusoids(length, d_model)


def test_what_cannot_be_exported_is_refused_by_name(tmp_path: Path) -> None:
    bundle = random_bundle(sections={"languages": {"tgt_tag": "de"}})
    with pytest.raises(TokenizerError, match="'de'"):
        export_onnx(bundle, tmp_path / "model")
    bundle = random_bundle()
    bundle.model.encoder.embedding.positions = SinusoidalPositions(20, spirals)
    with pytest.raises(InteropError, match="spirals"):
        export_onnx(bundle, tmp_path / "model")
    assert names_in(tmp_path) == set()


@pytest.mark.parametrize("library", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_library_is_named(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"{library}.*{re.escape(install_hint('interop'))}"):
        if library == "onnxruntime":
            OnnxTranslator.load(files_without_graphs(tmp_path))
        else:
            export_onnx(random_bundle(), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def files_without_graphs(directory: Path) -> Path:
    bundle = random_bundle()
    bundle.tokenizers.save(directory)
    (directory / "onnx_model.json").write_text(onnx_settings(bundle).model_dump_json())
    return directory


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"onnx_model.json": None}, r"onnx_model\.json"),
        ({"onnx_model.json": "["}, r"onnx_model\.json"),
        ({"onnx_model.json": {"eos_id": None}}, r"onnx_model\.json"),
        ({"onnx_model.json": {"format_version": 2}}, r"onnx_model\.json"),
        ({"onnx_model.json": {"start_id": 99}}, r"onnx_model\.json: id 99"),
        ({"onnx_model.json": {"src_suffix": [99]}}, r"onnx_model\.json: id 99"),
        ({}, r"encoder\.onnx"),
        ({"encoder.onnx": "no graph at all"}, r"encoder\.onnx"),
    ],
)
def test_missing_damaged_and_newer_files_are_named(
    changes: dict[str, Any], named: str, tmp_path: Path
) -> None:
    files_without_graphs(tmp_path)
    for name, content in changes.items():
        file = tmp_path / name
        if content is None:
            file.unlink()
        elif isinstance(content, dict):
            file.write_text(json.dumps(json.loads(file.read_text()) | content))
        else:
            file.write_text(content)
    with pytest.raises(InteropError, match=named) as error:
        OnnxTranslator.load(tmp_path)
    assert "\n" not in str(error.value)


def test_texts_and_options_that_cannot_be_are_refused() -> None:
    bundle = random_bundle(positions="learned", max_positions=4)
    translator = OnnxTranslator(
        OnnxBackend(None, None, src_pad_id=0), onnx_settings(bundle), bundle.tokenizers
    )
    with pytest.raises(InputError, match="texts"):
        translator.translate("r5 r6")
    with pytest.raises(InputError, match="beam_size=0"):
        translator.translate(["r5"], beam_size=0)
    with pytest.raises(InputError, match="line 2"):
        translator.translate(["r5", "r5 r6 r7 r8"])
