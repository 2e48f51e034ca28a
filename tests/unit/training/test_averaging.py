from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_models import assert_same_weights, small_model
from tolerances import FLOAT32, assert_close

from heedful.errors import BundleError
from heedful.model.transformer import Transformer
from heedful.storage.description import WEIGHTS_FILE
from heedful.storage.torch_weights import unique_weights
from heedful.training.averaging import MovingAverage, average_weights, swapped_weights


def moved(model: Transformer, seed: int) -> Transformer:
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn_like(parameter)
    return model


def test_the_mean_of_checkpoints_is_the_mean_of_each_weight(tmp_path: Path) -> None:
    model = small_model()
    saved = []
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        saved.append({name: w.clone() for name, w in unique_weights(moved(model, number)).items()})
        save_file(saved[-1], tmp_path / str(number) / WEIGHTS_FILE)
    mean = average_weights([tmp_path / str(number) for number in range(3)])
    assert mean.keys() == saved[0].keys()
    for name, weight in mean.items():
        assert_close(weight, torch.stack([each[name] for each in saved]).mean(0), FLOAT32.ELEMENT)


def test_what_is_the_same_everywhere_stays_so_to_the_last_bit(tmp_path: Path) -> None:
    """A sum of five equal numbers divided by five need not be that number."""
    weights = dict(unique_weights(moved(small_model(), seed=1)))
    save_file(weights, tmp_path / WEIGHTS_FILE)
    assert any(not torch.equal(sum([weight] * 5) / 5, weight) for weight in weights.values())
    mean = average_weights([tmp_path] * 5)
    assert all(torch.equal(weight, weights[name]) for name, weight in mean.items())
    model = small_model()
    average = MovingAverage(model, decay=0.9)
    for step in range(5):
        average.update(dict(model.named_parameters()), step)
    assert all(torch.equal(weight, unique_weights(model)[name]) for name, weight in average.weights.items())


@pytest.mark.parametrize("decay", [0.5, 0.999])
def test_the_moving_average_is_its_recursion_written_out(decay: float) -> None:
    model = small_model()
    average = MovingAverage(model, decay)
    wanted = {name: w.double() for name, w in unique_weights(model).items()}
    for step in range(1, 30):
        moved(model, step)
        average.update(dict(model.named_parameters()), step)
        keep = min(decay, (1 + step) / (10 + step))
        for name, weight in unique_weights(model).items():
            wanted[name] = keep * wanted[name] + (1 - keep) * weight.double()
    for name, weight in average.weights.items():
        assert_close(weight.double(), wanted[name], FLOAT32.ROW)


def test_the_moving_average_does_not_move_with_the_model_itself() -> None:
    model = small_model()
    average = MovingAverage(model, 0.9)
    moved(model, 1)
    before = dict(unique_weights(small_model()))
    assert all(torch.equal(weight, before[name]) for name, weight in average.weights.items())
    average.update(dict(model.named_parameters()), 1)
    assert_same_weights(model, moved(small_model(), 1))


def test_a_moving_average_read_from_a_file_goes_on_as_if_never_written(tmp_path: Path) -> None:
    """A file gives weights back in another order than the model has them."""
    model = small_model()
    average, resumed = MovingAverage(model, 0.9), MovingAverage(model, 0.9)
    save_file(average.weights, tmp_path / WEIGHTS_FILE)
    resumed.weights = load_file(tmp_path / WEIGHTS_FILE)
    assert list(resumed.weights) != list(average.weights)
    moved(model, 2)
    for each in (average, resumed):
        each.update(dict(model.named_parameters()), 5)
    assert all(torch.equal(weight, average.weights[name]) for name, weight in resumed.weights.items())


def test_swapped_weights_are_there_inside_the_block_and_gone_after_it() -> None:
    model, own, other = small_model(1), small_model(1), small_model(2)
    with swapped_weights(model, unique_weights(other)):
        assert_same_weights(model, other)
    assert_same_weights(model, own)
    assert model.output.weight is model.encoder.embedding.tokens.weight
    with swapped_weights(model, None):
        assert_same_weights(model, own)


def test_own_weights_come_back_after_an_error_and_after_weights_that_do_not_fit() -> None:
    model, own = small_model(1), small_model(1)
    with pytest.raises(ZeroDivisionError), swapped_weights(model, unique_weights(small_model(2))):
        raise ZeroDivisionError
    assert_same_weights(model, own)
    wrong = unique_weights(small_model(2)) | {"output.bias": torch.zeros(11)}
    with pytest.raises(BundleError, match=r"output\.bias"):
        swapped_weights(model, wrong).__enter__()
    assert_same_weights(model, own)
