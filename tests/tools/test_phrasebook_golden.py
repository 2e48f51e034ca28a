"""The phrase book, byte for byte. A change here changes everybody's demonstration: make it on purpose."""

import hashlib
import random

from heedful.data.phrasebook import PhraseBook
from phrasebook import construction_names, generate
from phrasebook.constructions import CONSTRUCTIONS
from phrasebook.scene import Scene

DIGEST = "e65b55695e4be0675161ba74e34e3515d013f77f7722eb12ea819cf9c45a946f"


def lines_of(book: PhraseBook) -> list[str]:
    splits = (book.train, book.valid, book.test, book.unseen)
    return [f"{english}\t{german}" for split in splits for english, german in split]


def test_seed_one_writes_these_bytes() -> None:
    lines = lines_of(generate(seed=1, num_train=3000, num_valid=100, num_test=100, num_unseen=50))
    assert lines[:3] == [
        "My grandmother has five modern cameras.\tMeine Großmutter hat fünf moderne Kameras.",
        "My daughter drove to the city with her old friend on the twenty-seventh of February.\t"
        "Meine Tochter ist am siebenundzwanzigsten Februar mit ihrem alten Freund in die Stadt gefahren.",
        "I have a lamp.\tIch habe eine Lampe.",
    ]
    assert lines[-50] == (
        "The men turned on their computers on Thursday.\t"
        "Die Männer haben am Donnerstag ihre Computer eingeschaltet."
    )
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == DIGEST


def find(name: str, english: str, *, draws: int = 60_000) -> str:
    """The German of an English sentence, drawn from one construction until it comes up."""
    construction = CONSTRUCTIONS[construction_names().index(name)]
    rng = random.Random(5)
    for _ in range(draws):
        pair = construction(Scene(rng))
        if pair[0] == english:
            return pair[1]
    raise AssertionError(f"{name} never says {english!r}")


def test_sentences_that_a_reader_can_check() -> None:
    truths = {
        "separable_statement": ("He borrows a magazine.", "Er leiht eine Zeitschrift aus."),
        "time_now": ("It is half past seven.", "Es ist halb acht."),
        "age_statement": ("He is twenty-seven years old.", "Er ist siebenundzwanzig Jahre alt."),
        "profession_statement": ("She is a doctor.", "Sie ist Ärztin."),
        "liking": ("He likes this museum.", "Dieses Museum gefällt ihm."),
        "today_is": ("Today is the third of May.", "Heute ist der dritte Mai."),
        "nearest_question": ("Where is the nearest pharmacy?", "Wo ist die nächste Apotheke?"),
        "reflexive_routine": ("I wake up.", "Ich wache auf."),
        "because_past": (
            "I got up early because I was thirsty.",
            "Ich bin früh aufgestanden, weil ich durstig war.",
        ),
        "relative_place": (
            "The island on which I live is beautiful.",
            "Die Insel, auf der ich wohne, ist schön.",
        ),
        "indirect_question": ("Do you know where the station is?", "Wissen Sie, wo der Bahnhof ist?"),
        "position": ("The cup is on the carpet.", "Die Tasse steht auf dem Teppich."),
        "weather_state": ("It is very cold today.", "Es ist heute sehr kalt."),
        "where_question": ("Where do you come from?", "Woher kommen Sie?"),
        "polite_order": ("Please rest.", "Bitte ruhen Sie sich aus."),
    }
    for name, (english, german) in truths.items():
        assert find(name, english) == german
