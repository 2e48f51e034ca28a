"""Tokens added to a vocabulary have the ids of transformers, in each form that its versions wrote."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pretrained_models import FAMILIES as MODELS
from pretrained_models import pegasus_files, t5_files
from small_tokenizers import (
    blenderbot_small_files,
    fsmt_files,
    m2m100_model,
    marian_files,
    phrases,
    sentencepiece_model,
)

from heedful import Translator, load_bundle
from heedful.errors import InteropError
from heedful.interop.huggingface.fairseq_families import M2M100_LANGUAGES
from heedful.interop.huggingface.other_families import moses_tokenizer
from heedful.interop.huggingface.pretrained import read_pretrained
from heedful.interop.layouts import FAMILIES as DECLARED
from heedful.tasks.exchange import export_model, import_model
from heedful.text import Tokenizer, TokenizerPair

pytestmark = [
    pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"),
    pytest.mark.filterwarnings("ignore:builtin type .*has no __module__ attribute:DeprecationWarning"),
]

FLAGS: dict[str, dict[str, bool]] = {
    "<term>": {},
    "<key>": {"special": True},
    "[L]": {"lstrip": True},
    "[R]": {"rstrip": True, "normalized": False},
    "solo": {"single_word": True},
    "ﬁx": {"normalized": True},
    "<te": {"normalized": False},
}
LINES = (
    *phrases()[0][:10],
    "The cat sees <term> today.",
    "<term><term> the<term>cat",
    "a <key> b<key>",
    "the   [L] cat[L]   the",
    "the [R]   cat [R]",
    "solo the solo cat, soloist presolo solo",
    "solo,the",
    "[L]solo [R] solo <term>solo",
    "the ﬁx fix",
    "<te> <ter <term",
    "x</s> <term></s>",
)


def _m2m100(directory: Path) -> None:
    model, pieces = m2m100_model()
    (directory / "sentencepiece.bpe.model").write_bytes(model)
    (directory / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    codes = M2M100_LANGUAGES["m2m100"].split()
    tags = {"additional_special_tokens": [f"__{code}__" for code in codes]}  # as the published ones have
    (directory / "tokenizer_config.json").write_text(json.dumps(tags))


def _sentencepiece(algorithm: str) -> Callable[[Path], object]:
    def write(directory: Path) -> None:
        model = sentencepiece_model(sum(phrases(), ()), algorithm, 200)
        (directory / "sentencepiece.bpe.model").write_bytes(model)

    return write


def _byt5(directory: Path) -> None:
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')


# What writes the files, the class of transformers, and the model_type.
FAMILIES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "marian": (marian_files, "MarianTokenizer", "marian"),
    "m2m100": (_m2m100, "M2M100Tokenizer", "m2m_100"),
    "plbart": (_sentencepiece("bpe"), "PLBartTokenizer", "plbart"),
    "mbart50": (_sentencepiece("unigram"), "MBart50Tokenizer", "mbart"),
    "t5": (t5_files, "T5Tokenizer", "t5"),
    "byt5": (_byt5, "ByT5Tokenizer", "t5"),
    "pegasus": (pegasus_files, "PegasusTokenizer", "pegasus"),
    "fsmt": (fsmt_files, "FSMTTokenizer", "fsmt"),
    "blenderbot small": (blenderbot_small_files, "BlenderbotSmallTokenizer", "blenderbot-small"),
}


def tokenizer_of(directory: Path, model_type: str) -> Tokenizer:
    """That of the source."""
    if model_type == "fsmt":  # the target's has another size, so that the tokens would have other ids
        return moses_tokenizer(read_pretrained(directory), "vocab-src.json", "en", rules="fsmt")
    found = DECLARED[model_type].tokenizer(read_pretrained(directory))
    return found.src if isinstance(found, TokenizerPair) else found


# transformers 5 writes a token for the space before an added one; SentencePiece does not.
KEEPS_SPACES = ("mbart50", "pegasus")
PLAIN: dict[str, dict[str, bool]] = {"<term>": {}, "<key>": {"special": True}, "<te": {}}


def saved(directory: Path, family: str, tokens: dict[str, dict[str, bool]], form: str) -> Any:  # noqa: ANN401
    """Write a tokenizer with added tokens in one of the forms, and load it by transformers.

    It is loaded before the older form is written where version 5 reads that wrong.
    """
    import transformers

    write, name, model_type = FAMILIES[family]
    write(directory)
    kind = getattr(transformers, name)
    theirs = kind.from_pretrained(directory)
    special = [transformers.AddedToken(each, **flags) for each, flags in tokens.items() if "special" in flags]
    theirs.add_tokens(special, special_tokens=True)
    theirs.add_tokens(
        [transformers.AddedToken(each, **flags) for each, flags in tokens.items() if "special" not in flags]
    )
    theirs.save_pretrained(directory)
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    settings.pop("backend", None)
    ids = {str(token): i for i, token in theirs.added_tokens_decoder.items() if str(token) in tokens}
    pipeline = directory / "tokenizer.json"
    loaded = kind.from_pretrained(directory) if family in ("m2m100", "byt5") else None
    if form == "old":
        settings.pop("added_tokens_decoder", None)
        pipeline.unlink(missing_ok=True)
        (directory / "added_tokens.json").write_text(json.dumps(ids))
    elif form == "new" and pipeline.is_file():
        saved = json.loads(pipeline.read_text())["added_tokens"]
        settings["added_tokens_decoder"] = {each.pop("id"): each for each in saved}
        pipeline.unlink()
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    ids = {"pad_token_id": theirs.pad_token_id, "eos_token_id": theirs.eos_token_id}
    config = {"model_type": model_type, "tokenizer_class": name} | ids
    (directory / "config.json").write_text(json.dumps(config))
    return loaded or kind.from_pretrained(directory)


CASES = [(family, form) for family in FAMILIES for form in ("old", "new", "pipeline")]


@pytest.mark.parametrize(("family", "form"), CASES)
def test_ids_and_text_of_added_tokens_equal_transformers(tmp_path: Path, family: str, form: str) -> None:
    flags = PLAIN if form == "old" or family == "plbart" else FLAGS  # transformers 5 forgets PLBart's
    theirs = saved(tmp_path, family, flags, form)
    TokenizerPair(*[tokenizer_of(tmp_path, FAMILIES[family][2])] * 2).save(tmp_path)
    ours = TokenizerPair.load(tmp_path).src
    for token in flags.keys() - {"ﬁx"}:
        assert ours.tokens([theirs.convert_tokens_to_ids(token)]) == [token]
    for line in LINES:
        if family in KEEPS_SPACES:
            line = re.sub(r" +(<|\[|ﬁ|fi)", r"\1", line)
            if " solo" in line:
                continue
        ids = theirs(line, add_special_tokens=False).input_ids
        assert ours.encode(line) == ids, line
        assert len(ours.spans(line)) == len(ids)
        # FSMT decodes by the target's vocabulary; the library normalises a token that it decodes.
        if family not in ("fsmt", "plbart") and "fi" not in line:
            assert ours.decode(ids).strip() == theirs.decode(ids, skip_special_tokens=True).strip()


def test_an_added_token_of_another_ones_id_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, "marian", PLAIN, "old")
    (tmp_path / "added_tokens.json").write_text('{"<term>": 7}')
    with pytest.raises(InteropError, match="<term>"):
        tokenizer_of(tmp_path, "marian")


@pytest.mark.parametrize("form", ["old", "new"])
def test_added_tokens_that_tokenizer_json_lacks_equal_transformers(tmp_path: Path, form: str) -> None:
    import transformers

    FAMILIES["mbart50"][0](tmp_path)
    theirs = transformers.MBart50Tokenizer.from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path)
    config = {"model_type": "mbart", "tokenizer_class": "MBart50Tokenizer", "pad_token_id": 1}
    (tmp_path / "config.json").write_text(json.dumps({**config, "eos_token_id": 2}))
    size = len(theirs)
    theirs.add_tokens([transformers.AddedToken("<term>"), transformers.AddedToken("[L]", lstrip=True)])
    if form == "old":
        (tmp_path / "added_tokens.json").write_text(json.dumps({"<term>": size, "[L]": size + 1}))
        theirs = transformers.MBart50Tokenizer.from_pretrained(tmp_path)
    else:
        settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
        settings["added_tokens_decoder"] = {
            i: {"content": token, "lstrip": token == "[L]", "normalized": True}
            for i, token in enumerate(("<term>", "[L]"), start=size)
        }
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    ours = tokenizer_of(tmp_path, "mbart")
    for line in LINES:
        ids = theirs(line, add_special_tokens=False).input_ids
        assert ours.encode(line) == ids, line
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_a_model_with_added_tokens_is_exported_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    theirs = MODELS["marian"].save(tmp_path / "model")
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "model")
    tokenizer.add_tokens([transformers.AddedToken("<term>"), transformers.AddedToken("[L]", lstrip=True)])
    theirs.resize_token_embeddings(len(tokenizer))
    theirs.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    import_model(tmp_path / "model", output=tmp_path / "bundle")
    translator = Translator(load_bundle(tmp_path / "bundle"))
    lines = [line for line in LINES if "<" in line or "[L]" in line]
    term = tokenizer.convert_tokens_to_ids("<term>")
    assert term not in (translator.codec.default.suppressed_ids or ())
    export_model(tmp_path / "bundle", to="marian", output=tmp_path / "marian")
    exported = transformers.MarianTokenizer.from_pretrained(tmp_path / "marian")
    assert exported(lines).input_ids == tokenizer(lines).input_ids
    export_model(tmp_path / "bundle", to="ctranslate2", output=tmp_path / "ct2")
    code = (
        (tmp_path / "ct2" / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    )
    monkeypatch.chdir(tmp_path / "ct2")
    names: dict[str, Any] = {}
    exec(code, names)
    wanted = translator.translate(lines)
    assert all(one.startswith(other) for one, other in zip(names["translate"](lines), wanted, strict=True))
