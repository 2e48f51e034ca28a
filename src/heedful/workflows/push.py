"""Put a bundle on the Hugging Face hub."""

from dataclasses import dataclass
from pathlib import Path

from heedful.bundle import bundle_file_names, load_model, resolve_bundle
from heedful.interop.huggingface.hub import Upload, upload


@dataclass(frozen=True, kw_only=True)
class PushTask:
    """A push: the run or bundle, and the repository.

    Attributes:
        run: a run directory, whose best bundle is taken, or a bundle.
        repo: "user/model", or "model" for one's own; it is made where there is none.
        private: whether only its owner may read it.
        revision: a branch, made where there is none; None for the main branch.
        message: of the commit.
    """

    run: Path
    repo: str
    private: bool = False
    revision: str | None = None
    message: str


def push(task: PushTask) -> Upload:
    """Check a bundle as it is checked before use, then upload its files, and no others, as one commit.

    Raises:
        BundleError: there is no bundle, or it is damaged or too new.
        HubError: nobody is logged in, or may not write there, or there is no way to the hub.
        MissingExtraError: huggingface_hub is not installed.
    """
    path = resolve_bundle(task.run)
    load_model(path)  # what cannot be loaded here would not load elsewhere
    files = [path / name for name in bundle_file_names(path)]
    return upload(
        [file for file in files if file.is_file()],  # a bundle whose card was removed goes without
        task.repo,
        private=task.private,
        revision=task.revision,
        message=task.message,
    )
