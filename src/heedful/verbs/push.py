"""`heedful push`: upload a bundle to the Hugging Face hub."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from heedful.cli.streams import print_json
from heedful.settings.options import AsJson, Option


@dataclass(frozen=True, kw_only=True)
class Push:
    """Upload a bundle to the Hugging Face hub.

    Verifies the checksums, uploads all files in one commit, and prints its URL. Log in with `hf auth login`,
    or set HF_TOKEN.

    Examples:
        heedful push runs/en-de user/model
    """

    run: Annotated[
        Path,
        Option("A bundle, or a run directory (its best bundle is used).", metavar="BUNDLE", is_argument=True),
    ]
    repo: Annotated[
        str, Option("USER/MODEL on the hub; created if it does not exist.", metavar="REPO", is_argument=True)
    ]
    private: Annotated[bool, Option("Make the repository private.")] = False
    revision: Annotated[
        str | None, Option("The branch; created if it does not exist.", metavar="BRANCH", default="main")
    ] = None
    message: Annotated[str, Option("Message of the commit.", flags=("--message", "-m"))] = (
        "Upload a bundle of heedful"
    )
    as_json: AsJson = False


def command(task: Push) -> None:
    """Push, and print the URL."""
    from heedful.interop.huggingface.hub import push

    made = push(task.run, task.repo, private=task.private, revision=task.revision, message=task.message)
    if task.as_json:
        print_json(asdict(made))
    else:
        print(made.url)
