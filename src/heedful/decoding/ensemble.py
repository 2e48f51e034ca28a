"""An ensemble: several models whose probabilities are averaged at each step."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heedful.bundle import Bundle
from heedful.decoding.arrays import logsumexp, namespace
from heedful.decoding.steps import NextTokens, StepFunction
from heedful.errors import InputError
from heedful.text.framing import Framing


class EnsembleStep:
    """The step function of several: a token has the mean of the probabilities that they give it.

    The arithmetic mean, as in fairseq and Sockeye (Marian adds log-probabilities: the geometric one), so what
    one of them rules out is possible if another believes in it. Log-probabilities are those of the mean.
    """

    def __init__(self, steps: Sequence[StepFunction]) -> None:
        """Combine step functions of the same sentences and one vocabulary, at least one."""
        self._steps = steps

    def __call__(self, last_ids: NDArray[np.int64]) -> NextTokens:
        """See `StepFunction`."""
        tokens = [step(last_ids) for step in self._steps]
        of_models = [each.log_probs() for each in tokens]
        log_probs = logsumexp(namespace(of_models[0]).stack(of_models), axis=0)[0]
        return tokens[0].with_log_probs(log_probs - math.log(len(self._steps)))

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """See `StepFunction`."""
        for step in self._steps:
            step.reorder(rows)


def average_steps(steps: Sequence[StepFunction]) -> StepFunction:
    """Return one step function for all: the only one, or an `EnsembleStep`."""
    return steps[0] if len(steps) == 1 else EnsembleStep(steps)


def check_ensemble(bundles: Sequence[Bundle]) -> None:
    """Check that models can be an ensemble: the same vocabularies and the same special-token template.

    Raises:
        InputError: two of them differ.
    """
    first, *others = bundles
    for number, other in enumerate(others, start=2):
        name = f"ensemble: model {number}" if other.path is None else f"ensemble: {other.path}"
        for role in ("src", "tgt"):
            ours, theirs = getattr(first.tokenizers, role), getattr(other.tokenizers, role)
            if ours.digest() != theirs.digest():
                raise InputError(
                    f"{name}: its {role} tokenizer is another one than the first model's; "
                    "only models that were trained with one tokenizer can translate together"
                )
        if first.config.model.tgt_vocab_size != other.config.model.tgt_vocab_size:
            raise InputError(f"{name}: it has another number of target tokens than the first model")
        if Framing.of(first.config, first.tokenizers) != Framing.of(other.config, other.tokenizers):
            raise InputError(f"{name}: it puts other ids around a text than the first model; see languages.*")
