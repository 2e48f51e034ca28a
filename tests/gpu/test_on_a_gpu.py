"""What only a GPU shows: bfloat16, memory that runs out, a resumed run's bits, the compiler, killed runs.

The figures are a real GPU's (-m gpu). The GPU that is not there, which has no memory to measure, or a CPU
runs the same lines on smaller sizes, so that no mistake in a test waits for a GPU.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import torch
from fake_gpu import OnGpu
from safetensors.torch import load_file
from small_models import prepared, small_config, small_model
from ten_pairs import as_options, write_pairs
from tiny_bundle import save_memorised
from tolerances import BF16, FLOAT32, assert_close, close
from trainer_worlds import Source, make

from heedful.data.batches import Batch
from heedful.model.transformer import Transformer
from heedful.ops import use_fused_ops
from heedful.ops.fused import FastDropout
from heedful.ops.graphs import Compute, GraphPool
from heedful.runtime.memory import peak_memory
from heedful.settings.options import Languages, Runtime, TrainingPrecision
from heedful.settings.run import Config
from heedful.tasks.loading import load_translator
from heedful.training.checkpoint import latest_checkpoint, list_checkpoints
from heedful.training.cuda_graphs import GraphedPasses
from heedful.training.execution import compile_layers, compiles
from heedful.training.loss import Loss
from heedful.training.memory import fitting_batch
from heedful.training.optimizer import build_optimizer
from heedful.training.parallel import process_group
from heedful.training.step import (
    accumulate_gradients,
    add_gradients,
    batch_loss,
    measure_nll,
    train_step,
)

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS is not deterministic
MIB = 1 << 20
ON_REAL_GPU_OR_CPU = [
    pytest.param("cuda", marks=pytest.mark.gpu),
    pytest.param("cpu", marks=pytest.mark.slow),
]


def settings(model: Transformer, **train: object) -> Config:
    values = {"compile": False, "processes": 1} | train
    return Config.model_validate({"model": model.config.model_dump(), "train": values})


def full_batch(rows: int, length: int, vocab_size: int) -> Batch:
    ids = torch.randint(3, vocab_size, (rows, length), generator=torch.Generator().manual_seed(1))
    return Batch(ids, ids, ids, ids.numel())


def ragged_batch(rows: int, seed: int) -> Batch:
    ids = torch.randint(3, 11, (rows, 6), generator=torch.Generator().manual_seed(seed))
    ids[1::2, 4:] = 0
    return Batch(ids, ids, ids, int(ids.count_nonzero()))


def gradients(model: Transformer) -> dict[str, torch.Tensor]:
    return {name: weight.grad.cpu() for name, weight in model.named_parameters() if weight.grad is not None}


def skip_without_gpu(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")


def test_bf16_learns_what_float32_learns(on_gpu: OnGpu, is_real: bool) -> None:
    batches = [Source().batch([2 * number, 2 * number + 1], 0) for number in range(3)]

    def losses(device: str, precision: TrainingPrecision) -> list[float]:
        model = small_model(dropout=0.1).to(device)
        config = settings(model)
        use_fused_ops(model, kernels=True)
        optimizer = build_optimizer(model, config.optimizer, precision=precision)
        told = []
        for number in range(300 if is_real else 3):
            torch.manual_seed(number)
            metrics = train_step(
                model, optimizer, batches, config=config, learning_rate=0.01, precision=precision
            )
            assert metrics.is_finite
            told.append(metrics.loss)
        return told

    with on_gpu() as device:
        lower, full = losses(device, "bf16"), losses(device, "float32")
    assert lower[0] == close(full[0], BF16.ROW)
    assert lower[-1] == close(full[-1], BF16.MODEL)
    assert full[-1] < full[0]
    assert lower != full


def test_dropout_is_torchs_own(on_gpu: OnGpu) -> None:
    with on_gpu() as device:
        x = torch.ones(1000, device=device)
        torch.manual_seed(9)
        wanted = torch.nn.functional.dropout(x, 0.5)
        torch.manual_seed(9)
        assert FastDropout(0.5).train()(x).tolist() == wanted.tolist()


def test_graphed_passes_have_the_gradients_of_others(on_gpu: OnGpu, is_real: bool) -> None:
    """Two shapes, each computed twice, then from a graph; rows are filled up from 41 to 42 and 35 to 36."""
    batches = [ragged_batch(rows, seed) for rows in (41, 35) for seed in range(2)]
    recorded = []

    with on_gpu() as device:
        pool = GraphPool() if is_real else None

        def record(compute: Compute) -> Compute:
            recorded.append(compute)
            return pool.record(compute) if pool else compute

        model = small_model(dropout=0.0).to(device)
        use_fused_ops(model, kernels=False)
        train = settings(model).train
        wanted = accumulate_gradients(model, batches, train, precision="float32")
        plain = gradients(model)
        model.zero_grad()

        def add(batch: Batch) -> Loss:
            return add_gradients(batch, lambda batch, is_last: batch_loss(model, batch, train), "float32")

        graphs = GraphedPasses(model, add, record=record)
        for _ in range(2):
            sums = accumulate_gradients(model, batches, train, precision="float32", graphs=graphs)
            assert sums.smoothed == close(wanted.smoothed, FLOAT32.MODEL)
            assert sums.nll == close(wanted.nll, FLOAT32.MODEL)
            assert_close(gradients(model), plain, FLOAT32.MODEL.at(64))
    assert len(recorded) == 2


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_resumed_run_is_the_whole_one_bit_for_bit(
    precision: str, on_gpu: OnGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Muon, which leaves the embeddings and biases to Adam."""
    monkeypatch.setattr(process_group, "num_workers", lambda source, device: 0)
    fixed = {"checkpoint_every_steps": 2, "ema_decay": 0.9, "precision": precision, "compile": False}

    def weights(folder: str, device: str, steps: int, *, resume: bool = False) -> list[torch.Tensor]:
        train = fixed | {"max_steps": steps, "average_checkpoints": 1}
        world = make(tmp_path / folder, device=device, optimizer={"name": "muon"}, train=train)
        if resume:
            checkpoint = latest_checkpoint(tmp_path / folder / "checkpoints")
            assert checkpoint is not None
            world.trainer.resume(checkpoint)
        world.trainer.fit()
        average = world.trainer.average
        assert average is not None
        every = [*world.trainer.model.parameters(), *average.weights.values()]
        return [weight.detach().cpu() for weight in every]

    with deterministic(), on_gpu() as device:
        whole = weights("whole", device, 4)
        weights("parts", device, 2)
        parts = weights("parts", device, 4, resume=True)
    assert all(torch.equal(one, other) for one, other in zip(whole, parts, strict=True))


def test_peak_memory_is_below_the_logits_of_a_batch(on_gpu: OnGpu, is_real: bool) -> None:
    vocab_size, rows, length = (32_000, 256, 64) if is_real else (50, 4, 6)
    all_logits = 4 * rows * length * vocab_size
    with on_gpu() as device:
        torch.manual_seed(1)
        model = Transformer.from_config(
            small_config(src_vocab_size=vocab_size, tgt_vocab_size=vocab_size, d_model=64, num_heads=2)
        ).to(device)
        use_fused_ops(model, kernels=True)
        batch = full_batch(rows, length, vocab_size)
        accumulate_gradients(model, [batch], settings(model).train, precision="bf16")
        with peak_memory(torch.device(device)) as training:
            accumulate_gradients(model, [batch], settings(model).train, precision="bf16")
        with peak_memory(torch.device(device)) as validation:
            measure_nll(model, [batch], precision="bf16")
    assert training.mib is not None
    assert validation.mib is not None
    assert training.mib * MIB < all_logits
    assert validation.mib * MIB < all_logits / 2
    assert (training.mib > 0.0) == is_real


def test_the_batch_found_for_free_memory_fits(on_gpu: OnGpu, is_real: bool) -> None:
    width, free, layers = (512, 2048 * MIB, 2) if is_real else (8, 1 << 40, 1)
    longest = 60, 50
    with on_gpu() as device:
        torch.manual_seed(1)
        config = small_config(
            d_model=width, d_ff=4 * width, num_heads=4, num_encoder_layers=layers, num_decoder_layers=layers,
            src_vocab_size=4 * width, tgt_vocab_size=4 * width,
        )  # fmt: skip
        model = Transformer.from_config(config).to(device)
        config = settings(model)
        fit = fitting_batch(model, config, prepared(model, config), longest, free=free)
        assert fit.needed < free
        if is_real:
            rows = fit.tokens // max(longest)
            with peak_memory(torch.device(device)) as peak:
                accumulate_gradients(
                    model, [full_batch(rows, 60, 4 * width)], settings(model).train, precision="float32"
                )
            assert peak.mib is not None
            assert 0.2 * fit.needed < peak.mib * MIB < free


def test_batches_that_do_not_fit_are_halved(on_gpu: OnGpu, is_real: bool) -> None:
    """The GPU's memory is limited to what a whole batch does not fit into and half a batch does."""
    rows, length, width = (64, 128, 512) if is_real else (4, 6, 16)
    with on_gpu() as device:
        torch.manual_seed(1)
        config = small_config(
            d_model=width, d_ff=4 * width, src_vocab_size=100, tgt_vocab_size=100, dropout=0.0
        )
        model = Transformer.from_config(config).to(device)
        use_fused_ops(model, kernels=True)
        train, batch = settings(model).train, full_batch(rows, length, 100)
        half = full_batch(rows // 2, length, 100)
        accumulate_gradients(model, [half], train, precision="float32")
        with peak_memory(torch.device(device)) as of_half:
            accumulate_gradients(model, [half], train, precision="float32")
        model.zero_grad()
        with peak_memory(torch.device(device)) as of_whole:
            wanted = accumulate_gradients(model, [batch], train, precision="float32")
        nll, whole = measure_nll(model, [batch], precision="float32"), gradients(model)
        model.zero_grad()
        assert of_half.mib is not None
        assert of_whole.mib is not None
        torch.cuda.empty_cache()
        _, total = torch.cuda.mem_get_info()
        limit = (0.4 * of_half.mib + 0.6 * of_whole.mib) * MIB
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))
        try:
            sums = accumulate_gradients(model, [batch], train, precision="float32")
            halved_nll = measure_nll(model, [batch], precision="float32")
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        assert (sums.num_halvings > 0) == is_real
        assert sums.smoothed == close(wanted.smoothed, FLOAT32.MODEL)
        assert halved_nll["nll"] == close(nll["nll"], FLOAT32.MODEL)
        assert_close(gradients(model), whole, FLOAT32.MODEL.at(64))


@pytest.mark.parametrize("device", ON_REAL_GPU_OR_CPU)
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_compiled_layers_have_the_gradients_of_others(device: str) -> None:
    """On a CPU they are traced alone: compiling takes minutes there."""
    skip_without_gpu(device)
    plain, compiled = small_model(dropout=0.0).to(device), small_model(dropout=0.0).to(device)
    if device == "cuda":
        assert compiles(settings(plain, compile="auto").train, torch.device(device))
    compile_layers(compiled)
    batch = Source().batch([0, 1], 0)
    losses = []
    traced_alone = torch.compiler.set_stance(force_backend="eager") if device == "cpu" else nullcontext()
    with traced_alone:
        for model in (plain, compiled):
            use_fused_ops(model, kernels=False)
            sums = accumulate_gradients(model, [batch, batch], settings(model).train, precision="float32")
            losses.append(sums.smoothed)
    torch.compiler.reset()
    assert losses[0] == close(losses[1], FLOAT32.MODEL)
    assert_close(gradients(compiled), gradients(plain), FLOAT32.MODEL)


@pytest.mark.gpu
def test_auto_chooses_the_gpu(tmp_path: Path) -> None:
    skip_without_gpu("cuda")
    bundle = save_memorised(tmp_path / "bundle")
    assert load_translator(bundle, Languages(), Runtime(device="auto")).device == "cuda"


SETTINGS: dict[str, object] = {
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "batch.tokens": 96,
    "train.max_steps": 200,
    "train.checkpoint_every_steps": 5,
    "train.average_checkpoints": 1,
    "train.ema_decay": 0.9,
    "train.compile": "false",
    "train.log_every_steps": 1,
    "valid.every_steps": 100,
    "valid.decode_sentences": 2,
}


def command(*arguments: object, device: str) -> list[str]:
    options = as_options(SETTINGS | {"train.device": device})
    return [sys.executable, "-m", "heedful", "train", *map(str, arguments), *options]


@pytest.mark.parametrize("device", ON_REAL_GPU_OR_CPU)
def test_a_killed_run_goes_on_to_the_end_of_the_whole_one(device: str, tmp_path: Path) -> None:
    """Within what atomic additions of a GPU may change; test_a_resumed_run has the bits."""
    skip_without_gpu(device)
    pairs = write_pairs(tmp_path)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(command(*pairs, "-o", whole, device=device), check=True, capture_output=True, timeout=280)
    process = subprocess.Popen(
        command(*pairs, "-o", killed, device=device), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 200
        while not list_checkpoints(killed / "checkpoints") and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert list_checkpoints(killed / "checkpoints")
    subprocess.run(
        command(*pairs, "-o", killed, "--resume", device=device), check=True, capture_output=True, timeout=280
    )
    one, other = (load_file(each / "last" / "model.safetensors") for each in (whole, killed))
    assert_close(one, other, FLOAT32.TRAINING if device == "cuda" else FLOAT32.ELEMENT)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("parallel", "precision"), [("ddp", "float32"), ("fsdp", "float32"), ("fsdp", "bf16")]
)
def test_two_gpus_train_what_one_trains(parallel: str, precision: str, tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    pairs = write_pairs(tmp_path)
    fixed = as_options({"model.dropout": 0.0, "train.precision": precision, "train.max_steps": 6})
    fixed += as_options({"train.parallel": parallel})
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    both, alone = tmp_path / "both", tmp_path / "alone"
    for start, output in ((torchrun, both), ([sys.executable], alone)):
        words = [*start, *command(*pairs, "-o", output, device="cuda")[1:], *fixed]
        subprocess.run(words, check=True, capture_output=True, timeout=280)
    one, other = (load_file(each / "last" / "model.safetensors") for each in (both, alone))
    assert_close(one, other, FLOAT32.TRAINING if precision == "float32" else BF16.MODEL)
