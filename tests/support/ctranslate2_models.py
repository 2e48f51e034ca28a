"""Random models as CTranslate2 runs them, and what heedful says of the same tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from ctranslate2_files import translator
from option_models import SRC_PAD, SRC_VOCAB, TGT_PAD, TGT_VOCAB, option_model
from searches import searched

from heedful.decoding.backends.torch import ModelStep
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.task import Hypothesis, SearchTask
from heedful.interop.ctranslate2.export import export_ctranslate2
from heedful.model.transformer import Transformer
from heedful.settings.model import SHARED_EMBEDDINGS
from heedful.settings.run import Config, TokenizerConfig
from heedful.storage.bundle import Bundle
from heedful.text import TokenizerPair
from heedful.text.vocabulary_tokenizer import tokenizer_from_words

BOS, EOS = 2, 3
MAX_LENGTH = 20
Ids = list[list[int]]

SRC_WORDS = ["[UNK]", "r1", "[SOS]", "[EOS]", "[PAD]", *(f"r{i}" for i in range(5, SRC_VOCAB))]
TGT_WORDS = ["<unk>", "<pad>", "<s>", "</s>", *(f"t{i}" for i in range(4, TGT_VOCAB))]


def random_bundle(**changes: Any) -> Bundle:  # noqa: ANN401
    """A model of options, in float32; source and target have vocabularies and special tokens of their own."""
    assert (SRC_WORDS[SRC_PAD], TGT_WORDS[TGT_PAD]) == ("[PAD]", "<pad>")
    model = option_model(**changes).float()
    words = SRC_WORDS if model.config.tied not in SHARED_EMBEDDINGS else TGT_WORDS
    tgt = tokenizer_from_words(TGT_WORDS)
    src = tgt if words is TGT_WORDS else tokenizer_from_words(words)
    config = Config(model=model.config, tokenizer=TokenizerConfig(kind="word", joint=src is tgt))
    return Bundle(config, TokenizerPair(src, tgt), model)


def engine(bundle: Bundle, directory: Path) -> ctranslate2.Translator:
    export_ctranslate2(bundle, directory)
    return translator(directory, compute_type="default")


def sentences(count: int, vocab_size: int, lengths: Sequence[int], seed: int) -> Ids:
    """Random ids, none of them special."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randint(5, vocab_size, (lengths[i % len(lengths)],), generator=generator).tolist()
        for i in range(count)
    ]


def source_tokens(bundle: Bundle, ids: Ids) -> list[list[str]]:
    return [bundle.tokenizers.src.tokens(row) for row in ids]


def target_tokens(bundle: Bundle, ids: Ids) -> list[list[str]]:
    return [bundle.tokenizers.tgt.tokens(row) for row in ids]


def log_probs(model: Transformer, src: list[int], tgt: list[int]) -> torch.Tensor:
    """Of each target token and the end token, given the source, one pair by itself."""
    with torch.no_grad():
        all_log_probs = model(torch.tensor([[*src, EOS]]), torch.tensor([[BOS, *tgt]])).log_softmax(-1)
    return all_log_probs[0, range(len(tgt) + 1), [*tgt, EOS]]


def search(model: Transformer, sources: Ids, beam_size: int, alpha: float) -> list[Hypothesis]:
    """The best hypotheses by CTranslate2's rules, as heedful's options express them."""
    src = torch.full((len(sources), max(map(len, sources)) + 1), model.config.src_pad_id)
    for row, ids in enumerate(sources):
        src[row, : len(ids) + 1] = torch.tensor([*ids, EOS])
    options = SearchOptions(
        strategy=BeamSearch(beam_size=beam_size, early_stopping="first" if alpha else "optimal"),
        length_penalty=alpha,
        length_normalization="power",
        suppressed_ids=(),
    )
    task = SearchTask(
        max_lengths=[MAX_LENGTH] * len(sources), start_id=BOS, eos_id=EOS, pad_id=model.config.tgt_pad_id,
        options=options,
    )  # fmt: skip
    with torch.inference_mode():
        found = searched(ModelStep(model, src), task)
    return [hypotheses[0] for hypotheses in found]
