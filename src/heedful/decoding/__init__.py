"""From a trained model to text: search over a step function, and the translator around it."""

from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.scoring import score_outputs
from heedful.decoding.steps import StepFunction
from heedful.decoding.task import SearchTask
from heedful.decoding.torch_backend import ModelStep
from heedful.decoding.translation import TextHypothesis, Translation
from heedful.decoding.translator import Translator

__all__ = [
    "Hypothesis",
    "ModelStep",
    "SearchOptions",
    "SearchTask",
    "StepFunction",
    "TextHypothesis",
    "Translation",
    "Translator",
    "score_outputs",
]
