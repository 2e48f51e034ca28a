"""Sentences from the grammar, split into training, validation, test and held-out combinations."""

from __future__ import annotations

import random
from collections.abc import Iterator

from heedful.data.phrasebook import Pair, PhraseBook
from heedful.errors import CorpusError
from phrasebook.constructions import CONSTRUCTIONS, Construction
from phrasebook.scene import Scene

_ATTEMPTS = 25
"""Draws in a row without a new sentence after which a construction counts as used up."""
_PATIENCE = 400
"""Sentences drawn for each unseen one that is asked for, before giving up."""
_PUNCTUATION = ".,?"


def generate(*, seed: int, num_train: int, num_valid: int, num_test: int, num_unseen: int) -> PhraseBook:
    """Write a phrase book; the same arguments give the same book on every machine.

    Args:
        seed: Chooses the sentences. Which combinations are held out does not depend on it.
        num_train: Pairs to learn from.
        num_valid: Pairs to watch the training with; none is in `train`.
        num_test: Pairs to score with; none is in `train` or `valid`.
        num_unseen: Pairs with a held-out combination, all of whose words occur in `train`.

    Raises:
        CorpusError: The grammar does not have so many sentences.
    """
    if min(num_train, num_valid, num_test, num_unseen) < 0:
        raise CorpusError("phrase book: a split has a negative size; ask for zero or more sentences")
    rng = random.Random(seed)
    sentences = _distinct_sentences(rng)
    wanted = num_train + num_valid + num_test
    ordinary: list[Pair] = []
    reserve: list[Pair] = []
    while len(ordinary) < wanted:
        pair, is_held_out = _next_sentence(sentences, len(ordinary), wanted)
        (reserve if is_held_out else ordinary).append(pair)
    _shuffle(ordinary, rng)
    train = ordinary[:num_train]
    return PhraseBook(
        train=tuple(train),
        valid=tuple(ordinary[num_train : num_train + num_valid]),
        test=tuple(ordinary[num_train + num_valid :]),
        unseen=tuple(_select_unseen(train, reserve, sentences, num_unseen)),
    )


def words_of(text: str) -> list[str]:
    """The words of a sentence, without punctuation and without regard to case."""
    return [word.strip(_PUNCTUATION).lower() for word in text.split()]


def _distinct_sentences(rng: random.Random) -> Iterator[tuple[Pair, bool]]:
    """New sentences, the constructions taking turns, each with whether it has a held-out combination."""
    active = list(CONSTRUCTIONS)
    seen: set[str] = set()
    while active:
        for construction in tuple(active):
            drawn = _draw_new(construction, rng, seen)
            if drawn is None:
                active.remove(construction)
            else:
                yield drawn


def _draw_new(construction: Construction, rng: random.Random, seen: set[str]) -> tuple[Pair, bool] | None:
    for _ in range(_ATTEMPTS):
        scene = Scene(rng)
        pair = construction(scene)
        if pair[0] not in seen:
            seen.add(pair[0])
            return pair, bool(scene.held_out)
    return None


def _next_sentence(sentences: Iterator[tuple[Pair, bool]], found: int, wanted: int) -> tuple[Pair, bool]:
    drawn = next(sentences, None)
    if drawn is None:
        raise CorpusError(f"phrase book: {found:,} sentences is all it has, not {wanted:,}; ask for fewer")
    return drawn


def _select_unseen(
    train: list[Pair], reserve: list[Pair], sentences: Iterator[tuple[Pair, bool]], wanted: int
) -> list[Pair]:
    """Sentences with a held-out combination whose every word, in both languages, occurs in training."""
    english = {word for pair in train for word in words_of(pair[0])}
    german = {word for pair in train for word in words_of(pair[1])}

    def is_known(pair: Pair) -> bool:
        return english.issuperset(words_of(pair[0])) and german.issuperset(words_of(pair[1]))

    chosen = [pair for pair in reserve if is_known(pair)][:wanted]
    for _ in range(_PATIENCE * wanted):
        if len(chosen) >= wanted:
            break
        pair, is_held_out = _next_sentence(sentences, len(chosen), wanted)
        if is_held_out and is_known(pair):
            chosen.append(pair)
    if len(chosen) < wanted:
        raise CorpusError(
            f"phrase book: found {len(chosen):,} of {wanted:,} unseen sentences in the words of "
            f"{len(train):,} training sentences; ask for fewer, or for more training sentences"
        )
    return chosen


def _shuffle(items: list[Pair], rng: random.Random) -> None:
    """Fisher and Yates, by `random` alone: `Random.shuffle` may change between Python versions."""
    for last in range(len(items) - 1, 0, -1):
        other = int(rng.random() * (last + 1))
        items[last], items[other] = items[other], items[last]
