"""Searches, scores, attention, gradients, updates and resumed runs on a GPU give what they give on a CPU."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_gpu import OnGpu
from option_models import OPTIONS, TGT_PAD, option_config, option_inputs
from small_models import small_model
from tiny_bundle import SOURCES, TARGETS, memorised
from tolerances import BF16, FLOAT32, Bound, assert_close
from trainer_worlds import Source, make

from heedful.analysis.attention_maps import attention_maps
from heedful.data.batches import Batch
from heedful.decoding.backends.torch import TorchBackend
from heedful.decoding.options import SearchOptions
from heedful.decoding.shortlist import Shortlist
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.protocol import Greedy
from heedful.decoding.strategies.sampling import Sampling
from heedful.decoding.translator import Translator
from heedful.model.transformer import Transformer
from heedful.ops import use_fused_ops
from heedful.ops.attention import attention_implementation
from heedful.ops.lora import without_adapters
from heedful.settings.options import Precision, TrainingPrecision
from heedful.settings.run import Config
from heedful.storage.bundle import Bundle
from heedful.training.averaging import MovingAverage
from heedful.training.checkpoint import latest_checkpoint
from heedful.training.optimizer import build_optimizer, choose_trained_weights
from heedful.training.parallel import process_group
from heedful.training.step import accumulate_gradients, measure_nll, train_step

Result = Mapping[str, Any]
Run = Callable[[str, Path], Result]

SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"strategy": Greedy(), "no_repeat_ngram_size": 1},
    "beam": {"strategy": BeamSearch(beam_size=4), "n_best": 4, "coverage_penalty": 0.2},
    "diverse beam": {"strategy": DiverseBeamSearch(beam_size=4, num_groups=2), "repetition_penalty": 1.5},
    "sampling": {"strategy": Sampling(temperature=1.5, seed=3), "n_best": 4, "min_length": 10},
    "top-p": {
        "strategy": Sampling(top_p=0.9, temperature=2.0),
        "suppressed_ids": (5, 6),
        "renormalize": True,
    },
    "forced ends": {"forced_first_id": 5, "forced_last_id": 6, "max_length": 4, "replace_unknown": True},
}
# Adam's steps are as large for gradients that rounding alone keeps from zero, such as those of the biases of
# keys. Without these, and with a large epsilon, rounding stays small.
STEADY_MODEL: dict[str, Any] = {"dropout": 0.0, "attention_bias": False}
STEADY_OPTIMIZER: dict[str, Any] = {"eps": 1e-3, "clip_norm": 0.5}
STEPS = FLOAT32.TRAINING.at(0.1)


def on_host(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().double() for name, tensor in tensors.items()}


def bundle_on(device: str, scale: float = 1.0) -> Bundle:
    """The model that knows six sentences by heart, with scaled weights: a copy on the device."""
    bundle = memorised()
    model = Transformer.from_config(bundle.config.model)
    model.load_state_dict({name: scale * weight for name, weight in bundle.model.state_dict().items()})
    return replace(bundle, network=model.to(device).eval())


def shortlist() -> Shortlist:
    bundle = memorised()
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    sources, targets = src.encode_batch(SOURCES), tgt.encode_batch(TARGETS)
    return Shortlist.learn(sources, targets, bundle, candidates=2, frequent=2, record={})


def decoding(name: str, precision: Precision, *, with_shortlist: bool = False) -> Run:
    def run(device: str, folder: Path) -> Result:
        options = SearchOptions(**{"max_length": 14} | SEARCHES[name])
        candidates = shortlist() if with_shortlist else None
        translator = Translator(bundle_on(device), engine="torch", precision=precision, shortlist=candidates)
        assert translator.device == device
        prefixes = ["der Hund", "", "die", "", "", "", ""]
        found = translator.translations([*SOURCES, "the dog"], options=options)
        found += translator.translations([*SOURCES, ""], options=options, prefixes=prefixes)
        hypotheses = [[(each.text, each.score) for each in one.hypotheses] for one in found]
        return {"hypotheses": hypotheses}

    return run


def scores_and_attention(device: str, folder: Path) -> Result:
    bundle = bundle_on(device)
    translator = Translator(bundle, engine="torch", ensemble=[bundle_on(device, 0.9)])
    options = SearchOptions(coverage_penalty=0.2, no_repeat_ngram_size=2, min_length=3)
    scored = translator.score(SOURCES, TARGETS[1:] + TARGETS[:1], options=options)
    ids = bundle.tokenizers.tgt.encode(TARGETS[0])
    maps = attention_maps(bundle, SOURCES[0], ids, backend=TorchBackend([bundle.model], "float32"))
    links = Translator(bundle, engine="torch").align(SOURCES, TARGETS)
    return {
        "scores": [each.score for each in scored],
        "tokens": [list(each.token_log_probs) for each in scored],
        "maps": [layer.weights for layer in maps.layers],
        "links": [str(each) for each in links],
    }


def gradients(**changes: Any) -> Run:  # noqa: ANN401
    def run(device: str, folder: Path) -> Result:
        """Logits by each implementation of attention, the loss, and the gradients of all weights."""
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
        config = Config.model_validate({"model": model.config.model_dump(), "train": {"compile": False}})
        sums = accumulate_gradients(model, [batch], config.train, precision="float32")
        found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        assert len(found) == len(list(model.parameters()))
        per_token = {name: gradient / sums.num_tgt_tokens for name, gradient in found.items()}
        return {"logits": logits, "loss": sums.smoothed, "nll": sums.nll, "gradients": on_host(per_token)}

    return run


def updates(precision: TrainingPrecision, **sections: Mapping[str, Any]) -> Run:
    def run(device: str, folder: Path) -> Result:
        """Two steps over two micro-batches each, the moving average of the weights, and the norms."""
        model = small_model(**STEADY_MODEL)
        values: dict[str, Any] = {"model": model.config.model_dump(), **sections}
        values["train"] = {"compile": False, "processes": 1} | dict(sections.get("train", {}))
        values["optimizer"] = STEADY_OPTIMIZER | dict(sections.get("optimizer", {}))
        config = Config.model_validate(values)
        batches = [Source().batch([2 * number, 2 * number + 1], 0) for number in range(2)]
        choose_trained_weights(model, config)
        use_fused_ops(model, kernels=True)
        model.to(device)
        optimizer = build_optimizer(model, config.optimizer, precision=precision)
        average = MovingAverage(model, 0.9)
        told = []
        for number in (1, 2):
            metrics = train_step(
                model, optimizer, batches, config=config, learning_rate=0.003, precision=precision
            )
            average.update(dict(model.named_parameters()), number)
            told.append(asdict(metrics))
        plain = without_adapters(model)
        result: dict[str, Any] = {"metrics": told, "nll": measure_nll(plain, batches, precision=precision)}
        if precision == "float32":
            result |= {
                "weights": on_host(dict(plain.named_parameters())),
                "average": on_host(average.weights),
            }
        return result

    return run


def resumed_elsewhere(device: str, folder: Path) -> Result:
    """A run that goes from the device to a CPU and back, and one that stays on the device."""

    def weights(name: str, device: str, steps: int) -> dict[str, torch.Tensor]:
        train = {"max_steps": steps, "checkpoint_every_steps": 2, "ema_decay": 0.5, "compile": False}
        optimizer = {"name": "muon", **STEADY_OPTIMIZER}
        world = make(folder / name, device=device, model=STEADY_MODEL, optimizer=optimizer, train=train)
        if (checkpoint := latest_checkpoint(folder / name / "checkpoints")) is not None:
            world.trainer.resume(checkpoint)
        world.trainer.fit()
        assert world.trainer.average is not None
        return on_host(dict(world.trainer.model.named_parameters()) | world.trainer.average.weights)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_group, "num_workers", lambda source, device: 0)
        weights("moved", device, 2)
        weights("moved", "cpu", 4)
        return {"moved": weights("moved", device, 6), "whole": weights("whole", device, 6)}


LORA = {"lora": {"rank": 2, "targets": ["query", "value"]}, "train": {"init": "a bundle"}}
QUICK: dict[str, tuple[Run, Bound]] = {
    "greedy search": (decoding("greedy", "float32"), FLOAT32.MODEL),
    "beam search": (decoding("beam", "float32"), FLOAT32.MODEL),
    "beam search in bf16": (decoding("beam", "bf16"), BF16.MODEL),
    "sampling": (decoding("sampling", "float32"), FLOAT32.MODEL),
    "scores and attention": (scores_and_attention, FLOAT32.MODEL),
    "gradients, paper": (gradients(), FLOAT32.MODEL.at(4.0)),  # as large as the weights are made
    "updates, adam": (updates("float32"), STEPS),
    "updates, bf16": (updates("bf16", optimizer={"name": "muon"}, train={"r_drop": 1.0}), BF16.ROW),
}
SLOW: dict[str, tuple[Run, Bound]] = {
    "diverse beam search": (decoding("diverse beam", "float32"), FLOAT32.MODEL),
    "top-p sampling": (decoding("top-p", "float32"), FLOAT32.MODEL),
    "forced ends": (decoding("forced ends", "float32"), FLOAT32.MODEL),
    "shortlist": (decoding("beam", "float32", with_shortlist=True), FLOAT32.MODEL),
    **{
        f"gradients, {name}": (gradients(**changes), FLOAT32.MODEL.at(4.0))
        for name, changes in OPTIONS.items()
    },
    "updates, lora": (updates("float32", **LORA), STEPS),
    "updates, muon": (updates("float32", optimizer={"name": "muon", "weight_decay": 0.1}), STEPS),
    "a run resumed on other devices": (resumed_elsewhere, STEPS),
}
CASES = QUICK | SLOW


@pytest.mark.parametrize("name", [*QUICK, *[pytest.param(name, marks=pytest.mark.slow) for name in SLOW]])
def test_results_are_those_of_a_cpu(name: str, on_gpu: OnGpu, tmp_path: Path) -> None:
    run, bound = CASES[name]
    with on_gpu() as device:
        found = run(device, tmp_path / "gpu")
    assert_close(found, run("cpu", tmp_path / "cpu"), bound)
