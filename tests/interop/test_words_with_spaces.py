"""A token is what its vocabulary says: lines are split at the ASCII space alone, as in the other systems."""

import argparse
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ctranslate2_files import translator
from pretrained_models import imported

from heedful import Translator, load_bundle
from heedful.tasks.exchange import import_model
from heedful.text import Tokenizer

GOLDEN = Path(__file__).parent.parent / "golden"
# No-break, ideographic and zero-width spaces, a next line, a tab, and separators of lines and of files.
WORDS = ("10\u00a0000", "\u3000", "a\x85b", "\u202f!", "x\u200b", "\u2028", "q\tr", "\x1c")


def _marian(directory: Path) -> str:
    shutil.copytree(GOLDEN / "marian" / "post", directory)
    lines = (directory / "vocab.yml").read_text(encoding="utf-8").split("\n")
    escaped = [json.dumps(word) for word in WORDS]
    lines[3 : 3 + len(WORDS)] = [f"{word}: {i}" for i, word in enumerate(escaped, start=3)]
    (directory / "vocab.yml").write_text("\n".join(lines), encoding="utf-8")
    return "marian-native"


def _ctranslate2(directory: Path) -> str:
    shutil.copytree(GOLDEN / "aren-transliteration" / "float32", directory)
    for side in ("source", "target"):
        path = directory / f"{side}_vocabulary.txt"
        tokens = path.read_text(encoding="utf-8").split("\n")
        tokens[8 : 8 + len(WORDS)] = WORDS
        path.write_text("\n".join(tokens), encoding="utf-8")
    return "ctranslate2"


def _eole(directory: Path) -> str:
    shutil.copytree(GOLDEN / "opennmt" / "eole" / "interleaved", directory)
    saved = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
    for side in ("src", "tgt"):
        saved[side][4 : 4 + len(WORDS)] = WORDS
    (directory / "vocab.json").write_text(json.dumps(saved), encoding="utf-8")
    return "eole"


def _opennmt(directory: Path) -> str:
    directory.mkdir()
    source = GOLDEN / "opennmt" / "opennmt-py" / "interleaved" / "model_step_7.pt"
    with torch.serialization.safe_globals([argparse.Namespace]):
        saved = torch.load(source)
    for side in ("src", "tgt"):
        saved["vocab"][side][4 : 4 + len(WORDS)] = WORDS
    torch.save(saved, directory / "model.pt")
    return "opennmt-py"


@pytest.mark.parametrize("write", [_marian, _ctranslate2, _eole, _opennmt])
def test_words_with_other_white_space_are_read_and_written(
    write: Callable[[Path], str], tmp_path: Path
) -> None:
    source = tmp_path / "model"
    layout = write(source)
    found, _ = imported(layout, source / "model.pt" if layout == "opennmt-py" else source)
    assert found.tokenizers is not None
    for tokenizer in (found.tokenizers.src, found.tokenizers.tgt):
        _assert_words(tokenizer)


def _assert_words(tokenizer: Tokenizer) -> None:
    line = " ".join(WORDS)
    ids = tokenizer.encode(line)
    assert ids == [*range(ids[0], ids[0] + len(WORDS))]
    assert tokenizer.decode(ids) == line
    assert [line[start:end].removeprefix(" ") for start, end in tokenizer.spans(line)] == [*WORDS]
    unknown = tokenizer.decode([ids[0], tokenizer.unk_id, ids[1]], unknown=[" \u00a0?"])
    assert unknown.split(" ") == [WORDS[0], "\u00a0?", WORDS[1]]


def test_ctranslate2_writes_the_same_for_such_lines(tmp_path: Path) -> None:
    _ctranslate2(tmp_path / "model")
    import_model(tmp_path / "model", output=tmp_path / "bundle")
    source = (tmp_path / "model" / "source_vocabulary.txt").read_text(encoding="utf-8").split("\n")
    lines = [f"{source[20]} {word} {source[21]} x</s>x" for word in WORDS if "\n" not in word]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    theirs = translator(tmp_path / "model", compute_type="default")
    theirs.translate_file(os.fspath(tmp_path / "in.txt"), os.fspath(tmp_path / "out.txt"), beam_size=2)
    wanted = (tmp_path / "out.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert Translator(load_bundle(tmp_path / "bundle")).translate(lines) == wanted
