"""How the tokens of a step are dealt into micro-batches changes nothing but rounding."""

import weakref
from collections.abc import Iterator

import pytest
import torch
from tolerances import FLOAT64, assert_apart, assert_close, close
from torch.nn.functional import cross_entropy

from heedful.data.batches import Batch, collate
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config, OptimizerConfig, TrainConfig
from heedful.training.step import StepMetrics, accumulate_gradients, train_step

SRC_PAD, TGT_PAD, BOS, EOS = 4, 1, 2, 3
LENGTHS = [(7, 5), (2, 11), (5, 3), (1, 1), (11, 2), (3, 7), (2, 2)]
DEALS = [[7], [1] * 7, [1, 4, 2], [5, 2]]


def settings(clip_norm: float = 0.0, smoothing: float = 0.1) -> Config:
    model = ModelConfig(
        d_model=10, num_heads=2, d_ff=13, num_encoder_layers=1, num_decoder_layers=2, dropout=0.0,
        src_vocab_size=17, tgt_vocab_size=19, tied="target", src_pad_id=SRC_PAD, tgt_pad_id=TGT_PAD,
    )  # fmt: skip
    train, optimizer = TrainConfig(label_smoothing=smoothing), OptimizerConfig(clip_norm=clip_norm)
    return Config(model=model, train=train, optimizer=optimizer)


def micro_batches(deal: list[int]) -> list[Batch]:
    generator = torch.Generator().manual_seed(19)
    pairs = [
        tuple(torch.randint(5, 17, (length,), generator=generator).numpy() for length in both)
        for both in LENGTHS
    ]
    batches = []
    for count in deal:
        part, pairs = pairs[:count], pairs[count:]
        batches.append(collate(part, src_pad_id=SRC_PAD, tgt_pad_id=TGT_PAD, start_id=BOS, length_multiple=4))
    return batches


def fresh_model(config: Config) -> Transformer:
    torch.manual_seed(23)
    return Transformer.from_config(config.model).double()


def step(deal: list[int], config: Config) -> tuple[StepMetrics, Transformer]:
    """One step of plain gradient descent, so that the weights show the gradient and not its sign."""
    model = fresh_model(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=123.0)
    metrics = train_step(
        model, optimizer, micro_batches(deal), config=config, learning_rate=0.5, precision="float32"
    )
    return metrics, model


@pytest.mark.parametrize("deal", DEALS[1:])
@pytest.mark.parametrize("clip_norm", [0.0, 0.05])
def test_any_deal_into_micro_batches_is_one_big_batch(deal: list[int], clip_norm: float) -> None:
    config = settings(clip_norm)
    (found, model), (wanted, other) = step(deal, config), step(DEALS[0], config)
    assert found.num_tgt_tokens == wanted.num_tgt_tokens == sum(length for _, length in LENGTHS)
    assert found.loss == close(wanted.loss, FLOAT64.MODEL)
    assert found.nll == close(wanted.nll, FLOAT64.MODEL)
    assert found.gradient_norm == close(wanted.gradient_norm, FLOAT64.MODEL)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert_close(one, two, FLOAT64.MODEL)


@pytest.mark.parametrize("clip_norm", [0.0, 0.05])
def test_a_step_descends_along_the_gradient_of_the_mean_over_real_tokens(clip_norm: float) -> None:
    """Against torch's loss, in which padding is ignored, on sentences taken one by one."""
    config = settings(clip_norm, smoothing=0.0)
    metrics, stepped = step([1, 4, 2], config)
    model = fresh_model(config)
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for batch in micro_batches([1] * 7):
        logits = model(batch.src, batch.tgt_in)
        total = total + cross_entropy(
            logits.transpose(1, 2), batch.tgt_out, ignore_index=TGT_PAD, reduction="sum"
        )
        tokens += int((batch.tgt_out != TGT_PAD).sum())
    (total / tokens).backward()
    norm = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm().item()
    assert metrics.nll == metrics.loss == close(total.item() / tokens, FLOAT64.MODEL)
    assert metrics.gradient_norm == close(norm, FLOAT64.MODEL)
    assert norm > 0.05
    share = 0.05 / (norm + 1e-6) if clip_norm else 1.0  # as torch's clip_grad_norm_ divides
    for after, before in zip(stepped.parameters(), model.parameters(), strict=True):
        assert_close(after, before - 0.5 * share * before.grad, FLOAT64.MODEL)


def test_two_micro_batches_of_a_step_are_in_memory_at_a_time() -> None:
    alive: list[weakref.ref[Batch]] = []
    most = 0

    class Made:
        def __iter__(self) -> Iterator[Batch]:
            nonlocal most
            for lengths in [1] * 7:
                (batch, *_) = micro_batches([lengths])
                alive.append(weakref.ref(batch))
                most = max(most, sum(each() is not None for each in alive))
                yield batch
                del batch

    config = settings()
    model = fresh_model(config)
    sums = accumulate_gradients(model, Made(), config.train, precision="float32")
    assert (len(alive), most) == (7, 2)
    assert sums.num_tgt_tokens == 7 * micro_batches([1])[0].num_tgt_tokens


def test_the_nll_is_reported_apart_from_the_smoothed_loss() -> None:
    smoothed, _ = step([7], settings(smoothing=0.3))
    plain, _ = step([7], settings(smoothing=0.0))
    assert smoothed.nll == close(plain.nll, FLOAT64.MODEL)
    assert_apart(smoothed.loss, plain.loss, FLOAT64.MODEL)
