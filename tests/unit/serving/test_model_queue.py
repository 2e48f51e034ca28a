"""The queue in front of a model: batches, order, places that come free, and the end."""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from itertools import chain

import pytest
from small_services import RuleTranslator, rule_model
from tiny_bundle import PAIRS, memorised

from heedful import Translation, Translator
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.protocol import Greedy
from heedful.serving.limits import Limits
from heedful.serving.model_queue import ModelQueue, SentenceCache, ServedModel, ServedPair, Turn
from heedful.serving.refusals import InvalidError, UnavailableError
from heedful.spans import Request
from heedful.text.languages import Pair

PAIR = Pair("en", "de")


def start(translator: RuleTranslator, *, cached: int = 0, **limits: float) -> ModelQueue:
    return ModelQueue(
        rule_model("m", translator),
        Limits(**limits),
        SentenceCache(cached),  # type: ignore[arg-type]
    )


def busy(translator: RuleTranslator, queue: ModelQueue) -> None:
    """Give the queue something to do that goes on until the gate opens."""
    translator.gate.clear()
    queue.submit(PAIR, ["first"], alternatives=0, turn=Turn())
    while not translator.batches:
        threading.Event().wait(0.001)


def outputs(future: Future[Translation]) -> list[str]:
    return [output.text for output in future.result(60).hypotheses]


def test_each_sentence_has_its_translation() -> None:
    queue = start(RuleTranslator(str.upper))
    futures = queue.submit(PAIR, ["a", "b", "a"], alternatives=0, turn=Turn())
    assert [future.result(60).text for future in futures] == ["A", "B", "A"]
    queue.close()


def test_alternatives_come_after_the_best_one() -> None:
    queue = start(RuleTranslator(str.upper))
    (future,) = queue.submit(PAIR, ["a"], alternatives=2, turn=Turn())
    assert outputs(future) == ["A", "A!", "A!!"]
    queue.close()


def test_words_are_aligned_where_that_is_asked_and_remembered_so() -> None:
    translator = RuleTranslator(str.upper)
    queue = start(translator, cached=1000)
    for _ in range(2):  # the second time from the cache
        futures = queue.submit(PAIR, ["a dog", "a cat"], alternatives=1, turn=Turn(), aligned=["a dog"])
        aligned, other = (future.result(60).hypotheses for future in futures)
        first, second = (output.alignment for output in aligned)
        assert first is not None
        assert second is not None
        assert first.links == ((0, 0), (1, 1))
        assert second.links == (*first.links, (1, 2))
        assert [output.alignment for output in other] == [None, None]
    queue.close()
    assert sorted(chain.from_iterable(translator.batches)) == ["a cat", "a cat", "a dog", "a dog"]


def test_an_engine_without_attention_gives_no_links() -> None:
    translator = RuleTranslator(str.upper)
    translator.can_align = False
    queue = start(translator)
    (future,) = queue.submit(PAIR, ["a dog"], alternatives=0, turn=Turn(), aligned=["a dog"])
    assert future.result(60).text == "A DOG"
    assert future.result(60).alignment is None
    queue.close()


def test_sentences_of_all_requests_are_translated_together_each_once() -> None:
    translator = RuleTranslator(str.upper)
    queue = start(translator)
    busy(translator, queue)
    for text in ("a", "b", "a"):
        queue.submit(PAIR, [text], alternatives=0, turn=Turn())
    translator.gate.set()
    queue.close()
    assert translator.batches[1:] == [["a", "b"]]


def test_sentences_of_other_lengths_and_alternatives_are_other_batches() -> None:
    translator = RuleTranslator(str.upper)
    queue = start(translator)
    busy(translator, queue)
    queue.submit(PAIR, ["a", "x" * 100, "b"], alternatives=0, turn=Turn())
    queue.submit(PAIR, ["c"], alternatives=1, turn=Turn())
    translator.gate.set()
    queue.close()
    assert translator.batches[1:] == [["a", "b"], ["c"], ["c"], ["x" * 100]]


def test_a_batch_has_a_limit() -> None:
    translator = RuleTranslator(str.upper)
    queue = start(translator, batch_sentences=2)
    busy(translator, queue)
    queue.submit(PAIR, list("abcde"), alternatives=0, turn=Turn())
    translator.gate.set()
    queue.close()
    assert translator.batches[1:] == [["a", "b"], ["c", "d"], ["e"]]


def test_requests_take_turns_and_short_ones_go_before_the_rest_of_long_ones() -> None:
    translator = RuleTranslator(str.upper)
    queue = start(translator, batch_sentences=1)
    busy(translator, queue)
    long = [f"of a long one, {number}" for number in range(4)]
    for turn in (Turn(), Turn()):
        queue.submit(PAIR, long, alternatives=0, turn=turn)
    short = queue.submit(PAIR, ["short"], alternatives=0, turn=Turn())
    translator.gate.set()
    short[0].result(60)
    queue.close()
    assert translator.batches[1:] == [["short"]] + [[text] for text in long for _ in range(2)]


def test_a_long_request_has_its_share_beside_short_ones() -> None:
    translator = RuleTranslator(str.upper)
    queue = start(translator, batch_sentences=1)
    busy(translator, queue)
    queue.submit(PAIR, ["x" * 100], alternatives=0, turn=Turn())
    for number in range(40):
        queue.submit(PAIR, [f"{number:02}"], alternatives=0, turn=Turn())
    translator.gate.set()
    while len(translator.batches) < 10:
        threading.Event().wait(0.001)
    translator.gate.clear()
    for number in range(40, 400):  # they come later, and their share is due later
        queue.submit(PAIR, [f"{number:03}"], alternatives=0, turn=Turn())
    translator.gate.set()
    queue.close()
    at = translator.batches.index(["x" * 100])
    assert 40 <= at < 400


def test_a_batch_has_few_enough_tokens_and_long_sentences_go_alone() -> None:
    translator = RuleTranslator(str.upper)
    queue = start(translator, batch_tokens=100, sentence_tokens=100)
    busy(translator, queue)
    texts = ["a" * 51, "b" * 49, "c" * 49, "d" * 40, "e" * 40, "f" * 30, "g" * 30, "h" * 300]
    queue.submit(PAIR, texts, alternatives=0, turn=Turn())
    translator.gate.set()
    queue.close()
    assert [sorted(batch) for batch in translator.batches[1:]] == [
        ["a" * 51], ["b" * 49, "c" * 49], ["d" * 40, "e" * 40], ["f" * 30, "g" * 30], ["h" * 300]
    ]  # fmt: skip


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_batch_that_nobody_waits_for_is_given_up_between_two_steps(engine: str) -> None:
    translator = Translator(memorised(), engine=engine)  # type: ignore[arg-type]
    endless = SearchOptions(strategy=Greedy(), min_length=10**9, max_length_offset=10**9)

    def open_pair(pair: Pair) -> ServedPair:
        return ServedPair(translator, lambda _: endless if pair == PAIR else SearchOptions())

    running, other = threading.Event(), Pair("en", "nl")
    queue = ModelQueue(
        ServedModel("m", frozenset([PAIR, other]), open_pair),
        Limits(),
        SentenceCache(0),
        observe_batch=lambda _: running.set(),
    )
    gone = queue.submit(PAIR, ["a", "b"], alternatives=0, turn=Turn())
    assert running.wait(60)
    (here,) = queue.submit(other, [PAIRS[0][0]], alternatives=0, turn=Turn())
    gone[0].cancel()
    threading.Event().wait(0.05)
    assert not here.done()  # the other half of the batch is still waited for
    gone[1].cancel()
    assert here.result(60).text == PAIRS[0][1]
    queue.close()


def test_threads_translate_sentences_of_their_own_and_one_that_is_alone_has_all_of_them() -> None:
    slow = threading.Event()

    def rule(text: str) -> str:
        assert text != "slow" or slow.wait(60)
        return text.upper()

    translator = RuleTranslator(rule)
    queue = ModelQueue(rule_model("m", translator, threads=3), Limits(), SentenceCache(0), observe_batch=id)
    (alone,) = queue.submit(PAIR, ["alone"], alternatives=0, turn=Turn())
    assert alone.result(60).text == "ALONE"
    first, *others = queue.submit(PAIR, ["slow", "a", "b"], alternatives=0, turn=Turn())
    assert [each.result(60).text for each in others] == ["A", "B"]
    assert not first.done()
    slow.set()
    assert first.result(60).text == "SLOW"
    queue.close()
    assert translator.threads == [3, 1, 1, 1]
    assert sorted(translator.batches) == [["a"], ["alone"], ["b"], ["slow"]]


def test_whoever_needs_a_whole_model_gets_it_before_those_who_come_later() -> None:
    translator = RuleTranslator(str.upper)
    model = rule_model("m", translator, threads=2)
    translator.gate.clear()
    turns: list[str] = []

    def translate(text: str) -> None:
        model.translate(PAIR, [Request(text, aligned=False)], alternatives=0, threads=1)
        turns.append(text)

    def explain() -> None:
        with model.idle():
            turns.append("idle")

    def started(work: Callable[[], None], others: int) -> threading.Thread:
        thread = threading.Thread(target=work)
        thread.start()
        while len(translator.batches) + len(model._free._asking) <= others:
            threading.Event().wait(0.001)
        return thread

    first = started(lambda: translate("first"), 0)
    waiting = started(explain, 1)  # for the first
    last = started(lambda: translate("last"), 2)  # although a thread is free
    assert translator.batches == [["first"]]
    translator.gate.set()
    for thread in (first, waiting, last):
        thread.join(60)
    assert turns.index("idle") < turns.index("last")


def test_what_nobody_waits_for_is_not_translated() -> None:
    translator = RuleTranslator(str.upper)
    queue = start(translator)
    busy(translator, queue)
    gone, other = queue.submit(PAIR, ["gone", "here"], alternatives=0, turn=Turn())
    gone.cancel()
    translator.gate.set()
    assert other.result(60).text == "HERE"
    with pytest.raises(CancelledError):
        gone.result(60)
    queue.close()
    assert translator.batches[1:] == [["here"]]


def test_a_sentence_that_the_model_cannot_take_spoils_no_other() -> None:
    translator = RuleTranslator(str.upper)
    queue = start(translator)
    bad, good = queue.submit(PAIR, ["too long", "fine"], alternatives=0, turn=Turn())
    assert good.result(60).text == "FINE"
    with pytest.raises(InvalidError, match="too long"):
        bad.result(60)
    queue.close()


def test_a_failure_of_the_engine_is_told_and_the_queue_goes_on() -> None:
    def rule(text: str) -> str:
        return {"a": "A"}[text]

    queue = start(RuleTranslator(rule))
    (bad,) = queue.submit(PAIR, ["b"], alternatives=0, turn=Turn())
    with pytest.raises(KeyError):
        bad.result(60)
    (good,) = queue.submit(PAIR, ["a"], alternatives=0, turn=Turn())
    assert good.result(60).text == "A"
    queue.close()


def test_what_is_remembered_is_not_translated_again() -> None:
    translator = RuleTranslator(str.upper)
    queue = start(translator, cached=10_000)
    for _ in range(2):
        (future,) = queue.submit(PAIR, ["a"], alternatives=0, turn=Turn())
        assert future.result(60).text == "A"
    assert future.done()
    queue.close()
    assert translator.batches == [["a"]]


def test_closing_translates_what_waits_and_takes_no_more() -> None:
    translator = RuleTranslator(str.upper)
    queue = start(translator, batch_sentences=1)
    futures = queue.submit(PAIR, ["a", "b", "c"], alternatives=0, turn=Turn())
    queue.close()
    assert [future.result(0).text for future in futures] == ["A", "B", "C"]
    with pytest.raises(UnavailableError):
        queue.submit(PAIR, ["d"], alternatives=0, turn=Turn())
