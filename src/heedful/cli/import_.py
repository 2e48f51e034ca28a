"""`heedful import`: weights from elsewhere."""

from pathlib import Path
from typing import Annotated

import typer


def import_(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT.pt", help="Written by torch.save, or .safetensors.")
    ],
    layout: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Whose names the weights have: abhishek-thread, nptel-lecture, kaggle-notebook, "
            "adeveloperdiary, jadore, jadore-prj, torch, annotated.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The bundle to write.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="What weights do not say, for example model.num_heads=8."
        ),
    ] = None,
    src_vocab: Annotated[
        Path | None, typer.Option(help="Source tokens by id: one a line, or .json. Without, ids only.")
    ] = None,
    tgt_vocab: Annotated[Path | None, typer.Option(help="The same of the target.")] = None,
) -> None:
    """Bring in the weights of another implementation.

    The file is read as data and never executed. The bundle gives the same logits; docs/systems.md says what
    each layout is, and how.
    """
    from heedful.config import parse_override
    from heedful.workflows.import_ import ImportTask
    from heedful.workflows.import_ import import_ as run_import

    run_import(
        ImportTask(
            checkpoint=checkpoint,
            layout=layout,
            output=output,
            overrides=[parse_override(setting) for setting in settings or []],
            src_vocab=src_vocab,
            tgt_vocab=tgt_vocab,
        )
    )
    print(output)
