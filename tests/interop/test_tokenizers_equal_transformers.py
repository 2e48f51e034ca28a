"""Ids and decoded text are those of the transformers library, on ordinary lines and on nasty ones."""

import json
import pickle
import random
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pretrained_models import FAMILIES, imported, pegasus_files, t5_files
from small_tokenizers import (
    CODES,
    FAIRSEQ_IDS,
    blenderbot_small_files,
    fsmt_files,
    lines_of_scripts,
    m2m100_model,
    marian_files,
    phrases,
    sentencepiece_model,
)

from heedful.errors import InputError, InteropError, MissingExtraError, TokenizerError
from heedful.interop.huggingface.pretrained import read_pretrained
from heedful.interop.layouts import FAMILIES as DECLARED
from heedful.text import (
    ByteTokenizer,
    HuggingFaceTokenizer,
    SpecialIds,
    Tokenizer,
    TokenizerPair,
    VocabularyTokenizer,
)
from heedful.text.pair import choose_languages
from heedful.text.special_tokens import SpecialTokens

pytestmark = [
    pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"),
    pytest.mark.filterwarnings("ignore:builtin type .*has no __module__ attribute:DeprecationWarning"),
]


def read_tokenizer(model_type: str, directory: Path) -> Any:  # noqa: ANN401
    return DECLARED[model_type].tokenizer(read_pretrained(directory))


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


LINES = [*phrases()[0], *phrases()[1], *NASTY]


def assert_equal(
    theirs: Any,  # noqa: ANN401
    ours: Tokenizer,
    *,
    encode: Ids | None = None,
    lines: Sequence[str] = LINES,
    edges: str = "",
) -> None:
    """Compare ids, and the decoded text of those ids and of random ones, without what is at its edges."""
    encode = encode or (lambda text: theirs(text, add_special_tokens=False).input_ids)
    rng = random.Random(1)
    assert ours.encode_batch(lines) == [ours.encode(line) for line in lines]
    for line in lines:
        ids = encode(line)
        assert ours.encode(line) == ids, line
        drawn = [rng.randrange(ours.vocab_size) for _ in range(20)]
        for each in (ids, [ours.eos_id, *ids, ours.eos_id, ours.pad_id], drawn):
            assert ours.decode(each) == theirs.decode(each, skip_special_tokens=True).strip(edges), line
    assert ours.tokens(range(ours.vocab_size)) == theirs.convert_ids_to_tokens(list(range(ours.vocab_size)))


def assert_words_have_spans(tokenizer: Tokenizer, lines: Sequence[str], words: str) -> None:
    assert all(len(tokenizer.spans(line)) == len(tokenizer.encode(line)) for line in lines)
    assert "".join(words[start:end] for start, end in tokenizer.spans(words)) == words.replace(" ", "")


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


@pytest.mark.parametrize("codes", ["base", "multi"])
def test_plbart(codes: str, tmp_path: Path) -> None:
    from transformers import PLBartTokenizer

    (tmp_path / "model").write_bytes(sentencepiece_model(sum(phrases(), ()), "bpe", 200))
    theirs = PLBartTokenizer(str(tmp_path / "model"), language_codes=codes, src_lang="python")
    theirs.save_pretrained(tmp_path / "saved")
    ids = {"model_type": "plbart", "pad_token_id": 1, "eos_token_id": 2}
    (tmp_path / "saved" / "config.json").write_text(json.dumps(ids))
    ours = read_tokenizer("plbart", tmp_path / "saved")
    assert ours.vocab_size == theirs.vocab_size
    if codes == "base":  # the other has no mask, whose name is unknown there, but text here
        assert_equal(theirs, ours)
    line = phrases()[0][0]
    assert theirs(line).input_ids == [*ours.encode(line), ours.eos_id, ours.tag_id("python")]


def test_fsmt_on_lines_of_many_scripts(tmp_path: Path) -> None:
    from transformers import FSMTTokenizer

    fsmt_files(tmp_path)
    theirs = FSMTTokenizer.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    pair = read_tokenizer("fsmt", tmp_path)
    src, tgt = pair.src, pair.tgt
    assert (src.vocab_size, tgt.vocab_size) == (theirs.src_vocab_size, theirs.tgt_vocab_size)
    punctuation = "它说：“你好”。 （１５％）…　ａ～ｂ ．c well-known semi - colon; "
    punctuation += "3,000.50 U.S. Mr. Smith's & <b> [x] |"
    lines = (*phrases()[0], *lines_of_scripts(300, 8), *NASTY, *punctuation.split(" "), punctuation)
    for line in lines:
        assert [*src.encode(line), src.eos_id] == theirs(line).input_ids, line
    assert_words_have_spans(src, lines, "It is 3,000 well-known words .")
    rng = random.Random(3)
    for line in phrases()[1]:
        for ids in ([*tgt.encode(line), tgt.eos_id], [rng.randrange(tgt.vocab_size) for _ in range(20)]):
            assert tgt.decode(ids) == theirs.decode(ids, skip_special_tokens=True), ids
    assert pickle.loads(pickle.dumps(src)).encode(punctuation) == src.encode(punctuation)
    (tmp_path / "tokenizer_config.json").write_text('{"langs": "en"}')
    with pytest.raises(InteropError, match="langs='en'"):
        read_tokenizer("fsmt", tmp_path)


@pytest.mark.slow
def test_blenderbot_small_on_lines_of_many_scripts(tmp_path: Path) -> None:
    from transformers import BlenderbotSmallTokenizer

    size = blenderbot_small_files(tmp_path)
    theirs = BlenderbotSmallTokenizer.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "blenderbot-small"}')
    ours = read_tokenizer("blenderbot-small", tmp_path)
    assert ours.vocab_size == size == len(theirs)
    chat = [
        "Don't, (really)?!  I'm  ok...",
        "a\nb c\n\nd",
        "''x'' .",
        "x__start__y __end__ __UNK__",
        "İstanbul'da",
    ]
    lines = [*LINES, *lines_of_scripts(300, 8), *chat]
    assert_equal(theirs, ours, lines=lines)
    assert_words_have_spans(ours, lines, "The Old woman, isn't she?")
    assert pickle.loads(pickle.dumps(ours)).encode(chat[0]) == ours.encode(chat[0])


def test_without_sacremoses_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsmt_files(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(MissingExtraError, match="sacremoses"):
        read_tokenizer("fsmt", tmp_path)


@pytest.mark.slow
def test_pegasus_on_lines_of_many_scripts(tmp_path: Path) -> None:
    """Without combining marks, which transformers drops, and spaces before an end, which it keeps."""
    from transformers import PegasusTokenizer

    size = pegasus_files(tmp_path, corpus=lines_of_scripts(2000, 7), vocab_size=1500)
    theirs = PegasusTokenizer.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    ours = read_tokenizer("pegasus", tmp_path)
    assert ours.vocab_size == size == len(theirs)
    lines = [*lines_of_scripts(1000, 8), *NASTY, "a<mask_1> b", "<unk_2>x<unk_102>"]
    dropped = re.compile(r"[\u0301\u00ad]|\s<(s|/s|pad|unk|mask)>")
    same = [line.rstrip() for line in lines if not dropped.search(line)]
    assert_equal(theirs, ours, lines=same, edges=" ")


def _from_json(path: Path, theirs: Any) -> HuggingFaceTokenizer:  # noqa: ANN401
    return HuggingFaceTokenizer(
        path.read_bytes(), FAIRSEQ_IDS, clean_up_spaces=theirs.clean_up_tokenization_spaces
    )


SENTINELS = ("a <extra_id_0> b", "a<extra_id_99>b", "<extra_id_7>", "x <extra_id_100> <extra_id_07>")


@pytest.mark.slow
@pytest.mark.parametrize("madlad", [False, True])
def test_t5_on_lines_of_many_scripts(madlad: bool, tmp_path: Path) -> None:
    """The lines have no combining marks, for transformers drops those after a no-break space.

    Its T5Tokenizer writes 2, the unknown token of T5, for an unknown character of any model.
    """
    from transformers import T5Tokenizer

    corpus = lines_of_scripts(2000, 7)
    size = t5_files(tmp_path, madlad=madlad, corpus=corpus, vocab_size=1500)
    theirs = T5Tokenizer.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    ours = read_tokenizer("t5", tmp_path)
    assert ours.vocab_size == size == len(theirs)
    assert ours.tokens(range(size)) == theirs.convert_ids_to_tokens(list(range(size)))
    tagged = ("<2de> the house", "<2zh_Latn>the", "a <2fr> b", "<2xx> c")
    rng = random.Random(2)
    for line in (*lines_of_scripts(1000, 8), *NASTY, *SENTINELS, *tagged):
        ids = theirs(line).input_ids
        if any(mark in line for mark in "\u0301\u00ad"):
            continue
        found, wanted = (
            [2 if i == ours.unk_id else i for i in each] for each in (ours.encode(line), ids[:-1])
        )
        assert found == wanted, line
        drawn = [rng.randrange(size) for _ in range(20)]
        for each in (ids, [*ids, ours.pad_id], drawn):  # T5's decoder leaves spaces at the ends
            text = theirs.decode(each, skip_special_tokens=True)
            assert ours.decode(each) == text.strip(" "), line
    with pytest.raises(TokenizerError) if not madlad else nullcontext():
        assert (ours.tag_id("de"), ours.tags()) == (3, ["<2de>", "<2fr>", "<2zh_Latn>"])


def test_madlads_tag_stands_before_the_source_as_transformers_reads_it(tmp_path: Path) -> None:
    from transformers import T5Tokenizer

    FAMILIES["madlad"].save(tmp_path / "model")
    theirs = T5Tokenizer.from_pretrained(tmp_path / "model")
    found, _ = imported("t5", tmp_path / "model", tgt_lang="de")
    assert found.tokenizers is not None
    for tag, config in (
        ("<2de>", found.config),
        ("<2fr>", choose_languages(found.config, found.tokenizers, tgt_lang="fr")),
    ):
        template = SpecialTokens.of(config, found.tokenizers)
        for line in phrases()[0]:
            ids = template.source(found.tokenizers.src.encode(line))
            assert ids == theirs(f"{tag} {line}").input_ids, line
    with pytest.raises(InteropError, match="--src-lang"):
        imported("t5", tmp_path / "model", src_lang="en")


@pytest.mark.representatives(1)
@pytest.mark.parametrize("saved", [False, True])
def test_byt5(saved: bool, tmp_path: Path) -> None:
    from transformers import ByT5Tokenizer

    theirs = ByT5Tokenizer()
    if saved:
        theirs.save_pretrained(tmp_path)
        theirs = ByT5Tokenizer.from_pretrained(tmp_path)
    pair = TokenizerPair(ByteTokenizer(), ByteTokenizer())
    pair.save(tmp_path)
    ours = TokenizerPair.load(tmp_path).tgt
    assert isinstance(ours, ByteTokenizer)
    stripped = (
        "x <pad>  y",
        "</s></s> ",
        "a<extra_id_124> b<extra_id_125>",
        "<extra_id_1> </s> <extra_id_2>",
    )
    for line in (*lines_of_scripts(1000, 9), *SENTINELS, *stripped):
        assert ours.encode(line) == theirs(line, add_special_tokens=False).input_ids, line
    assert_equal(theirs, ours)  # random ids too, most of which are no UTF-8
    with pytest.raises(InputError):
        ours.encode("\ud800")
    assert ours.decode([68, 2, 69], unknown=["é"]) == "Aé" + "B"
    parts = [("aé </s> b"[start:end]) for start, end in ours.spans("aé </s> b")]
    assert parts == ["a", "é", "é", " </s> ", "b"]


def _numbered(pieces: Sequence[str]) -> str:
    return json.dumps({piece: i for i, piece in enumerate(pieces)})
