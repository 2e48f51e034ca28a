"""Text to ids and back: tokenizers, how they are trained, and subword sampling. No torch in here."""

from heedful.text.sampling import SegmentationSampler
from heedful.text.tokenizer import Tokenizer, TokenizerPair
from heedful.text.training import train_tokenizers

__all__ = ["SegmentationSampler", "Tokenizer", "TokenizerPair", "train_tokenizers"]
