"""The sizes that are compared: heedful's presets, written out because a peer's environment lacks heedful."""

from dataclasses import dataclass

DROPOUT = 0.1
LABEL_SMOOTHING = 0.1
LEARNING_RATE = 3e-4  # constant: what is learned is not compared, only that something is
BETAS = (0.9, 0.98)


@dataclass(frozen=True)
class Size:
    """One encoder-decoder; `budget` is the batch size, in padded tokens of the longer side."""

    num_layers: int  # of the encoder, and as many of the decoder
    d_model: int
    num_heads: int
    d_ff: int
    budget: int


SIZES = {
    "tiny": Size(num_layers=4, d_model=128, num_heads=4, d_ff=256, budget=4096),
    "small": Size(num_layers=3, d_model=256, num_heads=4, d_ff=1024, budget=4096),
    "base": Size(num_layers=6, d_model=512, num_heads=8, d_ff=2048, budget=2048),
}
