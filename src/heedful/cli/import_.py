"""`heedful import`: import models of other implementations."""

from pathlib import Path
from typing import Annotated

import typer


def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A file written by torch.save, or .safetensors. For marian, m2m100 and bart a directory "
            "saved by transformers, or the id of one on the hub.",
        ),
    ],
    layout: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The system that wrote the weights: marian, m2m100, bart, fairseq, torch, annotated, "
            "abhishek-thread, nptel-lecture, kaggle-notebook, adeveloperdiary, jadore, jadore-prj.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The bundle to write.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Settings not in the weights, for example model.num_heads=8."
        ),
    ] = None,
    src_vocab: Annotated[
        Path | None,
        typer.Option(help="For a file: source tokens by id, one a line, or .json. Without it, ids only."),
    ] = None,
    tgt_vocab: Annotated[Path | None, typer.Option(help="The same for the target.")] = None,
    src_lang: Annotated[
        str | None,
        typer.Option(metavar="LANG", help="For a directory of a multilingual model: the source language."),
    ] = None,
    tgt_lang: Annotated[
        str | None, typer.Option(metavar="LANG", help="The language to translate into.")
    ] = None,
) -> None:
    """Import a model of another implementation.

    No code in the files is executed. The bundle gives the same logits; docs/interop.md and docs/systems.md
    describe the layouts.
    """
    from heedful.settings.loading import parse_override
    from heedful.workflows.import_ import ImportTask
    from heedful.workflows.import_ import import_ as run_import

    run_import(
        ImportTask(
            source=source,
            layout=layout,
            output=output,
            overrides=[parse_override(setting) for setting in settings or []],
            src_vocab=src_vocab,
            tgt_vocab=tgt_vocab,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
        )
    )
    print(output)
