"""The class of machine that tests run as, the count of what is not executed, the classes that are tried."""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import machine_class
import pytest
from machine_class import COMMON, LevelsHere, as_class, every_computation, every_level, why_not_here

from heedful.runtime.native import BF16_LEVELS, cpu_has_bf16, native
from heedful.runtime.threads import num_threads
from machine_classes import HELD_DOWN, classes, levels_between_commas

ROOT = Path(__file__).resolve().parents[2]
HERE = [level for level in every_level() if why_not_here(level) is None]
ONE_FOR_EACH_LEVEL = ("tests/unit/runtime/test_native.py", "-k", "test_int8_is_exact_at_every_level")


def report_of(*arguments: str, **environment: str) -> str:
    """Run pytest as from a shell with nothing set but this, and return its last lines."""
    chosen = ("HEEDFUL_ISA", "HEEDFUL_BF16", "OMP_NUM_THREADS")
    plain = {name: value for name, value in os.environ.items() if name not in chosen}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=plain | environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_run_says_as_which_class_and_how_many_cases_were_not_executed() -> None:
    report = report_of(*ONE_FOR_EACH_LEVEL)
    level = COMMON if COMMON in HERE else (HERE or [None])[0]
    assert ("no native library" if level is None else f"at level {level}") in report
    assert ", bf16 off, threads 1\n" in report
    missing = [name for name in every_level() if name not in HERE]
    expected = f"{len(missing)} cases not executed on this machine"
    assert expected + (": " + ", ".join(f"1 {name}" for name in missing) if missing else "") + "\n" in report


@pytest.mark.slow
@pytest.mark.skipif(not HERE, reason=native().describe())
def test_what_the_environment_chooses_stays() -> None:
    chosen = {"HEEDFUL_ISA": HERE[-1], "HEEDFUL_BF16": "on", "OMP_NUM_THREADS": "2"}
    report = report_of(*ONE_FOR_EACH_LEVEL, **chosen)
    assert re.search(rf"at level {HERE[-1]}( \(.*\))?, bf16 on, threads 2\n", report)


def test_a_level_that_is_missing_in_a_loop_is_counted(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = every_level()[-1]
    monkeypatch.setattr(machine_class, "why_not_here", lambda level: "lost" if level == last else None)
    here = LevelsHere(request.node)
    assert here.levels() == every_level()[:-1]
    assert here.computations() == [each for each in every_computation() if each[0] != last]
    counted = [value for _, value in request.node.user_properties]
    assert counted == [last] * (1 + sum(level == last for level, _ in every_computation()))
    request.node.user_properties.clear()  # as nothing was left out here


@pytest.mark.skipif(os.environ.get("HEEDFUL_ISA") not in HELD_DOWN, reason="no library is held to this level")
def test_other_libraries_are_held_to_the_level_in_every_process() -> None:
    aten, _, _, ctranslate2, _ = HELD_DOWN[os.environ["HEEDFUL_ISA"]]
    model = str(ROOT / "tests" / "golden" / "aren-transliteration" / "float32")
    code = (
        "import torch, ctranslate2; print('ATen:', torch.backends.cpu.get_cpu_capability());"
        f"ctranslate2.Translator({model!r})"
    )
    command, environment = [sys.executable, "-c", code], os.environ | {"CT2_VERBOSE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert f"ATen: {aten.upper()}\n" in done.stdout
    assert f"Selected ISA: {ctranslate2}\n" in done.stderr


@pytest.mark.parametrize("bf16", [False, True])
def test_a_class_is_that_of_the_block_alone(bf16: bool) -> None:
    before = native().level, cpu_has_bf16(), num_threads()
    for level in HERE:
        with as_class(level=level, bf16=bf16, threads=3):
            assert (native().level, cpu_has_bf16(), num_threads()) == (level, bf16, 3)
        assert (native().level, cpu_has_bf16(), num_threads()) == before


def test_each_level_is_tried_and_the_commonest_and_the_best_with_bf16_forced_both_ways() -> None:
    tried = [(each["HEEDFUL_ISA"], each["HEEDFUL_BF16"]) for each in classes()]
    levels = HERE or [""]
    assert set(tried) >= {(level, "on" if level in BF16_LEVELS else "off") for level in levels}
    for level in {"avx2", levels[-1]} & set(levels):
        assert {(level, "on"), (level, "off")} <= set(tried)
    assert len(tried) == len(set(tried))
    if len(tried) > 2:
        assert {each["OMP_NUM_THREADS"] for each in classes()} == {"1", "2"}


def test_a_level_that_no_machine_has_is_refused() -> None:
    assert levels_between_commas("best") == ["best"]
    assert levels_between_commas("") == []
    with pytest.raises(argparse.ArgumentTypeError, match="avx3"):
        levels_between_commas("best,avx3")
