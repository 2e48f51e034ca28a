"""Checkpoints with a byte cut or changed anywhere: always noticed, and there is always one before."""

import shutil
from pathlib import Path

import pytest
from damaged_files import damage
from small_models import assert_same_weights, small_model

from heedful.errors import CheckpointError
from heedful.settings.run import OptimizerConfig
from heedful.training.averaging import MovingAverage
from heedful.training.checkpoint import (
    Progress,
    Resumable,
    is_complete,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
    set_damaged_aside,
)
from heedful.training.optimizer import build_optimizer

STEPS = (10, 20, 30)


def make(seed: int, *, step: int = 0) -> Resumable:
    model = small_model(seed)
    optimizer = build_optimizer(model, OptimizerConfig(), precision="float32")
    return Resumable(model, optimizer, MovingAverage(model, 0.9), Progress(step=step), "data")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkpoints")
    for step in STEPS:
        save_checkpoint(make(step, step=step), root)
    return root


@pytest.mark.parametrize("seed", range(100))
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_resumed(
    saved: Path, tmp_path: Path, seed: int
) -> None:
    root = tmp_path / "checkpoints"
    shutil.copytree(saved, root)
    done = damage(root / "step-30", seed)
    assert not is_complete(root / "step-30"), done
    with pytest.raises(CheckpointError, match="step-30: truncated or altered"):
        load_checkpoint(root / "step-30", make(1))
    assert [path.name for path in set_damaged_aside(root)] == ["damaged-step-30"]
    latest, found = latest_checkpoint(root), make(1)
    assert latest == root / "step-20"
    load_checkpoint(latest, found)
    assert_same_weights(found.model, make(20).model)


@pytest.mark.parametrize("seed", range(100, 120))
def test_what_is_damaged_while_a_run_goes_on_costs_no_intact_checkpoint(
    saved: Path, tmp_path: Path, seed: int
) -> None:
    """Nobody has noticed yet; the next two are damaged as well."""
    root = tmp_path / "checkpoints"
    shutil.copytree(saved, root)
    for step in (30, 40, 50):
        if step > 30:
            save_checkpoint(make(step, step=step), root)
            prune_checkpoints(root, retained={step})
        damage(root / f"step-{step}", seed + step)
    assert latest_checkpoint(root) == root / "step-20"
    assert [path.name for path in set_damaged_aside(root)] == [f"damaged-step-{n}" for n in (30, 40, 50)]


def test_two_intact_checkpoints_stay_whatever_is_between_them(saved: Path, tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    shutil.copytree(saved, root)
    damage(root / "step-20", 1)
    prune_checkpoints(root, retained={30})
    assert [path.name for path in list_checkpoints(root)] == ["step-10", "step-20", "step-30"]
    save_checkpoint(make(40, step=40), root)
    prune_checkpoints(root, retained={40})
    assert [path.name for path in list_checkpoints(root)] == ["step-30", "step-40"]


@pytest.mark.parametrize("name", [".step-20.removed", ".step-40.writing"])
def test_what_a_killed_process_was_removing_or_writing_is_cleared_away(
    saved: Path, tmp_path: Path, name: str
) -> None:
    root = tmp_path / "checkpoints"
    shutil.copytree(saved, root)
    shutil.copytree(saved / "step-20", root / name)
    (root / name / "state.pt").unlink()
    assert set_damaged_aside(root) == []
    assert sorted(path.name for path in root.iterdir()) == ["step-10", "step-20", "step-30"]


def test_a_removal_that_was_interrupted_leaves_no_half_of_a_checkpoint(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "checkpoints"
    shutil.copytree(saved, root)
    real = shutil.rmtree

    def interrupted(path: Path, **options: bool) -> None:
        if path.exists():
            (path / "model.safetensors").unlink()
            raise KeyboardInterrupt
        real(path, **options)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prune_checkpoints(root, retained={30})
    assert all(is_complete(path) for path in list_checkpoints(root))
    assert len(list_checkpoints(root)) == 2
