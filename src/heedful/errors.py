"""Every exception that heedful raises on purpose, as one tree.

    HeedfulError
    ├── ConfigError         a configuration: unknown key, wrong type, incompatible values
    ├── CorpusError         text that cannot be used: missing, empty, not parallel, not UTF-8
    ├── TokenizerError      a tokenizer that cannot be trained or loaded
    ├── BundleError         a bundle that is missing, truncated, altered, or of a newer format
    ├── CheckpointError     a checkpoint that cannot be resumed from
    ├── RunError            a run directory in a state that the command does not expect
    ├── TrainingError       training that cannot continue
    ├── InputError          a sentence or option that the loaded model cannot take
    │   ├── OptionError     an option with a value that does not exist
    │   └── NotNumbersError log-probabilities of a search that are not numbers
    ├── InteropError        weights from elsewhere that do not fit the layout they are read as
    ├── HubError            a model hub that lacks a model, denies access, or cannot be reached
    └── MissingExtraError   an optional dependency that is not installed

A message is one line that says where, what, and what to do:
`train.de: 28,999 lines but train.en has 29,000; source and target must be parallel (first unmatched line:
29,000)`.

`Terminated`, `StopTraining` and `SearchCancelledError` are not part of the tree: they are no mistakes, but
requests to stop, by a scheduler, by a callback of a training and by the caller of a search.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

# How heedful is installed with an extra, for all messages. A release on the package index makes it
# "pip install 'heedful[{extra}]'"; the README and docs/ have to say the same.
INSTALL = "pip install '.[{extra}]' in a checkout of heedful"


class HeedfulError(Exception):
    """A mistake that the user can fix; the command line prints its message as one line, no traceback.

    >>> try:
    ...     translator = heedful.Translator("nowhere")
    ... except heedful.HeedfulError as error:
    ...     print(error)
    nowhere: no such directory; give a run directory or a bundle (a directory with config.json)
    """

    exit_code = 1


class ConfigError(HeedfulError):
    """A configuration with an unknown key, a wrong type, or incompatible values.

    >>> heedful.ModelConfig(nhead=8)
    Traceback (most recent call last):
    heedful.errors.ConfigError: unknown key 'nhead'; did you mean 'num_heads'?
    """

    exit_code = 2


class CorpusError(HeedfulError):
    """Text that cannot be used: missing, empty, not parallel, not UTF-8.

    >>> heedful.evaluate(["one"], ref=["one", "two"])
    Traceback (most recent call last):
    heedful.errors.CorpusError: ...
    """


class TokenizerError(HeedfulError):
    """A tokenizer that cannot be trained or loaded."""


class BundleError(HeedfulError):
    """A bundle that is missing, truncated, altered, or of a newer format.

    >>> heedful.load_bundle("nowhere")
    Traceback (most recent call last):
    heedful.errors.BundleError: nowhere: no such directory; ...
    """


class CheckpointError(HeedfulError):
    """A checkpoint that cannot be resumed from."""


class RunError(HeedfulError):
    """A run directory in a state that the command does not expect."""


class TrainingError(HeedfulError):
    """Training that cannot continue, for example because the loss is not finite."""


class InputError(HeedfulError):
    """A sentence or option that the loaded model cannot take.

    >>> heedful.SearchOptions(beam=1)
    Traceback (most recent call last):
    heedful.errors.OptionError: unknown option 'beam'; did you mean 'beam_size'?
    """


class OptionError(InputError):
    """An option with a value that does not exist."""

    exit_code = 2


class NotNumbersError(InputError):
    """Log-probabilities of a search that are not numbers."""

    def __init__(
        self, message: str = "search: the model's log-probabilities are not numbers; its weights are damaged"
    ) -> None:
        super().__init__(message)


class InteropError(HeedfulError):
    """Weights from elsewhere that do not fit the layout they are read as."""


class HubError(HeedfulError):
    """A model hub that lacks a model, denies access, or cannot be reached."""


class MissingExtraError(HeedfulError):
    """An optional dependency that is not installed."""


class SearchCancelledError(Exception):
    """A search that stopped between two steps, because its caller no longer needs the outputs."""


class StopTraining(Exception):  # noqa: N818 (no error)
    """Raised by a callback of a training: it ends after this step, as if it had reached a limit."""


class Terminated(KeyboardInterrupt):
    """SIGTERM was received and everything is saved: the program ends with exit code 0."""


# Messages of torch, its libraries and C++ when memory is used up and they raise no MemoryError.
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "cannot allocate memory",
    "std::bad_alloc",
    "ALLOC_FAILED",
    "can't start new thread",
    "failed to map segment",
)


def refuse_if(*cases: tuple[object, str], error: type[Exception] = OptionError) -> None:
    """Raise an error with the message of the first true condition; do nothing if none is true."""
    for holds, message in cases:
        if holds:
            raise error(message)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that memory is used up, on a GPU or on the machine."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError | ImportError) and any(
        words in str(error) for words in _OUT_OF_MEMORY
    )


@contextmanager
def needing(what: str, *, extra: str) -> Iterator[None]:
    """Raise a `MissingExtraError` that says how to install an extra if an import in the block fails.

    `what` says what needs which package: `plotting needs matplotlib`.
    """
    try:
        yield
    except ImportError:
        raise MissingExtraError(f"{what}: {install_hint(extra)}") from None


def install_hint(extra: str) -> str:
    """Return how to install heedful with an extra, for a message that says what is missing."""
    return INSTALL.format(extra=extra)


def suggestion(name: str, known: Iterable[str], words: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return `; did you mean 'x'?` for the known names that are likely, or the list of names if none is.

    `words` are other words for them.
    """
    names = list(known)
    abbreviated = re.compile(".+".join(map(re.escape, name)))
    likely = (
        likely_names(name, names, words)
        or difflib.get_close_matches(name, names, n=1)
        or [each for each in names if len(name) > 1 and abbreviated.fullmatch(each)]
    )
    meant = " or ".join(map(repr, likely))
    return f"; did you mean {meant}?" if likely else f"; there are: {', '.join(names)}"


def likely_names(
    name: str, known: Iterable[str], words: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return the names that a wrong one may mean, at most three that are equally likely; or none.

    These are, in this order: the name that another word stands for; the same name in a section, or with other
    dashes; the names that have all of its parts and the fewest others, or the reverse; one with few other
    letters.

    >>> likely_names("--lr", ["schedule.peak", "--find-lr"], {"lr": "schedule.peak"})
    ['schedule.peak']
    >>> likely_names("epochs", ["train.max_steps", "train.max_epochs"])
    ['train.max_epochs']
    """
    names, word = list(known), _plain(name)
    if words.get(word) in names:
        return [words[word]]
    plain = {each: _plain(each) for each in names}
    close = difflib.get_close_matches(word, plain.values(), n=1, cutoff=0.8)
    distances = {_distance(word, other) for other in plain.values()}
    nearest = min(distances, default=_FAR)
    likely = (
        [each for each in names if plain[each] == word]
        or [each for each in names if _distance(word, plain[each]) == nearest < _FAR]
        or [each for each in names if plain[each] in close]
    )
    return likely[:3]


def _plain(name: str) -> str:
    """Return a name without dashes, and without its section unless it says nothing alone."""
    plain = name.lower().lstrip("-").replace("-", "_")
    whole = re.fullmatch(r"(\w+)\.(\w+)", plain)
    if whole is None:
        return plain
    return f"{whole[1]}_{whole[2]}" if whole[2] in ("name", "kind") else whole[2]


_FAR = 100


def _distance(one: str, other: str) -> int:
    """Return in how many parts two names differ if one has all parts of the other; plurals count little."""
    parts, others = one.split("_"), other.split("_")
    singular, others_singular = ({part.removesuffix("s") for part in each} for each in (parts, others))
    if not (singular <= others_singular or others_singular <= singular):
        return _FAR
    return 2 * len(singular ^ others_singular) + ({*parts}.isdisjoint(others))
