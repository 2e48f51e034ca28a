# ruff: noqa: E501  a line for each call, as it is written
"""Without any one transfer to a device, an entry point that needs it fails on a GPU.

The table names every call in the source that moves a tensor to a device or makes one there. Enter a new call
with a case of `device_cases.py` that fails without it.
"""

from pathlib import Path

import pytest
from device_cases import CASES
from fake_gpu import fake_gpu
from tiny_bundle import memorised
from transfers import removed, transfers

KILLED_BY: dict[str, tuple[str, ...]] = {
    "attention: maps of every head": (
        "decoding/backends/torch.py:TorchBackend.head_weights: torch.tensor([ids], device=self._device)",
        "decoding/backends/torch.py:TorchBackend.head_weights: each.weights[0].float().cpu()",
    ),
    "model: learned": (
        "data/batches.py:Batch.to: source.src.to(device, non_blocking=True)",
        "data/batches.py:Batch.to: source.tgt_in.to(device, non_blocking=True)",
        "data/batches.py:Batch.to: source.tgt_out.to(device, non_blocking=True)",
        "training/loss.py:_chunk_gradient: torch.arange(rows, device=targets.device)",
        "training/step.py:_accumulate: batch.to(device)",
    ),
    "scores: plain": (
        "decoding/steps.py:like: array_namespace(array).asarray(values, device=device(array))",
        "decoding/steps.py:on_host: to_device(array, 'cpu')",
        "decoding/backends/torch.py:ForcedStep.__init__: torch.arange(len(outputs), device=src.device)",
        "decoding/backends/torch.py:ForcedStep.__call__: torch.arange(num_rows, device=log_probs.device)",
        "decoding/backends/torch.py:ForcedStep.reorder: torch.as_tensor(rows).to(self._rows.device, non_blocking=True)",
    ),
    "attention: alignments of words": (
        "decoding/backends/torch.py:TorchBackend.attention: attention.latest().cpu()",
        "decoding/backends/torch.py:TorchBackend._pad: torch.from_numpy(pad(sources, model.config.src_pad_id)).to(self._device)",
        "decoding/backends/torch.py:ForcedStep.__init__: tgt_in.to(src.device)",
        "model/attention.py:ScaledDotProductAttention.forward: causal_mask(length, past=num_keys - length, device=queries_BHTK.device)",
        "model/attention.py:causal_mask: torch.ones(length, past + length, dtype=torch.bool, device=device)",
        "model/positions.py:SinusoidalPositions.forward: self.formula(max(512, 2 * end), table.shape[1]).to(table)",
    ),
    "decoding: suppressed, renormalised": (
        "decoding/backends/torch.py:TorchTokens.top: torch.tensor([i for i in suppressed if i < vocab_size], device=log_probs.device)",
    ),
    "decoding: ties": (
        "decoding/backends/torch.py:TorchTokens.top: torch.stack((best.values, best.indices.to(best.values.dtype))).cpu()",
        "decoding/backends/torch.py:TorchTokens.top: torch.as_tensor(tied, device=log_probs.device)",
        "decoding/backends/torch.py:TorchTokens.top: ordered.indices[:, :ids.shape[1]].cpu()",
        "decoding/backends/torch.py:TorchTokens.top: ordered.values[:, :ids.shape[1]].cpu()",
    ),
    "decoding: forced ends, greedy": (
        "decoding/backends/torch.py:TorchTokens.__getitem__: torch.as_tensor(rows).to(self._log_probs.device)",
        "decoding/backends/torch.py:ModelStep.__call__: torch.as_tensor(last_ids).to(self._device, non_blocking=True)",
    ),
    "decoding: CUDA graphs": (
        "decoding/backends/cuda_graphs.py:_StaticKeys.__init__: torch.arange(tensors[0].shape[2], device=position.device)",
        "decoding/backends/cuda_graphs.py:GraphDecoder._allocate: rows.to(old.memory.mask.device)",
        "decoding/backends/cuda_graphs.py:GraphDecoder._allocate: torch.full((1,), self._length, device=rows.device)",
        "decoding/backends/cuda_graphs.py:GraphDecoder._allocate: torch.arange(len(rows), device=rows.device)",
    ),
    "decoding: shortlist": (
        "decoding/backends/torch.py:RestrictedStep.__init__: is_out.to(device)",
        "decoding/backends/torch.py:RestrictedStep.reorder: torch.as_tensor(rows).to(self._is_out.device, non_blocking=True)",
    ),
    "command line: with a model": (
        "storage/torch_weights.py:meta_model: torch.empty_like(buffer, device='cpu')",
        "verbs/loading.py:load_translator: each.model.to(device)",
    ),
    "decoding: positions, learned": (
        "model/attention.py:DecoderCache.reorder: rows.to(self.memory.mask.device, non_blocking=True)",
        "ops/attention.py:sdpa: causal_mask(length, past=num_keys - length, device=queries_BHTK.device)",
    ),
    "run: resumed with an average that its checkpoints lack": (
        "training/averaging.py:MovingAverage.load: weights[name].to(own.device)",
    ),
    "training: torch.distributed": (
        "training/parallel/distributed.py:_new_rank: Transformer.from_config(config.model).to(device, setup.dtype)",
        "training/parallel/distributed.py:_on_cpu: tensor.cpu()",
    ),
    "training: attention of variable length": (
        "ops/packing.py:Packing.cu_seqlens: torch.tensor([0, *accumulate(self.lengths)], dtype=torch.int32, device=self.index.device)",
    ),
    "training: frozen encoder": ("training/step.py:measure_nll: batch.to(device)",),
    "model: llama": (
        "model/variants.py:RotaryPositions.rotate: torch.arange(start, start + length, dtype=torch.float64, device=heads_BHLK.device)",
        "model/variants.py:RotaryPositions.rotate: torch.arange(0, d_k, 2, dtype=torch.float64, device=heads_BHLK.device)",
    ),
    "decoding: positions, alibi": (
        "model/variants.py:LinearBiases.bias: torch.tensor(self.slopes, device=like.device)",
        "model/variants.py:relative_distances: torch.arange(start, start + num_queries, device=device)",
        "model/variants.py:relative_distances: torch.arange(num_keys, device=device)",
    ),
    "command line: train and resume": (
        "storage/bundle.py:_write_weights: part.detach().cpu()",
        "verbs/training_setup.py:set_up_training: _build_model(config, base).to(execution.device)",
    ),
    "training: the steps of a benchmark": (
        "verbs/profiling.py:MatmulRate.__init__: torch.randn(m, k, dtype=dtype, device=device)",
        "verbs/profiling.py:MatmulRate.__init__: torch.randn(k, n, dtype=dtype, device=device)",
    ),
}

NOT_NEEDED = {
    "ops/attention.py:FusedAttention.forward: causal_mask(length, device=queries_BHTK.device)": (
        "a way that the CPU takes alone: a GPU's SDPA came before"
    ),
    "training/execution.py:_problem_of_compiler: torch.ones(2, device=device)": (
        "a trial of the compiler, whose result is thrown away: test_compiled_layers_are_equal.py"
    ),
    "training/optimizer.py:fill_state: torch.zeros((), device=weight.device)": (
        "for processes that share a CPU's memory; a GPU has none of these"
    ),
    "training/parallel/distributed.py:_Stepper._take: torch.tensor([sums.smoothed, sums.nll, sums.num_tgt_tokens, "
    "sums.num_halvings, wrapped.squared_norm()], dtype=torch.float64, device=rank.execution.device)": (
        "gloo sums what is on the CPU as NCCL sums what is on a GPU: the group has both"
    ),
    **{
        f"training/parallel/distributed.py:{call}": "FSDP2 runs on real GPUs only: test_on_a_gpu.py"
        for call in (
            "_Sharded._scatter: value.cpu()",
            "_Sharded._scatter: scalar.to(own.device)",
            "_Sharded.gather: full.cpu()",
            "_shard: full.detach().to(like.device, like.dtype)",
            "_shard: torch.empty(like.shape, dtype=like.dtype, device=like.device)",
        )
    },
}
ENTRIES = [(call, name) for name, calls in KILLED_BY.items() for call in calls]


@pytest.fixture(scope="module", autouse=True)
def _trained_on_the_cpu() -> None:
    memorised()  # which would train on the CPU here too, but slowly


def test_every_transfer_is_entered_here() -> None:
    written = sorted(map(str, transfers()))
    assert written == sorted([*NOT_NEEDED, *(call for call, _ in ENTRIES)])


@pytest.mark.parametrize(("call", "name"), ENTRIES, ids=[call for call, _ in ENTRIES])
@pytest.mark.slow
def test_without_it_the_entry_point_fails(call: str, name: str, tmp_path: Path) -> None:
    transfer = next(each for each in transfers() if str(each) == call)
    with fake_gpu(), removed(transfer), pytest.raises((RuntimeError, TypeError, AssertionError)):
        CASES[name].run("cuda", tmp_path)
