"""Settings that may and may not change when a run is resumed."""

from collections.abc import Collection
from pathlib import Path

from heedful.config import PRESETS, Config, load_config
from heedful.errors import ConfigError, CorpusError
from heedful.workflows.run_names import CONFIG

# Whole sections, or single settings, on which the weights so far depend as they do on the text: with others,
# what goes on would be another run. The text itself is compared by its fingerprint (`Material.fingerprint`).
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
_RESOLVED = {"src_vocab_size", "tgt_vocab_size", "src_pad_id", "tgt_pad_id", "tokens"}  # when a run begins


def check_resumable(before: Config, now: Config) -> None:
    """Compare the settings of a run with those it is to go on with; all that are not fixed apply from now on.

    Raises:
        ConfigError: one of those that are fixed has another value.
    """
    was, wanted = before.model_dump(), now.model_dump()
    for section, settings in wanted.items():
        for key, value in settings.items():
            name = f"{section}.{key}"
            if {section, name} & set(FIXED) and value != was[section][key]:
                raise ConfigError(
                    f"{name}={value!r}: the run has {was[section][key]!r}, which cannot change at --resume; "
                    "leave it out, or give another --output for a new run"
                )


def check_files_are_there(run: Path, now: Config) -> None:
    """Say of a file that is missing, and that the run itself names, how to give it anew.

    Raises:
        CorpusError: as said; of files that are named anew, their reader says what is wrong.
    """
    before = load_config(run / CONFIG).data
    for key in _TEXTS:
        name = getattr(now.data, key)
        if name is not None and name == getattr(before, key) and not Path(name).exists():
            relative = "" if Path(name).is_absolute() else f", relative to the directory {Path.cwd()}"
            option = "--" + key.replace("_", "-")
            raise CorpusError(
                f"{name}: no such file; {run / CONFIG} names it (data.{key}){relative}; give it anew with "
                f"{option}"
            )


def check_preset(run: Path, preset: str, given: Collection[str]) -> None:
    """Compare a preset that is named at --resume with the run's settings, which are what counts.

    Args:
        run: the run directory.
        preset: its name.
        given: keys of settings that the command gives itself.

    Raises:
        ConfigError: there is no such preset, or it has another value for a setting that is fixed.
    """
    has, wanted = (config.model_dump() for config in (load_config(run / CONFIG), load_config(preset=preset)))
    said = PRESETS[preset] | {"model": wanted["model"]}
    for section, settings in said.items():
        for key in settings:
            name, value = f"{section}.{key}", wanted[section][key]
            is_fixed = bool({section, name} & set(FIXED)) and key not in _RESOLVED
            if is_fixed and name not in given and value != has[section][key]:
                raise ConfigError(
                    f"--preset {preset}: {name}={value!r}, but the run has {has[section][key]!r}, which "
                    "cannot change at --resume; leave --preset out, or give another --output for a new run"
                )
