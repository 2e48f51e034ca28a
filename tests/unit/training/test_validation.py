import math

import pytest
import torch
from small_models import small_model
from tolerances import FLOAT32, close
from torch.nn.functional import cross_entropy

from heedful.data.batches import Batch, collate
from heedful.training.step import measure_nll

PAD, BOS = 0, 2
LENGTHS = [(3, 9), (5, 1), (2, 2), (7, 4), (1, 6)]


def batches(deal: list[int]) -> list[Batch]:
    generator = torch.Generator().manual_seed(73)
    pairs = [tuple(torch.randint(3, 11, (n,), generator=generator).numpy() for n in both) for both in LENGTHS]
    found = []
    for count in deal:
        part, pairs = pairs[:count], pairs[count:]
        found.append(collate(part, src_pad_id=PAD, tgt_pad_id=PAD, start_id=BOS, length_multiple=4))
    return found


@pytest.mark.parametrize("deal", [[5], [1, 4], [1, 1, 1, 1, 1]])
def test_the_nll_is_the_sum_over_tokens_divided_by_their_number_however_batched(deal: list[int]) -> None:
    model = small_model(dropout=0.5).train()
    found = measure_nll(model, batches(deal), precision="float32")
    total, tokens = 0.0, 0
    for batch in batches([1] * 5):
        logits = model.eval()(batch.src, batch.tgt_in)[0, : batch.num_tgt_tokens]
        wanted = batch.tgt_out[0, : batch.num_tgt_tokens]
        total += cross_entropy(logits, wanted, reduction="sum").item()
        tokens += len(wanted)
    assert found["nll"] == close(total / tokens, FLOAT32.MODEL)
    assert found["perplexity"] == close(math.exp(total / tokens), FLOAT32.MODEL)


def test_tokens_that_are_validated_in_chunks_all_count() -> None:
    model = small_model().eval()
    torch.manual_seed(79)
    src, tgt_in, tgt_out = (torch.randint(3, 11, (70, length)) for length in (4, 9, 9))
    found = measure_nll(model, [Batch(src, tgt_in, tgt_out, tgt_out.numel())], precision="float32")
    wanted = cross_entropy(model(src, tgt_in).flatten(0, 1), tgt_out.flatten())
    assert found["nll"] == close(wanted.item(), FLOAT32.MODEL)


def test_a_perplexity_beyond_numbers_is_still_a_number() -> None:
    model = small_model()
    with torch.no_grad():
        model.decoder.layers[0].feed_forward_norm.bias.fill_(1e4)
        model.output.weight.mul_(1e4)
    assert math.isfinite(measure_nll(model, batches([5]), precision="float32")["perplexity"])
