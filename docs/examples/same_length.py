"""A metric: the percentage of outputs with as many words as their first reference.

    heedful evaluate MODEL --src en --ref de --plugin same_length.py --metric same_length:same_length

With `--set valid.metric=same_length:same_length`, training chooses the best model by it.
"""

from heedful.evaluation.measurement import Measurement, Texts


def same_length(texts: Texts) -> Measurement:
    """Return the score, with a row for each line, from which its confidence interval is resampled."""
    pairs = zip(texts.hypotheses, texts.references[0], strict=True)
    equal = [len(output.split()) == len(reference.split()) for output, reference in pairs]
    return Measurement.percentage([(each, 1) for each in equal], "unit:word|version:1")
