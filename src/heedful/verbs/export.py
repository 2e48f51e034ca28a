"""`heedful export`: export a model for another system."""

from heedful.tasks.options import ModelExport


def command(task: ModelExport) -> None:
    """Export, and print the directory."""
    from heedful.tasks.exchange import export_model

    print(export_model(**vars(task)))
