"""Decoding, scores, attention and commands, as `device_case.py` describes entry points."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import heedful
from device_case import Result, case
from fake_gpu import FakeGpuTensor
from small_models import small_config, small_model
from ten_pairs import as_options, write_pairs
from tiny_bundle import SOURCES, TARGETS, memorised, save_memorised
from tolerances import FLOAT32, format_of
from trainer_worlds import Source

import heedful.decoding.backends.torch as torch_backend
from heedful.analysis.attention_maps import attention_maps
from heedful.analysis.head_importance import head_importance
from heedful.decoding.backends.torch import TorchBackend, TorchTokens
from heedful.decoding.options import SearchOptions
from heedful.decoding.shortlist import Shortlist
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.protocol import Greedy
from heedful.decoding.strategies.sampling import MinimumBayesRisk, Sampling
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.model.transformer import Transformer
from heedful.ops.attention import attention_implementation
from heedful.ops.graphs import GRAPHS_VARIABLE, Compute
from heedful.settings.options import Languages, Precision, Runtime
from heedful.storage.bundle import Bundle
from heedful.tasks.loading import load_translator
from heedful.training.parallel import process_group

# --- decoding ----------------------------------------------------------------------------------------------


def bundle_on(device: str) -> Bundle:
    """The model that knows six sentences by heart: a copy on the device."""
    bundle = memorised()
    model = Transformer.from_config(bundle.config.model)
    model.load_state_dict(bundle.model.state_dict())
    return replace(bundle, network=model.to(device).eval())


def other_bundle_on(device: str) -> Bundle:
    """Another model with these tokenizers, which knows less."""
    bundle = bundle_on(device)
    with torch.no_grad():
        for weight in bundle.model.parameters():
            weight.mul_(0.9)
    return bundle


def _hypotheses(translations: Sequence[Translation]) -> list[list[tuple[str, float]]]:
    return [[(each.text, each.score) for each in one.hypotheses] for one in translations]


_GREEDY = {"strategy": Greedy()}
_SAMPLED = {"strategy": Sampling(temperature=1.5, seed=3), "n_best": 4}
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": _GREEDY,
    "beam": {"strategy": BeamSearch(beam_size=4)},
    "beam, n-best": {"strategy": BeamSearch(beam_size=4), "n_best": 4},
    "beam, first to end": {"strategy": BeamSearch(beam_size=3, early_stopping="first")},
    "diverse beam": {"strategy": DiverseBeamSearch(beam_size=4, num_groups=2), "n_best": 4},
    "sampling": _SAMPLED,
    "sampling, top-k": {"strategy": Sampling(top_k=3, seed=1), "n_best": 3},
    "sampling, top-p": {"strategy": Sampling(top_p=0.9, temperature=2.0), "n_best": 3},
    "sampling, min-p": {"strategy": Sampling(min_p=0.05, temperature=2.0), "n_best": 3},
    "sampling, epsilon": {"strategy": Sampling(epsilon=0.01, temperature=2.0), "n_best": 3},
    "minimum Bayes risk": {"strategy": MinimumBayesRisk(samples=6, sampling=Sampling(temperature=2.0))},
    "coverage": {"coverage_penalty": 0.2, "n_best": 3},
    "repetition penalty": {"repetition_penalty": 1.5},
    "repetition penalty, sampled": {"repetition_penalty": 1.5, **_SAMPLED},
    "no repeated n-gram": {"no_repeat_ngram_size": 1},
    "no repeated n-gram, sampled": {"no_repeat_ngram_size": 1, **_SAMPLED},
    "at least ten tokens": {"min_length": 10, "n_best": 2},
    "at least ten tokens, sampled": {"min_length": 10, **_SAMPLED},
    "at most three tokens": {"max_length": 3},
    "forced ends": {"forced_first_id": 5, "forced_last_id": 6, "max_length": 4},
    "forced ends, greedy": {"forced_first_id": 5, "forced_last_id": 6, "max_length": 4, **_GREEDY},
    "suppressed": {"suppressed_ids": (5, 6, 7)},
    "suppressed, renormalised": {"suppressed_ids": (5, 6, 7), "renormalize": True},
    "suppressed, renormalised, sampled": {"suppressed_ids": (5, 6, 7), "renormalize": True, **_SAMPLED},
    "unknown words": {"replace_unknown": True},
    "mean log-probability": {"length_normalization": "power", "length_penalty": 1.0},
}


def _search_case(name: str, options: Mapping[str, Any]) -> None:
    @case(f"decoding: {name}")
    def run(device: str, folder: Path) -> Result:
        translator = Translator(
            bundle_on(device), engine="torch", batch_size=4 if name == "beam, n-best" else None
        )
        search = SearchOptions(**{"max_length": 14} | options)
        found = translator.translations([*SOURCES, "", "the dog"], options=search)
        assert translator.device == torch.device(device).type
        return {"outputs": _hypotheses(found)}


for _name, _options in SEARCHES.items():
    _search_case(_name, _options)


def _prefix_case(name: str, options: Mapping[str, Any]) -> None:
    @case(f"decoding: prefixes, {name}")
    def run(device: str, folder: Path) -> Result:
        translator = Translator(bundle_on(device), engine="torch")
        search = SearchOptions(**{"max_length": 14} | options)
        prefixes = ["der Hund", "", "die", "schläft", "", ""]
        return {
            "outputs": _hypotheses(translator.translations(SOURCES, options=search, prefixes=prefixes)),
        }


for _name, _options in {
    "greedy": _GREEDY,
    "beam": {"n_best": 2},
    "sampled": _SAMPLED,
    "coverage": {"coverage_penalty": 0.2},
}.items():
    _prefix_case(_name, _options)


@case("decoding: ensemble")
def _ensemble(device: str, folder: Path) -> Result:
    translator = Translator(bundle_on(device), engine="torch", ensemble=[other_bundle_on(device)])
    several = {"beam": {"n_best": 2}, "sampled": _SAMPLED, "coverage": {"coverage_penalty": 0.2}}
    return {
        name: _hypotheses(translator.translations(SOURCES, options=SearchOptions(max_length=14, **options)))
        for name, options in several.items()
    } | {"scores": [each.score for each in translator.score(SOURCES, TARGETS)]}


def _shortlist() -> Shortlist:
    bundle = memorised()
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    return Shortlist.learn(
        src.encode_batch(SOURCES), tgt.encode_batch(TARGETS), bundle, candidates=2, frequent=2, record={}
    )


@case("decoding: shortlist")
def _shortlisted(device: str, folder: Path) -> Result:
    translator = Translator(bundle_on(device), engine="torch", shortlist=_shortlist())
    several = {"beam": {"n_best": 2}, "sampled": _SAMPLED, "greedy": _GREEDY}
    return {
        name: _hypotheses(translator.translations(SOURCES, options=SearchOptions(max_length=14, **options)))
        for name, options in several.items()
    } | {"scores": [each.score for each in translator.score(SOURCES, TARGETS)]}


def _precision_case(precision: Precision) -> None:
    @case(f"decoding: {precision}", bound=format_of(precision).MODEL)
    def run(device: str, folder: Path) -> Result:
        translator = Translator(bundle_on(device), engine="torch", precision=precision)
        found = translator.translations(SOURCES, options=SearchOptions(strategy=BeamSearch(beam_size=2)))
        return {
            "outputs": _hypotheses(found),
            "scores": [each.score for each in translator.score(SOURCES, TARGETS)],
        }


_precision_case("bf16")
_precision_case("fp16")


class NoGraphs:
    """Computes instead of recording."""

    def record(self, compute: Compute) -> Compute:
        return compute


@case("decoding: CUDA graphs")
def _graphs(device: str, folder: Path) -> Result:
    """On a GPU that is not there, their static tensors alone."""
    several = {"greedy": _GREEDY, "beam": {"n_best": 2}, "coverage": {"coverage_penalty": 0.2}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(GRAPHS_VARIABLE, "on")
        if isinstance(torch.empty(0).to(device), FakeGpuTensor):
            patch.setattr(torch_backend, "GraphPool", NoGraphs)
        translator = Translator(bundle_on(device), engine="torch")
        return {
            name: _hypotheses(translator.translations(SOURCES, options=SearchOptions(**options)))
            for name, options in several.items()
        }


@case("decoding: auto")
def _auto(device: str, folder: Path) -> Result:
    """The precision is chosen by time, so the outputs alone can be compared."""
    translator = Translator(bundle_on(device), engine="torch", precision="auto")
    return {"outputs": translator.translate(SOURCES)}


@case("decoding: ties")
def _ties(device: str, folder: Path) -> Result:
    """Candidates of equal probability, more than there are to spare, are ordered by their ids."""
    tokens = TorchTokens(torch.zeros(3, 200).to(device).log_softmax(dim=-1))
    values, ids = tokens.top(2, [0, 1])
    return {"values": values, "ids": ids}


def _positions_case(name: str, changes: Mapping[str, Any]) -> None:
    @case(f"decoding: positions, {name}")
    def run(device: str, folder: Path) -> Result:
        """Steps over the cache of a model that has another kind of positions, beyond its first table."""
        torch.manual_seed(5)
        model = Transformer.from_config(small_config(**changes)).to(device).eval()
        ids = torch.arange(3, 9).to(device)[None].repeat(2, 1)
        with torch.inference_mode():
            cache = model.start_cache(model.encode(ids))
            steps = []
            for number in range(20):
                steps.append(model.decode_step(ids[:, number % 6], cache).cpu())
                cache.reorder(torch.tensor([1, 0]))
            with attention_implementation(model, "sdpa"):  # several positions after those of the cache
                states = model.decoder(ids[:, :4], cache.memory, cache=cache)
        return {"logits": torch.stack(steps), "states": states.cpu()}


for _name in ("rotary", "alibi", "relative", "learned", "fairseq"):
    _positions_case(_name, {"positions": _name, "max_positions": 32})


# --- scores, attention -------------------------------------------------------------------------------------


def _score_case(name: str, options: Mapping[str, Any]) -> None:
    @case(f"scores: {name}")
    def run(device: str, folder: Path) -> Result:
        translator = Translator(bundle_on(device), engine="torch")
        scored = translator.score(SOURCES, TARGETS[1:] + TARGETS[:1], options=SearchOptions(**options))
        return {
            "scores": [each.score for each in scored],
            "tokens": [list(each.token_log_probs) for each in scored],
            "model": [list(each.model_log_probs) for each in scored],
        }


for _name, _options in {
    "plain": {},
    "coverage": {"coverage_penalty": 0.2},
    "constraints": {
        "no_repeat_ngram_size": 2,
        "suppressed_ids": (0, 2),
        "renormalize": True,
        "min_length": 3,
    },
}.items():
    _score_case(_name, _options)


@case("attention: maps of every head")
def _maps(device: str, folder: Path) -> Result:
    bundle = bundle_on(device)
    ids, backend = bundle.tokenizers.tgt.encode(TARGETS[0]), TorchBackend([bundle.model], "float32")
    maps = attention_maps(bundle, SOURCES[0], ids, backend=backend)
    return {"weights": [layer.weights for layer in maps.layers], "tokens": maps.target_tokens}


@case("attention: alignments of words")
def _alignments(device: str, folder: Path) -> Result:
    translator = Translator(bundle_on(device), engine="torch")
    return {"links": [str(each) for each in translator.align(SOURCES, TARGETS)]}


@case("attention: importance of heads")
def _importance(device: str, folder: Path) -> Result:
    importance = head_importance(small_model(dropout=0.0).to(device).eval(), [Source().batch([0, 1], 0)])
    return {"nll": importance.nll, **importance.increases}


# --- the command line --------------------------------------------------------------------------------------


def told(*arguments: object, stdin: str = "") -> str:
    """What a command prints; it has to succeed."""
    outcome = heedful(*arguments, stdin=stdin.encode())
    assert outcome.code == 0, outcome.err
    return outcome.out


@case("command line: with a model", bound=FLOAT32.SENTENCE.printed(3))
def _commands(device: str, folder: Path) -> Result:
    bundle, lines = save_memorised(folder / "bundle"), "\n".join([*SOURCES, ""])
    for side, texts in (("en", SOURCES), ("de", TARGETS)):
        (folder / f"test.{side}").write_text("\n".join([*texts, ""]), encoding="utf-8")
    where = ("--device", device, "--engine", "torch")
    runtime = Runtime(device=device, engine="torch")
    assert load_translator(bundle, Languages(), runtime).device == device
    texts = folder / "test.en", folder / "test.de"
    scored = told("score", bundle, "--src", texts[0], "--tgt", texts[1], *where)
    told("attention", bundle, SOURCES[0], "-o", folder / "maps.json", *where)
    return {
        "translate": told("translate", bundle, *where, stdin=lines),
        "score": [float(line.split()[0]) for line in scored.splitlines()],
        "evaluate": told("evaluate", bundle, "--src", texts[0], "--ref", texts[1], *where).splitlines()[:2],
        "attention": (folder / "maps.json").stat().st_size > 1000,
    }


SETTINGS: dict[str, object] = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.num_heads": 2,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "tokenizer.vocab_size": 120,
    "optimizer.name": "muon",
    "batch.tokens": 160,
    "batch.accumulation": 2,
    "train.max_steps": 4,
    "train.ema_decay": 0.9,
    "train.checkpoint_every_steps": 2,
    "train.keep_checkpoints": 2,
    "train.average_checkpoints": 2,
    "train.log_every_steps": 1,
    "train.compile": "false",
    "train.precision": "bf16",
    "valid.every_steps": 2,
    "valid.decode_sentences": 2,
    "decode.max_length": 12,
}


@case("command line: train and resume", wanted={"lines": 1, "last": True})
def _train_command(device: str, folder: Path) -> Result:
    """A run in bf16 with everything that has a state, whose batches another process makes; then resumed."""
    arguments = write_pairs(folder)
    run = folder / "run"
    settings = SETTINGS | {"train.device": device}
    told("train", *arguments, *as_options(settings), "-o", run)
    events = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    assert {torch.device(each["device"]).type for each in events if each["event"] == "start"} == {device}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_group, "num_workers", lambda source, device: 0)
        told("train", *arguments, *as_options(settings | {"train.max_steps": 6}), "-o", run, "--resume")
    lines = told("translate", run, "--device", device, "--engine", "torch", stdin="The ferry.\n").splitlines()
    return {"lines": len(lines), "last": (run / "last" / "model.safetensors").exists()}
