"""The backend and the precision that a translator computes with, asked for or by the table of "auto"."""

from copy import deepcopy
from dataclasses import replace

import pytest
from machine_class import as_class, every_level, need_level, need_native
from tiny_bundle import PAIRS, memorised

from heedful import Translator
from heedful.decoding.backends.choice import FASTEST, choose_backend
from heedful.errors import InputError

pytestmark = pytest.mark.by_class

SOURCES = [source for source, _ in PAIRS]


@pytest.mark.parametrize("level", every_level())
def test_auto_follows_the_table_of_levels(level: str) -> None:
    need_level(level)
    with as_class(level=level):
        backend = choose_backend([memorised().model], precision="auto")
        assert (backend.name, backend.precision) == ("native", FASTEST.get(level, "float32"))
        wanted = Translator(memorised(), precision=backend.precision).translations(SOURCES)
        assert Translator(memorised(), precision="auto").translations(SOURCES) == wanted


def test_levels_of_the_table_exist() -> None:
    need_native()
    assert set(FASTEST) <= set(every_level()) or not set(FASTEST) & set(every_level())


@pytest.mark.parametrize(("bf16", "wanted"), [(False, "float32"), (True, "bf16")])
def test_auto_in_torch_is_bf16_where_the_cpu_has_it(bf16: bool, wanted: str) -> None:
    with as_class(bf16=bf16):
        backend = choose_backend([memorised().model], precision="auto", engine="torch")
    assert (backend.name, backend.precision) == ("torch", wanted)


def test_auto_leaves_models_to_torch_and_refuses_what_cannot_be() -> None:
    bundle = replace(memorised(), network=deepcopy(memorised().model))
    double = replace(bundle, network=bundle.model.double())
    with as_class(bf16=False):
        assert Translator(double, precision="auto").engine_in_use == "torch"
    with pytest.raises(InputError, match="engine='torch' computes every model"):
        Translator(double, precision="auto", engine="native")
    with pytest.raises(InputError, match="precision='fast'"):
        Translator(bundle, precision="fast")  # type: ignore[arg-type]
