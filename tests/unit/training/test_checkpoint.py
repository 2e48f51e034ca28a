import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from damaged_files import damage
from full_disk import files_limited_to, record_syncs
from small_models import assert_same_weights, small_model

from heedful.errors import CheckpointError
from heedful.model.transformer import Transformer
from heedful.settings.run import OptimizerConfig
from heedful.training.averaging import MovingAverage
from heedful.training.checkpoint import (
    TrainingState,
    checkpoint_step,
    is_complete,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
    set_damaged_aside,
)
from heedful.training.optimizer import build_optimizer
from heedful.training.state import Progress

SRC, TGT_IN = torch.tensor([[5, 7, 3, 0]]), torch.tensor([[2, 6, 9]])
FILES = ["model.safetensors", "average.safetensors", "state.pt", "checksums.json"]


def make(seed: int, *, fingerprint: str = "data", step: int = 0, optimizer: str = "adam") -> TrainingState:
    model = small_model(seed, dropout=0.3)
    built = build_optimizer(model, OptimizerConfig.model_validate({"name": optimizer}), precision="float32")
    return TrainingState(model, built, MovingAverage(model, 0.9), Progress(step=step), fingerprint)


def train(resumable: TrainingState, steps: int) -> None:
    """Steps that use everything a checkpoint must hold, and random numbers as the steps of training do."""
    for _ in range(steps):
        resumable.progress.step += 1
        torch.manual_seed(resumable.progress.step)
        resumable.progress.seconds += float(torch.rand(()))
        resumable.model.train()(SRC, TGT_IN).pow(2).mean().backward()
        for group in resumable.optimizer.param_groups:
            group["lr"] = 0.01 * resumable.progress.step
        resumable.optimizer.step()
        resumable.optimizer.zero_grad()
        assert resumable.average is not None
        resumable.average.update(dict(resumable.model.named_parameters()), resumable.progress.step)


def assert_same(one: TrainingState, other: TrainingState) -> None:
    assert_same_weights(one.model, other.model)
    assert one.progress == other.progress
    assert one.average is not None
    assert other.average is not None
    assert all(
        torch.equal(weight, other.average.weights[name]) for name, weight in one.average.weights.items()
    )
    mine, theirs = one.optimizer.state_dict(), other.optimizer.state_dict()
    assert mine["param_groups"] == theirs["param_groups"]
    for number, state in mine["state"].items():
        for name, value in state.items():
            assert torch.equal(value, theirs["state"][number][name]), name


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path: Path, optimizer: str) -> None:
    one, other = make(1, optimizer=optimizer), make(2, optimizer=optimizer)  # of other weights
    train(one, 3)
    path = save_checkpoint(one, tmp_path)
    train(one, 4)
    load_checkpoint(path, other)
    assert other.progress.step == 3
    train(other, 4)
    assert_same(one, other)


def test_a_checkpoint_leaves_random_generators_alone(tmp_path: Path) -> None:
    torch.manual_seed(3)
    path = save_checkpoint(make(1), tmp_path)
    other = make(2)
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    load_checkpoint(path, other)
    assert torch.equal(torch.rand(3), expected)


def rewrite_state(path: Path, state: dict[str, object]) -> None:
    torch.save(state, path / "state.pt")
    checksums = json.loads((path / "checksums.json").read_text(encoding="utf-8"))
    checksums["state.pt"] = hashlib.sha256((path / "state.pt").read_bytes()).hexdigest()
    (path / "checksums.json").write_text(json.dumps(checksums), encoding="utf-8")


@pytest.mark.parametrize(
    "change", [lambda progress: progress.pop("rollbacks"), lambda progress: progress.update(more=1)]
)
def test_progress_with_other_fields_is_refused(
    tmp_path: Path, change: Callable[[dict[str, object]], object]
) -> None:
    path = save_checkpoint(make(1), tmp_path)
    state = torch.load(path / "state.pt", weights_only=True)
    change(state["progress"])
    rewrite_state(path, state)
    with pytest.raises(CheckpointError, match="progress"):
        load_checkpoint(path, make(2))


def test_every_field_of_the_progress_comes_back(tmp_path: Path) -> None:
    one, other = make(1), make(2)
    of_other_types = {
        "best_scores": {"nll": 2.5},
        "base_scores": {"nll": 4.5},
        "validated_scores": {"nll": 3.5},
        "validated_by": ("nll", "a set"),
        "regular_checkpoints": (3, 4),
        "computed_by": "1 process",
    }
    for number, name in enumerate(vars(one.progress)):
        setattr(one.progress, name, of_other_types.get(name, number + 1))
    load_checkpoint(save_checkpoint(one, tmp_path), other)
    assert other.progress == one.progress
    assert Progress().best_value == float("inf")
    one.progress.best_value = float("inf")
    other = make(3)
    load_checkpoint(save_checkpoint(one, tmp_path), other)
    assert other.progress == one.progress


def test_a_checkpoint_without_an_average_serves_a_run_without_one(tmp_path: Path) -> None:
    one, other = make(1, step=3), make(2)
    plain = TrainingState(one.model, one.optimizer, None, one.progress, "data")
    path = save_checkpoint(plain, tmp_path)
    assert not (path / "average.safetensors").exists()
    load_checkpoint(path, TrainingState(other.model, other.optimizer, None, other.progress, "data"))
    assert_same_weights(other.model, one.model)


def test_a_checkpoint_has_its_files_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = save_checkpoint(make(1, step=7), tmp_path)
    assert path == tmp_path / "step-7"
    assert sorted(file.name for file in path.iterdir()) == sorted(FILES)
    assert [each.name for each in tmp_path.iterdir()] == ["step-7"]
    assert is_complete(path)


def test_every_file_of_a_checkpoint_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = record_syncs(monkeypatch)
    path = save_checkpoint(make(1, step=7), tmp_path)
    assert {file.stat().st_ino for file in path.iterdir()} <= synced


def test_writing_a_step_again_replaces_it(tmp_path: Path) -> None:
    save_checkpoint(make(1, step=7), tmp_path)
    later, found = make(2, step=7), make(3)
    load_checkpoint(save_checkpoint(later, tmp_path), found)
    assert_same(later, found)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["truncate", "alter", "remove", "empty"])
def test_a_damaged_file_makes_a_checkpoint_incomplete_and_loading_changes_nothing(
    tmp_path: Path, name: str, damage: str
) -> None:
    path = save_checkpoint(make(1, step=7), tmp_path)
    content = (path / name).read_bytes()
    middle = len(content) // 2
    damaged = {
        "truncate": content[:middle],
        "alter": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "empty": b"",
    }
    if damage == "remove":
        (path / name).unlink()
    else:
        (path / name).write_bytes(damaged[damage])
    assert not is_complete(path)
    assert latest_checkpoint(tmp_path) is None
    found, untouched = make(2), make(2)
    with pytest.raises(CheckpointError, match="step-7: truncated or altered") as caught:
        load_checkpoint(path, found)
    assert "\n" not in str(caught.value)
    assert_same(found, untouched)


@pytest.mark.parametrize("content", ["[]", "{}", "3", '{"model.safetensors": 3}', '["state.pt"]'])
def test_checksums_of_another_form_make_a_checkpoint_incomplete(tmp_path: Path, content: str) -> None:
    path = save_checkpoint(make(1, step=7), tmp_path)
    (path / "checksums.json").write_text(content, encoding="utf-8")
    assert not is_complete(path)


def test_the_latest_checkpoint_is_the_newest_complete_one(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "none") is None
    for step in (9, 10, 100):
        save_checkpoint(make(1, step=step), tmp_path)
    (tmp_path / ".step-200.writing").mkdir()
    (tmp_path / "step-x").mkdir()
    (tmp_path / "notes").write_text("", encoding="utf-8")
    assert [checkpoint_step(path) for path in list_checkpoints(tmp_path)] == [9, 10, 100]
    assert latest_checkpoint(tmp_path) == tmp_path / "step-100"
    (tmp_path / "step-100" / "state.pt").write_bytes(b"")
    assert latest_checkpoint(tmp_path) == tmp_path / "step-10"


def test_a_checkpoint_of_other_data_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    path = save_checkpoint(make(1, step=7), tmp_path)
    found, untouched = make(2, fingerprint="other data"), make(2)
    with pytest.raises(CheckpointError, match="step-7"):
        load_checkpoint(path, found)
    assert_same(found, untouched)


@pytest.mark.parametrize("limit", [0, 100, 1000])
def test_a_full_disk_is_one_line_and_leaves_the_earlier_checkpoint_alone(tmp_path: Path, limit: int) -> None:
    first = make(1, step=7)
    path = save_checkpoint(first, tmp_path)
    sizes = {file.name: file.stat().st_size for file in path.iterdir()}
    assert limit < sizes["state.pt"]
    for step in (7, 8):
        with files_limited_to(limit), pytest.raises(CheckpointError) as caught:
            save_checkpoint(make(2, step=step), tmp_path)
        assert f"step-{step}: cannot be written" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert [each.name for each in tmp_path.iterdir()] == ["step-7"]
    found = make(3)
    load_checkpoint(path, found)
    assert_same_weights(found.model, first.model)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(CheckpointError, match="step-7: cannot be written"):
        save_checkpoint(make(1, step=7), tmp_path / "file")


@pytest.mark.parametrize(
    ("steps", "kept", "wanted"),
    [
        ([10, 20, 30], {10, 20, 30}, [10, 20, 30]),
        ([9, 10, 13, 100], {9, 100}, [9, 13, 100]),
        ([10, 13, 200], {200}, [13, 200]),
        ([], {10}, []),
    ],
)
def test_all_checkpoints_but_those_kept_and_the_two_newest_are_removed(
    tmp_path: Path, steps: list[int], kept: set[int], wanted: list[int]
) -> None:
    for step in steps:
        save_checkpoint(make(1, step=step), tmp_path)
    prune_checkpoints(tmp_path, retained=kept)
    assert [checkpoint_step(path) for path in list_checkpoints(tmp_path)] == wanted


def test_damaged_checkpoints_are_set_aside_and_the_newest_intact_one_stays(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40):
        path = save_checkpoint(make(1, step=step), tmp_path)
        if step in (10, 30, 40):
            damaged = path / "model.safetensors"
            damaged.write_bytes(damaged.read_bytes()[:-1])
    assert [path.name for path in set_damaged_aside(tmp_path)] == ["damaged-step-30", "damaged-step-40"]
    assert latest_checkpoint(tmp_path) == tmp_path / "step-20"
    save_checkpoint(make(1, step=40), tmp_path)
    prune_checkpoints(tmp_path, retained={40})
    assert [checkpoint_step(path) for path in list_checkpoints(tmp_path)] == [20, 40]
    assert set_damaged_aside(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "damaged-step-30",
        "damaged-step-40",
        "step-20",
        "step-40",
    ]


def test_a_checkpoint_that_was_being_replaced_is_brought_back(tmp_path: Path) -> None:
    path = save_checkpoint(make(1, step=7), tmp_path)
    path.rename(tmp_path / ".step-7.heedful-old")
    assert set_damaged_aside(tmp_path) == []
    assert latest_checkpoint(tmp_path) == path
    assert [each.name for each in tmp_path.iterdir()] == ["step-7"]


def test_a_state_that_would_run_code_is_not_loaded(tmp_path: Path) -> None:
    """Checksums are no signature: whoever writes a checkpoint writes them too."""

    class Code:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.mkdir, (tmp_path / "ran",)  # type: ignore[return-value]

    path = save_checkpoint(make(1, step=7), tmp_path)
    rewrite_state(path, {"fingerprint": Code()})
    assert is_complete(path)
    with pytest.raises(Exception, match="can be read without running code"):
        load_checkpoint(path, make(2))
    assert not (tmp_path / "ran").exists()


def test_the_model_that_is_filled_keeps_its_shared_matrix(tmp_path: Path) -> None:
    found = make(2)
    load_checkpoint(save_checkpoint(make(1, step=7), tmp_path), found)
    model: Transformer = found.model
    assert model.output.weight is model.encoder.embedding.tokens.weight


STEPS = (10, 20, 30)


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
