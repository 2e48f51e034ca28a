"""Tokenizers, their training, and subword sampling, without torch."""

from heedful.text.framing import Framing
from heedful.text.huggingface_tokenizer import HuggingFaceTokenizer
from heedful.text.pair import TokenizerPair
from heedful.text.sampling import SegmentationSampler
from heedful.text.sentencepiece_tokenizer import SentencePieceTokenizer
from heedful.text.tokenizer import SpecialIds, Tokenizer
from heedful.text.training import train_tokenizers
from heedful.text.vocabulary_tokenizer import VocabularyTokenizer

__all__ = [
    "Framing",
    "HuggingFaceTokenizer",
    "SegmentationSampler",
    "SentencePieceTokenizer",
    "SpecialIds",
    "Tokenizer",
    "TokenizerPair",
    "VocabularyTokenizer",
    "train_tokenizers",
]
