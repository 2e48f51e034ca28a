"""Translate a stream of lines."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from heedful.decoding.translation import Translation
from heedful.settings.options import Runtime, SearchRequest
from heedful.workflows.loading import load_translator, search_options

_HYPOTHESES_AT_ONCE = 65_536  # some 100 MB of them


def translate(
    run: Path,
    lines: Iterable[str],
    *,
    request: SearchRequest,
    runtime: Runtime,
    prefixes: Iterable[str] | None = None,
    ensemble: Sequence[Path] = (),
    chunk_lines: int = 1024,
    on_precision: Callable[[str], None] = lambda precision: None,
) -> Iterator[Translation]:
    """Load a model, then translate line by line, in order, empty lines kept.

    Loading comes first, before any line is read and before anything is given.

    Args:
        run: a run directory, a bundle, or the id of one on the hub.
        lines: the source.
        request: what to change in the search, and the languages of a model that has many.
        runtime: how to compute.
        prefixes: for each line, what its translations begin with.
        ensemble: more models that translate with that of the run.
        chunk_lines: how many lines are read and translated at a time; fewer where each has
            hundreds of hypotheses.
        on_precision: called with the precision that was chosen, once, where that is "auto".

    Raises:
        BundleError: no usable bundle.
        InputError: settings that cannot be, models that cannot translate together, or a prefix that is
            missing or too long.
    """
    translator = load_translator(run, request, runtime, ensemble=ensemble)
    if runtime.precision == "auto":
        on_precision(translator.precision_in_use)
    options = search_options(request, translator.bundle.config.decode)
    chunk_lines = min(
        chunk_lines, max(1, _HYPOTHESES_AT_ONCE // options.strategy.num_hypotheses(options.n_best))
    )
    return translator.translate_lines(lines, options=options, prefixes=prefixes, chunk_lines=chunk_lines)
