"""Download models from the Hugging Face hub, and upload them.

huggingface_hub has the endpoint, the login and the cache: `hf auth login`, and the environment variables
HF_TOKEN, HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE. Cached downloads are used when the hub cannot be reached.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from heedful.errors import HubError, needing
from heedful.settings.arguments import checked
from heedful.settings.parsing import parse_json, read_limited
from heedful.storage.bundle import read_bundle
from heedful.storage.description import CARD_FILE, CONFIG_FILE, bundle_file_names, resolve_bundle

# The files that an importer may read; weights of torch.save only if there are no others.
_SOURCE_FILES = ("*.json", "*.safetensors", "*.spm", "*.model", "*.txt", CARD_FILE)
_TORCH_FILES = "pytorch_model*.bin"
_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"
# What a status means; @ stands for the hub's reason.
_REFUSALS = {
    401: f"the hub does not accept your token@; {_LOG_IN}",
    403: "your token may not do that@; use one with write permission, or another name",
}


@dataclass(frozen=True, kw_only=True)
class Upload:
    """Result of a push: the repository's full name, the commit, and its page."""

    repo: str
    commit: str
    url: str


@checked
def download_bundle(repo: str, *, revision: str | None = None) -> Path:
    """Download a bundle from the hub; return its directory in huggingface_hub's cache.

    Its config.json names the files, all of one commit; `load_bundle` verifies their checksums.

    >>> translator = heedful.Translator.load(download_bundle("user/model"))  # doctest: +SKIP

    Args:
        repo: "user/model".
        revision: a branch, tag or commit; None for the main branch.

    Raises:
        HubError: no such model or revision, no access to it, not a bundle, or no connection.
        BundleError: the bundle has a newer format.
        MissingExtraError: huggingface_hub is not installed.
    """
    folder = _download(repo, revision, [CONFIG_FILE, CARD_FILE])
    try:
        config = parse_json(read_limited(folder / CONFIG_FILE))
    except (OSError, ValueError):
        config = None
    if not (isinstance(config, dict) and "format_version" in config):  # before its weights are downloaded
        raise HubError(
            f"{repo}: is not a heedful bundle; import a model of another library with "
            f"`heedful import {repo} --layout NAME --output BUNDLE`"
        )
    return _download(repo, folder.name, bundle_file_names(folder))


def download_source(repo: str, *, revision: str | None = None) -> Path:
    """Download the files of another library's model for `heedful import`; otherwise as `download_bundle`."""
    folder = _download(repo, revision, list(_SOURCE_FILES))
    if not any(folder.glob("*.safetensors")):
        _download(repo, folder.name, [_TORCH_FILES])
    return folder


def push(
    run: Path,
    repo: str,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str = "Upload a bundle of heedful",
) -> Upload:
    """Verify a bundle, and upload its files, and no others, to a model repository in one commit.

    Args:
        run: a bundle, or a run: its best bundle is uploaded.
        repo: "user/model", or "model" for the account that is logged in; it is created if it does not exist.
        private: whether only its owner may read it; an existing public repository is refused.
        revision: a branch, created if it does not exist; None for the main branch.
        message: the message of the commit.

    Raises:
        BundleError: there is no bundle, or it is damaged or too new.
        HubError: not logged in, no permission to write, or no connection.
        MissingExtraError: huggingface_hub is not installed.
    """
    path = resolve_bundle(run)
    read_bundle(path)  # verifies it
    files = [path / name for name in bundle_file_names(path)]
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
        operations = [
            CommitOperationAdd(path_in_repo=file.name, path_or_fileobj=file)
            for file in files
            if file.is_file()  # the card may have been removed
        ]
        commit = api.create_commit(repo, operations, commit_message=message, revision=revision)
        return Upload(repo=repo, commit=commit.oid, url=commit.commit_url)


def _download(repo: str, revision: str | None, names: list[str]) -> Path:
    """Download matching top-level files of a repository; their folder is named after the commit."""
    with _hub_errors(repo, revision=revision):
        from huggingface_hub import snapshot_download

        folder = snapshot_download(
            repo, revision=revision, allow_patterns=names, ignore_patterns=["*/*"], library_name="heedful"
        )
    return Path(folder)


@contextmanager
def _hub_errors(repo: str, *, revision: str | None = None) -> Iterator[None]:
    """Raise all errors of the hub as one line.

    Raises:
        HubError: with the reason and a remedy.
        MissingExtraError: huggingface_hub is not installed.
    """
    with needing("models on the Hugging Face hub need huggingface_hub", extra="hub"):
        from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]
    try:
        yield
    except (HTTPError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the disk, not of the hub
        raise HubError(f"{repo}: {_explanation(error, repo, revision)}") from error


def _explanation(error: Exception, repo: str, revision: str | None) -> str:
    from huggingface_hub import constants, errors

    if isinstance(error, errors.LocalEntryNotFoundError | RuntimeError) and isinstance(
        error.__cause__, Exception
    ):
        error = error.__cause__  # the reason
    page = f"{constants.ENDPOINT}/{repo}"
    match error:
        case errors.GatedRepoError():
            return f"is gated; accept its conditions on {page}, then {_LOG_IN}"
        case errors.RevisionNotFoundError():
            return f"has no revision {revision!r}; {page}/commits/main lists them"
        case errors.RepositoryNotFoundError():
            return f"no such model on the hub, or a private one; check the name, or {_LOG_IN}"
        case errors.HfHubHTTPError():
            status, reason = error.response.status_code, error.server_message
            problem = _REFUSALS.get(status, f"the hub answers with status {status}@; try again later")
            return problem.replace("@", f" ({reason})" if reason else "")
        case errors.OfflineModeIsEnabled():
            return "was never downloaded completely, and HF_HUB_OFFLINE is set; unset it"
        case ValueError():
            return f"the hub refuses it: {error}"
        case OSError() | RuntimeError():
            return f"the transfer was interrupted ({error}); try again"
    return f"the hub at {constants.ENDPOINT} cannot be reached ({error}); check the network, try again"
