"""Train heedful, torch.nn.Transformer and transformers' MarianMTModel one after the other; print a table.

    python benchmarks/training.py --src train.en --tgt train.de --presets tiny,small --precisions float32,bf16

All train the preset on the same batches, with dropout and label smoothing of 0.1, Adam (fused in the two
others) and no clipping; there is no validation and no checkpoint. The two others are bare loops in one
process with torch's default threads, and bf16 is autocast there; heedful is `training_speed.py`, which
chooses its own processes. Without --src and --tgt, sentences are random words with the lengths of image
captions. Speed counts real target tokens, end tokens included and padding not.

What is not equal: torch.nn.Transformer has dropout on attention weights and inside the feed-forward layers
too, and ends both stacks in a norm; each package has its own initial weights and positions.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measuring import ROOT, Row, compare, last_json, parser_of, peak_memory_mib

if TYPE_CHECKING:
    import torch

    from heedful.data.batches import Batch
    from heedful.settings.model import ModelConfig

ENGINES = ("heedful", "marian-sdpa", "marian-eager", "torch")
BUDGETS = {"tiny": 4096, "small": 4096, "base": 2048}  # tokens of a batch, of the longer side, with padding
DROPOUT = LABEL_SMOOTHING = 0.1
WARM_UP_STEPS = 10


def main() -> int:
    """Measure every setting; return 1 if one failed."""
    parser = parser_of(__doc__)
    parser.add_argument("--src", type=Path, help="source side of the training text")
    parser.add_argument("--tgt", type=Path, help="target side, line by line parallel")
    parser.add_argument("--presets", default="tiny,small", help=", ".join(BUDGETS))
    parser.add_argument("--engines", default=",".join(ENGINES), help=", ".join(ENGINES))
    parser.add_argument("--precisions", default="float32,bf16")
    parser.add_argument("--seconds", type=float, default=30.0, help="measured for each row")
    parser.add_argument("--warm-up", type=float, default=5.0, help="seconds before; at least 10 steps")
    parser.add_argument("--vocab-size", type=int, default=8000, help="tokens of the joint vocabulary")
    return compare(parser, measured, _train_here)


def measured(given: argparse.Namespace, environment: dict[str, str]) -> list[Row]:
    """Return a row for each preset, engine and precision."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="heedful-training-") as folder:
        for preset in given.presets.split(","):
            settings = _settings(given, preset, Path(folder))
            for engine in given.engines.split(","):
                for precision in given.precisions.split(","):
                    row = {"engine": engine, "preset": preset, "precision": precision}
                    each = settings | {"train.precision": precision}
                    times = {"seconds": given.seconds, "warm_up": given.warm_up, "settings": each}
                    if engine == "heedful":
                        rows.append(row | _bench(row | times, environment))
                    else:
                        command = [sys.executable, __file__, "--row", json.dumps(row | times)]
                        rows.append(row | last_json(command, environment))
                    print(json.dumps(rows[-1]), file=sys.stderr)
    return rows


def _settings(given: argparse.Namespace, preset: str, folder: Path) -> dict[str, str]:
    settings = {
        "model.dropout": str(DROPOUT),
        "train.label_smoothing": str(LABEL_SMOOTHING),
        "tokenizer.vocab_size": str(given.vocab_size),
        "batch.tokens": str(BUDGETS[preset]),
    }
    if given.src and given.tgt:
        settings |= {"data.src": str(given.src), "data.tgt": str(given.tgt)}
        for side in ("src", "tgt"):  # otherwise some of the text would be held out
            (folder / side).write_text("A sentence.\n", encoding="utf-8")
            settings[f"data.valid_{side}"] = str(folder / side)
    return settings


def _bench(task: Row, environment: dict[str, str]) -> Row:
    """Run `training_speed.py` twice: to know how long a step takes, and for as long as the others."""
    command = [sys.executable, str(ROOT / "benchmarks/training_speed.py"), "--preset", task["preset"]]
    for key, value in task["settings"].items():
        command += ["--set", f"{key}={value}"]
    found = last_json([*command, "--steps", str(WARM_UP_STEPS)], environment)
    if "failure" not in found:
        steps = max(WARM_UP_STEPS, math.ceil(task["seconds"] / found["seconds_per_step"]))
        found = last_json([*command, "--steps", str(steps)], environment)
    if "failure" in found:
        return found
    return {
        "tokens_per_second": round(found["target_tokens_per_second"]),
        "peak_mib": round(found["peak_memory_mib"] or 0),
        "steps": found["steps"],
        "share_of_matmul": round(found["share_of_matmul"], 3),
    }


def _train_here(task: Row) -> int:
    """Train another package until the time is over; print the JSON line."""
    import torch
    import torch.nn.functional as F

    torch.manual_seed(1)
    with tempfile.TemporaryDirectory(prefix="heedful-training-") as folder:
        config, batches = _batches(task, Path(folder))
        kind, _, attention = task["engine"].partition("-")
        forward, weights = _marian(config, attention) if kind == "marian" else _torch(config)
        optimizer = torch.optim.Adam(weights, lr=3e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
        losses: list[float] = []
        created, started, tokens, elapsed = time.perf_counter(), 0.0, 0, 0.0
        while elapsed < task["seconds"]:
            batch = next(batches)
            with torch.autocast("cpu", torch.bfloat16, enabled=task["precision"] == "bf16"):
                logits = forward(batch)
            loss = F.cross_entropy(
                logits.flatten(0, 1).float(),
                batch.tgt_out.flatten(),
                ignore_index=config.tgt_pad_id,
                label_smoothing=LABEL_SMOOTHING,
            )
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
            now = time.perf_counter()
            if started:
                tokens, elapsed = tokens + batch.num_tgt_tokens, now - started
            elif len(losses) >= WARM_UP_STEPS and now - created >= task["warm_up"]:
                started, first = now, len(losses)
    figures = {
        "tokens_per_second": round(tokens / elapsed),
        "peak_mib": round(peak_memory_mib()),
        "steps": len(losses) - first,
        "losses": f"{losses[0]:.2f} to {losses[-1]:.2f}",
    }
    print(json.dumps(figures))
    return 0


def _batches(task: Row, folder: Path) -> "tuple[ModelConfig, Iterator[Batch]]":
    from training_speed import prepared_for_steps

    from heedful.settings.loading import load_config, parse_override

    overrides = [parse_override(f"{key}={value}") for key, value in task["settings"].items()]
    run, _ = prepared_for_steps(load_config(preset=task["preset"], overrides=overrides), folder)
    config, source = run.config.model, run.source
    return config, (batch for epoch in count() for batch in source.batches(epoch))


def _marian(config: "ModelConfig", attention: str) -> Any:  # noqa: ANN401
    """Return MarianMTModel with one matrix for both embeddings and the output, as a function; its weights."""
    from transformers import MarianConfig, MarianMTModel

    sizes = MarianConfig(
        vocab_size=config.src_vocab_size,
        decoder_vocab_size=config.tgt_vocab_size,
        d_model=config.d_model,
        encoder_layers=config.num_encoder_layers,
        decoder_layers=config.num_decoder_layers,
        encoder_attention_heads=config.num_heads,
        decoder_attention_heads=config.num_heads,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.d_ff,
        dropout=DROPOUT,
        activation_function="relu",
        max_position_embeddings=512,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        use_cache=False,
        pad_token_id=config.src_pad_id,
        forced_eos_token_id=None,
        attn_implementation=attention,
    )
    model = MarianMTModel(sizes).train()

    def forward(batch: "Batch") -> "torch.Tensor":
        mask = (batch.src != config.src_pad_id).long()
        return model(input_ids=batch.src, attention_mask=mask, decoder_input_ids=batch.tgt_in).logits

    return forward, model.parameters()


def _torch(config: "ModelConfig") -> Any:  # noqa: ANN401
    """Return torch.nn.Transformer between one shared matrix and itself (the paper, 3.4); its weights."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    embedding = nn.Embedding(config.src_vocab_size, config.d_model, padding_idx=config.src_pad_id)
    nn.init.normal_(embedding.weight, std=config.d_model**-0.5)
    layers = (config.num_encoder_layers, config.num_decoder_layers)
    stacks = nn.Transformer(
        config.d_model, config.num_heads, *layers, config.d_ff, DROPOUT, batch_first=True
    ).train()
    rates = torch.exp(torch.arange(0, config.d_model, 2) * (-math.log(10_000.0) / config.d_model))
    angles = torch.arange(512)[:, None] * rates
    positions = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)

    def embed(ids: torch.Tensor) -> torch.Tensor:
        embedded = embedding(ids) * math.sqrt(config.d_model) + positions[: ids.shape[1]]
        return F.dropout(embedded, DROPOUT)

    def forward(batch: "Batch") -> torch.Tensor:
        padding = batch.src == config.src_pad_id
        length = batch.tgt_in.shape[1]
        hidden = stacks(
            embed(batch.src),
            embed(batch.tgt_in),
            tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return F.linear(hidden, embedding.weight)

    return forward, [*embedding.parameters(), *stacks.parameters()]


if __name__ == "__main__":
    sys.exit(main())
