from heedful.decoding.alignment import Alignment
from heedful.decoding.glossary import Glossary
from heedful.decoding.translation import Translation
from heedful.serving.model_queue import SentenceCache, SentenceKey
from heedful.text.languages import Pair


def key(text: str, *, alternatives: int = 0) -> SentenceKey:
    return SentenceKey("model", Pair("en", "de"), alternatives, False, text)


def output(text: str) -> Translation:
    return Translation.given("", text)


def test_a_translation_is_found_by_everything_that_it_depends_on() -> None:
    cache = SentenceCache(10_000)
    cache.put(key("a"), output("A"))
    assert cache.get(key("a")) == output("A")
    assert cache.get(key("a", alternatives=1)) is None
    assert cache.get(key("a")._replace(model="another")) is None
    assert cache.get(key("a")._replace(aligned=True)) is None
    assert cache.get(key("a")._replace(pair=Pair("en", "fr"))) is None


def test_the_least_recently_used_goes_first() -> None:
    cache = SentenceCache(3 * 202)
    for text in "abc":
        cache.put(key(text), output(text.upper()))
    cache.get(key("a"))
    cache.put(key("d"), output("D"))
    assert [cache.get(key(text)) for text in "abcd"] == [output("A"), None, output("C"), output("D")]


def test_its_size_is_bounded_whatever_is_put_there() -> None:
    cache = SentenceCache(10_000)
    for number in range(2_000):
        cache.put(key(str(number % 70)), output("x" * (number % 100)))
    assert 20 < len(cache) <= 50
    cache.put(key("huge"), output("x" * 20_000))
    assert cache.get(key("huge")) is None
    assert len(cache) > 20
    linked = Translation.given("", "x", alignment=Alignment(((0, 0),) * 200))
    cache.put(key("long"), linked)  # links count, too
    assert cache.get(key("long")) is None


def test_a_key_is_as_large_as_the_terms_in_it() -> None:
    cache = SentenceCache(10_000)
    few, many = Glossary.of({"a": "b"}).entries, Glossary.of({"a": [str(n) for n in range(100)]}).entries
    cache.put(key("a")._replace(terms=few), output("b"))
    cache.put(key("a")._replace(terms=many), output("b"))
    assert cache.get(key("a")._replace(terms=few)) == output("b")
    assert cache.get(key("a")) is None
    assert len(cache) == 1


def test_a_cache_of_nothing_remembers_nothing() -> None:
    cache = SentenceCache(0)
    cache.put(key("a"), output("A"))
    assert cache.get(key("a")) is None
