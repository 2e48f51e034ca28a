"""Small tokenizers of other libraries' kinds, trained in a moment on the phrase book, and ours of them."""

import io
import json
import random
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import sentencepiece

from heedful.data.phrasebook import phrase_book
from heedful.text import HuggingFaceTokenizer, MosesTokenizer, SpecialIds, TokenizerPair, VocabularyTokenizer
from heedful.text.moses_tokenizer import merged, read_merges

LANGUAGES = ("eng_Latn", "deu_Latn", "fra_Latn", "fra_Arab")
CODES = ("__en__", "__de__", "__fr__")
FAIRSEQ_IDS = SpecialIds(bos=0, pad=1, eos=2, unk=3)


@cache
def phrases() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """100 English sentences and their German translations."""
    pairs = phrase_book().train[:100]
    english, german = zip(*pairs, strict=True)
    return english, german


@cache
def sentencepiece_model(
    lines: tuple[str, ...], kind: str, vocab_size: int, *, symbols: tuple[str, ...] = (), **ids: int
) -> bytes:
    """A SentencePiece model with its own defaults: unk, <s>, </s> and no padding; or with these ids."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=kind,
        vocab_size=vocab_size,
        character_coverage=1.0,
        num_threads=1,
        minloglevel=2,
        user_defined_symbols=list(symbols),
        **ids,
    )
    return model.getvalue()


_SCRIPTS = (
    (0x20, 0x7E), (0xA1, 0x17F), (0x391, 0x3CE), (0x410, 0x44F), (0x5D0, 0x5EA), (0x621, 0x64A),
    (0x905, 0x939), (0xE01, 0xE30), (0x10D0, 0x10F0), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x4F00),
    (0xAC00, 0xAD00), (0xFF01, 0xFF5E), (0x1F600, 0x1F64F),
)  # fmt: skip


def lines_of_scripts(count: int, seed: int) -> tuple[str, ...]:
    """Lines of random characters of one to three scripts, without combining marks, and of odd spaces."""
    rng, made = random.Random(seed), []
    for _ in range(count):
        scripts = rng.sample(_SCRIPTS, rng.choice((1, 1, 2, 3)))
        line = ""
        for _ in range(rng.randrange(1, 9)):
            first, last = rng.choice(scripts)
            line += "".join(chr(rng.randint(first, last)) for _ in range(rng.randrange(1, 8)))
            line += rng.choice((" ", " ", "  ", "\u3000", "\u00a0", "\t"))
        made.append(line)
    return tuple(made)


def ordinary_pieces(model: bytes) -> list[str]:
    """The pieces of a SentencePiece model without its three special ones."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]


def marian_files(directory: Path) -> tuple[bytes, bytes, list[str]]:
    """Write source.spm, target.spm and vocab.json as Marian has them; a tenth of the pieces has no id."""
    english, german = phrases()
    src, tgt = (sentencepiece_model(lines, "unigram", 150) for lines in (english, german))
    both = sorted({*ordinary_pieces(src), *ordinary_pieces(tgt)})
    known = [piece for i, piece in enumerate(both) if i % 10]
    pieces = ["</s>", "<unk>", *known, ">>deu<<", ">>fra<<", "<pad>"]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "source.spm").write_bytes(src)
    (directory / "target.spm").write_bytes(tgt)
    (directory / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    return src, tgt, pieces


def marian_pair(directory: Path) -> TokenizerPair:
    """Our tokenizers for the files that are written there."""
    src, tgt, pieces = marian_files(directory)
    pad = len(pieces) - 1
    ids = SpecialIds(pad=pad, unk=1, bos=pad, eos=0)
    return TokenizerPair(
        VocabularyTokenizer(src, pieces, ids, leading_tags=True),
        VocabularyTokenizer(tgt, pieces, ids, leading_tags=True),
    )


def m2m100_model() -> tuple[bytes, list[str]]:
    """A SentencePiece model and the pieces in another order than its own, as fairseq numbers them."""
    model = sentencepiece_model(sum(phrases(), ()), "bpe", 250)
    return model, ["<s>", "<pad>", "</s>", "<unk>", *reversed(ordinary_pieces(model))]


def tagged_pair() -> TokenizerPair:
    """One tokenizer for both sides, with the tags `__en__`, `__de__`, `__fr__`, as M2M100's."""
    model, pieces = m2m100_model()
    joint = VocabularyTokenizer(model, [*pieces, *CODES], FAIRSEQ_IDS, special=CODES)
    return TokenizerPair(joint, joint)


def nllb_json() -> bytes:
    """A tokenizer.json as NLLB's: BPE over SentencePiece's spaces, languages as special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=250, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False
    )
    tokenizer.train_from_iterator(sum(phrases(), ()), trainer)
    tokenizer.add_special_tokens([AddedToken(language, normalized=False) for language in LANGUAGES])
    return tokenizer.to_str().encode()


def nllb_pair() -> TokenizerPair:
    """One tokenizer for both sides, with the tags of LANGUAGES."""
    joint = HuggingFaceTokenizer(nllb_json(), FAIRSEQ_IDS)
    return TokenizerPair(joint, joint)


def fsmt_files(directory: Path, *, joint: bool = False) -> tuple[int, int]:
    """Write FSMT's codes and vocabularies, as the published ones are; return the vocabularies' sizes."""
    import sacremoses

    sides = [
        [word for line in lines for word in sacremoses.MosesTokenizer(lang).tokenize(line)]
        for lang, lines in zip(("en", "de"), phrases(), strict=True)
    ]
    words = [[*word[:-1], f"{word[-1]}</w>"] for side in sides for word in side]
    merges: list[tuple[str, str]] = []
    for _ in range(120):
        pairs = Counter(pair for word in words for pair in pairwise(word))
        merges.append(max(pairs, key=lambda pair: (pairs[pair], pair)))
        words = [merged(word, {merges[-1]: 0}) for word in words]
    directory.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{one} {other} {9999 - i}\n" for i, (one, other) in enumerate(merges))
    (directory / "merges.txt").write_text(lines, encoding="utf-8")
    sizes = []
    for name, side in zip(("src", "tgt"), [[*sides[0], *sides[1]]] * 2 if joint else sides, strict=True):
        ranks = {pair: rank for rank, pair in enumerate(merges)}
        tokens = {token for word in side for token in merged([*word[:-1], f"{word[-1]}</w>"], ranks)}
        ordered = ["<s>", "<pad>", "</s>", "<unk>", *sorted(tokens)]
        (directory / f"vocab-{name}.json").write_text(json.dumps({t: i for i, t in enumerate(ordered)}))
        sizes.append(len(ordered))
    settings = {"tokenizer_class": "FSMTTokenizer", "langs": ["en", "de"], "do_lower_case": False}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return sizes[0], sizes[1]


def blenderbot_small_files(directory: Path) -> int:
    """Write BlenderbotSmall's codes and vocabulary, as the published ones are; return its size."""
    from transformers import BlenderbotSmallTokenizer

    corpus = " ".join(sum(phrases(), ())).lower()
    words = [[*word[:-1], f"{word[-1]}</w>"] for word in re.findall(r"[^\s.,!?()']+", corpus)]
    merges: list[tuple[str, str]] = []
    for _ in range(120):
        pairs = Counter(pair for word in words for pair in pairwise(word))
        merges.append(max(pairs, key=lambda pair: (pairs[pair], pair)))
        words = [merged(word, {merges[-1]: 0}) for word in words]
    directory.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{one} {other}\n" for one, other in merges)
    (directory / "merges.txt").write_text(f"#version: 0.2\n{lines}", encoding="utf-8")
    pieces = {piece for word in words for piece in [*(f"{each}@@" for each in word[:-1]), word[-1][:-4]]}
    tokens = ["__null__", "__start__", "__end__", "__unk__", "__newln__", *".,!?()'", *sorted(pieces)]
    (directory / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    names = [str(directory / name) for name in ("vocab.json", "merges.txt")]
    BlenderbotSmallTokenizer(*names).save_pretrained(directory)
    return len(tokens)


def moses_pair(directory: Path) -> TokenizerPair:
    """Our tokenizers for the files that are written there."""
    fsmt_files(directory)
    merges = read_merges((directory / "merges.txt").read_text(encoding="utf-8").splitlines())
    sides = []
    for name, language in (("src", "en"), ("tgt", "de")):
        tokens = [*json.loads((directory / f"vocab-{name}.json").read_text())]
        sides.append(MosesTokenizer(merges, tokens, FAIRSEQ_IDS, language=language, rules="fsmt"))
    return TokenizerPair(*sides)
