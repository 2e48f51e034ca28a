"""`onnx_model.json`: the decoding settings of an exported model."""

from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from heedful.bundle import Bundle
from heedful.config.schema import DecodeConfig
from heedful.config.section import Count, Positive, Section
from heedful.errors import InteropError
from heedful.text import TokenizerPair
from heedful.text.framing import Framing, suppressed_ids

ENCODER_FILE = "encoder.onnx"
STEP_FILE = "decoder_step.onnx"
SETTINGS_FILE = "onnx_model.json"


class OnnxSettings(Section):
    """The special-token template, the maximum length, and the default search."""

    format_version: Literal[1] = 1
    src_prefix: tuple[Count, ...]  # before the ids of a source text
    src_suffix: tuple[Count, ...]  # after the ids of a source text
    src_pad_id: Count  # pads the shorter rows of a batch on the right
    tgt_prefix: tuple[Count, ...]  # a language tag at the start of every output, also search.forced_first_id
    start_id: Count  # the decoder's first input
    eos_id: Count  # ends an output
    tgt_pad_id: Count
    max_positions: Positive | None  # of learned positions, source and target; None: unlimited
    search: DecodeConfig  # suppressed and forced ids, beam, length penalty, limits

    def check_ids(self, tokenizers: TokenizerPair) -> None:
        """Check that the tokenizers, and so the model, have all of the ids.

        Raises:
            InteropError: one is beyond their vocabulary.
        """
        search = self.search
        forced = [i for i in (search.forced_first_id, search.forced_last_id) if i is not None]
        for ids, size in (
            ([*self.src_prefix, *self.src_suffix, self.src_pad_id], tokenizers.src.vocab_size),
            (
                [*self.tgt_prefix, self.start_id, self.eos_id, *(search.suppressed_ids or ()), *forced],
                tokenizers.tgt.vocab_size,
            ),
        ):
            if max(ids) >= size:
                raise InteropError(
                    f"{SETTINGS_FILE}: id {max(ids):,} is beyond the vocabulary of {size:,}; "
                    "export the model again"
                )


def settings_of(bundle: Bundle) -> OnnxSettings:
    """Return the settings of a bundle, with all ids.

    Raises:
        TokenizerError: the tokenizer lacks a language tag.
    """
    model, search, tgt = bundle.config.model, bundle.config.decode, bundle.tokenizers.tgt
    framing = Framing.of(bundle.config, bundle.tokenizers)
    first_id, never = (
        search.forced_first_id,
        suppressed_ids(
            search.suppressed_ids, start_id=framing.start_id, pad_id=tgt.pad_id, eos_id=tgt.eos_id
        ),
    )
    if framing.tgt_prefix:
        (first_id,) = framing.tgt_prefix
    return OnnxSettings(
        src_prefix=framing.src_prefix,
        src_suffix=framing.src_suffix,
        src_pad_id=model.src_pad_id,
        tgt_prefix=framing.tgt_prefix,
        start_id=framing.start_id,
        eos_id=tgt.eos_id,
        tgt_pad_id=tgt.pad_id,
        max_positions=model.max_positions if model.positions == "learned" else None,
        search=search.replace(suppressed_ids=never, forced_first_id=first_id),
    )


def read_settings(directory: Path) -> OnnxSettings:
    """Read the settings of an exported model.

    Raises:
        InteropError: there are none, they are damaged, or they are of a newer format.
    """
    file = directory / SETTINGS_FILE
    try:
        return OnnxSettings.model_validate_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InteropError(
            f"{file}: {error.strerror}; give a directory that heedful export --to onnx wrote"
        ) from None
    except (ValidationError, UnicodeError):
        raise InteropError(f"{file}: damaged, or of a newer heedful; export the model again") from None
