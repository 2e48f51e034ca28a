"""Run the tests marked by_class as every class of machine that this machine can stand for.

    python tools/machine_classes.py          # or make test-classes

A class is a level of the native library, bf16 as CPUs of that level have it, and one or two threads, in turn;
torch and oneDNN are held down to the instructions of the level. At the commonest level, avx2, and at the best
bf16 is forced the other way, too. Further arguments are pytest's. Prints one line
for each class, and the report of pytest where it failed; the exit code is 1 if any did.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from heedful.runtime.native import BF16_LEVELS, native

ROOT = Path(__file__).resolve().parent.parent
MARK = "by_class"
# The environment that holds torch (ATEN) and oneDNN down to a level; those of aarch64 have no such setting.
HELD_DOWN = {
    "baseline": ("default", "SSE41"),
    "avx2": ("avx2", "AVX2"),
    "avx_vnni": ("avx2", "AVX2_VNNI"),
    "avx512": ("avx512", "AVX512_CORE"),
    "avx512_vnni": ("avx512", "AVX512_CORE_VNNI"),
    "avx512_bf16": ("avx512", "AVX512_CORE_BF16"),
    "amx": ("avx512", "AVX512_CORE_AMX"),
}


def classes() -> Iterator[dict[str, str]]:
    """Yield the environment of each class that this machine can stand for."""
    levels = [level.name for level in native().levels if level.why_not is None] or [""]
    for number, level in enumerate(levels):
        has_bf16 = level in BF16_LEVELS
        for is_on in {has_bf16, not has_bf16} if level in ("avx2", levels[-1]) else {has_bf16}:
            found = {"HEEDFUL_ISA": level, "HEEDFUL_BF16": "on" if is_on else "off"}
            found["OMP_NUM_THREADS"] = str(1 + (number + is_on) % 2)
            if level in HELD_DOWN:
                found["ATEN_CPU_CAPABILITY"], found["ONEDNN_MAX_CPU_ISA"] = HELD_DOWN[level]
            yield found


def main() -> int:
    """Run the tests as each class and return the exit code."""
    files = [
        str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if MARK in path.read_text("utf-8")
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        f"{MARK} and not slow and not gpu",
        *sys.argv[1:],
        *files,
    ]
    failed = 0
    for environment in classes():
        start = time.monotonic()
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False
        )
        last = (done.stdout.strip().splitlines() or ["nothing"])[-1]
        outcome = re.sub(r" in [\d.]+s.*", "", last)
        named = ", ".join(f"{name}={value}" for name, value in environment.items())
        print(f"{time.monotonic() - start:5.0f} s  {outcome}  {named}", flush=True)
        if done.returncode:
            print(done.stdout + done.stderr, flush=True)
        failed += bool(done.returncode)
    return min(failed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
