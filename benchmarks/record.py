"""Run a benchmark, keep its result in docs/results/ with machine, commit and date, and write the tables anew.

    python benchmarks/record.py avx2-decoding-small --isa avx2 -- \
        benchmarks/decoding/run.py RUN --src test.en --ref test.de --engines heedful,ctranslate2

A page of docs/results/ needs a place for it: `<!-- begin NAME -->` and `<!-- end NAME -->`. With --isa
heedful and everything it is compared with are held to that level of the instruction set before they load.
The level says the class of CPU, unless --cpu-class does: Zen 4 has the instructions of Zen 5, at half width.
"""

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from report import main as write_pages
from results import CLASSES, RESULTS, ROOT, Result, class_of

# What holds torch, oneDNN, MKL and CTranslate2 down to a level of heedful's native library.
HELD_DOWN = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "DNNL_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "CT2_FORCE_CPU_ISA": "AVX2",
    },
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "DNNL_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "CT2_FORCE_CPU_ISA": "AVX512",
    },
}


def main() -> int:
    """Run the command and return its exit code; a result is kept where it succeeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="of the file in docs/results/, and of the table's place in a page there")
    parser.add_argument("--isa", help=f"hold everything to this level: {', '.join(HELD_DOWN)}")
    parser.add_argument("--cpu-class", choices=CLASSES, help="the class of this machine's CPU")
    parser.add_argument(
        "command", nargs="+", help="a Python script that knows --json, and its arguments, after --"
    )
    given = parser.parse_args()
    if given.isa and given.isa not in HELD_DOWN:
        parser.error(f"--isa {given.isa}: must be one of {', '.join(HELD_DOWN)}")
    if not any(f"<!-- begin {given.name} -->" in page.read_text("utf-8") for page in RESULTS.glob("*.md")):
        parser.error(f"no page of {RESULTS} has <!-- begin {given.name} --> and <!-- end {given.name} -->")
    settings = {"HEEDFUL_ISA": given.isa, **HELD_DOWN[given.isa]} if given.isa else {}
    environment = os.environ | settings
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "measured.json"
        command = [sys.executable, *given.command, "--json", str(file)]
        code = subprocess.run(command, env=environment, check=False).returncode
        if code:
            return code
        measured = json.loads(file.read_text(encoding="utf-8"))
    isa = f"--isa {given.isa} " if given.isa else ""
    cpu_class = f"--cpu-class {given.cpu_class} " if given.cpu_class else ""
    called = f"python benchmarks/record.py {given.name} {isa}{cpu_class}-- {shlex.join(given.command)}"
    facts = facts_of(machine_summary(environment))
    if given.cpu_class:
        facts["cpu_class"] = given.cpu_class
    Result(name=given.name, commands=[called], **facts, **measured).save()
    return write_pages()


def machine_summary(environment: dict[str, str]) -> dict[str, Any]:
    """Return what `heedful inspect --machine` says in an environment."""
    command = [sys.executable, "-m", "heedful", "inspect", "--machine", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    return dict(json.loads(done.stdout))


def facts_of(machine: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a `Result` that say on what machine, when and with what it was measured."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    return {
        "cpu_class": class_of(machine["level"], platform.machine()),
        "machine": f"{machine['cpu']}, {machine['cores']} cores, native level {machine['level']}, "
        f"torch {machine['torch']}",
        "commit": commit,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


if __name__ == "__main__":
    sys.exit(main())
