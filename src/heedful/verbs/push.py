"""`heedful push`: upload a bundle to the Hugging Face hub."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from heedful.settings.options import AsJson, Option

if TYPE_CHECKING:
    from heedful.interop.huggingface.hub import Upload


@dataclass(frozen=True, kw_only=True)
class Push:
    """Upload a bundle to the Hugging Face hub.

    Verifies the checksums, uploads all files in one commit, and prints its URL. Log in with `hf auth login`,
    or set HF_TOKEN.
    """

    run: Annotated[
        Path,
        Option("A bundle, or a run directory (its best bundle is used).", metavar="BUNDLE", is_argument=True),
    ]
    repo: Annotated[
        str,
        Option("USER/MODEL on the hub; created if it does not exist.", metavar="REPO", is_argument=True),
    ]
    private: Annotated[bool, Option("Make the repository private.")] = False
    revision: Annotated[
        str | None, Option("The branch; created if it does not exist.", metavar="BRANCH", default="main")
    ] = None
    message: Annotated[str, Option("Message of the commit.", flags=("--message", "-m"))] = (
        "Upload a bundle of heedful"
    )
    as_json: AsJson = False


def push(task: Push) -> "Upload":
    """Verify a bundle and upload its files, and no others, in one commit.

    Raises:
        BundleError: there is no bundle, or it is damaged or too new.
        HubError: not logged in, no permission to write, or no connection.
        MissingExtraError: huggingface_hub is not installed.
    """
    from heedful.interop.huggingface.hub import upload
    from heedful.storage.bundle import bundle_file_names, read_bundle, resolve_bundle

    path = resolve_bundle(task.run)
    read_bundle(path)  # verifies it
    files = [path / name for name in bundle_file_names(path)]
    return upload(
        [file for file in files if file.is_file()],  # the card may have been removed
        task.repo,
        private=task.private,
        revision=task.revision,
        message=task.message,
    )


def command(task: Push) -> None:
    """Push, and print the URL."""
    made = push(task)
    print(json.dumps(asdict(made)) if task.as_json else made.url)
