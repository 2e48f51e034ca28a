"""A bundle as a CTranslate2 model: weights, vocabularies, tokenizer files and a README that shows its use."""

from pathlib import Path

from heedful.bundle import CARD_FILE, Bundle
from heedful.errors import InteropError, MissingExtraError, install_hint, suggestion
from heedful.interop.ctranslate2.readme import readme
from heedful.interop.ctranslate2.spec import transformer_spec
from heedful.interop.ctranslate2.tokens import token_names
from heedful.interop.new_directory import new_directory
from heedful.text.framing import Framing


def export_ctranslate2(bundle: Bundle, output: Path, *, quantization: str | None = None) -> None:
    """Write a directory for `ctranslate2.Translator`, with tokenizer files and a README.

    Args:
        bundle: what to export; it is not changed.
        output: the directory to make; it appears as a whole, or not at all.
        quantization: one of CTranslate2's types of weights, such as "int8"; None: float32, as they are.

    Raises:
        RunError: the output exists.
        InteropError: a quantization that CTranslate2 does not know, or files that cannot be written.
        MissingExtraError: ctranslate2 is not installed.
    """
    _check_quantization(quantization)
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    framing = Framing.of(bundle.config, bundle.tokenizers)
    names = token_names(bundle)
    with new_directory(output) as directory:
        spec = transformer_spec(bundle.model)
        spec.register_source_vocabulary(list(names.src))
        spec.register_target_vocabulary(list(names.tgt))
        spec.config.unk_token = names.tgt[tgt.unk_id]
        spec.config.bos_token = names.tgt[tgt.bos_id]
        spec.config.eos_token = names.tgt[tgt.eos_id]
        spec.config.decoder_start_token = names.tgt[framing.start_id]
        spec.config.add_source_eos = framing.src_suffix == (src.eos_id,)
        spec.validate()
        spec.optimize(quantization=quantization)
        spec.save(str(directory))
        bundle.tokenizers.save(directory)
        card = readme(bundle, framing, names, weights=quantization or "float32")
        (directory / CARD_FILE).write_text(card, encoding="utf-8")


def _check_quantization(quantization: str | None) -> None:
    try:
        from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES
    except ImportError:
        raise MissingExtraError(
            f"exporting to CTranslate2 needs ctranslate2: {install_hint('interop')}"
        ) from None
    if quantization is not None and quantization not in ACCEPTED_MODEL_TYPES:
        raise InteropError(
            f"quantization {quantization!r}: CTranslate2 has none of that name"
            + suggestion(quantization, ACCEPTED_MODEL_TYPES)
        )
