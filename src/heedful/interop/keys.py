"""Tables of settings: the keys of another system beside heedful's, and the engine that follows them.

Rows of `columns` are a key and the keys of `ModelConfig` that take its value. Rows of `allowed` are the
values that keys may have, in JSON with `|` between them, and these keys:

    d_kv      d_k d_v                    false  is_decoder use_bias
    num_heads num_heads                  0|2    depth
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from heedful.interop.conversion import STACKS, Settings, Values
from heedful.interop.vocabulary import TypedSettings
from heedful.settings.model import ModelConfig
from heedful.settings.parsing import shown

_MAX_HEADS = 2**16
_HEADS = {"num_heads", "num_kv_heads"}


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The settings of an architecture in another system.

    Attributes:
        read: by their key, the keys of `ModelConfig` that take its value.
        choices: the keys and values of `ModelConfig` that a value of a key means; None stands for a missing
            key. Other values are refused, and values that contradict an earlier key.
        equal: keys that both stacks have, `encoder_KEY` and `decoder_KEY`, and that must be equal.
        fixed: keys that must have one of these values or be missing.
        ignored: keys that do not change the outputs.
        defaults: values of keys that are missing or null.
    """

    read: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    choices: Mapping[str, Mapping[Any, Settings]] = field(default_factory=dict)
    equal: Collection[str] = ()
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ignored: Collection[str] = ()
    defaults: Settings = field(default_factory=dict)

    @property
    def known(self) -> set[str]:
        """All keys that are handled; another one is refused, because it may change the outputs."""
        both = {f"{stack}_{key}" for key in self.equal for stack in STACKS}
        return both.union(self.read, self.choices, self.fixed, self.ignored)

    def settings(self, typed: TypedSettings, *, ignored: Collection[str] | None = None) -> Values:
        """Return the settings of `ModelConfig`.

        Args:
            typed: the other system's settings.
            ignored: as in `TypedSettings.check`; None: unknown keys are not checked.

        Raises:
            InteropError: a key is unknown, or has a value that is not supported.
        """
        typed.check(self.fixed, None if ignored is None else self.known, ignored=ignored)
        given = {key: value for key, value in typed.values.items() if value is not None}
        typed = TypedSettings({**self.defaults, **given}, typed.file)
        model: Values = {}
        for key in filter(typed.values.__contains__, self.read):
            if _HEADS.intersection(self.read[key]):
                typed.whole_number(key, least=1, most=_MAX_HEADS)
            model |= dict.fromkeys(self.read[key], typed.values[key])
        for key in self.equal:
            one, other = (f"{stack}_{key}" for stack in STACKS)
            typed.require(
                typed.values.get(one) == typed.values.get(other),
                one,
                f" and {other}={shown(typed.values.get(other))} differ; they must be equal",
            )
        chosen: Values = {}
        for key, meanings in self.choices.items():
            for name, meaning in typed.one_of(key, meanings).items():
                typed.require(
                    chosen.setdefault(name, meaning) == meaning,
                    key,
                    f" contradicts another key: model.{name} is {chosen[name]}",
                )
        return model | chosen

    def export(self, model: ModelConfig) -> Values:
        """Return the other system's settings of a model: this table, read backwards."""
        values = model.model_dump() | {"d_k": model.head_key_size, "d_v": model.head_value_size}
        values["num_kv_heads"] = model.num_kv_heads or model.num_heads
        settings = {key: values[names[0]] for key, names in self.read.items()}
        for key, meanings in self.choices.items():
            for value, ours in meanings.items():
                if ours.items() <= values.items():
                    settings[key] = value  # the last of several names for one thing
        return settings | {f"decoder_{key}": settings[f"encoder_{key}"] for key in self.equal}


def columns(rows: str) -> dict[str, tuple[str, ...]]:
    """Return the names in the columns of a text, by those in the first.

    >>> columns("num_heads  num_heads")
    {'num_heads': ('num_heads',)}
    """
    lines = map(str.split, rows.strip().splitlines())
    return {key: tuple(names) for key, *names in lines}


def allowed(rows: str) -> dict[str, tuple[Any, ...]]:
    r"""Return the values that keys may have, by key.

    >>> allowed("0|2    depth\nfalse  is_decoder use_bias")
    {'depth': (0, 2), 'is_decoder': (False,), 'use_bias': (False,)}
    """
    values: dict[str, tuple[Any, ...]] = {}
    for line in filter(str.strip, rows.splitlines()):
        texts, *keys = line.split()
        values |= dict.fromkeys(keys, tuple(map(json.loads, texts.split("|"))))
    return values


def split(names: str) -> frozenset[str]:
    """Return the names between spaces."""
    return frozenset(names.split())


def named(key: str, values: Settings) -> dict[str, Values]:
    """Return choices that all set one key of `ModelConfig`."""
    return {theirs: {key: ours} for theirs, ours in values.items()}
