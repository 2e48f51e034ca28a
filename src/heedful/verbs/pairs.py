"""`heedful pairs`: find sentence pairs in documents of two languages."""

from heedful.cli.streams import bar, print_table
from heedful.tasks.options import DocumentAlignment


def command(task: DocumentAlignment) -> None:
    """Find the pairs, and print how many there are and what was left out."""
    from heedful.tasks.align_documents import align_documents

    with bar() as show:
        found = align_documents(**vars(task) | {"on_progress": show})
    print_table([("documents", f"{found.documents:,}"), ("sentences in pairs", f"{found.share:.1%}")])
    print_table([(name, f"{count:,} pairs") for name, count in found.pairs.items()])
    if found.left_out:
        print_table([("left out", ""), *((reason, f"{count:,}") for reason, count in found.left_out.items())])
