"""`heedful push`: a bundle onto the Hugging Face hub."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options as opt


def push(
    run: Annotated[
        Path, typer.Argument(metavar="BUNDLE", help="A bundle, or a run directory (its best is pushed).")
    ],
    repo: Annotated[
        str, typer.Argument(metavar="REPO", help="USER/MODEL on the hub; made where there is none.")
    ],
    private: Annotated[bool, typer.Option("--private", help="Only its owner may read it.")] = False,
    revision: Annotated[
        str | None, typer.Option(metavar="BRANCH", help="Made where there is none. [default: main]")
    ] = None,
    message: Annotated[
        str, typer.Option("--message", "-m", help="Of the commit.")
    ] = "Upload a bundle of heedful",
    as_json: opt.AsJson = False,
) -> None:
    """Put a bundle on the Hugging Face hub.

    Its checksums are checked first, and all its files appear in one commit, whose address is printed. Log in
    with `hf auth login`, or set HF_TOKEN.
    """
    from heedful.workflows.push import PushTask
    from heedful.workflows.push import push as run_push

    task = PushTask(run=run, repo=repo, private=private, revision=revision, message=message)
    made = run_push(task)
    print(json.dumps(asdict(made)) if as_json else made.url)
