"""Upload a bundle to the Hugging Face hub."""

from dataclasses import dataclass
from pathlib import Path

from heedful.interop.huggingface.hub import Upload, upload
from heedful.storage.bundle import bundle_file_names, read_bundle, resolve_bundle


@dataclass(frozen=True, kw_only=True)
class PushTask:
    """A push: the run or bundle, and the repository.

    Attributes:
        run: a run directory, whose best bundle is used, or a bundle.
        repo: "user/model", or "model" for one's own; it is created if it does not exist.
        private: whether only its owner may read it.
        revision: a branch, created if it does not exist; None for the main branch.
        message: of the commit.
    """

    run: Path
    repo: str
    private: bool = False
    revision: str | None = None
    message: str


def push(task: PushTask) -> Upload:
    """Verify a bundle and upload its files, and no others, in one commit.

    Raises:
        BundleError: there is no bundle, or it is damaged or too new.
        HubError: not logged in, no permission to write, or no connection.
        MissingExtraError: huggingface_hub is not installed.
    """
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
