"""The range test: the rate that it finds learns more than its neighbours, and it leaves no trace."""

import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tiny_bundle import memorised
from tolerances import FLOAT32, assert_close
from torch.nn.functional import cross_entropy

from heedful.data.batches import Batch, collate
from heedful.model.transformer import Transformer
from heedful.settings.run import Config
from heedful.training.execution import Execution
from heedful.training.loss import Loss
from heedful.training.optimizer import choose_trained_weights
from heedful.training.parallel.process_group import Rank
from heedful.training.range_test import range_test
from heedful.training.step import LossFunction, batch_loss

NEW = [
    ("the cat sees the cat .", "die Katze sieht die Katze ."),
    ("the dog sees the dog .", "der Hund sieht den Hund ."),
    ("does the cat see the dog ?", "sieht die Katze den Hund ?"),
    ("does the dog see the cat ?", "sieht der Hund die Katze ?"),
]


@dataclass
class Text:
    """A batch for each of some pairs."""

    pairs: list[tuple[str, str]]

    def batches(self, epoch: int) -> Iterator[Batch]:
        known = memorised().tokenizers
        for src, tgt in self.pairs:
            ids = (
                [*side.encode_batch([line])[0], side.eos_id]
                for side, line in ((known.src, src), (known.tgt, tgt))
            )
            pair: Any = tuple(map(torch.tensor, ids))
            yield collate([tuple(each.numpy() for each in pair)], src_pad_id=0, tgt_pad_id=0, start_id=1)


def config_of(**sections: dict[str, Any]) -> Config:
    return Config.model_validate(
        {"model": memorised().config.model.model_dump(), "train": {"init": "tiny", "label_smoothing": 0.0}}
        | sections
    )


def model_of(config: Config) -> Transformer:
    model = deepcopy(memorised().model)
    choose_trained_weights(model, config)
    return model


def rank_of(model: Transformer, text: Any, config: Config, loss: LossFunction | None = None) -> Rank:  # noqa: ANN401
    execution = Execution(torch.device("cpu"), "float32", kernels=False, compiles=False)
    return Rank(model, text, config, execution, loss=loss)


def found(config: Config, model: Transformer, pairs: list[tuple[str, str]]) -> Any:  # noqa: ANN401
    text: Any = Text(pairs)
    return range_test(rank_of(model, text, config), text)


@pytest.mark.parametrize("pairs", [NEW, NEW[:1]], ids=["several batches", "one batch"])
@pytest.mark.parametrize(
    "sections",
    [{}, {"batch": {"accumulation": 3}}, {"optimizer": {"name": "muon"}}, {"lora": {"rank": 2}}],
    ids=["adam", "accumulation", "muon", "lora"],
)
def test_the_rate_is_better_than_both_neighbours_and_than_none(
    sections: dict[str, Any], pairs: list[tuple[str, str]]
) -> None:
    config = config_of(**sections)
    result = found(config, model_of(config), pairs)
    rates = [each.rate for each in result.tested]
    assert rates == sorted(rates)
    place = rates.index(result.rate)
    assert 0 < place < len(rates) - 1
    around = [each.nll for each in result.tested[place - 1 : place + 2]]
    assert around[1] == min(around) < result.before


def test_weights_gradients_and_random_numbers_stay_as_they_were() -> None:
    config = config_of(lora={"rank": 2, "dropout": 0.1})
    model = model_of(config)
    before = deepcopy(model.state_dict())
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    found(config, model, NEW)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())
    assert model.training


def test_the_search_goes_as_far_as_it_has_to() -> None:
    """An adapter of a hundredth of the scale wants a much higher rate."""
    rates = []
    for alpha in (16.0, 0.16):
        config = config_of(lora={"rank": 2, "alpha": alpha})
        rates.append(found(config, model_of(config), NEW).rate)
    assert rates[1] > 3.0 * rates[0]


def test_a_loss_that_is_not_finite_is_worse_than_any_other() -> None:
    config = config_of()
    model = model_of(config)
    with torch.no_grad():
        next(iter(model.parameters())).fill_(math.nan)
    result = found(config, model, NEW)
    assert {each.nll for each in result.tested} == {math.inf}


def test_the_loss_of_the_run_is_tested() -> None:
    config = config_of()
    model, text = model_of(config), Text(NEW)
    source: Any = text

    def no_slope(model: Transformer, batch: Batch) -> Loss:
        loss = batch_loss(model, batch, config.train)
        return Loss(0.0 * loss.smoothed, loss.nll)

    result = range_test(rank_of(model, source, config, no_slope), source)
    assert {each.nll for each in result.tested} == {result.before}


def test_a_step_is_that_of_the_optimiser_and_the_losses_are_of_the_text_that_they_name() -> None:
    config = config_of(model=memorised().config.model.replace(dropout=0.0).model_dump())
    source: Any = Text(NEW)
    result = range_test(rank_of(model_of(config), source, config), source, num_steps=1)
    assert len(result.tested) > 2
    for each in result.tested:
        model = model_of(config)
        settings = config.optimizer
        optimizer = torch.optim.Adam(
            model.parameters(), lr=each.rate, betas=(settings.beta1, settings.beta2), eps=settings.eps
        )

        def nll(batches: list[Batch], model: Transformer = model) -> torch.Tensor:
            sums = [
                cross_entropy(
                    model(each.src, each.tgt_in).flatten(0, 1), each.tgt_out.flatten(), reduction="sum"
                )
                for each in batches
            ]
            return sum(sums) / sum(each.num_tgt_tokens for each in batches)  # type: ignore[return-value]

        texts = list(source.batches(epoch=0))
        loss = nll(texts[:1])
        loss.backward()
        optimizer.step()
        assert_close(each.training_nll, loss, FLOAT32.MODEL)
        assert_close(each.nll, nll(texts), FLOAT32.TRAINING)
