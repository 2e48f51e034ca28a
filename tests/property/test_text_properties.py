import gzip
import random
import tempfile
from functools import cache
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from heedful.data.files import read_lines
from heedful.settings.run import TokenizerConfig
from heedful.text import SegmentationSampler, SentencePieceTokenizer, train_tokenizers

LINES = ["the cat sat on the mat", "a dog ate my homework", "Grüße an die Katze ▁ auf der Matte"] * 3
CHARACTERS = st.one_of(
    st.sampled_from("the catsondgGrüßeKz▁▁  \t\u200b\u00a0\u3000⁇½ﬁé①́"),
    st.characters(exclude_categories=["Cs"]),
)
TEXTS = st.text(CHARACTERS, max_size=40)


@cache
def trained(kind: str, normalization: str, byte_fallback: bool) -> SentencePieceTokenizer:
    size = {"bpe": 70, "unigram": 34}[kind] + 256 * byte_fallback
    config = TokenizerConfig.model_validate(
        {"kind": kind, "vocab_size": size, "normalization": normalization, "byte_fallback": byte_fallback}
    )
    return train_tokenizers(LINES, [], config, seed=1).src


TOKENIZERS = st.builds(
    trained, st.sampled_from(["bpe", "unigram"]), st.sampled_from(["nmt_nfkc", "identity"]), st.booleans()
)


@given(TEXTS, st.sampled_from(["nmt_nfkc", "identity"]), st.booleans())
@example("▁▁a ▁ ▁b▁", "identity", False)
@example("\0☃\0☃ \0", "identity", False)
def test_merging_without_dropout_equals_sentencepiece(text: str, normalization: str, fallback: bool) -> None:
    tokenizer = trained("bpe", normalization, fallback)
    sampler = SegmentationSampler(tokenizer, 1e-300)
    assert tokenizer.tokens(sampler(text, random.Random(1))) == tokenizer.tokens(tokenizer.encode(text))


@given(TOKENIZERS, TEXTS, st.floats(0.01, 1.0), st.integers())
def test_a_sampled_segmentation_spells_the_same_text(
    tokenizer: SentencePieceTokenizer, text: str, rate: float, seed: int
) -> None:
    ids = SegmentationSampler(tokenizer, rate)(text, random.Random(seed))
    assert tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode(text))


@given(TOKENIZERS, TEXTS)
def test_encoding_gives_only_ordinary_ids_and_unk(tokenizer: SentencePieceTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert not {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id} & set(ids)
    assert all(0 <= i < tokenizer.vocab_size for i in ids)
    assert tokenizer.encode_batch([text, text]) == [ids, ids]


@given(
    st.lists(st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"])), min_size=1),
    st.booleans(),
)
def test_lines_are_read_as_they_were_written(lines: list[str], packed: bool) -> None:
    lines = [line.rstrip("\r") for line in lines]
    lines[0] = lines[0].lstrip("\ufeff")
    content = "".join(line + "\n" for line in lines).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text"
        path.write_bytes(gzip.compress(content) if packed else content)
        assert read_lines(path) == lines
