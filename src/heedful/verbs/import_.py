"""`heedful import`: import models of other implementations as bundles."""

from heedful.cli.streams import note
from heedful.tasks.options import ModelImport


def command(task: ModelImport) -> None:
    """Import, and print the path of the bundle."""
    from heedful.tasks.exchange import import_model

    print(import_model(**vars(task) | {"notify": note}))
