"""What all engines get: the same sentences as ids, and the same model, in the format of each."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from conversion import to_eole, to_joeynmt
from measuring import ABOUT_FILE, Ids
from sacrebleu import corpus_bleu

from heedful.errors import HeedfulError
from heedful.interop.ctranslate2.export import export_ctranslate2
from heedful.interop.marian import export_marian
from heedful.model.transformer import Transformer
from heedful.settings.presets import preset
from heedful.storage.bundle import Bundle, load_bundle, resolve_bundle, save_bundle
from heedful.text import SpecialTokens

_EXPORTS = {
    "ctranslate2": export_ctranslate2,
    "marian": export_marian,
    "joeynmt": to_joeynmt,
    "eole": to_eole,
}
# What an untrained model has of the trained one, besides its tokenizers.
_KEPT = ("norm", "decoder_start_id", "src_vocab_size", "tgt_vocab_size", "src_pad_id", "tgt_pad_id")


@dataclass
class Material:
    """A directory with what the scripts read.

    Attributes:
        directory: where it is.
        bundle: the model.
        references: translations of the sentences; none where the model cannot translate.
        refusals: why a format cannot hold the model, one line each, as far as it was tried; "" where it can.
    """

    directory: Path
    bundle: Bundle
    references: list[str]
    refusals: dict[str, str] = field(default_factory=dict)

    def refusal(self, kind: str) -> str:
        """Export the model, unless that was done before; why it cannot be, or ""."""
        if kind and kind not in self.refusals:
            try:
                _EXPORTS[kind](self.bundle, self.directory / kind)
                self.refusals[kind] = ""
            except HeedfulError as error:
                self.refusals[kind] = str(error)
        return self.refusals.get(kind, "")

    def bleu(self, outputs: list[Ids]) -> float | None:
        """BLEU of outputs as ids, end tokens included."""
        if not self.references:
            return None
        tokenizer = self.bundle.tokenizers.tgt
        decoded = [tokenizer.decode([i for i in ids if i != tokenizer.eos_id]) for ids in outputs]
        return float(corpus_bleu(decoded, [self.references]).score)


def write_material(
    run: Path,
    sources: list[str],
    references: list[str],
    directory: Path,
    *,
    untrained: str,
    exact_length: int,
) -> Material:
    """Write the sentences, and the model as a bundle.

    Args:
        run: a trained run or bundle.
        sources: sentences.
        references: their translations.
        directory: an empty one.
        untrained: a preset whose random weights take the place of the run's; "" for none.
        exact_length: of every output; 0 leaves it to the model.
    """
    bundle = load_bundle(resolve_bundle(run))
    if untrained:
        bundle, references = _untrained(bundle, untrained), []
    save_bundle(bundle, directory / "bundle", card="For a measurement.\n")
    tokenizers, framing = bundle.tokenizers, SpecialTokens.of(bundle.config, bundle.tokenizers)
    about = {
        "exact_length": exact_length,
        "pad_id": tokenizers.src.pad_id,
        "unk_id": tokenizers.tgt.unk_id,
        "start_id": framing.start_id,
        "eos_id": tokenizers.tgt.eos_id,
        "vocab_size": bundle.config.model.tgt_vocab_size,
        "sources": [framing.source(ids) for ids in tokenizers.src.encode_batch(sources)],
    }
    (directory / ABOUT_FILE).write_text(json.dumps(about), encoding="utf-8")
    return Material(directory, bundle, references)


def _untrained(trained: Bundle, name: str) -> Bundle:
    kept = {key: getattr(trained.config.model, key) for key in _KEPT}
    config = trained.config.replace(model=preset(name).model.replace(**kept))
    torch.manual_seed(1)
    return Bundle(config, trained.tokenizers, Transformer.from_config(config.model).eval())
