"""What this machine has, and limits of control groups as Linux shows them, in a folder."""

import gc
import json
import os
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from command_line import heedful
from damage import limited_memory
from small_models import small_config
from ten_pairs import as_options, write_pairs

from heedful.data.batches import Batch
from heedful.errors import ConfigError
from heedful.model.transformer import Transformer
from heedful.runtime.memory import peak_memory
from heedful.settings.loading import load_config
from heedful.settings.run import Config
from heedful.training.execution import Execution
from heedful.training.memory import MAX_TOKENS, Fit, fitting_batch, free_memory, memory_for_steps
from heedful.training.optimizer import build_optimizer
from heedful.training.step import train_step

CPU = torch.device("cpu")
MIB = 1 << 20
UNIFIED = ("memory.max", "memory.current", "inactive_file")
LEGACY = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="ascii")


def member_of(group: str, root: Path) -> Path:
    write(root / "proc/self/cgroup", group)
    return root


def group(directory: Path, files: tuple[str, str, str], *, limit: int | str, taken: int, cache: int) -> None:
    for name, content in zip(files, (limit, taken, f"anon 5\n{files[2]} {cache}"), strict=False):
        write(directory / ("memory.stat" if name == files[2] else name), str(content))


@pytest.mark.parametrize("group_line", ["0::/", "0::/a"])
def test_without_a_limit_there_is_what_the_machine_has(tmp_path: Path, group_line: str) -> None:
    root = member_of(group_line, tmp_path)
    group(root / "sys/fs/cgroup/a", UNIFIED, limit="max", taken=1, cache=0)
    available = psutil.virtual_memory().available
    assert MIB < free_memory(CPU, root=root) <= psutil.virtual_memory().total
    assert 0.5 * available < free_memory(CPU, root=root) < 1.5 * available  # others take and give


@pytest.mark.parametrize(
    ("group_line", "below", "files"),
    [("0::/a/b", "sys/fs/cgroup", UNIFIED), ("4:cpu,memory:/a/b", "sys/fs/cgroup/memory", LEGACY)],
)
def test_the_tightest_of_all_groups_counts_and_file_cache_is_free(
    tmp_path: Path, group_line: str, below: str, files: tuple[str, str, str]
) -> None:
    root = member_of(f"3:cpuset:/x\n{group_line}", tmp_path)
    top = root / below
    group(top / "a/b", files, limit=90 * MIB, taken=10 * MIB, cache=5 * MIB)
    assert free_memory(CPU, root=root) == 85 * MIB
    group(top / "a", files, limit=60 * MIB, taken=30 * MIB, cache=5 * MIB)
    assert free_memory(CPU, root=root) == 35 * MIB
    group(top, files, limit=50 * MIB, taken=30 * MIB, cache=1 * MIB)
    assert free_memory(CPU, root=root) == 21 * MIB


def test_a_container_that_hides_its_outer_groups_shows_its_own_at_the_top(tmp_path: Path) -> None:
    root = member_of("4:memory:/docker/0123", tmp_path)
    group(root / "sys/fs/cgroup/memory", LEGACY, limit=30 * MIB, taken=10 * MIB, cache=0)
    assert free_memory(CPU, root=root) == 20 * MIB


@pytest.mark.skipif(not psutil.LINUX, reason="needs Linux")
@pytest.mark.parametrize("limit", [10 * MIB, 40 * MIB])
def test_a_limit_of_addresses_counts(tmp_path: Path, limit: int) -> None:
    with limited_memory(limit):
        assert abs(free_memory(CPU, root=tmp_path) - limit) <= 4 * MIB


MEGABYTE, GIB = 1 << 20, 1 << 30
LONGEST = (40, 32)


def settings(**train: Any) -> Config:  # noqa: ANN401
    model = small_config(d_model=64, d_ff=128, num_encoder_layers=2, src_vocab_size=900, tgt_vocab_size=900)
    return Config.model_validate(
        {"model": model.model_dump(), "train": {"precision": "float32", "processes": 1} | train}
    )


def fresh_model() -> Transformer:
    torch.manual_seed(3)
    return Transformer.from_config(settings().model)


def fit(free: int, **train: Any) -> Fit:  # noqa: ANN401
    model, config = fresh_model(), settings(**train)
    return fitting_batch(model, config, Execution.of(config.train, CPU), LONGEST, free=free)


def batch(tokens: int, src: int, tgt: int) -> Batch:
    rows = tokens // max(src, tgt)
    tgt_ids = torch.randint(1, 900, (rows, tgt))
    return Batch(torch.randint(1, 900, (rows, src)), tgt_ids, tgt_ids, tgt_ids.numel())


@pytest.mark.slow
def test_training_with_what_fits_stays_within_the_given_memory() -> None:
    """With real steps: batches of the longest sentences, then of others, with as many tokens."""
    free, model, config = 500 * MEGABYTE, fresh_model(), settings()
    found = fitting_batch(model, config, Execution.of(config.train, CPU), LONGEST, free=free)
    optimizer = build_optimizer(model, config.optimizer, precision="float32")
    with peak_memory(CPU) as before:
        pass
    with peak_memory(CPU) as during:
        for sides in (LONGEST, (12, 16), (32, 40), (4, 4), (24, 28), LONGEST):
            batches = [batch(found.tokens, *sides)]
            train_step(model, optimizer, batches, config=config, learning_rate=0.1, precision="float32")
    assert during.mib is not None
    assert before.mib is not None
    assert during.mib - before.mib < free / MEGABYTE
    assert 2000 < found.tokens < MAX_TOKENS
    assert found.needed <= free


@pytest.mark.slow
def test_no_more_tokens_are_taken_than_the_paper_has() -> None:
    """5.1."""
    assert fit(64 * GIB).tokens == 25_000 == Config().batch.tokens


@pytest.mark.slow
def test_two_passes_of_a_batch_take_twice_the_memory() -> None:
    once, twice = fit(600 * MEGABYTE), fit(600 * MEGABYTE, r_drop=1.0)
    assert 0.35 < twice.tokens / once.tokens < 0.7


@pytest.mark.slow
def test_a_model_and_the_random_generators_are_the_same_after_a_trial() -> None:
    model = fresh_model()
    state, before = torch.get_rng_state(), [weight.clone() for weight in model.parameters()]
    fitting_batch(model, settings(), Execution.of(settings().train, CPU), LONGEST, free=GIB)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), before, strict=True))
    assert all(weight.grad is None for weight in model.parameters())
    assert model.training


def test_a_pair_that_does_not_fit_is_said_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r'batch\.tokens="auto"') as caught:
        fit(300 * MEGABYTE)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_run_finds_its_batches_once(tmp_path: Path) -> None:
    """Resuming takes the number that the run began with, whatever is free then."""
    run = tmp_path / "run"
    arguments = [*write_pairs(tmp_path), *as_options({"batch.tokens": "auto"}), "--output", run]
    begun = heedful("train", *arguments, *as_options({"train.max_steps": 2}))
    assert begun.code == 0, begun.err
    tokens = load_config(run / "config.toml").batch.tokens
    assert 0 < tokens <= MAX_TOKENS
    events = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    said = [event["message"] for event in events if event["event"] == "notice"]
    [line] = [message for message in said if message.startswith('batch.tokens="auto": ')]
    assert line.startswith(f'batch.tokens="auto": {tokens:,} tokens in a batch: ')

    config = run / "config.toml"
    config.write_text(
        config.read_text(encoding="utf-8").replace(f"tokens = {tokens}", "tokens = 1234"), "utf-8"
    )
    resumed = heedful("train", *arguments, *as_options({"train.max_steps": 3}), "--resume")
    assert "belongs to other data" in resumed.err  # the number is part of what a run is
    config.write_text(
        config.read_text(encoding="utf-8").replace("tokens = 1234", f"tokens = {tokens}"), "utf-8"
    )
    resumed = heedful("train", *arguments, *as_options({"train.max_steps": 3}), "--resume")
    assert resumed.code == 0, resumed.err
    assert load_config(config).batch.tokens == tokens


def test_memory_is_as_before_after_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that the user has set stay as they are; the garbage collector searches all objects again."""
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    before = dict(os.environ)
    with memory_for_steps():
        gc.freeze()
        assert os.environ["MALLOC_TRIM_THRESHOLD_"] == "131072"
        assert os.environ["MALLOC_MMAP_THRESHOLD_"] != before.get("MALLOC_MMAP_THRESHOLD_")
    assert dict(os.environ) == before
    assert not gc.get_freeze_count()
