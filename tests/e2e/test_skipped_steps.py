"""Steps that are not taken: which sentences were in them can be read in a file of the run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import heedful
from ten_pairs import ENGLISH, GERMAN, as_options, write_pairs

from heedful.training.parallel.process_group import SingleProcess, StepPlan
from heedful.training.step import StepMetrics

SETTINGS: dict[str, object] = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "train.max_steps": 6,
    "train.checkpoint_every_steps": 3,
    "train.processes": 1,
    "batch.tokens": 200,
    "valid.every_steps": 6,
    "valid.decode_sentences": 0,
}


@pytest.fixture(params=[0.0, 0.1])
def arguments(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Without and with subword sampling, for which the store keeps the sentences."""
    settings = SETTINGS | {"tokenizer.sampling": request.param}
    return ["train", *write_pairs(tmp_path), *as_options(settings), "--output", str(tmp_path / "run")]


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """Steps whose loss is no number."""
    steps: set[int] = set()
    take = SingleProcess.step

    def step(self: SingleProcess, plan: StepPlan) -> StepMetrics:
        return StepMetrics(*3 * [float("nan")], 6) if plan.number in steps else take(self, plan)

    monkeypatch.setattr(SingleProcess, "step", step)
    yield steps


def rows(run: Path) -> list[list[str]]:
    return [line.split("\t") for line in (run / "skipped.tsv").read_text(encoding="utf-8").splitlines()]


def test_the_sentences_of_a_skipped_step_are_in_a_file_that_the_warning_names(
    arguments: list[str], spoiled: set[int], tmp_path: Path
) -> None:
    spoiled |= {2, 5}
    outcome = heedful(*arguments)
    run = tmp_path / "run"
    assert outcome.code == 0, outcome.err
    warnings = [line for line in outcome.err.splitlines() if "is skipped" in line]
    assert [line.split(":")[1] for line in warnings] == [" step 2 is skipped", " step 5 is skipped"]
    assert all(
        line.endswith(f"is not finite; its sentences are in {run / 'skipped.tsv'}") for line in warnings
    )
    header, *found = rows(run)
    assert header == ["step", "pair", "source", "target"]
    assert {row[0] for row in found} == {"2", "5"}
    assert found == [[step, pair, ENGLISH[int(pair)], GERMAN[int(pair)]] for step, pair, *_ in found]


def test_a_run_that_goes_on_forgets_the_rows_of_steps_that_it_takes_again(
    arguments: list[str], spoiled: set[int], tmp_path: Path
) -> None:
    spoiled |= {2, 5}
    assert heedful(*arguments).code == 0
    run = tmp_path / "run"
    before = rows(run)
    for path in run.glob("checkpoints/step-6/*"):
        path.unlink()
    with (run / "skipped.tsv").open("a", encoding="utf-8") as file:
        file.write("6\t3\tha")  # was being written when the run was killed
    spoiled.clear()
    assert heedful(*arguments, "--resume").code == 0
    assert rows(run) == [row for row in before if row[0] != "5"]


def test_the_file_is_the_runs_own(arguments: list[str], spoiled: set[int], tmp_path: Path) -> None:
    spoiled.add(2)
    assert heedful(*arguments).code == 0
    spoiled.clear()
    assert heedful(*arguments, "--overwrite").code == 0
    file = tmp_path / "run" / "skipped.tsv"
    assert not file.exists()
    assert (tmp_path / "run.old-1" / "skipped.tsv").exists()
    file.write_text("my own notes\n", encoding="utf-8")
    outcome = heedful(*arguments, "--overwrite")
    assert outcome.code == 0
    assert f"the old run is in {tmp_path / 'run.old-2'} now" in outcome.err
    assert (tmp_path / "run.old-2" / "skipped.tsv").read_text(encoding="utf-8") == "my own notes\n"
    assert "run.old-2" in (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8")
