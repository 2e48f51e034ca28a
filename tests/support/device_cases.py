"""Everything that computes with a model, on a device of the caller's choice: its results are to equal a CPU's.

`CASES` has them by name. Each takes the name of a device and an empty folder, and returns numbers and texts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import heedful
from option_models import OPTIONS, TGT_PAD, option_config, option_inputs
from small_models import small_config, small_model
from ten_pairs import as_options, write_pairs
from tiny_bundle import PAIRS, memorised, save_memorised
from trainer_worlds import Source, make

from heedful.analysis.attention_maps import attention_maps
from heedful.analysis.head_importance import head_importance
from heedful.bundle import Bundle
from heedful.config import Config
from heedful.data.batches import Batch
from heedful.decoding.beam import BeamSearch
from heedful.decoding.diverse_beam import DiverseBeamSearch
from heedful.decoding.greedy import Greedy
from heedful.decoding.minimum_bayes_risk import MinimumBayesRisk
from heedful.decoding.options import SearchOptions
from heedful.decoding.sampling import Sampling
from heedful.decoding.shortlist import Shortlist
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.model import Transformer
from heedful.ops import use_fused_ops
from heedful.ops.attention import attention_implementation
from heedful.precision import Precision
from heedful.training import measure_nll
from heedful.training.averaging import MovingAverage
from heedful.training.checkpoint import latest_checkpoint
from heedful.training.memory.batch_size import fitting_batch
from heedful.training.optimizer import build_optimizer
from heedful.training.parallel import process_group
from heedful.training.parallel.process_group import Rank, StepPlan
from heedful.training.step import accumulate_gradients, train_step
from heedful.training.trained_weights import choose_trained_weights, without_adapters
from heedful.workflows import step_cost

Result = Mapping[str, Any]
Run = Callable[[str, Path], Result]

SOURCES = [source for source, _ in PAIRS]
TARGETS = [target for _, target in PAIRS]


@dataclass(frozen=True)
class Case:
    """One entry point.

    Attributes:
        run: with a device and a folder.
        tolerance: of numbers on a real GPU in float32, absolute and relative.
    """

    run: Run
    tolerance: float = 1e-5


CASES: dict[str, Case] = {}


def case(name: str, *, tolerance: float = 1e-5) -> Callable[[Run], Run]:
    """Enter a function under a name."""

    def enter(run: Run) -> Run:
        CASES[name] = Case(run, tolerance)
        return run

    return enter


def assert_equal(result: object, wanted: object, tolerance: float, where: str = "result") -> None:
    """Compare results of the same case: texts exactly, numbers within the tolerance."""
    if isinstance(wanted, Mapping):
        assert isinstance(result, Mapping)
        assert result.keys() == wanted.keys(), where
        for name, value in wanted.items():
            assert_equal(result[name], value, tolerance, f"{where}.{name}")
    elif isinstance(wanted, torch.Tensor | np.ndarray | float):
        one, other = (torch.as_tensor(each, dtype=torch.float64) for each in (result, wanted))
        assert one.numel() == 0 or other.isfinite().any(), where
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, msg=lambda m: f"{where}: {m}")
    elif isinstance(wanted, Sequence) and not isinstance(wanted, str):
        assert isinstance(result, Sequence)
        assert len(result) == len(wanted), where
        for number, (one, other) in enumerate(zip(result, wanted, strict=True)):
            assert_equal(one, other, tolerance, f"{where}[{number}]")
    else:
        assert result == wanted, where


def on_host(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().double() for name, tensor in tensors.items()}


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return on_host(dict(model.named_parameters()))


def config_of(model: Transformer, **sections: Mapping[str, Any]) -> Config:
    """Settings of a small run: no compiler, and numbers that move."""
    train = {"compile": False, "processes": 1, "precision": "float32"} | dict(sections.pop("train", {}))
    return Config.model_validate({"model": model.config.model_dump(), "train": train, **sections})


# --- models ---------------------------------------------------------------------------------------------------


def _model_case(name: str, changes: Mapping[str, Any]) -> None:
    @case(f"model: {name}")
    def run(device: str, folder: Path) -> Result:
        """Logits as each implementation of attention gives them, the loss, and the gradients of all weights."""
        torch.manual_seed(3)
        model = Transformer.from_config(option_config(**changes)).to(device)
        src, tgt_in = (ids.to(device) for ids in option_inputs())
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(4.0)  # those of training begin so small that little depends on attention
            logits = {"eager": model.eval()(src, tgt_in).cpu()}
            with attention_implementation(model, "sdpa"):
                logits["sdpa"] = model(src, tgt_in).cpu()
        use_fused_ops(model, kernels=True)
        tgt_out = tgt_in.roll(-1, dims=1).cpu()
        tgt_out[:, -1] = TGT_PAD
        batch = Batch(src.cpu(), tgt_in.cpu(), tgt_out, int((tgt_out != TGT_PAD).sum()))
        sums = accumulate_gradients(model, [batch], config_of(model).train, precision="float32")
        gradients = {
            name: weight.grad / sums.num_tgt_tokens
            for name, weight in model.named_parameters()
            if weight.grad is not None
        }
        assert len(gradients) == len(list(model.parameters()))
        return {"logits": logits, "loss": sums.smoothed, "nll": sums.nll, "gradients": on_host(gradients)}


for _name, _changes in {"paper": {}, "learned": {"positions": "learned"}, **OPTIONS}.items():
    _model_case(_name, _changes)


# --- training -------------------------------------------------------------------------------------------------


def batches(number: int = 2) -> list[Batch]:
    return [Source().batch([2 * index, 2 * index + 1], 0) for index in range(number)]


def _steps_case(name: str, sections: Mapping[str, Mapping[str, Any]], *, precision: str = "float32") -> None:
    @case(
        f"training: {name}", tolerance=1e-3
    )  # Adam's steps of small gradients are as large as those of others
    def run(device: str, folder: Path) -> Result:
        """Two steps over two micro-batches each, the moving average of the weights, and the norms."""
        model = small_model(dropout=0.0)
        config = config_of(model, **{"optimizer": {"clip_norm": 0.5}, **sections})
        choose_trained_weights(model, config)
        use_fused_ops(model, kernels=True)
        model.to(device)
        optimizer = build_optimizer(model, config.optimizer)
        average = MovingAverage(model, 0.9)
        told = []
        for number in (1, 2):
            metrics = train_step(
                model, optimizer, batches(), config=config, learning_rate=0.003, precision=precision
            )
            average.update(dict(model.named_parameters()), number)
            told.append(asdict(metrics))
        plain = without_adapters(model)
        result = {"metrics": told, "validation": measure_nll(plain, batches(), precision=precision)}
        if precision == "float32":
            result |= {"weights": weights_of(plain), "average": on_host(average.weights)}
        return result


_LORA = {"lora": {"rank": 2, "targets": ["query", "value"]}, "train": {"init": "a bundle"}}
for _name, _sections in {
    "adam": {},
    "adamw": {"optimizer": {"weight_decay": 0.1}},
    "muon": {"optimizer": {"name": "muon"}},
    "r-drop": {"train": {"r_drop": 1.0}},
    "lora": _LORA,
    "lora with muon": _LORA | {"optimizer": {"name": "muon"}},
    "frozen encoder": {"train": {"freeze": ["encoder."]}},
    "torch's kernels": {"train": {"kernels": "torch"}},
}.items():
    _steps_case(_name, _sections)
for _precision in ("bf16", "fp16"):
    _steps_case(_precision, {"optimizer": {"name": "muon"}, "train": {"r_drop": 1.0}}, precision=_precision)


@case("training: with dropout")
def _with_dropout(device: str, folder: Path) -> Result:
    """Random bits differ between devices; that there are some, and gradients of all weights, does not."""
    model = small_model(dropout=0.5, word_dropout=0.2, attention_dropout=0.5, activation_dropout=0.5).to(
        device
    )
    use_fused_ops(model, kernels=True)
    losses = []
    for seed in (1, 2, 2):
        torch.manual_seed(seed)
        sums = accumulate_gradients(model, batches(), config_of(model).train, precision="float32")
        losses.append(sums.smoothed)
    every = all(weight.grad is not None and bool(weight.grad.any()) for weight in model.parameters())
    return {"differ": losses[0] != losses[1], "repeat": losses[1] == losses[2], "gradients": every}


@case("training: a batch that does not fit")
def _halved(device: str, folder: Path) -> Result:
    """The gradient of a batch that was split in two, as torch's error says that it did not fit."""
    model = small_model(dropout=0.0).to(device)
    use_fused_ops(model, kernels=True)
    asked = []

    def refuse(_: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        asked.append(len(inputs[0]))
        if len(inputs[0]) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    hook = model.encoder.register_forward_pre_hook(refuse)
    sums = accumulate_gradients(model, batches(), config_of(model).train, precision="float32")
    validated = measure_nll(model, batches(), precision="float32")
    hook.remove()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return {"asked": asked, "sums": asdict(sums), "gradients": on_host(gradients), "validated": validated}


@case("training: batch.tokens=auto")
def _fitting(device: str, folder: Path) -> Result:
    """A batch that fits; how large it is depends on the memory."""
    model = small_model(dropout=0.0).to(device)
    use_fused_ops(model, kernels=True)
    fit = fitting_batch(model, config_of(model, batch={"tokens": "auto"}), (40, 30), free=1 << 34)
    return {"fits": fit.tokens >= 40}


@case("training: the parts of a step", tolerance=1e-3)
def _parts(device: str, folder: Path) -> Result:
    """The steps of a benchmark: each part timed, operations counted, and the rate of multiplications."""
    model = small_model(dropout=0.0).to(device)
    config = config_of(model)
    optimizer, average = build_optimizer(model, config.optimizer), MovingAverage(model, 0.9)
    rank = Rank(model, Source(), config)  # type: ignore[arg-type]
    plans = [StepPlan(number, ((0, number),), 0.003) for number in (1, 2)]
    parts = list(step_cost.time_parts(rank, plans, optimizer, average, threads=1))
    flops = step_cost.count_flops([rank], plans[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_cost, "_MATMULS", ((8, 8, 8),))
        patch.setattr(step_cost, "_MATMULS_ON_GPU", ((8, 8, 8),))
        patch.setattr(step_cost, "_OPERATIONS_PER_TIMING", (1.0, 1.0))
        rate = step_cost.MatmulRate("float32", torch.device(device), threads=1)
        rate.measure(0.001)
    assert rate.flops_per_second > 0.0
    assert all(seconds >= 0.0 for each in parts for seconds in asdict(each).values())
    return {"flops": flops, "weights": weights_of(model), "average": on_host(average.weights)}


# --- runs, checkpoints and resumption -------------------------------------------------------------------------

_RUN: dict[str, dict[str, Any]] = {
    "optimizer": {"name": "muon"},
    "train": {
        "max_steps": 6,
        "checkpoint_every_steps": 3,
        "ema_decay": 0.5,
        "average_checkpoints": 1,
        "compile": False,
        "precision": "float32",
    },
    "valid": {"every_steps": 2, "decode_sentences": 0},
}


def _trained(folder: Path, device: str, *, resume: bool = False, **train: Any) -> dict[str, Any]:  # noqa: ANN401
    sections = _RUN | {"train": _RUN["train"] | train}
    world = make(folder, device=device, dropout=0.0, **sections)
    if resume:
        checkpoint = latest_checkpoint(folder / "checkpoints")
        assert checkpoint is not None
        world.trainer.resume(checkpoint)
    with pytest.MonkeyPatch.context() as patch:  # a process that makes batches: the command below has one
        patch.setattr(process_group, "num_workers", lambda source, device: 0)
        end = world.trainer.fit()
    average = world.trainer.average
    return {
        "steps": end.step,
        "kept": [(name, on_host(weights)) for name, weights in world.kept if name == "last"],
        "average": None if average is None else on_host(average.weights),
        "weights": weights_of(world.trainer.model),
    }


@case("run: trained, saved and resumed", tolerance=1e-3)
def _resumed(device: str, folder: Path) -> Result:
    """A run that was ended in the middle and resumed is the run that was not."""
    whole = _trained(folder / "whole", device)
    _trained(folder / "parts", device, max_steps=3)
    parts = _trained(folder / "parts", device, resume=True)
    assert_equal(parts, whole, 1e-6)
    return whole


@case("run: its last checkpoints averaged", tolerance=1e-3)
def _averaged(device: str, folder: Path) -> Result:
    """The mean of checkpoints, which is read from files, is validated on the device."""
    return _trained(folder, device, ema_decay=0.0, average_checkpoints=2, keep_checkpoints=2)


@case("run: begun on a CPU, resumed on the device", tolerance=1e-3)
def _resumed_on_device(device: str, folder: Path) -> Result:
    """A checkpoint of a CPU goes on elsewhere."""
    _trained(folder, "cpu", max_steps=3)
    return _trained(folder, device, resume=True)


@case("run: begun on the device, resumed on a CPU", tolerance=1e-3)
def _resumed_on_cpu(device: str, folder: Path) -> Result:
    """A checkpoint of the device goes on on a CPU."""
    _trained(folder, device, max_steps=3)
    return _trained(folder, "cpu", resume=True)


@case("run: resumed with an average that its checkpoints lack", tolerance=1e-3)
def _resumed_with_average(device: str, folder: Path) -> Result:
    """The average starts from the weights."""
    _trained(folder, device, max_steps=3, ema_decay=0.0)
    return _trained(folder, device, resume=True)


# --- decoding -------------------------------------------------------------------------------------------------


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
    "mean log-probability": {"length_normalization": "average", "length_penalty": 1.0},
}


def _search_case(name: str, options: Mapping[str, Any]) -> None:
    @case(f"decoding: {name}")
    def run(device: str, folder: Path) -> Result:
        translator = Translator(bundle_on(device), engine="torch", batch_size=4)
        search = SearchOptions(**options)
        found = translator.translations([*SOURCES, "", "the dog"], options=search)
        assert translator.device == torch.device(device).type
        return {"outputs": _hypotheses(found)}


for _name, _options in SEARCHES.items():
    _search_case(_name, _options)


def _prefix_case(name: str, options: Mapping[str, Any]) -> None:
    @case(f"decoding: prefixes, {name}")
    def run(device: str, folder: Path) -> Result:
        translator = Translator(bundle_on(device), engine="torch")
        search, prefixes = SearchOptions(**options), ["der Hund", "", "die", "schläft", "", ""]
        return {
            "outputs": _hypotheses(translator.translations(SOURCES, options=search, prefixes=prefixes)),
        }


for _name, _options in {
    "greedy": _GREEDY,
    "beam": {"n_best": 2},
    "leant to": {"prefix_bias": 0.5},
    "leant to, sampled": {"prefix_bias": 0.5, **_SAMPLED},
    "sampled": _SAMPLED,
    "coverage": {"coverage_penalty": 0.2},
}.items():
    _prefix_case(_name, _options)


@case("decoding: alternatives")
def _alternatives(device: str, folder: Path) -> Result:
    translator = Translator(bundle_on(device), engine="torch")
    ways = translator.alternatives(SOURCES[:2], prefixes=["die", ""], count=3)
    return {"outputs": _hypotheses(ways)}


@case("decoding: ensemble")
def _ensemble(device: str, folder: Path) -> Result:
    translator = Translator(bundle_on(device), engine="torch", ensemble=[other_bundle_on(device)])
    several = {"beam": {"n_best": 2}, "sampled": _SAMPLED, "coverage": {"coverage_penalty": 0.2}}
    return {
        name: _hypotheses(translator.translations(SOURCES, options=SearchOptions(**options)))
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
        name: _hypotheses(translator.translations(SOURCES, options=SearchOptions(**options)))
        for name, options in several.items()
    } | {"scores": [each.score for each in translator.score(SOURCES, TARGETS)]}


def _precision_case(precision: Precision) -> None:
    @case(f"decoding: {precision}", tolerance=0.05)
    def run(device: str, folder: Path) -> Result:
        translator = Translator(bundle_on(device), engine="torch", precision=precision)
        found = translator.translations(SOURCES, options=SearchOptions(strategy=BeamSearch(beam_size=2)))
        return {
            "outputs": _hypotheses(found),
            "scores": [each.score for each in translator.score(SOURCES, TARGETS)],
        }


_precision_case("bf16")
_precision_case("fp16")


@case("decoding: auto")
def _auto(device: str, folder: Path) -> Result:
    """The precision is chosen by time, so the outputs alone can be compared."""
    translator = Translator(bundle_on(device), engine="torch", precision="auto")
    return {"outputs": translator.translate(SOURCES)}


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
        return {"logits": torch.stack(steps)}


for _name in ("rotary", "alibi", "relative", "learned", "fairseq"):
    _positions_case(_name, {"positions": _name, "max_positions": 32})


# --- scores, attention ----------------------------------------------------------------------------------------


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
    maps = attention_maps(bundle, SOURCES[0], bundle.tokenizers.tgt.encode(TARGETS[0]))
    return {"weights": [layer.weights for layer in maps.layers], "tokens": maps.target_tokens}


@case("attention: alignments of words")
def _alignments(device: str, folder: Path) -> Result:
    translator = Translator(bundle_on(device), engine="torch")
    return {"links": [str(each) for each in translator.align(SOURCES, TARGETS)]}


@case("attention: importance of heads")
def _importance(device: str, folder: Path) -> Result:
    importance = head_importance(small_model(dropout=0.0).to(device).eval(), batches())
    return {"nll": importance.nll, **importance.increases}


# --- the command line -----------------------------------------------------------------------------------------


def told(*arguments: object, stdin: str = "") -> str:
    """What a command prints; it has to succeed."""
    outcome = heedful(*arguments, stdin=stdin.encode())
    assert outcome.code == 0, outcome.err
    return outcome.out


@case("command line: with a model", tolerance=1e-3)
def _commands(device: str, folder: Path) -> Result:
    bundle, lines = save_memorised(folder / "bundle"), "\n".join([*SOURCES, ""])
    for side, texts in (("en", SOURCES), ("de", TARGETS)):
        (folder / f"test.{side}").write_text("\n".join([*texts, ""]), encoding="utf-8")
    where = ("--device", device, "--engine", "torch")
    texts = folder / "test.en", folder / "test.de"
    scored = told("score", bundle, "--src", texts[0], "--tgt", texts[1], *where)
    told("attention", bundle, SOURCES[0], "-o", folder / "maps.json", *where)
    return {
        "translate": told("translate", bundle, *where, stdin=lines),
        "score": [float(line.split()[0]) for line in scored.splitlines()],
        "evaluate": told("evaluate", bundle, "--src", texts[0], "--ref", texts[1], *where),
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


@case("command line: train and resume")
def _train_command(device: str, folder: Path) -> Result:
    """A run in bf16 with everything that has a state, resumed for two more steps."""
    arguments = write_pairs(folder)
    run = folder / "run"
    settings = SETTINGS | {"train.device": device}
    told("train", *arguments, *as_options(settings), "-o", run)
    told("train", *arguments, *as_options(settings | {"train.max_steps": 6}), "-o", run, "--resume")
    lines = told("translate", run, "--device", device, "--engine", "torch", stdin="The ferry.\n").splitlines()
    return {"lines": len(lines), "last": (run / "last" / "model.safetensors").exists()}
