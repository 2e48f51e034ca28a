import copy
import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from small_tokenizers import marian_pair, nllb_pair, phrases, tagged_pair

from heedful.errors import InputError, TokenizerError
from heedful.settings.run import TokenizerConfig
from heedful.text import SentencePieceTokenizer, Tokenizer, TokenizerPair, train_tokenizers
from heedful.text.vocabulary_tokenizer import tokenizer_from_words

ENGLISH = ["the cat sat on the mat", "a dog ate my homework", "my cat ate a dog"] * 3
GERMAN = [
    "die Katze saß auf der Matte",
    "ein Hund fraß meine Hausaufgaben",
    "meine Katze fraß einen Hund",
] * 3


def train(kind: str = "bpe", *, vocab_size: int = 50, joint: bool = True, **options: object) -> TokenizerPair:
    config = TokenizerConfig.model_validate(
        {"kind": kind, "vocab_size": vocab_size, "joint": joint, **options}
    )
    return train_tokenizers(ENGLISH, GERMAN, config, seed=1)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])
@pytest.mark.parametrize("joint", [True, False])
def test_known_text_survives_the_round_trip(kind: str, joint: bool) -> None:
    config = TokenizerConfig.model_validate(
        {"kind": kind, "vocab_size": 100 if kind == "word" else 38, "joint": joint}
    )
    tokenizers = train_tokenizers(ENGLISH + GERMAN, GERMAN + ENGLISH, config, seed=1)
    for side, lines in ((tokenizers.src, ENGLISH), (tokenizers.tgt, GERMAN)):
        for line, ids in zip(lines, side.encode_batch(lines), strict=True):
            assert ids == side.encode(line)
            assert side.decode(ids) == line


def test_special_ids_are_pad_0_unk_1_bos_2_eos_3() -> None:
    tokenizer = train().src
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 1, 2, 3)
    assert tokenizer.vocab_size == 50


def test_encoding_adds_no_special_ids_even_where_the_text_spells_them() -> None:
    tokenizer = train().src
    assert not {0, 2, 3} & set(tokenizer.encode("<s> the <pad> cat </s>"))
    assert tokenizer.encode("") == []
    assert tokenizer.encode_batch([]) == []


def test_decoding_drops_specials_wherever_they_stand_and_stops_at_none() -> None:
    tokenizer = train().src
    the, cat = tokenizer.encode("the"), tokenizer.encode("cat")
    assert tokenizer.decode([2, *the, 3, 0, *cat, 3, 0]) == "the cat"


def test_an_unknown_character_decodes_to_a_visible_sign() -> None:
    tokenizer = train().src
    ids = tokenizer.encode("the ☃ cat")
    assert tokenizer.unk_id in ids
    assert tokenizer.decode(ids) == "the ⁇ cat"


def test_byte_fallback_keeps_unknown_characters() -> None:
    tokenizer = train(vocab_size=300, byte_fallback=True).src
    ids = tokenizer.encode("the ☃ cat")
    assert tokenizer.unk_id not in ids
    assert tokenizer.decode(ids) == "the ☃ cat"
    assert len(tokenizer.byte_ids()) == 256


def test_word_decoding_separates_symbols_by_one_space_unknown_ones_too() -> None:
    phones = ["AA B ER G", "T R IH P AH L EY", "K S"]
    config = TokenizerConfig(kind="word", joint=False, normalization="identity")
    tokenizer = train_tokenizers(phones, phones, config, seed=1).tgt
    assert [tokenizer.decode(tokenizer.encode(line)) for line in phones] == phones
    assert tokenizer.decode(tokenizer.encode("XX AA YY B ZZ")) == "⁇ AA ⁇ B ⁇"
    assert len(tokenizer.encode("T R IH P")) == 4


def test_pieces_join_to_the_normalised_text() -> None:
    tokenizer = train().src
    ids = tokenizer.encode("  the   cat ")
    assert "".join(tokenizer.tokens(ids)) == tokenizer.normalize("  the   cat ") == "▁the▁cat"
    assert tokenizer.tokens([0, 1, 2, 3]) == ["<pad>", "<unk>", "<s>", "</s>"]


def test_text_stays_as_it_is_unless_nfkc_is_asked_for() -> None:
    assert train(normalization="nmt_nfkc").src.normalize("ﬁne①") == "▁fine1"
    assert train().src.normalize("ﬁne①") == "▁ﬁne①"


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])
def test_the_kind_is_read_from_the_model_file(kind: str) -> None:
    tokenizer = train(kind, vocab_size=38 if kind == "unigram" else 45)
    assert SentencePieceTokenizer(tokenizer.src.model).kind == kind


PAIRS: dict[str, tuple[Callable[[Path], TokenizerPair], set[str]]] = {
    "sentencepiece, joint": (lambda folder: train(), {"tokenizer.model"}),
    "sentencepiece, separate": (lambda folder: train(joint=False), {"source.model", "target.model"}),
    "list, joint": (lambda folder: tagged_pair(), {"tokenizer.spm", "tokenizer.pieces.json"}),
    "list, separate": (marian_pair, {"source.spm", "source.pieces.json", "target.spm", "target.pieces.json"}),
    "tokenizers, joint": (lambda folder: nllb_pair(), {"tokenizer.json", "tokenizer.special.json"}),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_a_saved_copied_or_pickled_pair_is_as_it_was(tmp_path: Path, kind: str) -> None:
    make, names = PAIRS[kind]
    pair, saved = make(tmp_path / "made"), tmp_path / "saved"
    saved.mkdir()
    pair.save(saved)
    assert {path.name for path in saved.iterdir()} == names
    assert TokenizerPair.is_among(names)
    lines = [">>deu<< the cat </s> __de__", *phrases()[0]]
    for other in (TokenizerPair.load(saved), pickle.loads(pickle.dumps(pair)), copy.deepcopy(pair)):
        assert other.joint is kind.endswith("joint")
        assert other.fingerprint() == pair.fingerprint()
        assert other.src.encode_batch(lines) == pair.src.encode_batch(lines)
        assert other.tgt.encode_batch(lines) == pair.tgt.encode_batch(lines)


def test_fingerprints_differ_when_a_side_does() -> None:
    pair = train(joint=False)
    swapped = TokenizerPair(pair.tgt, pair.src)
    twice = TokenizerPair(pair.src, SentencePieceTokenizer(pair.src.model))
    same = TokenizerPair(pair.src, pair.src)
    assert len({p.fingerprint() for p in (pair, swapped, twice, same)}) == 4


def test_fingerprints_of_trained_pairs_stay_what_they_were_so_that_runs_go_on() -> None:
    pair = train(joint=False)
    models = (hashlib.sha256(side.to_files()[".model"]).digest() for side in (pair.src, pair.tgt))
    assert pair.fingerprint() == hashlib.sha256(b"separate" + b"".join(models)).hexdigest()


@pytest.mark.parametrize("damage", [b"", b"abc", b"\x00" * 40, "half"])
def test_a_damaged_model_file_is_named(tmp_path: Path, damage: bytes | str) -> None:
    model = train().src.model
    content = model[: len(model) // 2] if isinstance(damage, str) else damage
    (tmp_path / "tokenizer.model").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.model: .*restore the file"):
        TokenizerPair.load(tmp_path)


def test_a_missing_side_is_named(tmp_path: Path) -> None:
    train(joint=False).save(tmp_path)
    (tmp_path / "target.model").unlink()
    with pytest.raises(TokenizerError, match=r"target\.model: no such file"):
        TokenizerPair.load(tmp_path)


def test_an_error_that_is_not_the_texts_is_not_blamed_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train().src

    class NoThreads:
        def encode(self, *_: object, **__: object) -> None:
            raise RuntimeError("Resource temporarily unavailable")

    monkeypatch.setattr(tokenizer, "_spm", NoThreads())
    for encode in (lambda: tokenizer.encode("a b"), lambda: tokenizer.encode_batch(["a b"])):
        with pytest.raises(RuntimeError, match="temporarily unavailable"):
            encode()


WORDS = tokenizer_from_words(["<unk>", "<s>", "</s>", "<pad>", "the", "cat", "sleeps"])


def trained(kind: str, **options: object) -> Tokenizer:
    lines = phrases()[0]
    config = TokenizerConfig.model_validate(
        {"kind": kind, "vocab_size": 60, "byte_fallback": False, **options}
    )
    return train_tokenizers(lines, lines, config, seed=1).src


def parts(tokenizer: Tokenizer, text: str) -> list[str]:
    return [text[start:end] for start, end in tokenizer.spans(text)]


def test_a_word_has_the_spaces_before_it_known_or_not() -> None:
    text = "the  日本 cat schläft"
    assert parts(WORDS, text) == ["the", "  日本", " cat", " schläft"]
    assert len(WORDS.encode(text)) == 4


def test_normalised_text_is_found_where_it_stood() -> None:
    tokenizer = trained("char", normalization="nmt_nfkc")
    text = "the ｃat ½ 日本"
    assert "".join(parts(tokenizer, text)) == text
    ids = tokenizer.encode(text)
    places = [place for place, i in enumerate(ids) if i == tokenizer.unk_id]
    assert [parts(tokenizer, text)[place] for place in places][-1] == "日本"
    assert parts(tokenizer, text)[tokenizer.tokens(ids).index("c")] == "ｃ"


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])
def test_every_id_of_a_text_has_a_span(kind: str) -> None:
    tokenizer = trained(kind)
    for text in (*phrases()[0][:20], "日本 the 日本", " ☃ cat.", ""):
        spans = tokenizer.spans(text)
        assert len(spans) == len(tokenizer.encode(text))
        assert "".join(text[start:end] for start, end in spans).split() == text.split()


def test_so_it_has_in_tokenizers_of_other_libraries(tmp_path: Path) -> None:
    marian, m2m100, nllb = marian_pair(tmp_path).src, tagged_pair().src, nllb_pair().src
    for tokenizer, text in (
        (marian, ">>deu<< the house ☃"),
        (marian, ">>xyz<<the house"),
        (m2m100, "the house</s>the __de__ cat ☃☃"),
        (nllb, "the housefra_Latn ☃ cat"),
    ):
        assert len(tokenizer.spans(text)) == len(tokenizer.encode(text))
        assert "".join(parts(tokenizer, text)).replace(" ", "") == text.replace(" ", "")
    assert parts(marian, ">>deu<< the")[0] == ">>deu<<"
    assert [part for part in parts(m2m100, "the cat__de__ ☃") if "☃" in part or "d" in part] == [
        "__de__",
        "☃",
    ]


def test_texts_for_unknown_pieces_stand_where_these_were(tmp_path: Path) -> None:
    the, cat = WORDS.encode("the cat")
    ids = [0, the, 0, cat, 0, WORDS.eos_id]
    assert WORDS.decode(ids) == "⁇ the ⁇ cat ⁇"
    assert WORDS.decode(ids, unknown=[" Ærø", " big", " !"]) == "Ærø the big cat !"
    chars = trained("char")
    assert chars.decode(chars.encode("the c☃t"), unknown=["a"]) == "the cat"
    for tokenizer in (marian_pair(tmp_path).tgt, tagged_pair().tgt, nllb_pair().tgt):
        ids = [*tokenizer.encode("das"), tokenizer.unk_id, tokenizer.eos_id, *tokenizer.encode("Haus")]
        assert tokenizer.decode(ids, unknown=[" ☃"]).replace("  ", " ") == "das ☃ Haus"
        assert "☃" not in tokenizer.decode(ids)


def test_half_a_surrogate_pair_is_refused(tmp_path: Path) -> None:
    pairs = train(), tagged_pair(), marian_pair(tmp_path), nllb_pair()
    for tokenizer in (WORDS, *(pair.src for pair in pairs)):
        assert tokenizer.encode_batch([]) == []
        with pytest.raises(InputError, match="surrogate"):
            tokenizer.encode("cat \ud800")
        with pytest.raises(InputError, match="surrogate"):
            tokenizer.encode_batch(["cat", "\udcff"])
        with pytest.raises(InputError, match="surrogate"):
            tokenizer.spans("cat \udcff")
