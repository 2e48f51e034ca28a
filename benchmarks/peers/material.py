"""The same ids for everyone: a joint vocabulary by heedful, and the text in it, as files of numbers."""

import json
from pathlib import Path

from heedful.data.files import read_parallel
from heedful.settings.run import TokenizerConfig
from heedful.text import train_tokenizers

_LONGEST = 255  # tokens; with its end token, what heedful keeps by default


def write_material(src: Path, tgt: Path, directory: Path, *, vocab_size: int) -> None:
    """Train a vocabulary, and write the pairs as ids, a few of them once more, and what the ids are.

    Files: train.src, train.tgt, valid.src, valid.tgt (one sentence a line, without special tokens),
    vocabulary.txt (every id but those of the special tokens, one a line), material.json (numbers).
    """
    text = read_parallel(src, tgt)
    tokenizers = train_tokenizers(text.src, text.tgt, TokenizerConfig(vocab_size=vocab_size), seed=1)
    joint = tokenizers.src
    encoded = zip(joint.encode_batch(text.src), joint.encode_batch(text.tgt), strict=True)
    pairs = [(a, b) for a, b in encoded if max(len(a), len(b)) <= _LONGEST]
    directory.mkdir(parents=True, exist_ok=True)
    for side, name in enumerate(("src", "tgt")):
        lines = [" ".join(map(str, pair[side])) + "\n" for pair in pairs]
        (directory / f"train.{name}").write_text("".join(lines), encoding="ascii")
        (directory / f"valid.{name}").write_text("".join(lines[:16]), encoding="ascii")
    special = {joint.pad_id, joint.bos_id, joint.eos_id}
    words = [f"{number}\n" for number in range(joint.vocab_size) if number not in special]
    (directory / "vocabulary.txt").write_text("".join(words), encoding="ascii")
    about = {
        "vocab_size": joint.vocab_size,
        "pad_id": joint.pad_id,
        "bos_id": joint.bos_id,
        "eos_id": joint.eos_id,
        "pairs": len(pairs),
        "target_tokens": sum(len(tgt) + 1 for _, tgt in pairs),
    }
    (directory / "material.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
