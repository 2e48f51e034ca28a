"""Models of a few thousand parameters that have learned some sentence pairs by heart, in about a second."""

from functools import cache
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config, TokenizerConfig
from heedful.storage.bundle import Bundle, save_bundle
from heedful.storage.calibration import Calibration, LogisticCurve
from heedful.text import train_tokenizers

PAIRS = (
    ("the cat sleeps .", "die Katze schläft ."),
    ("the dog sleeps .", "der Hund schläft ."),
    ("the cat sees the dog .", "die Katze sieht den Hund ."),
    ("the dog sees the cat .", "der Hund sieht die Katze ."),
    ("does the dog sleep ?", "schläft der Hund ?"),
    ("does the cat sleep ?", "schläft die Katze ?"),
)
SOURCES, TARGETS = [src for src, _ in PAIRS], [tgt for _, tgt in PAIRS]
# The sentences that README and docs/ show, with what the demo's model makes of them.
# The memorised model is sure: it gives its outputs log-probabilities of this size, and so are their errors.
SURE = 0.05
SHOWN_PAIRS = (
    ("The house is small.", "Das Haus ist klein."),
    ("The old woman reads a book.", "Die alte Frau liest ein Buch."),
    ("The dog sleeps in the garden.", "Der Hund schläft im Garten."),
)

# By it, a model is sure of what it knows by heart, and of little else.
CALIBRATION = Calibration(
    level=30.0, lines=200, errors=31, src_tag=None, tgt_tag=None,
    sentence=LogisticCurve(-36.0, (40.0, 0.25)), word=LogisticCurve(-4.5, (1.0, 2.0, 4.0)),
    token=LogisticCurve(-4.0, (0.5, 2.0, 4.5)), ece={"sentence": 0.01, "word": 0.02, "token": 0.025},
)  # fmt: skip


@cache
def memorised(pairs: tuple[tuple[str, str], ...] = PAIRS) -> Bundle:
    """The model itself; do not change it."""
    torch.manual_seed(1)
    sources, targets = zip(*pairs, strict=True)
    settings = TokenizerConfig(vocab_size=60, kind="bpe")
    tokenizers = train_tokenizers(sources, targets, settings, seed=1)
    size = tokenizers.src.vocab_size
    sizes = ModelConfig(
        d_model=32, num_heads=4, d_ff=64, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0
    ).replace(src_vocab_size=size, tgt_vocab_size=size)
    model = Transformer.from_config(sizes)
    src = _pad([[*ids, tokenizers.src.eos_id] for ids in tokenizers.src.encode_batch(sources)])
    tgt = _pad(
        [[tokenizers.tgt.bos_id, *ids, tokenizers.tgt.eos_id] for ids in tokenizers.tgt.encode_batch(targets)]
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    for _ in range(150):
        optimizer.zero_grad()
        logits = model(src, tgt[:, :-1])
        loss = cross_entropy(logits.transpose(1, 2), tgt[:, 1:], ignore_index=tokenizers.tgt.pad_id)
        loss.backward()
        optimizer.step()
    config = Config(model=sizes, tokenizer=settings)
    return Bundle(config, tokenizers, model.eval(), scores={"bleu": 100.0})


def save_untrained(path: Path) -> Path:
    """Write a bundle of the same size that has learned nothing: no word of its output is probable."""
    torch.manual_seed(1)
    known = memorised()
    model = Transformer.from_config(known.config.model).eval()
    save_bundle(Bundle(known.config, known.tokenizers, model), path, card="# A model that knows nothing\n")
    return path


def save_memorised(path: Path, pairs: tuple[tuple[str, str], ...] = PAIRS) -> Path:
    """Write the bundle to `path`."""
    save_bundle(memorised(pairs), path, card="# A model that knows some sentences by heart\n")
    return path


def _pad(rows: list[list[int]]) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
