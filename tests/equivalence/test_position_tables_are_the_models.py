"""The position vectors of the native engine are those of the model in torch."""

import numpy as np
import pytest

from heedful.decoding.backends.engine import SINUSOIDS
from heedful.model.positions import sinusoids
from heedful.model.variants import concatenated_sinusoids, fairseq_sinusoids

FORMULAS = {"sinusoidal": sinusoids, "concatenated": concatenated_sinusoids, "fairseq": fairseq_sinusoids}


@pytest.mark.parametrize("d_model", [2, 6, 128, 512])
@pytest.mark.parametrize("name", FORMULAS)
def test_they_are_equal_but_for_the_last_bits(name: str, d_model: int) -> None:
    ours, models = SINUSOIDS[name](700, d_model), FORMULAS[name](700, d_model).numpy()
    assert ours.dtype == models.dtype
    # The paper's angles are in float64; fairseq's in float32, whose last place is 6e-5 at most here.
    np.testing.assert_allclose(ours, models, rtol=0, atol=1e-4 if name == "fairseq" else 6e-8)
