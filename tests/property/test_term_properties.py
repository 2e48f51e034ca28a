"""Outputs contain their terms wherever the length limit allows it, whatever the model and the batch."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searches import searched
from step_tables import EOS, Table, TableStep, every_output, random_table, task_of
from tolerances import FLOAT64, close

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.task import Hypothesis
from heedful.decoding.terms import Form, Term, TermAutomata
from heedful.settings.options import LengthNormalization

VOCAB_SIZE = 8
CONTINUES = np.array([False] * 5 + [True] * 3)  # 5, 6 and 7 go on with a word
TABLES = st.builds(
    random_table,
    seed=st.integers(0, 10**6),
    vocab_size=st.just(VOCAB_SIZE),
    sharpness=st.sampled_from([0.5, 1.0, 3.0]),
)
FORMS = st.builds(
    lambda first, rest, may_continue, is_first: Form((first, *rest), may_continue, is_first),
    st.sampled_from([3, 4]),
    st.lists(st.integers(3, 7), max_size=2),
    st.booleans(),
    st.just(value=False),
)
TERMS = st.builds(
    lambda forms, early: Term((*forms, *early), CONTINUES),
    st.lists(FORMS, min_size=1, max_size=2, unique=True),
    st.lists(FORMS.map(lambda form: form._replace(is_first=True)), max_size=1),
)
SENTENCES = st.lists(
    st.tuples(st.integers(1, 10), st.lists(TERMS, max_size=3, unique_by=lambda term: term.forms)),
    min_size=1,
    max_size=4,
)


@st.composite
def beams(draw: st.DrawFn) -> SearchOptions:
    kind = draw(st.sampled_from([BeamSearch, DiverseBeamSearch]))
    sizes = [1, 2, 5] if kind is BeamSearch else [2, 4]
    early_stopping = draw(st.sampled_from(["optimal", "estimate", "first"]))
    strategy = kind(beam_size=draw(st.sampled_from(sizes)), early_stopping=early_stopping)
    return SearchOptions(
        strategy=strategy,
        length_penalty=draw(st.sampled_from([0.0, 0.6, 1.5])),
        forced_first_id=draw(st.sampled_from([None, 3])),
        forced_last_id=draw(st.sampled_from([None, EOS])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.3])),
    )


def search(
    table: Table, sentences: Sequence[tuple[int, Sequence[Term]]], options: SearchOptions
) -> list[list[Hypothesis]]:
    terms = [terms for _, terms in sentences]
    task = task_of([limit for limit, _ in sentences], options)
    task = replace(task, terms=terms if any(terms) else None)
    return searched(TableStep(table, len(sentences)), task)


def has(ids: tuple[int, ...], term: Term) -> bool:
    """Say naively whether an output contains a term."""

    def stands_at(at: int, form: Form) -> bool:
        end = at + len(form.ids)
        word_ends = end >= len(ids) or not CONTINUES[ids[end]]
        return ids[at:end] == form.ids and (form.may_continue or word_ends)

    return any(
        stands_at(at, form) for form in term.forms for at in range(len(ids)) if at == 0 or not form.is_first
    )


def needed(terms: Sequence[Term], options: SearchOptions) -> int:
    """The tokens that are enough for all terms, and for what else is forced."""
    forced = [options.forced_first_id, options.forced_last_id]
    of_terms = (min(len(form.ids) for form in term.forms if not form.is_first) for term in terms)
    return sum(of_terms) + sum(each is not None for each in forced)


@pytest.mark.slow
@settings(max_examples=150)
@given(table=TABLES, sentences=SENTENCES, options=beams())
def test_every_output_has_its_terms_where_they_fit(
    table: Table, sentences: list[tuple[int, list[Term]]], options: SearchOptions
) -> None:
    for (limit, terms), hypotheses in zip(sentences, search(table, sentences, options), strict=True):
        ids = hypotheses[0].ids[options.forced_first_id is not None :]
        assert len(hypotheses[0].ids) + hypotheses[0].finished <= limit
        if limit >= needed(terms, options):
            assert all(has(ids, term) for term in terms)


@pytest.mark.slow
@settings(max_examples=80)
@given(table=TABLES, sentences=SENTENCES, options=beams())
def test_terms_of_a_sentence_change_no_other_one(
    table: Table, sentences: list[tuple[int, list[Term]]], options: SearchOptions
) -> None:
    together = search(table, sentences, options)
    for index, each in enumerate(sentences):
        alone = search(lambda _, ids, s=index: table(s, ids), [each], options)
        assert alone == [together[index]]  # and without terms that is the search without a glossary


def test_the_best_of_a_wide_beam_is_the_best_of_all_outputs_that_have_the_term() -> None:
    term = Term((Form((3, 4)), Form((4, 4))), CONTINUES)
    options = SearchOptions(strategy=BeamSearch(beam_size=400), forced_last_id=EOS)
    for seed in range(8):
        table = random_table(seed, VOCAB_SIZE)
        outputs = every_output(table, 0, limit=4, options=replace(options, length_penalty=0))
        best = next(total for total, ids in outputs if has(tuple(i for i in ids if i != EOS), term))
        [[found]] = search(table, [(4, [term])], options)
        assert found.log_prob == close(best, FLOAT64.ROW)


# The model says "3 4 and the end", then repeats itself; it finds the term, 5 6, improbable everywhere, and
# least so at the beginning.
REPETITIVE = {
    (): {3: 0.9, 5: 1e-3},
    (3,): {4: 0.9, 5: 1e-6},
    (4,): {EOS: 0.9, 4: 0.08, 5: 1e-8},
    (5,): {6: 1e-4, 4: 0.9},
    (6,): {EOS: 0.5, 3: 0.4},
}


@pytest.mark.parametrize("length_normalization", ["gnmt", "power"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_an_improbable_term_makes_no_output_longer(
    beam_size: int, length_normalization: LengthNormalization
) -> None:
    rows = {last: np.log([row.get(i, 1e-12) for i in range(VOCAB_SIZE)]) for last, row in REPETITIVE.items()}
    options = SearchOptions(beam_size=beam_size, length_penalty=1, length_normalization=length_normalization)
    term = Term((Form((5, 6)),), CONTINUES)
    [[found]] = search(lambda _, prefix: rows[prefix[-1:]], [(60, [term])], options)
    assert has(found.ids, term)
    assert len(found.ids) <= 5


@pytest.mark.parametrize("seed", [0, 4, 5, 42, 55, 59])
def test_a_term_of_improbable_tokens_is_not_put_off_to_the_length_limit(seed: int) -> None:
    """Of a bigram model, where dynamic programming finds the best output with the term."""
    generator, limit, ids = random.Random(seed), 40, (5, 6, 7)
    logits = np.array([[3 * generator.gauss(0, 1) for _ in range(VOCAB_SIZE)] for _ in range(VOCAB_SIZE + 1)])
    logits[:, :EOS], logits[:, 5:] = -30, logits[:, 5:] - 10
    table = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    term, best = Term((Form(ids),), CONTINUES), -np.inf
    totals = {(-1, 0): 0.0}  # by the last token and the number of the term's tokens so far
    for _ in range(limit):
        longer: dict[tuple[int, int], float] = {}
        for (last, done), total in totals.items():
            best = max(best, total + table[last + 1, EOS] if done == len(ids) else -np.inf)
            for token in range(3, VOCAB_SIZE):
                is_next = done < len(ids) and token == ids[done]
                state = token, done if done == len(ids) else done + 1 if is_next else int(token == ids[0])
                longer[state] = max(longer.get(state, -np.inf), total + table[last + 1, token])
        totals = longer
    [[found]] = search(
        lambda _, prefix: table[prefix[-1] + 1 if prefix else 0],
        [(limit, [term])],
        SearchOptions(beam_size=4),
    )
    assert found.log_prob == close(best, FLOAT64.ROW)


def test_overlapping_forms_are_followed_at_once() -> None:
    """Worked by hand: of "3 4" and "4 4 3", the tokens 3 4 4 3 write both."""
    terms = [Term((Form((3, 4)),), CONTINUES), Term((Form((4, 4, 3)),), CONTINUES)]
    automata = TermAutomata([terms])
    nodes, missing = automata.beginnings, []
    for token in (3, 4, 4, 3, EOS):
        nodes = automata.step(nodes, np.array([token]))
        missing.append(int(automata.needs(nodes)[0]))
    assert missing == [4, 3, 1, 0, 0]  # after 3 4, the first may still be undone
    assert not nodes.any()


def test_a_closed_form_waits_for_the_end_of_its_word() -> None:
    closed, open_ = Term((Form((3,)),), CONTINUES), Term((Form((3,), may_continue=True),), CONTINUES)
    automata = TermAutomata([[closed, open_]])
    after = automata.step(automata.step(automata.beginnings, np.array([3])), np.array([5]))
    assert (after != 0).tolist() == [[True, False]]  # "35" is another word, and begins with the open form
