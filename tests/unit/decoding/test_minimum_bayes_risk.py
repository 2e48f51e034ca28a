import pytest
from sacrebleu import sentence_chrf as sacrebleus_chrf

from heedful.decoding.strategies.sampling import least_risk, sentence_chrf
from heedful.decoding.translation import TextHypothesis, Translation

SAMPLES = ["the cat sat", "a cat sat", "the cat sat", "the dog sat down", "cat", "a cat sits", "the cat sat"]


def drawn(texts: list[str]) -> Translation:
    hypotheses = tuple(
        TextHypothesis(text, -1.0 * n, -2.0 * n, (n,), (-2.0 * n,), finished=True, written_ids=(n, 2))
        for n, text in enumerate(texts)
    )
    return Translation("die Katze saß", texts[0], 0.0, hypotheses) if texts else Translation("", "", 0.0, ())


def test_the_expected_utility_is_the_mean_over_all_samples() -> None:
    found = least_risk(drawn(SAMPLES), sentence_chrf, n_best=9)
    expected = {
        text: sum(sacrebleus_chrf(text, [other]).score for other in SAMPLES) / len(SAMPLES)
        for text in SAMPLES
    }
    ranked = sorted(expected, key=lambda text: -expected[text])
    assert [each.text for each in found.hypotheses] == ranked
    assert [each.score for each in found.hypotheses] == pytest.approx([expected[text] for text in ranked])
    assert (found.text, found.score) == (ranked[0], found.hypotheses[0].score)
    assert found.source == "die Katze saß"


def test_equality_as_utility_takes_what_was_drawn_most_often() -> None:
    samples = ["b", "a", "c", "a", "b", "a"]
    found = least_risk(drawn(samples), lambda text, reference: float(text == reference), n_best=2)
    assert [(each.text, each.score) for each in found.hypotheses] == [("a", 0.5), ("b", 2 / 6)]
    assert [each.ids for each in found.hypotheses] == [(1,), (0,)]  # the first that was drawn, as it was
    assert found.hypotheses[0].log_prob == -2.0


def test_equal_utilities_stay_as_they_were_drawn_and_nothing_stays_nothing() -> None:
    assert least_risk(drawn(["b", "a"]), lambda _text, _reference: 1.0).text == "b"
    assert least_risk(drawn([]), sentence_chrf) == Translation("", "", 0.0, ())


def test_a_utility_may_be_of_one_side_alone() -> None:
    longest_reference = least_risk(drawn(["aa", "b"]), lambda text, reference: float(reference > text))
    assert longest_reference.text == "aa"
