"""The ids that material.py wrote, and batches of them, for the peers that bring no batching of their own."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Ids:
    """The pairs as ids, without special tokens, and the ids of these."""

    src: list[list[int]]
    tgt: list[list[int]]
    vocab_size: int
    pad_id: int
    bos_id: int
    eos_id: int


@dataclass(frozen=True)
class Batch:
    """Padded on the right: src (B, S) and tgt_out (B, T) end in eos, tgt_in (B, T) begins with bos."""

    src: torch.Tensor
    tgt_in: torch.Tensor
    tgt_out: torch.Tensor
    num_tgt_tokens: int


def read_ids(material: Path) -> Ids:
    """Read what material.py wrote."""

    def lines(name: str) -> list[list[int]]:
        with (material / name).open(encoding="ascii") as file:
            return [[int(word) for word in line.split()] for line in file]

    about = json.loads((material / "material.json").read_text(encoding="utf-8"))
    numbers = {key: about[key] for key in ("vocab_size", "pad_id", "bos_id", "eos_id")}
    return Ids(lines("train.src"), lines("train.tgt"), **numbers)


def token_batches(ids: Ids, budget: int, *, seed: int = 1) -> Iterator[Batch]:
    """Yield batches without end: pairs of like length, at most `budget` tokens of the longer side, padded."""
    generator = random.Random(seed)
    lengths = [(len(tgt) + 1, len(src) + 1) for src, tgt in zip(ids.src, ids.tgt, strict=True)]
    while True:
        order = list(range(len(lengths)))
        generator.shuffle(order)
        order.sort(key=lambda index: (max(lengths[index]), lengths[index]))
        batches: list[list[int]] = [[]]
        for index in order:  # the longest so far is this one, because the order rises
            if (len(batches[-1]) + 1) * max(lengths[index]) > budget and batches[-1]:
                batches.append([])
            batches[-1].append(index)
        generator.shuffle(batches)
        for batch in batches:
            yield _collate(ids, batch)


def _collate(ids: Ids, indices: list[int]) -> Batch:
    src = [[*ids.src[index], ids.eos_id] for index in indices]
    tgt_in = [[ids.bos_id, *ids.tgt[index]] for index in indices]
    tgt_out = [[*ids.tgt[index], ids.eos_id] for index in indices]
    return Batch(
        src=_pad(src, ids.pad_id),
        tgt_in=_pad(tgt_in, ids.pad_id),
        tgt_out=_pad(tgt_out, ids.pad_id),
        num_tgt_tokens=sum(len(row) for row in tgt_out),
    )


def _pad(rows: list[list[int]], pad_id: int) -> torch.Tensor:
    longest = max(len(row) for row in rows)
    return torch.tensor([row + [pad_id] * (longest - len(row)) for row in rows])
