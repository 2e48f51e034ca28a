import torch

from heedful.model.attention import causal_mask, padding_mask


def test_a_padding_mask_allows_exactly_the_real_tokens_to_every_head_and_query() -> None:
    ids = torch.tensor([[5, 9, 7], [9, 4, 4]])
    mask = padding_mask(ids, pad_id=4)
    assert mask.shape == (2, 1, 1, 3)
    assert mask.dtype == torch.bool
    assert mask[:, 0, 0].tolist() == [[True, True, True], [True, False, False]]


def test_a_causal_mask_allows_the_past_and_the_present() -> None:
    mask = causal_mask(5)
    assert mask.shape == (1, 1, 5, 5)
    assert mask.dtype == torch.bool
    for t in range(5):
        for s in range(5):
            assert mask[0, 0, t, s] == (s <= t)


def test_a_causal_mask_allows_all_keys_before_the_first_query() -> None:
    assert torch.equal(causal_mask(2, past=3), causal_mask(5)[:, :, 3:])
