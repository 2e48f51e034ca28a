"""Settings that may and may not change when a run is resumed."""

from heedful.config import Config
from heedful.errors import ConfigError

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
