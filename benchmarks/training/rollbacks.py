"""Measure what faults in training cost: NaN gradients, or too little memory, beside undisturbed runs."""

import argparse
import itertools
import json
import multiprocessing
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

from heedful.cli.main import program
from heedful.data.batches import Batch
from heedful.model.transformer import Transformer
from heedful.settings.run import TrainConfig
from heedful.training import step
from heedful.training.loss import Loss

Backward = Callable[[Transformer, Batch, TrainConfig, step.Precision], Loss]

NAN_SHARE = 0.02  # of all micro-batches
IN_A_ROW = 3  # micro-batches, once in a run: as many send training back to its last checkpoint


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--src", "--tgt", "--valid-src", "--valid-tgt", "--test-src", "--test-tgt"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="other settings")
    parser.add_argument("--max-numbers", type=int, default=20_000, help="logits' rows times width that fit")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


def spoil_gradients(backward: Backward, given: argparse.Namespace, seed: int) -> Backward:
    """Return a backward pass after which one gradient is NaN: by chance, and a few times in a row."""
    generator = random.Random(seed)
    calls = 0

    def spoiled(model: Transformer, batch: Batch, settings: TrainConfig, precision: step.Precision) -> Loss:
        nonlocal calls
        calls += 1
        loss = backward(model, batch, settings, precision)
        middle = given.steps // 2 + given.steps // 20
        if generator.random() < NAN_SHARE or middle <= calls < middle + IN_A_ROW:
            weight = generator.choice(list(model.parameters()))
            if weight.grad is not None:
                weight.grad.view(-1)[0] = torch.nan
        return loss

    return spoiled


def limit_memory(backward: Backward, given: argparse.Namespace, seed: int) -> Backward:
    """Return a backward pass that has memory for the smaller half of the batches only."""
    del seed

    def limited(model: Transformer, batch: Batch, settings: TrainConfig, precision: step.Precision) -> Loss:
        loss = backward(model, batch, settings, precision)
        if batch.tgt_out.numel() > given.max_numbers:
            raise torch.OutOfMemoryError("out of memory, as asked for")
        return loss

    return limited


FAULTS: dict[str, Callable[[Backward, argparse.Namespace, int], Backward] | None] = {
    "none": None,
    "NaN gradients": spoil_gradients,
    "little memory": limit_memory,
}


def train(given: argparse.Namespace, fault: str, seed: int, run: Path) -> None:
    """Train through the command line, with a fault."""
    if inject := FAULTS[fault]:
        step._forward_backward = inject(step._forward_backward, given, seed)
    files = ("src", "tgt", "valid_src", "valid_tgt")
    options = [part for name in files for part in (f"--{name.replace('_', '-')}", str(getattr(given, name)))]
    settings = {
        "train.max_steps": given.steps,
        "train.checkpoint_every_steps": given.steps // 4,
        "valid.every_steps": given.steps,
        "valid.decode_sentences": 0,
        "train.seed": seed,
        "train.processes": 1,
        "train.threads": given.threads,
        "train.precision": "float32",
    }
    values = [f"{name}={value}" for name, value in settings.items()] + given.set
    overrides = [part for value in values for part in ("--set", value)]
    program(["train"])(["train", *options, "--preset", given.preset, *overrides, "--output", str(run)])


def main() -> None:
    """Train every run in a process of its own, score it, and print a table."""
    given = parse_arguments()
    sys.stdout.write("| fault | seed | steps skipped | went back | batches halved | exit code | BLEU |\n")
    sys.stdout.write("|---|--:|--:|--:|--:|--:|--:|\n")
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        for seed, fault in itertools.product(map(int, given.seeds.split(",")), FAULTS):
            run = Path(folder) / f"{fault}-{seed}".replace(" ", "-")
            process = spawn.Process(target=train, args=(given, fault, seed, run))
            process.start()
            process.join()
            found = count_events(run)
            counts = " | ".join(str(found[name]) for name in ("skipped", "back", "halved"))
            sys.stdout.write(
                f"| {fault} | {seed} | {counts} | {process.exitcode} | {bleu(run, given):.2f} |\n"
            )
            sys.stdout.flush()


def count_events(run: Path) -> Counter[str]:
    """Count what the run's log says of rollbacks."""
    found: Counter[str] = Counter()
    for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        message = event.get("message", "")
        found["skipped"] += event["event"] == "skipped"
        found["back"] += "times the learning rate" in message
        found["halved"] += "did not fit into memory" in message
    return found


def bleu(run: Path, given: argparse.Namespace) -> float:
    """Score the last weights with sacreBLEU, searched with the defaults."""
    command = [
        Path(sys.executable).with_name("heedful"),
        "evaluate",
        run / "last",
        "--metric",
        "bleu",
        "--json",
    ]
    command += ["--src", given.test_src, "--ref", given.test_tgt, "--threads", given.threads]
    ended = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    return float(json.loads(ended.stdout)["bleu"])


if __name__ == "__main__":
    main()
