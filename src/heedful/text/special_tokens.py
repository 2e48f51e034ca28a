"""Special-token templates: the ids that a model expects around a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from heedful.errors import TokenizerError
from heedful.settings.run import Config
from heedful.text.pair import TokenizerPair
from heedful.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Special-token template: the ids before and after the ids of a text.

    The paper's model has an end token after each text. A multilingual model also has the tag of the source
    language, before the source or after its end token, and generates the tag of the target language first.
    A model of many tasks has a text before the source that names the task.

    Attributes:
        src_prefix: ids before a source text.
        src_suffix: ids after a source text.
        tgt_prefix: ids before a target text; the decoder generates them first.
        tgt_suffix: ids after a target text.
        start_id: the decoder's first input; it is not part of the output.
    """

    src_prefix: tuple[int, ...] = ()
    src_suffix: tuple[int, ...]
    tgt_prefix: tuple[int, ...] = ()
    tgt_suffix: tuple[int, ...]
    start_id: int

    @classmethod
    def of(cls, config: Config, tokenizers: TokenizerPair) -> Self:
        """Return the template of `languages`, `tokenizer.source_eos` and `model.decoder_start_id`.

        Raises:
            TokenizerError: the tokenizer lacks a tag, or joins the text before a source with the source.
        """
        languages, start_id = config.languages, config.model.decoder_start_id
        src, tgt = tokenizers.src, tokenizers.tgt
        src_tag = _tag("src_tag", languages.src_tag, src)
        tgt_tag = _tag("tgt_tag", languages.tgt_tag, tgt)
        text = _prefix(languages.src_prefix, src)
        src_eos = (src.eos_id,) if config.tokenizer.source_eos else ()
        first = languages.src_tag_position == "first"
        return cls(
            src_prefix=(*src_tag, *text) if first else text,
            src_suffix=src_eos if first else (*src_eos, *src_tag),
            tgt_prefix=tgt_tag,
            tgt_suffix=(tgt.eos_id,),
            start_id=tgt.bos_id if start_id is None else start_id,
        )

    @classmethod
    def plain(cls, tokenizers: TokenizerPair) -> Self:
        """Return the paper's template: an end token after each text, and a begin token to start from."""
        src, tgt = tokenizers.src, tokenizers.tgt
        return cls(src_suffix=(src.eos_id,), tgt_suffix=(tgt.eos_id,), start_id=tgt.bos_id)

    def source(self, ids: Sequence[int]) -> list[int]:
        """Add the special tokens of a source to the ids of a text."""
        return [*self.src_prefix, *ids, *self.src_suffix]

    def target(self, ids: Sequence[int]) -> list[int]:
        """Add the special tokens of a target to the ids of a text."""
        return [*self.tgt_prefix, *ids, *self.tgt_suffix]


def suppressed_ids(
    chosen: Sequence[int] | None, *, start_id: int, pad_id: int, eos_id: int
) -> tuple[int, ...]:
    """Return the ids that no output may contain; by default start and padding, except for the end token."""
    return tuple(sorted({start_id, pad_id} - {eos_id}) if chosen is None else chosen)


def _tag(key: str, tag: str | None, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids of a tag, or no ids for None."""
    try:
        return () if tag is None else tokenizer.tag_ids(tag)
    except TokenizerError as error:
        raise TokenizerError(f"languages.{key}: {error}") from None


# Beginnings of texts that a tokenizer might join with what stands before them.
_BEGINNINGS = ("a", "Z", "1", "(", "é", "日")


def _prefix(text: str | None, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids of a text before sources; the tokenizer must not join it with a source."""
    if not text:
        return ()
    ids = tokenizer.encode(text if tokenizer.kind == "byte" else text.rstrip(" "))
    for beginning in _BEGINNINGS:
        if tokenizer.encode(text + beginning) != [*ids, *tokenizer.encode(beginning)]:
            raise TokenizerError(
                f"languages.src_prefix={text!r}: the tokenizer joins this text with the source; "
                "end it with a space, or leave it out and write it before each text"
            )
    return tuple(ids)
