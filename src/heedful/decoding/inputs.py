"""From texts to the ids that searches and scores are asked of, none of them too long."""

from collections.abc import Sequence

from heedful.bundle import Bundle
from heedful.decoding.batches import BatchedSearch
from heedful.decoding.options import SearchOptions
from heedful.errors import InputError
from heedful.text.framing import Framing
from heedful.text.tokenizer import Tokenizer

Ids = list[list[int]]


def sources_and_prefixes(
    texts: Sequence[str],
    prefixes: Sequence[str] | None,
    *,
    bundle: Bundle,
    search: BatchedSearch,
    options: SearchOptions,
    first_line: int,
) -> tuple[Ids, Ids]:
    """The ids of texts, as the encoder reads them, and of what their translations begin with.

    Args:
        texts: one sentence or line each; an empty one has no ids.
        prefixes: for each text; None: nothing.
        bundle: its tokenizers and framing say what the model reads and writes.
        search: it knows how long sequences may be.
        options: of the search.
        first_line: the number of the first text, for messages.

    Raises:
        InputError: a text or a prefix that is too long, or unequal numbers of them.
    """
    _refuse_one_string("texts", texts)
    if prefixes is not None and len(prefixes) != len(texts):
        raise InputError(f"prefixes: {len(prefixes):,} for {len(texts):,} texts; give one for each")
    framing = Framing.of(bundle.config, bundle.tokenizers)
    sources = [framing.source(ids) if ids else [] for ids in _encoded(bundle.tokenizers.src, texts)]
    begun = bundle.tokenizers.tgt.encode_batch(prefixes) if prefixes else [[] for _ in texts]
    for line, (source, prefix) in enumerate(zip(sources, begun, strict=True), start=first_line):
        _check_length(f"line {line:,}", source, search)
        most = search.max_length(source, options) - num_before_prefix(options)
        if len(prefix) > most:
            raise InputError(
                f"line {line:,}: a prefix of {len(prefix):,} pieces, but the translation may have "
                f"{most:,}; shorten it, or raise max_length_offset and max_length"
            )
    return sources, begun


def sources_and_outputs(
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    bundle: Bundle,
    search: BatchedSearch,
    options: SearchOptions,
    first_line: int,
) -> tuple[Ids, Ids]:
    """The ids of pairs of texts, as the encoder reads and the decoder writes them.

    Args:
        sources: one sentence or line each.
        targets: the translation of each; where both are empty, neither has ids.
        bundle: its tokenizers and framing say what the model reads and writes.
        search: it knows how long sequences may be.
        options: of the search.
        first_line: the number of the first pair, for messages.

    Raises:
        InputError: a text that is longer than learned positions allow, or unequal numbers of texts.
    """
    _refuse_one_string("sources", sources)
    _refuse_one_string("targets", targets)
    if len(sources) != len(targets):
        raise InputError(f"targets: {len(targets):,} for {len(sources):,} sources; give one for each")
    tokenizers, framing = bundle.tokenizers, Framing.of(bundle.config, bundle.tokenizers)
    read: Ids = []
    written: Ids = []
    encoded = _encoded(tokenizers.src, sources), _encoded(tokenizers.tgt, targets)
    for line, (src, tgt) in enumerate(zip(*encoded, strict=True), start=first_line):
        read.append(framing.source(src) if src or tgt else [])
        written.append(_begun(framing.target(tgt), options) if src or tgt else [])
        _check_length(f"source line {line:,}", read[-1], search)
        _check_length(f"target line {line:,}", written[-1], search)
    return read, written


def num_before_prefix(options: SearchOptions) -> int:
    """How many tokens an output has before its prefix."""
    return 0 if options.forced_first_id is None else 1


def _refuse_one_string(name: str, texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise InputError(f"{name}: one string given; give a list of strings, as in translate([text])")


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> Ids:
    """The ids of each text; none for one of spaces."""
    encoded = tokenizer.encode_batch(texts)
    return [ids if text.strip() else [] for ids, text in zip(encoded, texts, strict=True)]


def _begun(output: list[int], options: SearchOptions) -> list[int]:
    """An output as a search begins it: its text does not show the token that is forced to be first."""
    first = options.forced_first_id
    return output if first is None or first == output[0] else [first, *output]


def _check_length(name: str, ids: Sequence[int], search: BatchedSearch) -> None:
    end = search.position_limit
    if end is not None and len(ids) > end:
        raise InputError(
            f"{name}: {len(ids):,} pieces, but this model's learned positions end at {end:,}; split the line"
        )
