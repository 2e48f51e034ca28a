"""Tests run as the class of machine that is forced, in every library that chooses by the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from machine_class import LevelsHere, as_class, every_level, why_not_here

from heedful.runtime.native import BF16_LEVELS, cpu_has_bf16, native
from heedful.runtime.threads import num_threads
from machine_classes import HELD_DOWN, classes

ROOT = Path(__file__).resolve().parents[2]
HERE = [level for level in every_level() if why_not_here(level) is None]


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
def test_a_class_ends_with_its_block(bf16: bool) -> None:
    before = native().level, cpu_has_bf16(), num_threads()
    for level in HERE:
        with as_class(level=level, bf16=bf16, threads=3):
            assert (native().level, cpu_has_bf16(), num_threads()) == (level, bf16, 3)
        assert (native().level, cpu_has_bf16(), num_threads()) == before


def test_levels_that_a_loop_leaves_out_are_counted(request: pytest.FixtureRequest) -> None:
    assert LevelsHere(request.node).levels() == HERE
    assert len(request.node.user_properties) == len(every_level()) - len(HERE)


def test_each_level_is_tried_with_bf16_as_its_cpus_have_it() -> None:
    tried = {(each["HEEDFUL_ISA"], each["HEEDFUL_BF16"]) for each in classes()}
    assert tried >= {(level, "on" if level in BF16_LEVELS else "off") for level in HERE}
