"""Models on the Hugging Face hub, in and out: the one file that knows huggingface_hub.

Where the hub is, who asks and where downloads are kept is huggingface_hub's own affair: `hf auth login`, and
the environment variables HF_TOKEN, HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE. What was downloaded once is used
again when the hub cannot be reached.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from heedful.bundle import CARD_FILE, CONFIG_FILE, bundle_file_names
from heedful.errors import HubError, MissingExtraError
from heedful.parsing import parse_json, read_limited

# What an importer may read of another library's model; weights of torch.save only where there are no others.
_SOURCE_FILES = ("*.json", "*.safetensors", "*.spm", "*.model", "*.txt", CARD_FILE)
_TORCH_FILES = "pytorch_model*.bin"
_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"


@dataclass(frozen=True, kw_only=True)
class Upload:
    """Result of a push: the repository's full name, the commit, and its page."""

    repo: str
    commit: str
    url: str


def download_bundle(repo: str, *, revision: str | None = None) -> Path:
    """Fetch a bundle from the hub, and return the directory in huggingface_hub's cache that holds it.

    Its files are those that its config.json names, all of one commit; `load_bundle` checks their checksums.

    Example:
        translator = Translator.load(download_bundle("user/model"))

    Args:
        repo: "user/model".
        revision: a branch, tag or commit; None for the main branch.

    Raises:
        HubError: no such model or revision, none that may be read, no bundle, or no way to the hub.
        BundleError: a bundle of a newer format.
        MissingExtraError: huggingface_hub is not installed.
    """
    folder = _download(repo, revision, [CONFIG_FILE, CARD_FILE])
    _check_format(repo, folder / CONFIG_FILE)
    return _download(repo, folder.name, bundle_file_names(folder))


def download_source(repo: str, *, revision: str | None = None) -> Path:
    """Fetch what `heedful import` reads of a model of another library; otherwise as `download_bundle`."""
    folder = _download(repo, revision, list(_SOURCE_FILES))
    if not any(folder.glob("*.safetensors")):
        _download(repo, folder.name, [_TORCH_FILES])
    return folder


def upload(
    files: Sequence[Path],
    repo: str,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str,
) -> Upload:
    """Put files into a model repository as one commit: all of them appear, or none.

    Args:
        files: they keep their names.
        repo: "user/model", or "model" for one's own; it is made where there is none.
        private: whether only its owner may read it; a public repository that is there already is refused.
        revision: a branch, made where there is none; None for the main branch.
        message: of the commit.

    Raises:
        HubError: nobody is logged in, or may not write there, or there is no way to the hub.
        MissingExtraError: huggingface_hub is not installed.
    """
    with _hub_errors(repo):
        from huggingface_hub import CommitOperationAdd, HfApi, get_token

        if get_token() is None:
            raise HubError(f"{repo}: you are not logged in to the hub; {_LOG_IN}")
        api = HfApi(library_name="heedful")
        repo = api.create_repo(repo, private=private or None, exist_ok=True).repo_id
        if private and not api.model_info(repo).private:
            raise HubError(
                f"{repo}: is public; make it private in its settings first, or leave --private out"
            )
        if revision is not None and not api.revision_exists(repo, revision):
            api.create_branch(repo, branch=revision)
        operations = [CommitOperationAdd(path_in_repo=file.name, path_or_fileobj=file) for file in files]
        commit = api.create_commit(repo, operations, commit_message=message, revision=revision)
        return Upload(repo=repo, commit=commit.oid, url=commit.commit_url)


def _download(repo: str, revision: str | None, names: list[str]) -> Path:
    """Fetch the files at the top of a repository whose names fit; their folder is named after the commit."""
    with _hub_errors(repo, revision):
        from huggingface_hub import snapshot_download

        folder = snapshot_download(
            repo, revision=revision, allow_patterns=names, ignore_patterns=["*/*"], library_name="heedful"
        )
    return Path(folder)


def _check_format(repo: str, config: Path) -> None:
    """Refuse the model of another library before its weights are fetched.

    Raises:
        HubError: it is one.
    """
    try:
        found = parse_json(read_limited(config))
    except (OSError, ValueError):
        found = None
    if not (isinstance(found, dict) and "format_version" in found):
        raise HubError(
            f"{repo}: is no bundle of heedful; bring a model of another library in with "
            f"`heedful import {repo} --layout NAME --output BUNDLE`"
        )


@contextmanager
def _hub_errors(repo: str, revision: str | None = None) -> Iterator[None]:
    """Turn what can go wrong with the hub into one line.

    Raises:
        HubError: it did.
        MissingExtraError: huggingface_hub is not installed.
    """
    try:
        from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]
    except ImportError:
        raise MissingExtraError(
            "models on the Hugging Face hub need huggingface_hub: pip install 'heedful[hub]'"
        ) from None
    try:
        yield
    except (HTTPError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk, not of the hub
        raise HubError(f"{repo}: {_explanation(error, repo, revision)}") from error


def _explanation(error: Exception, repo: str, revision: str | None) -> str:
    from huggingface_hub import constants, errors

    if isinstance(error, errors.LocalEntryNotFoundError | RuntimeError) and isinstance(
        error.__cause__, Exception
    ):
        error = error.__cause__  # why the hub was not asked, or did not take a file
    page = f"{constants.ENDPOINT}/{repo}"
    match error:
        case errors.GatedRepoError():
            return f"is gated; accept its conditions on {page}, then {_LOG_IN}"
        case errors.RevisionNotFoundError():
            return f"has no revision {revision!r}; {page}/commits/main lists them"
        case errors.RepositoryNotFoundError():
            return f"no such model on the hub, or a private one; check the name, or {_LOG_IN}"
        case errors.HfHubHTTPError():
            return _refusal(error.response.status_code, error.server_message)
        case errors.OfflineModeIsEnabled():
            return "was never downloaded here in full, and HF_HUB_OFFLINE forbids it; unset it"
        case ValueError():
            return f"the hub does not take it: {error}"
        case OSError() | RuntimeError():
            return f"the transfer was cut short ({error}); try again"
    return f"the hub at {constants.ENDPOINT} cannot be reached ({error}); check the network, try again"


def _refusal(status: int, reason: str | None) -> str:
    said = f" ({reason})" if reason else ""
    match status:
        case 401:
            return f"the hub does not accept your token{said}; {_LOG_IN}"
        case 403:
            return f"your token may not do that{said}; use one with write permission, or another name"
        case _:
            return f"the hub answers with status {status}{said}; try again later"
