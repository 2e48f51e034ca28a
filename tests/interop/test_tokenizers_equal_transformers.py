"""Ids and decoded text are those of the transformers library, on ordinary lines and on nasty ones."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_tokenizers import CODES, FAIRSEQ_IDS, m2m100_model, marian_files, phrases, sentencepiece_model

from heedful.text import HuggingFaceTokenizer, SpecialIds, Tokenizer, VocabularyTokenizer

pytestmark = [
    pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"),
    pytest.mark.filterwarnings("ignore:builtin type .*has no __module__ attribute:DeprecationWarning"),
]

NASTY = (
    "",
    " ",
    "\r\n",
    "  two  spaces  ",
    "no-break\u00a0space\u202fand \u3000 wide",
    "the end\u00a0",
    "\u00a0the start",
    "emoji 😀 👩‍👩‍👧 ☃ ☃☃",
    "tab\tand\nnewline",
    "ﬁne ① ½ Ａｂｃ １２３",
    "<s> the </s> cat <pad> <unk> x <s>",
    "the</s>cat",
    "a<unk>b",
    ">>deu<< the house",
    ">>xyz<< the house",
    ">> quoted << the house",
    ">>deu<<",
    ">>deu",
    ">>deu the house <<",
    "a >>deu<< b",
    "</s>>>deu<< b",
    "__de__ the __en__",
    "eng_Latn the deu_Latn cat",
    "en_XX the de_DE",
    "<mask> the <mask> cat",
    "▁the▁cat",
    "日本語のテスト",
    "Привет, мир! مرحبا ١٢٣",
    "don't , won't ! is n't . it 's ' x ' we 've 're 'm",
    "e\u0301 vs é, a\u200bb\u200dc\ufeffd, \u00adsoft",
    "x" * 300,
    "ÄÖÜ ß ẞ 𝒳𝒴",
    "1,234.56 € – — … “quoted” ‘x’",
    "\x00\x01",
)
Ids = Callable[[str], list[int]]


def assert_equal(theirs: Any, ours: Tokenizer, *, encode: Ids | None = None) -> None:  # noqa: ANN401
    """Compare ids, and the decoded text of those ids and of random ones."""
    encode = encode or (lambda text: theirs(text, add_special_tokens=False).input_ids)
    rng = random.Random(1)
    lines = [line for side in phrases() for line in side] + list(NASTY)
    assert ours.encode_batch(lines) == [ours.encode(line) for line in lines]
    for line in lines:
        ids = encode(line)
        assert ours.encode(line) == ids, line
        drawn = [rng.randrange(ours.vocab_size) for _ in range(20)]
        for each in (ids, [ours.eos_id, *ids, ours.eos_id, ours.pad_id], drawn):
            assert ours.decode(each) == theirs.decode(each, skip_special_tokens=True), line
    assert ours.tokens(range(ours.vocab_size)) == theirs.convert_ids_to_tokens(list(range(ours.vocab_size)))


@pytest.mark.parametrize("clean_up", [False, True])
def test_marian(tmp_path: Path, clean_up: bool) -> None:
    from transformers import MarianTokenizer

    src, tgt, pieces = marian_files(tmp_path)
    files = [str(tmp_path / name) for name in ("source.spm", "target.spm", "vocab.json")]
    MarianTokenizer(*files, clean_up_tokenization_spaces=clean_up).save_pretrained(tmp_path / "saved")
    theirs = MarianTokenizer.from_pretrained(tmp_path / "saved")
    pad = len(pieces) - 1
    ids = SpecialIds(pad=pad, unk=1, bos=pad, eos=0)
    source, target = (
        VocabularyTokenizer(model, pieces, ids, leading_tags=True, clean_up_spaces=clean_up)
        for model in (src, tgt)
    )
    assert_equal(theirs, source, encode=lambda text: theirs(text).input_ids[:-1])
    assert_equal(theirs, target, encode=lambda text: theirs(text_target=text).input_ids[:-1])


def test_m2m100(tmp_path: Path) -> None:
    from transformers import M2M100Tokenizer
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

    (tmp_path / "model").write_bytes(m2m100_model()[0])
    model, pieces = m2m100_model()
    (tmp_path / "vocab.json").write_text(_numbered(pieces))
    tags = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    assert set(CODES) < set(tags)
    # As the published ones are: their settings name the tags as special tokens.
    M2M100Tokenizer(
        str(tmp_path / "vocab.json"), str(tmp_path / "model"), additional_special_tokens=list(tags)
    ).save_pretrained(tmp_path / "saved")
    theirs = M2M100Tokenizer.from_pretrained(tmp_path / "saved", src_lang="de", tgt_lang="fr")
    ours = VocabularyTokenizer(model, [*pieces, *tags], FAIRSEQ_IDS, special=tags)
    assert_equal(theirs, ours)
    line = phrases()[0][0]
    assert theirs(line).input_ids == [ours.tag_id("de"), *ours.encode(line), ours.eos_id]
    assert theirs(text_target=line).input_ids == [ours.tag_id("__fr__"), *ours.encode(line), ours.eos_id]


@pytest.mark.parametrize("name", ["NllbTokenizer", "MBartTokenizer", "MBart50Tokenizer"])
@pytest.mark.parametrize("clean_up", [False, True])
def test_fairseq_families(tmp_path: Path, name: str, clean_up: bool) -> None:
    import transformers

    kind = getattr(transformers, name)
    algorithm = "bpe" if name == "NllbTokenizer" else "unigram"
    model = sentencepiece_model(sum(phrases(), ()), algorithm, 200)
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model)
    settings: dict[str, Any] = {"clean_up_tokenization_spaces": clean_up}
    if name == "NllbTokenizer":
        settings["extra_special_tokens"] = ["eng_Latn", "deu_Latn", "fra_Latn"]
    kind.from_pretrained(tmp_path, **settings).save_pretrained(tmp_path / "saved")
    theirs = kind.from_pretrained(tmp_path / "saved")
    ours = _from_json(tmp_path / "saved" / "tokenizer.json", theirs)
    assert ours.kind == algorithm
    assert_equal(theirs, ours)
    for tag in ("deu_Latn",) if name == "NllbTokenizer" else ("de_DE", "fr_XX"):
        theirs.src_lang = tag
        framed = [ours.tag_id(tag), *ours.encode("the house"), ours.eos_id]
        assert theirs("the house").input_ids == (
            [*framed[1:], framed[0]] if name == "MBartTokenizer" else framed
        )


@pytest.mark.parametrize("prefix_space", [False, True])
def test_bart(tmp_path: Path, prefix_space: bool) -> None:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import BartTokenizer

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        sum(phrases(), ()),
        vocab_size=400,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        show_progress=False,
    )
    trained.save_model(str(tmp_path))
    files = [str(tmp_path / name) for name in ("vocab.json", "merges.txt")]
    BartTokenizer(*files, add_prefix_space=prefix_space, clean_up_tokenization_spaces=False).save_pretrained(
        tmp_path / "saved"
    )
    theirs = BartTokenizer.from_pretrained(tmp_path / "saved")
    ours = _from_json(tmp_path / "saved" / "tokenizer.json", theirs)
    assert_equal(theirs, ours)
    framed = [ours.tag_id("<s>"), *ours.encode("the house"), ours.eos_id]
    assert theirs("the house").input_ids == framed


def _from_json(path: Path, theirs: Any) -> HuggingFaceTokenizer:  # noqa: ANN401
    return HuggingFaceTokenizer(
        path.read_bytes(), FAIRSEQ_IDS, clean_up_spaces=theirs.clean_up_tokenization_spaces
    )


def _numbered(pieces: Sequence[str]) -> str:
    import json

    return json.dumps({piece: i for i, piece in enumerate(pieces)})
