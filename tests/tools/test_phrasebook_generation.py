"""The phrase book as a corpus: its size, its splits, and what each promises."""

import random
from functools import cache

import pytest

from heedful.data.phrasebook import PhraseBook
from heedful.errors import CorpusError
from phrasebook import construction_names, generate, lemmas, lexicon
from phrasebook.constructions import CONSTRUCTIONS
from phrasebook.english import ing_form, participle_form, past_form, third_person
from phrasebook.generation import words_of
from phrasebook.scene import Scene, is_held_out


@cache
def book() -> PhraseBook:
    return generate(seed=1, num_train=20_000, num_valid=300, num_test=500, num_unseen=500)


def test_there_are_enough_lemmas_and_constructions() -> None:
    assert len(lemmas()) >= 300
    assert len(set(lemmas())) == len(lemmas())
    assert len(construction_names()) >= 40
    assert len(set(construction_names())) == len(construction_names())


def test_every_kind_that_a_verb_or_adjective_asks_for_has_nouns() -> None:
    groups = lexicon.verbs()
    for verb in (
        *groups.transitive,
        *groups.separable,
        *groups.dative,
        *groups.giving,
        *groups.prepositional,
    ):
        for kind in verb.kinds:
            assert lexicon.nouns_of(kind), f"{verb.english}: no noun is {kind}"
    for adjective in lexicon.adjectives():
        for kind in adjective.kinds:
            assert kind == "mood" or lexicon.nouns_of(kind), f"{adjective.english}: no noun is {kind}"


def test_one_english_sentence_has_one_german_translation() -> None:
    rng = random.Random(11)
    german_for: dict[str, str] = {}
    for number in range(50_000):
        english, german = CONSTRUCTIONS[number % len(CONSTRUCTIONS)](Scene(rng))
        assert german_for.setdefault(english, german) == german, english
    assert len(german_for) > 40_000


def test_splits_have_their_sizes_and_share_no_english_sentence() -> None:
    splits = (book().train, book().valid, book().test, book().unseen)
    assert [len(split) for split in splits] == [20_000, 300, 500, 500]
    sentences = [english for split in splits for english, _ in split]
    assert len(set(sentences)) == len(sentences)


def test_held_out_adjectives_and_nouns_never_stand_together_outside_unseen() -> None:
    held_out = {
        f" {adjective.english} {form} "
        for noun in lexicon.nouns()
        for adjective in lexicon.adjectives_for(noun)
        if is_held_out(adjective.german, noun.german)
        for form in (noun.english, noun.english_plural)
        if form
    }
    assert len(held_out) > 50

    def has_held_out(english: str) -> bool:
        words = f" {' '.join(words_of(english))} "
        return any(combination in words for combination in held_out)

    for split in (book().train, book().valid, book().test):
        assert not any(has_held_out(english) for english, _ in split)
    assert sum(has_held_out(english) for english, _ in book().unseen) > 50


def english_forms(german: str) -> set[str]:
    """Every English form that a held-out adjective or verb may have in a sentence."""
    forms = set()
    for adjective in lexicon.adjectives():
        if adjective.german == german:
            forms |= {adjective.english, adjective.english_comparative, adjective.english_superlative}
    for verb in lexicon.all_verbs():
        if verb.lemma == german:
            base = "like" if verb.english == "please" else verb.english
            forms |= {form(base) for form in (str, third_person, past_form, participle_form, ing_form)}
    return {form.split()[0] for form in forms} | {"am", "are", "were", "more", "most"}


def test_every_unseen_sentence_has_a_held_out_combination() -> None:
    held_out = [
        (english_forms(word), {noun.english, noun.english_plural} - {""})
        for noun in lexicon.nouns()
        for word in [*(a.german for a in lexicon.adjectives()), *(v.lemma for v in lexicon.all_verbs())]
        if is_held_out(word, noun.german)
    ]
    for english, _ in book().unseen:
        padded = f" {' '.join(words_of(english))} ".replace("'s ", " ")
        words = set(padded.split())
        assert any(
            not words.isdisjoint(forms) and any(f" {form} " in padded for form in nouns)
            for forms, nouns in held_out
        ), english


def test_every_word_of_an_unseen_sentence_is_in_training() -> None:
    for side in (0, 1):
        known = {word for pair in book().train for word in words_of(pair[side])}
        assert all(known.issuperset(words_of(pair[side])) for pair in book().unseen)


def test_what_is_held_out_does_not_depend_on_the_seed() -> None:
    other = generate(seed=2, num_train=5_000, num_valid=0, num_test=0, num_unseen=200)
    assert {english for english, _ in book().unseen}.isdisjoint(english for english, _ in other.train)
    assert {english for english, _ in other.unseen}.isdisjoint(english for english, _ in book().train)


def test_every_verb_and_adjective_and_noun_occurs_in_training() -> None:
    text = {word for english, _ in book().train for word in words_of(english)}
    for adjective in lexicon.adjectives():
        assert adjective.english in text
    for noun in lexicon.nouns():
        forms = (noun.english, noun.english_plural)
        assert any(form and set(form.split()) <= text for form in forms), noun.english


def test_the_same_seed_writes_the_same_book() -> None:
    def sizes(seed: int) -> PhraseBook:
        return generate(seed=seed, num_train=500, num_valid=20, num_test=20, num_unseen=5)

    assert sizes(7) == sizes(7)
    assert sizes(7).train != sizes(8).train


def test_sentences_are_mostly_of_four_to_sixteen_words_and_finished() -> None:
    lengths = [len(english.split()) for english, _ in book().train]
    assert sum(4 <= length <= 16 for length in lengths) > 0.95 * len(lengths)
    for english, german in book().train:
        assert english[0].isupper()
        assert german[0].isupper()
        assert english[-1] == german[-1]
        assert english[-1] in ".?"
        for text in (english, german):
            assert "  " not in text
            assert text == text.strip()


def test_constructions_take_equal_turns() -> None:
    small = generate(seed=3, num_train=5 * len(CONSTRUCTIONS), num_valid=0, num_test=0, num_unseen=0)
    questions = sum(english.endswith("?") for english, _ in small.train)
    assert 0.1 < questions / len(small.train) < 0.3


def test_impossible_sizes_get_one_clear_line() -> None:
    with pytest.raises(CorpusError, match="ask for fewer, or for more training sentences"):
        generate(seed=1, num_train=5, num_valid=0, num_test=0, num_unseen=3)
    with pytest.raises(CorpusError, match="negative"):
        generate(seed=1, num_train=-1, num_valid=0, num_test=0, num_unseen=0)
