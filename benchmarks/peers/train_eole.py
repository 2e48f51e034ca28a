"""Eole's own training loop."""

import json
import logging
import tempfile
from pathlib import Path
from typing import Any

import eole.train_single
from eole.bin.run.train import TrainingSetup
from eole.config.run import TrainConfig
from eole.trainer import Trainer
from eole.utils import Statistics
from measuring import Stopwatch, Task, parse_task
from sizes import BETAS, DROPOUT, LABEL_SMOOTHING, LEARNING_RATE


def configuration(task: Task, directory: Path) -> TrainConfig:
    """What `eole train` would read from its YAML file."""
    size = task.size
    num_pairs = json.loads((task.material / "material.json").read_text(encoding="utf-8"))["pairs"]
    return TrainConfig(
        data={
            "corpus": {
                "path_src": str(task.material / "train.src"),
                "path_tgt": str(task.material / "train.tgt"),
                "transforms": [],
                "weight": 1,
            }
        },
        src_vocab=str(task.material / "vocabulary.txt"),
        share_vocab=True,
        seed=1,
        report_every=1_000_000,
        valid_metrics=[],
        model={
            "architecture": "transformer",
            "layers": size.num_layers,
            "hidden_size": size.d_model,
            "heads": size.num_heads,
            "transformer_ff": size.d_ff,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "add_qkvbias": True,
            "add_final_linear_bias": True,
            "add_ffnbias": True,
            "embeddings": {"position_encoding_type": "SinusoidalInterleaved", "word_vec_size": size.d_model},
        },
        training={
            "model_path": str(directory / "model"),
            "world_size": 0,
            "gpu_ranks": [],
            "num_workers": 0,
            "bucket_size": min(num_pairs, 262_144),  # sorted by length at a time; the latter is its default
            "batch_type": "tokens",
            "batch_size": size.budget,
            "normalization": "tokens",
            "accum_count": [1],
            "optim": "adam",
            "adam_beta1": BETAS[0],
            "adam_beta2": BETAS[1],
            "learning_rate": LEARNING_RATE,
            "max_grad_norm": 0,
            "dropout": [DROPOUT],
            "attention_dropout": [0.0],
            "label_smoothing": LABEL_SMOOTHING,
            "param_init_method": "xavier_uniform",
            "compute_dtype": {"float32": "fp32", "bfloat16": "bf16"}[task.precision],
            "torch_compile": task.is_compiled,
            "log_attention_entropy": False,
            "train_steps": 1_000_000,
            "valid_steps": 1_000_000,
            "save_checkpoint_steps": 0,
        },
    )


class TimeIsOver(Exception):  # noqa: N818 - it is no error
    """Leaves Eole's loop."""


def listen(watch: Stopwatch) -> None:
    """Have the stopwatch hear of each update."""
    train_step = Trainer._train_step

    def counting_step(
        self: Trainer,
        batches: list[dict[str, Any]],
        normalization: int,
        total: Statistics,
        since_report: Statistics,
        step: int = 0,
    ) -> None:
        tokens, loss = total.n_tokens, total.loss
        train_step(self, batches, normalization, total, since_report, step)
        tokens, loss = total.n_tokens - tokens, total.loss - loss
        if watch.step(tokens, loss / tokens):
            raise TimeIsOver

    Trainer._train_step = counting_step


def main(task: Task) -> None:
    """Train until the time is over, and report."""
    logging.disable(logging.INFO)
    watch = Stopwatch(task)
    listen(watch)
    with tempfile.TemporaryDirectory() as directory:
        config = configuration(task, Path(directory))
        TrainingSetup(config).initialize()
        try:
            eole.train_single.main(config, device_id=-1)
        except TimeIsOver:
            watch.report("eole", "its own loop, token batches, torch AMP for bfloat16, no attention entropy")


if __name__ == "__main__":
    main(parse_task(__doc__))
