"""Run the tests marked by_class as every class of machine that this machine can stand for.

    python tools/machine_classes.py          # or make test-classes

A class is a level of the native library, bf16 as CPUs of that level have it, and one or two threads, in turn.
All other libraries that choose by the CPU are limited to the instructions of the level. At the commonest
level, avx2, and at the best, bf16 is forced the other way, too. --levels avx2,best runs these levels alone,
each once. Further arguments are pytest's. Prints one line for each class, and the report of pytest if it
failed; the exit code is 1 if any did.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from heedful.runtime.native import BF16_LEVELS, native

ROOT = Path(__file__).resolve().parent.parent
MARK = "by_class"
NAMED = ("HEEDFUL_ISA", "HEEDFUL_BF16", "OMP_NUM_THREADS")  # what tells two classes apart
# What holds each library down to a level: torch (ATEN), oneDNN, MKL, CTranslate2, OpenBLAS.
# There are no such settings for aarch64.
HELD_DOWN = {
    "baseline": ("default", "SSE41", "SSE4_2", "GENERIC", "NEHALEM"),
    "avx2": ("avx2", "AVX2", "AVX2", "AVX2", "HASWELL"),
    "avx_vnni": ("avx2", "AVX2_VNNI", "AVX2", "AVX2", "HASWELL"),
    "avx512": ("avx512", "AVX512_CORE", "AVX512", "AVX512", "SKYLAKEX"),
    "avx512_vnni": ("avx512", "AVX512_CORE_VNNI", "AVX512", "AVX512", "SKYLAKEX"),
    "avx512_bf16": ("avx512", "AVX512_CORE_BF16", "AVX512", "AVX512", "SKYLAKEX"),
    "amx": ("avx512", "AVX512_CORE_AMX", "AVX512", "AVX512", "SKYLAKEX"),
}


def held_down_to(level: str) -> dict[str, str]:
    """Return the environment in which no library uses instructions above a level of the native library.

    It has to be set before torch, numpy and ctranslate2 are imported. If nothing is set,
    CTranslate2 multiplies by MKL on Intel and by oneDNN elsewhere; here by oneDNN up to AVX2, and by MKL
    above. Empty for aarch64.
    """
    if level not in HELD_DOWN:
        return {}
    aten, onednn, mkl, ctranslate2, openblas = HELD_DOWN[level]
    return {
        "ATEN_CPU_CAPABILITY": aten,
        "ONEDNN_MAX_CPU_ISA": onednn,
        "DNNL_MAX_CPU_ISA": onednn,
        "MKL_ENABLE_INSTRUCTIONS": mkl,
        "CT2_FORCE_CPU_ISA": ctranslate2,
        "CT2_USE_MKL": "1" if mkl == "AVX512" else "0",
        "OPENBLAS_CORETYPE": openblas,
    }


def classes(chosen: Collection[str] = ()) -> Iterator[dict[str, str]]:
    """Yield the environment of each class that this machine can stand for, or of the chosen levels alone.

    The level "best" is the best one here; a chosen level that this machine does not have is left out.
    """
    levels = [level.name for level in native().levels if level.why_not is None] or [""]
    wanted = {levels[-1] if name == "best" else name for name in chosen or levels}
    for number, level in enumerate(levels):
        has_bf16 = level in BF16_LEVELS
        both_ways = not chosen and level in ("avx2", levels[-1])
        for is_on in {has_bf16, not has_bf16} if both_ways else {has_bf16}:
            threads = str(1 + (number + is_on) % 2)
            own = {"HEEDFUL_ISA": level, "HEEDFUL_BF16": "on" if is_on else "off", "OMP_NUM_THREADS": threads}
            if level in wanted:
                yield held_down_to(level) | own


def levels_between_commas(text: str) -> list[str]:
    """Return the levels of --levels.

    Raises:
        ArgumentTypeError: no machine has one of them, or this one has none.
    """
    names = [name for name in text.split(",") if name]
    known = {*HELD_DOWN, *(level.name for level in native().levels), "best"}
    if unknown := sorted(set(names) - known):
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: must be of {', '.join(sorted(known))}")
    if not any(classes(names)):
        raise argparse.ArgumentTypeError(f"{text}: this machine has none of these levels")
    return names


def main() -> int:
    """Run the tests as each class and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--levels", type=levels_between_commas, default="", help="levels between commas; all by default"
    )
    given, of_pytest = parser.parse_known_args()
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    files = [str(path) for path in tests if MARK in path.read_text("utf-8")]
    chosen = ["-m", f"{MARK} and not slow and not gpu", *of_pytest, *files]
    failed = 0
    for environment in classes(given.levels):
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *chosen],
            cwd=ROOT,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        last = (done.stdout.strip().splitlines() or ["nothing"])[-1]
        outcome = re.sub(r" in [\d.]+s.*", "", last)
        named = ", ".join(f"{name}={environment[name]}" for name in NAMED)
        print(f"{time.monotonic() - start:5.0f} s  {outcome}  {named}", flush=True)
        if done.returncode:
            print(done.stdout + done.stderr, flush=True)
        failed += bool(done.returncode)
    return min(failed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
