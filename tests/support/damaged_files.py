"""A file of a checkpoint, cut or changed at a byte drawn with a seed."""

import random
from pathlib import Path


def damage(checkpoint: Path, seed: int) -> str:
    """Cut one of its files, or change a bit of it; return what was done."""
    rng = random.Random(f"damage {seed}")
    file = rng.choice(sorted(checkpoint.iterdir()))
    content = bytearray(file.read_bytes())
    place = rng.randrange(len(content))
    if rng.random() < 0.5:
        file.write_bytes(content[:place])
        return f"{file.name} cut at {place}"
    content[place] ^= 1 << rng.randrange(8)
    file.write_bytes(content)
    return f"{file.name} changed at {place}"
