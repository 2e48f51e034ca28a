"""Tables of settings: what heedful reads of another system's configuration, and what it refuses."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from heedful.interop.vocabulary import TypedSettings
from heedful.settings.model import ModelConfig
from heedful.settings.parsing import shown

_MAX_HEADS = 2**16


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The settings of an architecture in another system.

    Attributes:
        read: by their key, the key or keys of `ModelConfig` that take its value.
        choices: the keys and values of `ModelConfig` that a value of a key means; None stands for a missing
            key. Other values are refused, and values that contradict an earlier key.
        equal: keys that both stacks have, `encoder_KEY` and `decoder_KEY`, and that must be equal.
        fixed: keys that must have this value or be missing.
        ignored: keys that do not change the outputs.
        defaults: values of keys that are missing or null.
    """

    read: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    choices: Mapping[str, Mapping[Any, Mapping[str, Any]]] = field(default_factory=dict)
    equal: Collection[str] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    ignored: Collection[str] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def known(self) -> set[str]:
        """All keys that are handled; another one is refused, because it may change the outputs."""
        both = {f"{stack}_{key}" for key in self.equal for stack in ("encoder", "decoder")}
        return {*self.read, *self.choices, *both, *self.fixed, *self.ignored}

    def settings(self, typed: TypedSettings, *, ignored: Collection[str] | None = None) -> dict[str, Any]:
        """Return the settings of `ModelConfig`.

        Args:
            typed: the other system's settings.
            ignored: as in `TypedSettings.check`; None: unknown keys are not checked.

        Raises:
            InteropError: a key is unknown, or has a value that is not supported.
        """
        fixed = {key: (only,) for key, only in self.fixed.items()}
        typed.check(fixed, None if ignored is None else self.known, ignored=ignored)
        kept = {k: value for k, value in typed.values.items() if value is not None or k not in self.defaults}
        typed = TypedSettings({**self.defaults, **kept}, typed.file)
        model: dict[str, Any] = {}
        for key, names in self.read.items():
            if key in typed.values:
                if names in ("num_heads", "num_kv_heads"):
                    typed.whole_number(key, least=1, most=_MAX_HEADS)
                model |= dict.fromkeys((names,) if isinstance(names, str) else names, typed.values[key])
        for key in self.equal:
            one, other = (f"{stack}_{key}" for stack in ("encoder", "decoder"))
            problem = f" and {other}={shown(typed.values.get(other))} differ; they must be equal"
            typed.require(typed.values.get(one) == typed.values.get(other), one, problem)
        return model | self._chosen(typed)

    def export(self, model: ModelConfig) -> dict[str, Any]:
        """Return the other system's settings of a model: this table, read backwards."""
        values = model.model_dump() | {"d_k": model.head_key_size, "d_v": model.head_value_size}
        values["num_kv_heads"] = model.num_kv_heads or model.num_heads
        settings = {
            key: values[names if isinstance(names, str) else names[0]] for key, names in self.read.items()
        }
        for key, meanings in self.choices.items():
            for value, ours in meanings.items():
                if ours.items() <= values.items():
                    settings[key] = value  # the last of several names for one thing
        return settings | {f"decoder_{key}": settings[f"encoder_{key}"] for key in self.equal}

    def _chosen(self, typed: TypedSettings) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        for key, meanings in self.choices.items():
            value = typed.values.get(key)
            is_known = isinstance(value, str | bool | None) and value in meanings
            typed.require(is_known, key, f" is unknown; there are {', '.join(map(str, meanings))}")
            for name, meaning in meanings[value].items():
                is_same = chosen.setdefault(name, meaning) == meaning
                typed.require(is_same, key, f" contradicts another key: model.{name} is {chosen[name]}")
        return chosen


def each_of(names: str, values: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    """Return the values that keys may have, the same for all names between spaces."""
    return dict.fromkeys(names.split(), values)


def split(names: str) -> frozenset[str]:
    """Return the names between spaces."""
    return frozenset(names.split())


def named(key: str, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return choices that all set one key of `ModelConfig`."""
    return {theirs: {key: ours} for theirs, ours in values.items()}
