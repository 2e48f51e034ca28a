"""Settings that may and may not change when a run is resumed."""

from collections.abc import Collection
from pathlib import Path

from heedful.config import PRESETS, Config, load_config
from heedful.errors import ConfigError, CorpusError
from heedful.workflows.run_names import CONFIG

# Sections, or single settings, that define a run: with others it would be another one. The text is compared
# by its fingerprint (`Material.fingerprint`).
FIXED = (
    "model",
    "tokenizer",
    "data.max_length",
    "batch",
    "optimizer.name",
    "train.seed",
    "train.freeze",
    "lora",
    "languages",
)
_TEXTS = ("src", "tgt", "pairs", "valid_src", "valid_tgt", "valid_pairs")
_RESOLVED = {"src_vocab_size", "tgt_vocab_size", "src_pad_id", "tgt_pad_id", "tokens"}  # when a run starts


def check_resumable(before: Config, now: Config) -> None:
    """Check that the fixed settings of a run are unchanged; all others apply from now on.

    Raises:
        ConfigError: a fixed setting has another value.
    """
    was, after = before.model_dump(), now.model_dump()
    for section, settings in after.items():
        for key, value in settings.items():
            name = f"{section}.{key}"
            if {section, name} & set(FIXED) and value != was[section][key]:
                raise ConfigError(
                    f"{name}={value!r}: the run has {was[section][key]!r}, which cannot change at --resume; "
                    "leave it out, or give another --output for a new run"
                )


def check_files_are_there(run: Path, now: Config) -> None:
    """Check that the text files in a run's configuration still exist.

    Raises:
        CorpusError: one does not exist; files named on the command line are checked when they are read.
    """
    before = load_config(run / CONFIG).data
    for key in _TEXTS:
        name = getattr(now.data, key)
        if name is not None and name == getattr(before, key) and not Path(name).exists():
            relative = "" if Path(name).is_absolute() else f", relative to the directory {Path.cwd()}"
            option = "--" + key.replace("_", "-")
            raise CorpusError(
                f"{name}: no such file; {run / CONFIG} names it (data.{key}){relative}; set it with {option}"
            )


def check_preset(run: Path, preset: str, overridden: Collection[str]) -> None:
    """Check that a preset named at --resume agrees with the run's fixed settings.

    Args:
        run: the run directory.
        preset: its name.
        overridden: keys of settings on the command line.

    Raises:
        ConfigError: there is no such preset, or it has another value for a fixed setting.
    """
    has, after = (config.model_dump() for config in (load_config(run / CONFIG), load_config(preset=preset)))
    said = PRESETS[preset] | {"model": after["model"]}
    for section, settings in said.items():
        for key in settings:
            name, value = f"{section}.{key}", after[section][key]
            is_fixed = bool({section, name} & set(FIXED)) and key not in _RESOLVED
            if is_fixed and name not in overridden and value != has[section][key]:
                raise ConfigError(
                    f"--preset {preset}: {name}={value!r}, but the run has {has[section][key]!r}, which "
                    "cannot change at --resume; leave --preset out, or give another --output for a new run"
                )
