"""The backend and the precision that a translator computes with, asked for or by the table of "auto"."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from machine_class import as_class, every_level, need_level, need_native
from tiny_bundle import SOURCES, memorised

from heedful import Translator
from heedful.decoding.backends.choice import FASTEST, MAX_LOSS, choose_backend, loss_of
from heedful.decoding.backends.native import NativeBackend
from heedful.errors import InputError
from heedful.storage.bundle import Bundle

pytestmark = pytest.mark.by_class


@pytest.mark.parametrize("level", every_level())
def test_auto_follows_the_table_of_levels(level: str) -> None:
    need_level(level)
    with as_class(level=level):
        backend = choose_backend([memorised().model], precision="auto")
        assert (backend.name, backend.precision) == ("native", FASTEST.get(level, "float32"))
        wanted = Translator(memorised(), precision=backend.precision).translations(SOURCES)
        assert Translator(memorised(), precision="auto").translations(SOURCES) == wanted


def fresh() -> Bundle:
    """The memorised bundle with a model of its own."""
    return replace(memorised(), network=deepcopy(memorised().model))


def dwarfed(bundle: Bundle) -> Bundle:
    """The bundle where one weight of each output dwarfs the others, at an input that is always 0."""
    for layer in bundle.model.decoder.layers:
        with torch.no_grad():
            layer.feed_forward.inner.bias[0] = -1e4  # type: ignore[union-attr]
            layer.feed_forward.outer.weight[:, 0] = 1e4  # type: ignore[union-attr]
    return bundle


@pytest.mark.parametrize("level", sorted(FASTEST))
def test_auto_stays_exact_for_weights_that_whole_numbers_cannot_hold(level: str) -> None:
    need_level(level)
    with as_class(level=level):
        models = [dwarfed(fresh()).model]
        loss = loss_of(NativeBackend(models, "int8"), NativeBackend(models, "float32"), models)
        assert loss > MAX_LOSS
        assert choose_backend(models, precision="auto").precision == "float32"
        assert choose_backend(models, precision="int8").precision == "int8"  # who asks for it gets it


def test_a_backend_loses_nothing_beside_itself_and_all_where_it_is_not_a_number() -> None:
    need_native()
    models = [fresh().model]
    exact = NativeBackend(models, "float32")
    assert loss_of(exact, exact, models) == 0.0
    with torch.no_grad():
        models[0].decoder.layers[0].feed_forward.outer.bias[0] = float("nan")  # type: ignore[union-attr]
    assert loss_of(NativeBackend(models, "float32"), exact, models) == float("inf")


def test_levels_of_the_table_exist() -> None:
    need_native()
    assert set(FASTEST) <= set(every_level()) or not set(FASTEST) & set(every_level())


@pytest.mark.parametrize(("bf16", "wanted"), [(False, "float32"), (True, "bf16")])
def test_auto_in_torch_is_bf16_where_the_cpu_has_it(bf16: bool, wanted: str) -> None:
    with as_class(bf16=bf16):
        backend = choose_backend([memorised().model], precision="auto", engine="torch")
    assert (backend.name, backend.precision) == ("torch", wanted)


def test_auto_leaves_models_to_torch_and_refuses_what_cannot_be() -> None:
    bundle = fresh()
    double = replace(bundle, network=bundle.model.double())
    with as_class(bf16=False):
        assert Translator(double, precision="auto").engine_in_use == "torch"
    with pytest.raises(InputError, match="engine='torch'"):
        Translator(double, precision="auto", engine="native")
    with pytest.raises(InputError, match="precision='fast'"):
        Translator(bundle, precision="fast")  # type: ignore[arg-type]
