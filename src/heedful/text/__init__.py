"""Tokenizers, their training, and subword sampling, without torch."""

from heedful.text.huggingface_tokenizer import HuggingFaceTokenizer
from heedful.text.moses_tokenizer import MosesTokenizer
from heedful.text.pair import TokenizerPair
from heedful.text.sentencepiece_tokenizer import SentencePieceTokenizer
from heedful.text.special_tokens import SpecialTokens
from heedful.text.tokenizer import SpecialIds, Tokenizer
from heedful.text.training import SegmentationSampler, train_tokenizers
from heedful.text.vocabulary_tokenizer import ByteTokenizer, VocabularyTokenizer

__all__ = [
    "ByteTokenizer",
    "HuggingFaceTokenizer",
    "MosesTokenizer",
    "SegmentationSampler",
    "SentencePieceTokenizer",
    "SpecialIds",
    "SpecialTokens",
    "Tokenizer",
    "TokenizerPair",
    "VocabularyTokenizer",
    "train_tokenizers",
]
