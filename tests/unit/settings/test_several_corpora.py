"""`[[data.corpora]]`: what is wrong in it, and the shares that its weights or its temperature mean."""

from typing import Any

import pytest
from tolerances import FLOAT64, close

from heedful.errors import ConfigError
from heedful.settings.run import Config, CorpusConfig, DataConfig
from heedful.tasks.setup import _mixture
from heedful.text import SpecialTokens

CORPUS = {"pairs": "a.tsv"}
TEMPLATE = SpecialTokens(src_suffix=(3,), tgt_suffix=(3,), start_id=2)


@pytest.mark.parametrize(
    ("corpora", "message"),
    [
        ([CORPUS | {"foo": 1}], "unknown key 'data.corpora.0.foo'; there are: src, tgt, pairs, weight"),
        ([CORPUS, CORPUS | {"wieght": 1}], "unknown key 'data.corpora.1.wieght'; did you mean 'weight'?"),
        ([1], "data.corpora.0=1: input should be a table, [[data.corpora]]"),
        (3, "data.corpora=3: input should be a list of tables, [[data.corpora]]"),
    ],
)  # fmt: skip
def test_what_is_no_corpus_is_refused_in_words_of_toml(corpora: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(data={"corpora": corpora})
    assert str(caught.value).startswith(message)


def shares(sizes: list[int], weights: list[float | None], **data: Any) -> tuple[float, ...]:  # noqa: ANN401
    corpora = tuple(CorpusConfig(pairs="a.tsv", weight=weight) for weight in weights)
    mixture = _mixture(sizes, [TEMPLATE] * len(sizes), DataConfig(corpora=corpora, **data))
    assert mixture is not None
    return mixture.shares


@pytest.mark.parametrize(
    ("temperature", "wanted"),
    [(5e-324, (0, 1)), (0.01, (0, 1)), (1.0, (0.1, 0.9)), (2.0, (0.25, 0.75)), (1e308, (0.5, 0.5))],
)
def test_every_temperature_gives_shares(temperature: float, wanted: tuple[float, float]) -> None:
    assert shares([2000, 18_000], [None, None], temperature=temperature) == close(wanted, FLOAT64.ROW)


@pytest.mark.parametrize("scale", [1e-323, 1.0, 5e307])
def test_the_shares_are_those_of_the_weights_however_large_they_are(scale: float) -> None:
    assert shares([5, 7], [scale, 3 * scale]) == (0.25, 0.75)
