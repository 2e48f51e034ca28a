"""Runs whose checkpoints, directory or files are gone: what is left stays, and one line says what to do."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import assert_one_clear_line, heedful
from ten_pairs import as_options, write_pairs

SETTINGS: dict[str, object] = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "train.max_steps": 4,
    "train.checkpoint_every_steps": 2,
    "valid.every_steps": 2,
    "valid.decode_sentences": 0,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("trained")
    outcome = heedful("train", *write_pairs(directory), *as_options(SETTINGS), "--output", directory / "run")
    assert outcome.code == 0, outcome.err
    return directory / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def files_of(run: Path) -> dict[str, bytes]:
    """The content of all files, but for the lock."""
    files = (path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    "gone",
    [
        ["checkpoints"],
        ["checkpoints", "last"],
        ["checkpoints", "best", "last"],
        ["checkpoints", "last", "log.jsonl"],
    ],
)
def test_a_run_whose_checkpoints_are_gone_is_not_begun_anew(run: Path, gone: list[str]) -> None:
    for name in gone:
        shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()
    before = files_of(run)
    outcome = heedful("train", "--resume", "-o", run, "--set", "train.max_steps=2")
    assert outcome.code == 1
    message = outcome.err.splitlines()[-1]
    assert message.startswith(f"error: {run / 'checkpoints'}: ")
    assert f"--init {run}" in message
    assert "--overwrite" in message
    assert files_of(run) == before


def test_a_run_whose_checkpoints_are_all_damaged_is_not_begun_anew_the_second_time(run: Path) -> None:
    for file in run.glob("checkpoints/*/model.safetensors"):
        file.write_bytes(b"")
    assert "all checkpoints are damaged" in heedful("train", "--resume", "-o", run).err
    before = files_of(run)
    outcome = heedful("train", "--resume", "-o", run)
    assert outcome.code == 1
    assert str(run / "checkpoints") in outcome.err.splitlines()[-1]
    assert files_of(run) == before


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_anew(run: Path) -> None:
    for name in ("checkpoints", "last"):
        shutil.rmtree(run / name)
    log = (run / "log.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    before = next(number for number, line in enumerate(log) if '"checkpoint"' in line)
    (run / "log.jsonl").write_text("".join(log[:before]), encoding="utf-8")
    assert any('"validation"' in line for line in log[:before])  # and so there is a best
    outcome = heedful("train", "--resume", "-o", run)
    assert outcome.code == 0, outcome.err
    assert (run / "checkpoints" / "step-4").is_dir()


@pytest.mark.parametrize("init", ["run", "run/last", "link", "link/best"])
def test_a_run_does_not_replace_the_model_that_it_continues_from(run: Path, init: str) -> None:
    (run.parent / "link").symlink_to(run)
    before = files_of(run)
    init = str(run.parent / init)
    arguments = [
        "train",
        *write_pairs(run.parent)[:4],
        "--init",
        init,
        *as_options({"schedule.peak": 0.001, "train.max_steps": 1}),
    ]
    outcome = heedful(*arguments, "-o", run, "--overwrite")
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1].startswith(f"error: {run}: ")
    assert "--init" in outcome.err
    assert files_of(run) == before


def test_a_run_is_not_written_into_the_bundle_that_it_continues_from(run: Path) -> None:
    arguments = [
        "train",
        *write_pairs(run.parent)[:4],
        "--init",
        run,
        *as_options({"schedule.peak": 0.001, "train.max_steps": 1}),
    ]
    outcome = heedful(*arguments, "-o", run / "best" / "new")
    assert outcome.code == 1
    assert f"{run / 'best' / 'new'}: " in outcome.err
    assert not (run / "best" / "new").exists()


@pytest.mark.skipif(os.name == "nt", reason="does not let go of a directory with open files")
@pytest.mark.slow
@pytest.mark.parametrize("way", ["moved", "removed", "replaced"])
def test_a_directory_that_is_moved_away_is_not_made_again(trained: Path, tmp_path: Path, way: str) -> None:
    settings = as_options(SETTINGS | {"train.max_steps": 100_000, "train.log_every_steps": 50})
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    command = [sys.executable, "-m", "heedful", "train", *write_pairs(trained.parent), *settings]
    with subprocess.Popen([*command, "-o", str(run)], stderr=subprocess.PIPE, text=True) as process:
        while not (run / "checkpoints" / "step-4").exists():
            assert process.poll() is None
            time.sleep(0.01)
        run.rename(elsewhere)
        if way == "removed":
            shutil.rmtree(elsewhere, ignore_errors=True)
        if way == "replaced":
            run.mkdir()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith(f"error: {run}: was moved or removed during training")
    assert "Traceback" not in err
    assert list(run.iterdir()) == [] if way == "replaced" else not run.exists()
    if way == "moved":
        resumed = heedful("train", "--resume", "-o", elsewhere, "--set", "train.max_steps=4")
        assert resumed.code == 0, resumed.err


@pytest.mark.parametrize("bundle", ["best", "last"])
def test_a_link_in_place_of_a_bundle_is_refused_at_the_start(run: Path, bundle: str) -> None:
    (run / bundle).rename(run.parent / "elsewhere")
    (run / bundle).symlink_to(run.parent / "elsewhere")
    outcome = heedful("train", "--resume", "-o", run, "--set", "train.max_steps=6")
    assert_one_clear_line(outcome, 1, f"{run / bundle}: ")
    assert (run / bundle).is_symlink()


def test_a_run_that_is_resumed_from_elsewhere_says_which_file_it_names(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pairs(run.parent)
    config = (run / "config.toml").read_text(encoding="utf-8")
    for name in ("ten.en", "ten.de"):
        (trained_path,) = {line.split('"')[1] for line in config.splitlines() if f'{name}"' in line}
        config = config.replace(trained_path, name)
    (run / "config.toml").write_text(config, encoding="utf-8")
    (run.parent / "other").mkdir()
    monkeypatch.chdir(run.parent / "other")
    outcome = heedful("train", "--resume", "-o", run)
    assert_one_clear_line(outcome, 1, "ten.en: ", str(run / "config.toml"), "data.src")
    src, tgt = run.parent / "ten.en", run.parent / "ten.de"
    assert f"{tgt}x: " in heedful("train", "--resume", "-o", run, "--src", src, "--tgt", f"{tgt}x").err
    assert heedful("train", "--resume", "-o", run, "--src", src, "--tgt", tgt).code == 0
    monkeypatch.chdir(run.parent)
    assert heedful("train", "--resume", "-o", run).code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--overwrite"], "--overwrite"),
        (["--preset", "big"], "--preset"),
        (["--preset", "bgi"], "'big'"),
    ],
)
def test_options_that_resuming_would_ignore_are_refused(run: Path, options: list[str], message: str) -> None:
    before = files_of(run)
    outcome = heedful("train", "--resume", "-o", run, *options)
    assert_one_clear_line(outcome, 2, message)
    assert files_of(run) == before


def test_the_command_that_began_a_run_may_be_repeated_with_resume(run: Path) -> None:
    arguments = [*write_pairs(run.parent), *as_options(SETTINGS), "--output", run]
    outcome = heedful("train", *arguments, "--resume")
    assert outcome.code == 0, outcome.err


def test_an_average_needs_a_run_with_checkpoints(run: Path, tmp_path: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    for name in ("typo", "run/best", "run"):
        outcome = heedful("average", tmp_path / name, "-o", tmp_path / "mean")
        assert_one_clear_line(outcome, 1, f"{tmp_path / name}: ")
