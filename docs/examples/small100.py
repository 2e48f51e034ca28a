"""A family of transformers: SMaLL-100 is an M2M100 that reads the target language's tag before the source.

heedful import small100/ --plugin small100.py --layout small100:SMALL100 --tgt-lang de -o model
"""

from dataclasses import replace

from heedful.interop.huggingface.fairseq_families import M2M100, M2M100_LANGUAGES
from heedful.interop.huggingface.pretrained import PretrainedDirectory
from heedful.interop.huggingface.reading import target_before_source, vocabulary_tokenizer
from heedful.interop.vocabulary import read_words
from heedful.text import Tokenizer


def tokenizer(directory: PretrainedDirectory) -> Tokenizer:
    """Load the SentencePiece model, its list of tokens, and the language tags."""
    tags = [f"__{code}__" for code in M2M100_LANGUAGES["m2m100"].split()]
    tokens = [*read_words(directory.path / "vocab.json"), *tags]
    model = directory.read_bytes("sentencepiece.bpe.model")
    return vocabulary_tokenizer(directory, model, tokens, special=tags)


SMALL100 = replace(
    M2M100, classes=("SMALL100Tokenizer",), tokenizer=tokenizer, languages=target_before_source
)
