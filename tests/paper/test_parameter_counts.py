"""Table 3's column of parameters. The paper counts another vocabulary: what a row changes is compared."""

import pytest
import torch
from tolerances import FLOAT64, close

from heedful.model.transformer import Transformer
from heedful.settings.presets import preset

VOCAB_SIZE = 37_000  # 5.1


def num_parameters(name: str) -> int:
    config = preset(name).model.replace(src_vocab_size=VOCAB_SIZE, tgt_vocab_size=VOCAB_SIZE)
    with torch.device("meta"):
        return Transformer.from_config(config).num_parameters


def by_formula(d_model: int, d_ff: int, num_layers: int, heads_width: int) -> int:
    """One shared matrix; four projections in each attention, two in each feed-forward; biases and norms."""
    attention = 3 * (d_model * heads_width + heads_width) + heads_width * d_model + d_model
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    norm = 2 * d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    return VOCAB_SIZE * d_model + num_layers * (encoder_layer + decoder_layer)


@pytest.mark.parametrize(
    ("name", "millions", "sizes"),
    [("base", 63.1, (512, 2048, 6, 512)), ("big", 214.2, (1024, 4096, 6, 1024))],
)
def test_the_papers_models_have_the_size_of_its_formulas(
    name: str, millions: float, sizes: tuple[int, int, int, int]
) -> None:
    assert num_parameters(name) == by_formula(*sizes)
    assert round(num_parameters(name) / 1e6, 1) == millions


@pytest.mark.parametrize(
    ("name", "paper_millions"),
    [
        ("base-b-dk16", 58),
        ("base-b-dk32", 60),
        ("base-c-2-layers", 36),
        ("base-c-4-layers", 50),
        ("base-c-8-layers", 80),
        ("base-c-d256", 28),
        ("base-c-ff1024", 53),
        ("base-c-ff4096", 90),
    ],
)
def test_each_row_of_table_3_differs_from_base_by_what_the_table_says(name: str, paper_millions: int) -> None:
    difference = (num_parameters(name) - num_parameters("base")) / 1e6
    assert difference == close(paper_millions - 65, FLOAT64.ELEMENT.printed(0, terms=2))


@pytest.mark.parametrize(("name", "paper_millions"), [("base-c-d1024", 168), ("big", 213)])
def test_twice_the_width_adds_what_the_table_says_but_for_the_vocabulary(
    name: str, paper_millions: int
) -> None:
    """512 columns more: the paper's own two rows ask for different vocabularies, 41,000 and 31,000."""
    difference = (num_parameters(name) - num_parameters("base")) / 1e6
    assert abs(difference - (paper_millions - 65)) <= 512 * 6_500 / 1e6


@pytest.mark.parametrize("heads", ["1-head", "4-heads", "16-heads", "32-heads"])
def test_the_number_of_heads_does_not_change_the_size(heads: str) -> None:
    """Each head has projections of its own: h of them, d_model / h wide."""
    assert num_parameters(f"base-a-{heads}") == num_parameters("base")
