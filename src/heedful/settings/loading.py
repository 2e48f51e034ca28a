"""Load a Config from a preset, a TOML file and `--set key=value`, and write it as TOML."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from heedful.errors import ConfigError, likely_names
from heedful.settings.arguments import checked
from heedful.settings.model import ModelConfig
from heedful.settings.parsing import as_json, decode_text, parse_toml, read_limited, short, shown
from heedful.settings.plugins import reference_to
from heedful.settings.presets import preset_settings
from heedful.settings.run import Config
from heedful.settings.section import whole_keys
from heedful.settings.words import WORDS

Settings = dict[str, Any]

# Two settings of one thing: the file or override that sets one of them replaces the other below it.
ALTERNATIVES = {"warmup_steps": "warmup_fraction", "warmup_fraction": "warmup_steps"}


@checked
def load_config(
    path: str | Path | None = None,
    *,
    preset: str | None = None,
    overrides: Mapping[str, Any] | Sequence[tuple[str, Any]] = (),
) -> Config:
    """Merge a preset, a TOML file and overrides, in ascending priority, and validate the result.

    A file may name its preset with a top-level `preset = "small"`, which the argument overrides, or another
    file that it changes, `preset = "multi30k-en-de.toml"`, relative to its own directory.

    >>> load_config(preset="small", overrides={"train.max_minutes": 20}).train.max_minutes
    20.0

    Args:
        path: a TOML file, or None.
        preset: the preset to start from; by default the file's, or else the paper's base.
        overrides: values by whole keys, or (key, value) pairs as returned by `parse_override`.

    Raises:
        ConfigError: a file that cannot be read, an unknown key, a wrong type, or incompatible values.
    """
    settings = _read_recipe(Path(path)) if path is not None else {}
    named = settings.pop("preset", None)
    name: str = preset or ("base" if named is None else named)
    of_preset = preset_settings(name)
    merged = _merge(of_preset, settings)
    if preset or named:  # a preset is a whole architecture, defaults included
        architecture = ModelConfig(**of_preset.get("model", {}))
        merged = _merge({"model": architecture.model_dump()}, merged)
    return _overridden(merged, overrides.items() if isinstance(overrides, Mapping) else overrides)


def with_settings(config: Config, overrides: Mapping[str, Any]) -> Config:
    """Return a configuration with some settings changed, by whole keys; the others count as set if they were.

    Raises:
        ConfigError: an unknown key, a wrong type, or incompatible values.
    """
    return _overridden(config.model_dump(exclude_unset=True), overrides.items())


def _overridden(settings: Settings, overrides: Iterable[tuple[str, Any]]) -> Config:
    for key, value in overrides:
        section, _, field = key.partition(".")
        if not isinstance(settings.get(section, {}), dict):
            raise ConfigError(f"{section} is a section of settings, not a value")
        settings = _merge(settings, {section: {field: plain(value, key)} if field else value})
    return Config(**settings)


def plain(value: object, key: str) -> object:
    """Return a value as it is written in a file of settings: a number of numpy or torch is one of Python."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(item, key) for item in value]
    if callable(value):
        return reference_to(value, key)
    return value.tolist() if hasattr(value, "tolist") else value


def parse_override(text: str, *, option: str = "--set") -> tuple[str, Any]:
    """Parse `train.max_steps=2000`: the value as TOML, or as plain text if it is not TOML.

    Raises:
        ConfigError: there is no `=`, or the key is not `section.name`.
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or "." not in key:
        likely = likely_names(key, whole_keys(Config), WORDS) or ["train.max_steps"]
        given = value if equals else "..."
        example = " or ".join(f"{name}={given}" for name in likely)
        raise ConfigError(
            f"{option} {short(text)}: write it as section.key=value, for example {short(example)}"
        )
    try:
        return key, parse_toml(f"value = {value}")["value"]
    except ValueError:
        return key, value


def parse_sweep(text: str) -> tuple[str, list[Any]]:
    """Parse `schedule.peak=1e-3,2e-3`: the key, and its values as TOML, or as texts between commas.

    Raises:
        ConfigError: there is no `=`, or the key is not `section.name`.
    """
    key, values = parse_override(text, option="--sweep")
    try:
        return key, parse_toml(f"value = [{text.partition('=')[2]}]")["value"]
    except ValueError:
        return key, [parse_override(f"{key}={value.strip()}")[1] for value in str(values).split(",")]


def to_toml(config: Config) -> str:
    """Return every value as TOML, defaults included.

    TOML has no None: it is written as `false` if the default is not None, and omitted otherwise.
    """
    sections: dict[str, Settings] = {}
    for section, values in config.model_dump().items():
        fields = type(getattr(config, section)).model_fields
        sections[section] = {
            key: False if value is None else _without_none(value)
            for key, value in values.items()
            if value is not None or fields[key].default is not None
        }
    return tomli_w.dumps(sections)


def _without_none(value: object) -> object:
    """Return a value without the keys that are None in the tables of a list."""
    if isinstance(value, dict):
        return {key: entry for key, entry in value.items() if entry is not None}
    return [*map(_without_none, value)] if isinstance(value, tuple) else value


def _read_recipe(path: Path, *, changed_by: tuple[Path, ...] = ()) -> Settings:
    """Read a TOML file, merged over the file that its `preset` names, if that is a file."""
    settings = _read_toml(path)
    named = settings.get("preset")
    if not isinstance(named, str | None):
        raise ConfigError(
            f"{path}: preset={as_json(named)}: must be the name of a preset or of a file, as in "
            'preset = "small", before the first section'
        )
    if named is None or not named.endswith(".toml"):
        return settings
    changed_by = (*changed_by, path.resolve())
    if (path.parent / named).resolve() in changed_by:
        raise ConfigError(f"{path}: preset {shown(named)}: the files name each other; name a preset in one")
    below = _read_recipe(path.parent / named, changed_by=changed_by)
    return _merge(below, settings | {"preset": below.get("preset")})


_PROBLEMS: dict[type[OSError], str] = {
    FileNotFoundError: "no such file; check the path",
    IsADirectoryError: "is a directory; give a file of settings, or --resume --output RUN to continue a run",
}


def _read_toml(path: Path) -> Settings:
    try:
        return parse_toml(decode_text(read_limited(path)))
    except OSError as error:
        problem = _PROBLEMS.get(type(error), error.strerror)
    except ValueError as error:
        problem = str(error)
    raise ConfigError(f"{path}: {problem}")


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Settings:
    merged = {key: value for key, value in below.items() if ALTERNATIVES.get(key) not in above}
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _merge(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged
