"""`heedful push`: upload a bundle to the Hugging Face hub."""

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
        str, typer.Argument(metavar="REPO", help="USER/MODEL on the hub; created if it does not exist.")
    ],
    private: Annotated[bool, typer.Option("--private", help="Only its owner may read it.")] = False,
    revision: Annotated[
        str | None, typer.Option(metavar="BRANCH", help="Created if it does not exist. [default: main]")
    ] = None,
    message: Annotated[
        str, typer.Option("--message", "-m", help="Of the commit.")
    ] = "Upload a bundle of heedful",
    as_json: opt.AsJson = False,
) -> None:
    """Upload a bundle to the Hugging Face hub.

    Verifies its checksums, uploads all files in one commit, and prints its URL. Log in with `hf auth login`,
    or set HF_TOKEN.
    """
    from heedful.workflows.push import PushTask
    from heedful.workflows.push import push as run_push

    task = PushTask(run=run, repo=repo, private=private, revision=revision, message=message)
    made = run_push(task)
    print(json.dumps(asdict(made)) if as_json else made.url)
