"""An adapter beside its base computes what the merged model does, whatever the adapters of the other rows."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from machine_class import LevelsHere, case
from small_engines import engine_of, log_probs_of, model_with, padded
from tolerances import FLOAT32, assert_close, format_of

from heedful.decoding.backends.native import EngineStep, NativeBackend
from heedful.decoding.backends.torch import ModelStep, TorchBackend
from heedful.model.transformer import Transformer
from heedful.ops.lora import adapter_matrices, add_adapters, inner_linear_layers, without_adapters
from heedful.settings.options import Precision
from heedful.settings.run import LoraConfig
from heedful.storage.adapter import Adapter, Change

OPTIONS: dict[str, dict[str, object]] = {
    "paper": {},
    "pre-norm, gelu": {"norm": "pre", "activation": "gelu"},
    "gated": {"gated": True, "activation": "swish", "norm": "pre"},
    "ssru": {"decoder_unit": "ssru"},
    "narrow heads": {"d_k": 24, "d_v": 24, "num_heads": 4},
}
RANKS = (1, 5, 19)  # no multiple of a register
SOURCES = [[7, 3, 19, 4], [5], [11, 5, 23, 8, 9, 30, 2], [3, 3], [17, 6, 40]]


def adapted(
    options: dict[str, object], rank: int, targets: Sequence[str] = ()
) -> tuple[Transformer, Adapter]:
    """The merged model, and the adapter that was merged; by default every linear layer has one."""
    model = model_with(options)
    torch.manual_seed(rank)
    known = sorted({name.rpartition(".")[2] for name in inner_linear_layers(model)})
    lora = LoraConfig(rank=rank, alpha=3.0, targets=tuple(targets or known))
    add_adapters(model, lora)
    with torch.no_grad():
        for name, matrix in adapter_matrices(model).items():
            if name.endswith("lora_b"):
                matrix.normal_(std=0.3)
    matrices = {name: matrix.numpy() for name, matrix in adapter_matrices(model).items()}
    layers = {name.removesuffix(".lora_a") for name in matrices if name.endswith("lora_a")}
    changes = {
        layer: Change.of(matrices[f"{layer}.lora_a"], matrices[f"{layer}.lora_b"], lora.alpha / rank)
        for layer in layers
    }
    return without_adapters(model), Adapter(changes, sha256=str(rank))


@pytest.mark.parametrize("name", OPTIONS)
def test_rows_with_any_adapters_have_the_log_probabilities_of_merged_models(
    name: str, here: LevelsHere
) -> None:
    options = OPTIONS[name]
    merged = [None, *(adapted(options, rank) for rank in RANKS), adapted(options, 2, ["value"])]
    models = [model_with(options) if one is None else one[0] for one in merged]
    adapters = [None if one is None else one[1] for one in merged]
    theirs = [ModelStep(model, padded([source])) for model, source in zip(models, SOURCES, strict=True)]
    ours = {
        each: EngineStep(engine_of(model_with(options), each[1], each[0]), SOURCES, adapters=adapters)
        for each in here.computations()
    }
    ids = np.ones(len(SOURCES), np.int64)
    with torch.inference_mode():
        for _ in range(5):
            wanted = torch.cat([log_probs_of(step(ids[row, None])) for row, step in enumerate(theirs)])
            for (level, precision), step in ours.items():
                with case(level, precision):
                    assert_close(log_probs_of(step(ids)), wanted, format_of(precision).MODEL)
            ids = wanted.argmax(dim=1).numpy()


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_neighbours_with_other_adapters_do_not_change_a_bit(precision: Precision, here: LevelsHere) -> None:
    adapters = [adapted({}, rank)[1] for rank in RANKS] + [None, None]
    for level, computed in here.computations():
        if computed != precision:
            continue
        engine = engine_of(model_with({}), precision, level)
        together = EngineStep(engine, SOURCES, adapters=adapters, threads=2)
        alone = [
            EngineStep(engine, [source], adapters=[adapter] if adapter else ())
            for source, adapter in zip(SOURCES, adapters, strict=True)
        ]
        rows = np.asarray([4, 0, 0, 3, 2, 1])  # as a beam search repeats and moves them
        assert torch.equal(first_of(together), torch.cat([first_of(step) for step in alone]))
        together.reorder(rows)
        ids = np.arange(6) + 2
        after = log_probs_of(together(ids))
        for row, source in enumerate(rows):
            step = EngineStep(engine, [SOURCES[source]], adapters=[adapters[source]])
            first_of(step)
            assert torch.equal(after[row], log_probs_of(step(ids[row, None]))[0])


def first_of(step: EngineStep) -> torch.Tensor:
    return log_probs_of(step(np.ones(len(step._rows), np.int64)))


@pytest.mark.parametrize("name", OPTIONS)
def test_torch_adds_to_each_row_what_its_adapter_says(name: str) -> None:
    options = OPTIONS[name]
    both = [adapted(options, rank) for rank in RANKS]
    adapters = [None, *(adapter for _, adapter in both), None]
    models = [model_with(options), *(model for model, _ in both), model_with(options)]
    base = TorchBackend([model_with(options).double()], "float32")
    rows, ids = np.asarray([2, 2, 0, 4, 1, 3]), np.asarray([9, 8, 7, 6, 5, 4])
    with base.step(SOURCES, adapters=adapters) as step:
        step(np.ones(5, np.int64))
        step.reorder(rows)
        found = log_probs_of(step(ids))
    for row, number in enumerate(rows):
        with TorchBackend([models[number].double()], "float32").step([SOURCES[number]]) as step:
            step(np.ones(1, np.int64))
            assert_close(found[row], log_probs_of(step(ids[row, None]))[0], FLOAT32.ELEMENT)
    with base.step(SOURCES) as step, TorchBackend([models[0].double()], "float32").step(SOURCES) as plain:
        assert torch.equal(*(log_probs_of(each(np.ones(5, np.int64))) for each in (step, plain)))


@pytest.mark.parametrize("kind", [NativeBackend, TorchBackend])
def test_given_outputs_and_their_attention_are_those_of_merged_models(
    kind: type[NativeBackend | TorchBackend],
) -> None:
    outputs = [[3, 4], [5, 6, 7, 8], [9], [10, 11], [12, 13, 14]]
    both = [adapted({}, rank) for rank in RANKS]
    adapters = [None, *(adapter for _, adapter in both), None]
    models = [model_with({}), *(model for model, _ in both), model_with({})]
    base = kind([model_with({})], "float32")
    attention = base.attention(SOURCES, outputs, start_id=1, adapters=adapters)
    with base.forced_step(SOURCES, outputs, start_id=1, adapters=adapters) as step:
        first = log_probs_of(step(np.ones(5, np.int64)))
    for row, model in enumerate(models):
        alone, pair = kind([model], "float32"), ([SOURCES[row]], [outputs[row]])
        assert_close(attention[row], alone.attention(*pair, start_id=1)[0], FLOAT32.MODEL)
        with alone.forced_step(*pair, start_id=1) as step:
            assert_close(first[row], log_probs_of(step(np.ones(1, np.int64)))[0], FLOAT32.MODEL)
