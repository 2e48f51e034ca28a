"""fairseq's dictionaries by its own rule, and the language tokens that it adds to them."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Outcome, heedful
from fairseq_system import Fairseq

from heedful import Translator, load_bundle
from heedful.errors import InteropError
from heedful.interop.fairseq_dictionaries import Languages, read_dictionary
from heedful.settings.model import ModelConfig
from heedful.text.special_tokens import SpecialTokens

# For each file what fairseq's Dictionary.load and index give: ids of words in a text.
OVERWRITTEN = "".join(f"{word} 0 #fairseq:overwrite\n" for word in ("<s>", "</s>", "<pad>", "<unk>"))
FILES: dict[str, tuple[str, dict[str, int]]] = {
    "negative counts": ("hello -0\nworld -1\na -2\nb -3\n", {"hello": 4, "b": 7, "<unk>": 3}),
    "blank at the end": ("hello 10 \nworld 9\t\na 8\nb 7\r\n", {"hello": 4, "world": 5, "b": 7}),
    "unk is overwritten": ("<unk> 9 #fairseq:overwrite\nhello 1\nworld 9\na 8\n", {"hello": 5, "<unk>": 4}),
    "all are overwritten": (
        f"{OVERWRITTEN}hello 10\nworld 9\na 8\nb 7\n",
        {"hello": 8, "<s>": 4, "</s>": 5, "<pad>": 6, "<unk>": 7, "other": 3},
    ),
    "a word is overwritten": ("a 9\nb 8\na 7 #fairseq:overwrite\nc 1 #fairseq:overwrite\n", {"a": 6, "c": 7}),
    "other white space": ("a\u00a0b 3\n\u3000 2\nc\x85d 1\n", {"a\u00a0b": 4, "\u3000": 5, "c\x85d": 6}),
    "filled up": ("madeupword0001 0\na 3\n", {"madeupword0001": 4, "madeupword0000": 6, "madeupword0002": 7}),
}


def tokenizer_of(path: Path, size: int, tags: tuple[str, ...] = ()) -> Any:  # noqa: ANN401
    from heedful.interop.fairseq_dictionaries import read_dictionaries

    config = ModelConfig(src_vocab_size=size, tgt_vocab_size=size)
    return read_dictionaries(path, path, config, languages=Languages(tags)).src


@pytest.mark.parametrize("name", FILES)
def test_words_have_the_ids_of_fairseq(name: str, tmp_path: Path) -> None:
    content, ids = FILES[name]
    (tmp_path / "dict.txt").write_bytes(content.encode())
    size = 4 + len(content.rstrip().split("\n")) if name != "filled up" else 8
    tokenizer = tokenizer_of(tmp_path / "dict.txt", size)
    assert tokenizer.vocab_size == size
    assert tokenizer.encode(" ".join(ids)) == [*ids.values()]
    assert tokenizer.decode([*ids.values()]).split(" ") == [
        "⁇" if i == 3 else word for word, i in ids.items()
    ]
    assert (tokenizer.bos_id, tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id) == (0, 1, 2, 3)


@pytest.mark.parametrize("line", ["a", "a b", " 3", "a 3 #fairseq:overwritten", "b 2\nb 3", "<s> 3"])
def test_lines_that_fairseq_refuses_are_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "dict.txt").write_text(f"x 1\n{line}\n", encoding="utf-8")
    with pytest.raises(InteropError, match=r"line [23]:? "):
        read_dictionary(tmp_path / "dict.txt", 8)


WORDS, ROWS = ("a", "b", "c", "d", "e"), 16
MULTI = {"task": "translation_multi_simple_epoch", "lang_pairs": "en-fr,en-de,de-en", "decoder_langtok": True}


def run_import(directory: Path, task: dict[str, Any], *options: str, rows: int = ROWS) -> Outcome:
    torch.manual_seed(3)
    model = Fairseq(rows, rows, 12, 3, 20, 1, pre_norm=True)
    heads = {"encoder_attention_heads": 3, "decoder_attention_heads": 3}
    state = {"model": model.state_dict(), "args": argparse.Namespace(**heads, **task)}
    torch.save(state, directory / "m.pt")
    (directory / "dict.txt").write_text("".join(f"{word} 9\n" for word in WORDS), encoding="utf-8")
    vocabularies = ("--src-vocab", directory / "dict.txt", "--tgt-vocab", directory / "dict.txt")
    output = directory / "bundle"
    return heedful("import", directory / "m.pt", "--layout", "fairseq", *vocabularies, *options, "-o", output)


@pytest.mark.parametrize(
    ("task", "tags"),
    [
        (MULTI, ["__de__", "__en__", "__fr__"]),
        (MULTI | {"langs": ["fr", "en", "de"]}, ["__fr__", "__en__", "__de__"]),
        (MULTI | {"langs": "fr,en", "lang_tok_style": "mbart"}, ["[fr]", "[en]", "<mask>"]),
        (
            MULTI | {"langs": ["fr", "en"], "langtoks_specs": ["main", "mono_dae"]},
            ["__fr__", "__en__", "__fr_dae__", "__en_dae__"],
        ),
        (MULTI | {"task": "multilingual_translation", "decoder_langtok": False}, []),
    ],
)
def test_language_tokens_follow_the_dictionary_in_fairseqs_order(
    task: dict[str, Any], tags: list[str], tmp_path: Path
) -> None:
    assert Languages.of({"args": argparse.Namespace(**task)}, None).tags == tuple(tags)
    assert Languages.of({"cfg": {"task": {"_name": task["task"], **task}}}, None).tags == tuple(tags)


@pytest.mark.parametrize("encoder", ["src", "tgt", None])
@pytest.mark.parametrize("replacing", [False, True])
def test_a_multilingual_model_is_framed_as_by_its_task(
    encoder: str | None, replacing: bool, tmp_path: Path
) -> None:
    task = MULTI | {"encoder_langtok": encoder, "lang_tok_replacing_bos_eos": replacing}
    (tmp_path / "langs").write_text("fr\nen\n\nde\n", encoding="utf-8")
    options = ["--lang-dict", str(tmp_path / "langs"), "--tgt-lang", "de"]
    options += ["--src-lang", "en"] if encoder == "src" else []
    assert run_import(tmp_path, task, *options).code == 0
    bundle = load_bundle(tmp_path / "bundle")
    template = SpecialTokens.of(bundle.config, bundle.tokenizers)
    fr, en, de, eos = 9, 10, 11, 2
    tag = {"src": (en,), "tgt": (de,), None: ()}[encoder]
    assert template.source([4]) == [4, *(tag or (eos,))] if replacing else [*tag, 4, eos]
    assert template.start_id == (de if replacing else eos)
    assert template.tgt_prefix == (() if replacing else (de,))
    outputs = Translator(bundle).translate(["a b", "c"])
    assert all("__" not in each for each in outputs)
    other = Translator(bundle).for_languages(tgt_lang="fr")
    changed = other.codec.special_tokens
    assert fr in (changed.start_id, *changed.tgt_prefix)
    assert (fr in changed.source([4])) == (encoder == "tgt")


def test_rows_that_no_file_names_and_missing_languages_say_what_to_give(tmp_path: Path) -> None:
    without = run_import(tmp_path, {}, rows=24)
    assert without.code == 1
    assert "--lang-dict" in without.err
    missing = run_import(tmp_path, MULTI)
    assert missing.code == 1
    assert "--tgt-lang" in missing.err
