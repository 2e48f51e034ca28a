"""Run a benchmark and put its table into docs/performance.md, with CPU, level, commit and date.

    python benchmarks/record.py avx2-decoding-small --isa avx2 -- \
        benchmarks/decoding/run.py RUN --src test.en --ref test.de --engines heedful,ctranslate2

The table goes between `<!-- begin NAME -->` and `<!-- end NAME -->`, in place of what is there. With --isa
heedful and everything it is compared with are held to that level of the instruction set before they load.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"

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
    """Run the command; its exit code. The page changes only where it succeeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="of the table's place in docs/performance.md")
    parser.add_argument("--isa", help=f"hold everything to this level: {', '.join(HELD_DOWN)}")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("command", nargs="+", help="a Python script and its arguments, after --")
    given = parser.parse_args()
    if given.isa and given.isa not in HELD_DOWN:
        parser.error(f"--isa {given.isa}: must be one of {', '.join(HELD_DOWN)}")
    begin, end = f"<!-- begin {given.name} -->", f"<!-- end {given.name} -->"
    page = given.page.read_text(encoding="utf-8")
    if begin not in page or end not in page:
        parser.error(f"{given.page} has no {begin} ... {end}")
    settings = {"HEEDFUL_ISA": given.isa, **HELD_DOWN[given.isa]} if given.isa else {}
    environment = os.environ | settings
    done = subprocess.run(
        [sys.executable, *given.command], env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        return done.returncode
    head, _, rest = page.partition(begin)
    tail = rest.partition(end)[2]
    text = f"{begin}\n{_where(environment, given)}\n\n{done.stdout.strip()}\n{end}"
    given.page.write_text(head + text + tail, encoding="utf-8")
    return 0


def _where(environment: dict[str, str], given: argparse.Namespace) -> str:
    """A sentence that says where, when and with what the table was made."""
    script = (
        "import json, torch; from dataclasses import asdict; "
        "from heedful.workflows.inspect import inspect_machine; print(json.dumps(asdict(inspect_machine())))"
    )
    command = [sys.executable, "-c", script]
    machine = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    isa = f"--isa {given.isa} " if given.isa else ""
    called = f"python benchmarks/record.py {given.name} {isa}-- {shlex.join(given.command)}"
    return (
        f"{machine['cpu']}, {machine['cores']} cores, native level {machine['level']}, torch "
        f"{machine['torch']}, commit {commit}, {datetime.now(UTC):%Y-%m-%d}:\n\n```sh\n{called}\n```"
    )


if __name__ == "__main__":
    sys.exit(main())
