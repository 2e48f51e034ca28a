"""Tables of settings: what heedful reads of another system's configuration, and what it refuses."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from heedful.settings.parsing import as_json, is_whole, shown

Refuse = Callable[[str], NoReturn]
_HEADS, _MAX_HEADS = ("num_heads", "num_kv_heads"), 2**16


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The settings of an architecture in another system.

    Attributes:
        read: the keys of `ModelConfig` that get the value of a key.
        choices: the keys and values of `ModelConfig` that a value of a key means; None stands for a missing
            key. Other values are refused, and values that contradict those of an earlier key.
        equal: keys that both stacks have, `encoder_KEY` and `decoder_KEY`, and that must be equal.
        fixed: keys that must have this value or be missing.
        ignored: keys that do not change the outputs.
        defaults: values of missing keys.
    """

    read: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    choices: Mapping[str, Mapping[Any, Mapping[str, Any]]] = field(default_factory=dict)
    equal: Collection[str] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    ignored: Collection[str] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def known(self) -> set[str]:
        """All keys; another one may change the outputs."""
        both = {f"{stack}_{key}" for key in self.equal for stack in ("encoder", "decoder")}
        return {*self.read, *self.choices, *both, *self.fixed, *self.ignored}

    def settings(self, values: Mapping[str, Any], refuse: Refuse) -> dict[str, Any]:
        """Return the settings of `ModelConfig`; `refuse` raises the reader's exception with a text."""
        refuse_other_values(values, self.fixed, refuse)
        kept = {key: value for key, value in values.items() if value is not None or key not in self.defaults}
        given = {**self.defaults, **kept}
        model: dict[str, Any] = {}
        for key, names in self.read.items():
            for name in (names,) if isinstance(names, str) else names:
                if key in given:
                    model[name] = given[key]
                    if name in _HEADS and not is_whole(given[key], least=1, most=_MAX_HEADS):
                        refuse(f"{key}={shown(given[key])} is not a number of heads")
        for key in self.equal:
            one, other = (given.get(f"{stack}_{key}") for stack in ("encoder", "decoder"))
            if one != other:
                refuse(
                    f"encoder_{key}={shown(one)} and decoder_{key}={shown(other)} differ; they must be equal"
                )
        origins: dict[str, tuple[str, Any]] = {}
        for key, meanings in self.choices.items():
            value = given.get(key)
            if not isinstance(value, str | bool | None) or value not in meanings:
                refuse(f"{key}={shown(value)} is unknown; there are {', '.join(map(str, meanings))}")
            for name, meaning in meanings[value].items():
                other, chosen = origins.setdefault(name, (key, meaning))
                if chosen != meaning:
                    refuse(f"{key}={shown(value)} contradicts {other}={shown(given[other])}")
        return model | {name: chosen for name, (_, chosen) in origins.items()}


def refuse_other_values(values: Mapping[str, Any], fixed: Mapping[str, Any], refuse: Refuse) -> None:
    """Refuse a key with another value than the only one that is supported, or None."""
    for key, only in fixed.items():
        value = values.get(key)
        if value is not None and value != only:
            refuse(f"{key}={as_json(value)} is not supported, and would change the outputs")


def named(key: str, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the choices whose values are names of values of one key of `ModelConfig`."""
    return {theirs: {key: ours} for theirs, ours in values.items()}
