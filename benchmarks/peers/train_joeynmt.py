"""JoeyNMT's own training loop: token batches, but of sentences in random order, not of like length."""

import logging
import tempfile
from pathlib import Path
from typing import Any

from joeynmt.batch import Batch
from joeynmt.training import TrainManager, train
from measuring import Stopwatch, Task, parse_task
from sizes import BETAS, DROPOUT, LABEL_SMOOTHING, LEARNING_RATE


def configuration(task: Task, directory: Path) -> dict[str, Any]:
    """What `joeynmt train` would read from its YAML file."""
    size = task.size
    side = {"level": "word", "voc_file": str(task.material / "vocabulary.txt"), "max_length": 256}
    stack = {
        "type": "transformer",
        "num_layers": size.num_layers,
        "num_heads": size.num_heads,
        "embeddings": {"embedding_dim": size.d_model, "scale": True, "dropout": DROPOUT},
        "hidden_size": size.d_model,
        "ff_size": size.d_ff,
        "dropout": DROPOUT,
        "layer_norm": "post",
    }
    return {
        "name": "peer",
        "joeynmt_version": "2.3.0",
        "model_dir": str(directory),
        "use_cuda": False,
        "fp16": False,
        "random_seed": 1,
        "data": {
            "train": str(task.material / "train"),
            "dev": str(task.material / "valid"),
            "dataset_type": "plain",
            "src": {"lang": "src", **side},
            "trg": {"lang": "tgt", **side},
        },
        "testing": {"beam_size": 1, "eval_metrics": []},
        "training": {
            "optimizer": "adam",
            "adam_betas": list(BETAS),
            "learning_rate": LEARNING_RATE,
            "learning_rate_min": 1e-9,
            "scheduling": "exponential",  # with a factor of 1: how it says a constant rate
            "decrease_factor": 1.0,
            "label_smoothing": LABEL_SMOOTHING,
            "normalization": "tokens",
            "batch_size": task.size.budget,
            "batch_type": "token",
            "epochs": 1_000_000,
            "validation_freq": 1_000_000,
            "logging_freq": 1_000_000,
            "shuffle": True,
        },
        "model": {
            "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": stack,
            "decoder": stack,
        },
    }


class TimeIsOver(Exception):  # noqa: N818 - it is no error
    """Leaves JoeyNMT's loop."""


def listen(watch: Stopwatch) -> None:
    """Have the stopwatch hear of each update: what the batch was is known when the next one starts."""
    train_step = TrainManager._train_step
    last: list[tuple[int, float]] = []

    def counting_step(self: TrainManager, batch: Batch) -> tuple[float, int]:
        if last and watch.step(*last.pop()):
            raise TimeIsOver
        loss, num_correct = train_step(self, batch)
        last.append((int(batch.ntokens), loss))
        return loss, num_correct

    TrainManager._train_step = counting_step
    TrainManager._save_checkpoint = lambda *_: None


def main(task: Task) -> None:
    """Train until the time is over, and report."""
    if task.precision != "float32" or task.is_compiled:
        raise SystemExit("JoeyNMT 2.3 switches reduced precision off on a CPU and has no torch.compile")
    logging.disable(logging.INFO)
    watch = Stopwatch(task)
    listen(watch)
    with tempfile.TemporaryDirectory() as directory:
        try:
            train(rank=0, world_size=None, cfg=configuration(task, Path(directory)), skip_test=True)
        except TimeIsOver:
            watch.report("joeynmt", "its own loop, token batches in random order")


if __name__ == "__main__":
    main(parse_task(__doc__))
