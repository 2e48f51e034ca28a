"""`heedful import`: import models of other implementations as bundles."""

import sys
from dataclasses import dataclass
from functools import partial

from heedful.tasks.options import ImportingOptions


@dataclass(frozen=True, kw_only=True)
class Import(ImportingOptions):
    """Import a model of another implementation.

    No code in the files is executed. The bundle gives the same logits; docs/interop.md and docs/systems.md
    describe the layouts.

    Examples:
        heedful import Helsinki-NLP/opus-mt-en-de -o opus
    """


def command(task: Import) -> None:
    """Import, and print the path of the bundle."""
    from heedful.tasks.exchange import import_bundle

    print(import_bundle(task, notify=partial(print, "note:", file=sys.stderr)))
