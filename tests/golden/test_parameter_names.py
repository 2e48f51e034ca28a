"""Names and shapes of the weights are a public format: files of today must load tomorrow.

A change here is a new format_version. The file is written with `python tests/golden/test_parameter_names.py`.
"""

from pathlib import Path

from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig
from heedful.storage.torch_weights import unique_weights

GOLDEN = Path(__file__).with_name("parameter_names.txt")
PAPER = ModelConfig(
    d_model=22, num_heads=2, d_ff=13, num_encoder_layers=1, num_decoder_layers=1,
    src_vocab_size=19, tgt_vocab_size=19,
)  # fmt: skip
SEPARATE = PAPER.replace(
    norm="pre", positions="learned", max_positions=29, tied="none", output_bias=True, d_k=5, d_v=7,
    tgt_vocab_size=23, embedding_norm=True,
)  # fmt: skip
OTHER_PARTS = PAPER.replace(
    positions="relative", relative_buckets=11, gated=True, norm_kind="rms", final_norm=True, num_kv_heads=1,
    feed_forward_bias=False, num_encoder_layers=2, num_decoder_layers=2,
)  # fmt: skip
MODELS = {
    "the paper's model": PAPER,
    "with learned positions, separate matrices, head sizes of their own and every bias": SEPARATE,
    "with relative positions that the layers share, gates, RMS norms and one head of keys": OTHER_PARTS,
}


def names_and_shapes() -> str:
    lines = []
    for title, config in MODELS.items():
        lines.append(f"# {title}")
        for name, weight in unique_weights(Transformer.from_config(config)).items():
            lines.append(f"{name} {' '.join(map(str, weight.shape))}")
    return "\n".join(lines) + "\n"


def test_parameter_names_and_shapes_are_the_public_ones() -> None:
    assert names_and_shapes() == GOLDEN.read_text(encoding="utf-8")


if __name__ == "__main__":
    GOLDEN.write_text(names_and_shapes(), encoding="utf-8")
