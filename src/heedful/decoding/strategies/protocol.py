"""The protocol of search strategies, those that have a name, and the simplest one, greedy search."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from typing_extensions import override

from heedful.decoding import strategies
from heedful.decoding.constraints import Constraints
from heedful.decoding.hypotheses import NO_CONTINUATION, Hypothesis, PartialOutputs
from heedful.decoding.steps import Start
from heedful.decoding.task import SearchTask
from heedful.decoding.translation import Translation
from heedful.errors import InputError, suggestion
from heedful.settings.arguments import fits
from heedful.settings.options import SharedOptions, kinds_of
from heedful.settings.plugins import part

T = TypeVar("T")


class Strategy(Protocol):
    """Searches the outputs of a batch; a frozen dataclass of the settings of one algorithm.

    It sees step functions and knows no backend, so it runs on every one. A class that inherits from this one
    has to define `search` alone.
    """

    def search(self, start: Start, task: SearchTask) -> list[list[Hypothesis]]:
        """Search one batch.

        Args:
            start: gives, each time that it is called, a step function with one row for each sentence and no
                input ids yet, to be used inside the block.
            task: what to search, and the options that all strategies share.

        Returns:
            For each sentence at most `num_hypotheses` hypotheses, best first, or as they were drawn.

        Raises:
            InputError: log-probabilities that are not numbers, or that leave a sentence no continuation.
            SearchCancelledError: the outputs are no longer needed: see `SharedOptions.check_cancelled`.
        """
        ...

    def check(self, options: SharedOptions) -> None:
        """Check that the options that all strategies share can be met; by default, all can.

        Raises:
            InputError: an option that this strategy cannot meet.
        """

    def num_hypotheses(self, n_best: int) -> int:
        """Return how many hypotheses of a sentence `search` returns at most."""
        return n_best

    @property
    def width(self) -> int:
        """How many hypotheses of a sentence are alive at a time; more than one in a beam."""
        return 1

    @property
    def supports_terms(self) -> bool:
        """Whether `search` writes the terms of a task; a glossary needs that."""
        return False

    def default_n_best(self, n_best: int) -> int:
        """Return how many hypotheses to return where nothing is asked for, given the bundle's n-best list."""
        del n_best
        return 1

    def batch_limit(self, n_best: int, vocab_size: int) -> int | None:
        """Return the most sentences of a batch; None leaves it to the number of tokens."""
        del n_best, vocab_size
        return None

    def choose(self, translation: Translation, n_best: int) -> Translation:
        """Return the translation with the `n_best` of its hypotheses, chosen by their texts."""
        del n_best
        return translation


@dataclass(frozen=True, kw_only=True)
class Greedy(Strategy):
    """Greedy search: take the most probable token, until the end token."""

    @override
    def check(self, options: SharedOptions) -> None:
        if options.n_best > 1:
            raise InputError(f"n_best={options.n_best}: greedy search has one output; search with a beam")
        if options.coverage_penalty:
            raise InputError(
                f"coverage_penalty={options.coverage_penalty}: has no effect in greedy search; leave it out, "
                "or search with a beam, which may be of one"
            )

    def search(self, start: Start, task: SearchTask) -> list[list[Hypothesis]]:
        """Search one output for each sentence: see `Strategy`.

        Of the options, the length penalty is for the score; constraints are suppressed, penalised or forced
        tokens.
        """
        with start() as step:
            outputs = PartialOutputs(task.max_lengths, eos_id=task.eos_id)
            constraints = Constraints(task)
            last_ids = task.start_ids()
            while num_live := len(outputs.live):
                task.options.check_cancelled()
                best = constraints.candidates(
                    step(last_ids), 1, written=outputs.written, sentences=outputs.live
                )
                if np.isneginf(best.scores).any():
                    raise InputError(NO_CONTINUATION)
                rows = outputs.append(best.ids[:, 0], best.log_probs[:, 0])
                if 0 < len(rows) < num_live:
                    step.reorder(rows)
                last_ids = best.ids[rows, 0]
            return [[hypothesis] for hypothesis in outputs.hypotheses(task.options.penalty)]


STRATEGIES: dict[str, type[Strategy]] = {"greedy": Greedy}


def parse_strategy(text: str | Strategy) -> Strategy:
    """Return the strategy that NAME or NAME:KEY=VALUE,... names, with its settings, or one that there is.

    Raises:
        InputError: an unknown name or setting, or a value that cannot be.
    """
    if not isinstance(text, str):
        if not fits(text, Strategy):
            raise InputError(f"strategy={text!r}: must be a strategy, such as BeamSearch()")
        return text
    name, _, settings = text.partition(":")
    registered = _registered()
    if name in registered:
        strategy = registered[name]
    else:
        own, _, settings = settings.partition(":")
        strategy = _plugged(name, own, registered)
    known, values = settings_of(strategy), dict[str, object]()
    for setting in settings.split(",") if settings else ():
        key, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"strategy {name!r}: {setting!r} is not KEY=VALUE")
        if key not in known:
            hint = suggestion(key, known) if known else "; it has no settings"
            raise InputError(f"strategy {name!r}: unknown setting {key!r}{hint}")
        if key in values:
            raise InputError(f"strategy {name!r}: {key!r} is set twice")
        values[key] = _value(key, value, known[key])
    return with_settings(strategy, values)


def with_settings(kind: type[T], values: Mapping[str, object]) -> T:
    """Return a dataclass of settings with those of the values that are its own, or of a dataclass inside it.

    Raises:
        InputError: a setting that has neither a value nor a default.
    """
    own, kinds = dict[str, object](), kinds_of(cast(type, kind))
    for each in fields(cast(Any, kind)):
        inner = kinds[each.name][0]
        if each.name in values:
            own[each.name] = values[each.name]
        elif is_dataclass(inner) and each.default is not None:
            own[each.name] = with_settings(cast(type, inner), values)
        elif each.default is MISSING and each.default_factory is MISSING:
            raise InputError(f"{each.name}: missing; this strategy has no default for it")
    return kind(**own)


def _registered() -> dict[str, type[Strategy]]:
    """Return the strategies of the modules of this folder by name."""
    own = dict(STRATEGIES)
    for module in iter_modules(strategies.__path__):
        own |= import_module(f"{strategies.__name__}.{module.name}").STRATEGIES
    return own


def _plugged(plugin: str, name: str, registered: Mapping[str, type[Strategy]]) -> type[Strategy]:
    """Return the strategy of a plugin."""
    if not name or "=" in name:
        raise InputError(f"strategy {plugin!r}: unknown{suggestion(plugin, registered)}")
    strategy = part(f"{plugin}:{name}", "strategy")
    if not (isinstance(strategy, type) and is_dataclass(strategy) and hasattr(strategy, "search")):
        raise InputError(f"strategy {plugin}:{name}: is not a strategy (a dataclass with the method search)")
    return cast(type[Strategy], strategy)


def settings_of(kind: type) -> dict[str, Sequence[object]]:
    """Return the types of a strategy's settings, with those of a strategy inside another, as MBR has one."""
    settings = dict[str, Sequence[object]]()
    for each in fields(kind) if is_dataclass(kind) else ():
        kinds = kinds_of(kind)[each.name]
        settings |= settings_of(cast(type, kinds[0])) if is_dataclass(kinds[0]) else {each.name: kinds}
    return settings


def _value(name: str, text: str, kinds: Sequence[object]) -> object:
    """The value of a setting of these types: a number, a truth value, a text, or none."""
    if isinstance(kinds[0], str):  # the values of a literal type
        return text
    if type(None) in kinds and text == "none":
        return None
    if bool in kinds:
        if text not in {"true", "false"}:
            raise InputError(f"{name}={text!r}: must be true or false")
        return text == "true"
    for kind in (int, float):
        try:
            if kind in kinds:
                return kind(text)
        except ValueError:
            continue
    if str in kinds:
        return text
    raise InputError(f"{name}={text!r}: must be {'a whole number' if int in kinds else 'a number'}")
