"""`heedful import`: import models of other implementations as bundles."""

import sys
from functools import partial

from heedful.tasks.options import ModelImport


def command(task: ModelImport) -> None:
    """Import, and print the path of the bundle."""
    from heedful.tasks.exchange import import_model

    print(import_model(**vars(task) | {"notify": partial(print, "note:", file=sys.stderr)}))
