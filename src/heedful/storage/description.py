"""What a bundle says of itself: config.json, its schema, and the checksums of the files beside it.

The checksum of the settings is of everything else in config.json, but for the version of the format.
"""

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from heedful.errors import BundleError
from heedful.runtime.durable import backup_path, why_not_written, write_atomically
from heedful.settings.parsing import MAX_WHOLE, PLAIN_NAME, is_whole, mistake_of, parse_json, read_limited
from heedful.storage.calibration import Calibration

FORMAT_VERSION = 1
CONFIG_FILE, RUN_CONFIG = "config.json", "config.toml"
WEIGHTS_FILE, ADAPTER_FILE = "model.safetensors", "adapter.safetensors"
CARD_FILE = "README.md"
_SETTINGS = "settings"  # among the checksums


class Description(BaseModel):
    """The content of config.json.

    `config` is as `Config` takes it, `calibration` as `Calibration.read` does; `changed_parts` names classes,
    methods and functions that are not heedful's own (ops/changes.py).
    """

    model_config = ConfigDict(strict=True, frozen=True)

    format_version: int = Field(ge=1)
    config: dict[str, Any]
    scores: dict[str, Annotated[int, Field(ge=-MAX_WHOLE, le=MAX_WHOLE)] | float]
    changed_parts: dict[str, str] | None = None
    calibration: dict[str, Any] | None = None
    sha256: dict[Annotated[str, Field(pattern=f"^{PLAIN_NAME}$")], str]

    @property
    def files(self) -> set[str]:
        """The names of all files with checksums."""
        return self.sha256.keys() - {_SETTINGS}

    def write(self, path: Path) -> None:
        """Write config.json of a bundle, with the checksum of these settings, as a whole or not at all."""
        sums = {name: checksum for name, checksum in self.sha256.items() if name != _SETTINGS}
        values = self.model_dump(exclude_none=True) | {"sha256": sums | {_SETTINGS: self._checksum()}}
        _write(path / CONFIG_FILE, json.dumps(values, indent=2) + "\n")

    def check(self, path: Path) -> None:
        """Compare each file of a bundle with its checksum; BundleError if one is missing or altered."""
        for name, expected in {_SETTINGS: "", **self.sha256}.items():
            file = path / (CONFIG_FILE if name == _SETTINGS else name)
            problem = "truncated or altered (checksum differs)"
            try:
                if expected == (self._checksum() if name == _SETTINGS else file_sha256(file)):
                    continue
            except FileNotFoundError:
                problem = "missing; the bundle is incomplete"
            except OSError as error:
                problem = f"cannot be read ({error.strerror})"
            raise BundleError(f"{file}: {problem}; copy the bundle again")

    def _checksum(self) -> str:
        settings = self.model_dump(exclude_none=True, exclude={"format_version", "sha256"})
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _write(file: Path, content: str | bytes) -> None:
    try:
        write_atomically(file, content)
    except OSError as error:
        raise BundleError(f"{file}: cannot be written: {why_not_written(error)}") from error


def read_description(path: Path) -> Description:
    """Read config.json of a bundle; no other file need be there.

    Raises:
        BundleError: config.json is missing, damaged, or of a newer format.
    """
    file = path / CONFIG_FILE
    try:
        read = parse_json(read_limited(file))
        version = read.get("format_version") if isinstance(read, dict) else None
        if not is_whole(version, least=FORMAT_VERSION + 1):
            return Description.model_validate(read)
        problem = f"format_version {version} is newer than the {FORMAT_VERSION} read here; upgrade heedful"
    except OSError as error:
        problem = str(error.strerror)
    except ValueError as error:
        problem = f"truncated or altered ({mistake_of(error)}); copy the bundle again"
    raise BundleError(f"{file}: {problem}")


def resolve_bundle(path: Path | str) -> Path:
    """Return the bundle meant by RUN: the run's `best/`, else its `last/`, else the directory itself.

    While a bundle is being replaced, it is the old one.

    Raises:
        BundleError: there is no bundle there.
    """
    path = Path(path)
    best, last = path / "best", path / "last"
    for candidate in (best, backup_path(best), last, backup_path(last), path):
        if (candidate / CONFIG_FILE).is_file():
            return candidate
    reason = "holds no bundle" if path.is_dir() else "no such directory"
    remedy = runs_inside(path) or f"give a run directory or a bundle (a directory with {CONFIG_FILE})"
    if (path / RUN_CONFIG).is_file():
        reason, remedy = "this run has no bundle yet", "wait for its first validation"
    raise BundleError(f"{path}: {reason}; {remedy}")


def runs_of(path: Path) -> list[Path]:
    """Return the runs with several seeds or settings in a directory of them, in order; else the path itself.

    Numbers in names are ordered as numbers: seed-2 is before seed-10.
    """
    is_one = any((path / name).exists() for name in ("best", "last", CONFIG_FILE, RUN_CONFIG))
    inside = [] if is_one else [file.parent for file in path.rglob(RUN_CONFIG)]
    return sorted(inside, key=_with_numbers) or [path]


def _with_numbers(path: Path) -> list[tuple[float, str]]:
    """Return the parts of a path between dashes, numbers as such."""
    key = list[tuple[float, str]]()
    for part in re.split(r"[/\\]|(?<=[a-z])-", path.as_posix()):
        try:
            key.append((float(part), ""))
        except ValueError:
            key.append((math.inf, part))
    return key


def runs_inside(path: Path) -> str:
    """Return advice that names a run or bundle in a directory, for example of one seed; "" if none."""
    inside = sorted({each.parent for name in (RUN_CONFIG, CONFIG_FILE) for each in path.glob(f"*/{name}")})
    return f"give a run or bundle inside it, for example {inside[0]}" if inside else ""


def bundle_file_names(path: Path) -> list[str]:
    """Name the files that make up a bundle, as its config.json says; none of the others need be there."""
    return [CONFIG_FILE, *sorted(read_description(path).files), CARD_FILE]


def add_file(path: Path, name: str, content: bytes) -> Path:
    """Add a file to a bundle, or replace it, with its checksum; return the file's path.

    The bundle is whole at every moment: without that file until it is there.
    """
    description, file = read_description(path), path / name
    others = {each: checksum for each, checksum in description.sha256.items() if each != name}
    if name in description.sha256:
        description.model_copy(update={"sha256": others}).write(path)
    _write(file, content)
    description.model_copy(update={"sha256": {**others, name: file_sha256(file)}}).write(path)
    return file


def store_calibration(path: Path, calibration: Calibration) -> None:
    """Write a calibration into a bundle, in place of another one."""
    read_description(path).model_copy(update={"calibration": calibration.as_json()}).write(path)


def stored_scores(path: Path | str) -> dict[str, float]:
    """Read the validation scores of a bundle, or of the bundle of a run, and nothing else."""
    return read_description(resolve_bundle(path)).scores


def file_sha256(file: Path) -> str:
    """Return the checksum of a file, as bundles and checkpoints have it, in hexadecimal."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
