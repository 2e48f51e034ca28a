"""Long translations: killed at any moment, they end in the same bytes; shards are whole or absent."""

import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Outcome, assert_one_clear_line, heedful, text
from tiny_bundle import SOURCES, save_untrained

from heedful.bulk import resumable
from heedful.bulk.folders import folder_at

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9")

# Runs commands, with chunks of four lines, in processes that kill themselves at the n-th call of a function.
STRUCK = """
import json, os, signal, sys
from heedful.cli.main import main
from heedful.tasks import loading
from heedful.bulk import resumable
from heedful.bulk import lines
lines.CHUNK_LINES, resumable._SYNC_SHARE = 4, 1e9
def run(name, left, arguments):
    original = getattr(os, name)
    def struck(*arguments, **options):
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)
    setattr(os, name, struck)
    sys.argv[1:] = arguments
    main()
codes = []
for case in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        run(*case)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(codes))
"""
# (function, number): fsync is of the manifest and its directory; for each of twelve chunks, of the output, of
# the manifest and its directory; of the output and its directory. After 13 manifests the output is renamed.
MOMENTS = [
    ("fsync", 1),
    ("fsync", 3),
    ("fsync", 4),
    ("fsync", 38),
    ("fsync", 39),
    ("replace", 14),
    ("fsync", 40),
    ("unlink", 1),
    ("unlink", 2),
]
LINES = [*SOURCES, "", "the dog", "sees the cat", *SOURCES[::-1], "the cat ?"] * 3 + [" ".join(SOURCES)]


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.bulk.lines.CHUNK_LINES", 4)
    monkeypatch.setattr(resumable, "_SYNC_SHARE", 1e9)  # an entry after every chunk


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "in.txt").write_bytes(text(LINES))
    return tmp_path


def interrupted(run: Path, files: Path, *options: object, output: str = "out") -> Outcome:
    """Translate until a line that is not UTF-8, after 33 lines, and mend that."""
    good = (files / "in.txt").read_bytes()
    (files / "in.txt").write_bytes(text(LINES[:33]) + b"\xff\n" + text(LINES[34:]))
    outcome = heedful("translate", run, "-i", files / "in.txt", "-o", files / output, *options)
    (files / "in.txt").write_bytes(good)
    return outcome


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_translation_that_is_killed_ends_in_the_same_bytes(run: Path, files: Path) -> None:
    cases: dict[str, tuple[str, int]] = {
        f"{function}-{number}{ending}": (function, number)
        for function, number in MOMENTS
        for ending in (".txt", ".gz")
    }
    command = ["translate", str(run), "-i", str(files / "in.txt"), "--json"]
    commands = [[*case, [*command, "-o", str(files / name)]] for name, case in cases.items()]
    done = subprocess.run(
        [sys.executable, "-c", STRUCK, json.dumps(commands)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [-signal.SIGKILL] * len(cases), done.stderr
    for ending in (".txt", ".gz"):
        assert heedful(*command, "-o", files / f"whole{ending}").code == 0
    for name in cases:
        outcome = heedful(*command, "-o", files / name, "--resume")
        assert outcome.code == 0, outcome.err
        assert (files / name).read_bytes() == (files / f"whole{Path(name).suffix}").read_bytes()
    assert names(files) == sorted(["in.txt", "whole.txt", "whole.gz", *cases])


def test_a_translation_goes_on_after_the_last_chunk_on_the_disk(run: Path, files: Path) -> None:
    outcome = interrupted(run, files)
    assert_one_clear_line(outcome, 1, "line 34, byte 0", "out.unfinished; --resume goes on from there)")
    assert (files / "out.unfinished").read_bytes().count(b"\n") == 33
    (files / "twice.gz").write_bytes(
        gzip.compress(text(LINES))
    )  # the lines count, and not how they are stored
    outcome = heedful("translate", run, "-i", files / "twice.gz", "-o", files / "out", "--resume")
    assert outcome == Outcome(0, "", "resuming after line 32\n")
    expected = heedful("translate", run, stdin=text(LINES)).out
    assert (files / "out").read_text(encoding="utf-8") == expected
    assert names(files) == ["in.txt", "out", "twice.gz"]


def test_lines_keep_their_numbers(run: Path, files: Path) -> None:
    options = ["--n-best", 2, "--max-source-tokens", 40]
    assert interrupted(run, files, *options).code == 1
    whole = heedful("translate", run, "-i", files / "in.txt", "-o", files / "whole", *options)
    outcome = heedful("translate", run, "-i", files / "in.txt", "-o", files / "out", "--resume", *options)
    assert (files / "out").read_bytes() == (files / "whole").read_bytes()
    assert f"line {len(LINES)}: " in whole.err
    assert outcome.err == "resuming after line 32\n" + whole.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--beam-size", 1],
            "strategy=BeamSearch(beam_size=4, early_stopping='optimal'), not BeamSearch(beam_size=1",
        ),
        (["--scores"], "scores=False, not True"),
        (["--batch-size", 3], "batch_size=None, not 3"),
    ],
)
def test_other_options_are_refused(run: Path, files: Path, options: list[object], message: str) -> None:
    interrupted(run, files)
    before = {name: (files / name).read_bytes() for name in names(files)}
    outcome = heedful("translate", run, "-i", files / "in.txt", "-o", files / "out", "--resume", *options)
    assert_one_clear_line(
        outcome, 1, "out.unfinished: was written with", message, "give the same model and options"
    )
    assert {name: (files / name).read_bytes() for name in names(files)} == before


def test_another_model_another_input_or_less_output_is_refused(
    run: Path, files: Path, tmp_path: Path
) -> None:
    interrupted(run, files)
    arguments = ["-i", files / "in.txt", "-o", files / "out", "--resume"]
    other = heedful("translate", save_untrained(tmp_path / "other"), *arguments)
    assert_one_clear_line(other, 1, "out.unfinished")
    (files / "in.txt").write_bytes(text([*LINES[:31], "the dog", *LINES[32:]]))
    assert_one_clear_line(heedful("translate", run, *arguments), 1, "the first 32 lines of the input are not")
    (files / "in.txt").write_bytes(text(LINES[:31]))
    assert heedful("translate", run, *arguments).code == 1
    (files / "in.txt").write_bytes(text(LINES))
    whole = (files / "out.unfinished").read_bytes()
    for changed in (whole[:100], b"X" + whole[1:]):
        (files / "out.unfinished").write_bytes(changed)
        assert_one_clear_line(heedful("translate", run, *arguments), 1, "out.unfinished")
    (files / "out.unfinished.json").write_bytes(b"\0" * 100)
    assert_one_clear_line(heedful("translate", run, *arguments), 1, "out.unfinished.json: damaged")


def test_prefixes_belong_to_the_input(run: Path, files: Path) -> None:
    prefixes = ["" if number % 3 else "der" for number, _ in enumerate(LINES)]
    (files / "prefix").write_bytes(text(prefixes))
    options = ["--prefix", files / "prefix"]
    interrupted(run, files, *options)
    (files / "prefix").write_bytes(text(["die", *prefixes[1:]]))
    arguments = ["-i", files / "in.txt", "-o", files / "out", "--resume"]
    assert_one_clear_line(
        heedful("translate", run, *arguments, *options), 1, "the first 32 lines of the input"
    )
    (files / "prefix").write_bytes(text(prefixes))
    assert heedful("translate", run, *arguments, *options).code == 0
    expected = heedful("translate", run, "-i", files / "in.txt", *options).out
    assert (files / "out").read_text(encoding="utf-8") == expected


def test_what_an_earlier_run_has_left_is_named_and_left_alone(run: Path, files: Path) -> None:
    interrupted(run, files)
    before = (files / "out.unfinished").read_bytes()
    outcome = heedful("translate", run, "-i", files / "in.txt", "-o", files / "out")
    assert outcome.code == 0
    assert (
        outcome.err == f"{files}/out.unfinished has 32 lines of an earlier run; --resume goes on with them\n"
    )
    assert (files / "out.unfinished").read_bytes() == before
    assert names(files) == ["in.txt", "out", "out.unfinished", "out.unfinished.json"]


@pytest.mark.parametrize("source", ["in.txt", "in.txt.gz", "-"])
def test_progress_is_shown_with_the_time_that_is_left(
    run: Path, files: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.cli.streams._BETWEEN_LINES", 0.0)
    (files / "in.txt.gz").write_bytes(gzip.compress(text(LINES)))
    path = source if source == "-" else files / source
    outcome = heedful("translate", run, "-i", path, "-o", files / "out", stdin=text(LINES))
    left = "" if source == "-" else r" · \d+:\d\d left"
    shown = [re.fullmatch(rf"(\d+) lines · [\d,]+ tokens/s{left}", line) for line in outcome.err.splitlines()]
    assert [match and int(match[1]) for match in shown] == [*range(4, len(LINES), 4)]


def test_two_processes_do_not_write_one_output(run: Path, files: Path) -> None:
    interrupted(run, files)
    with folder_at(str(files)).locked("out.unfinished"):
        outcome = heedful("translate", run, "-i", files / "in.txt", "-o", files / "out", "--resume")
    assert_one_clear_line(outcome, 1, "out.unfinished")


def test_an_interrupted_translation_says_how_to_go_on(
    run: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = resumable.ResumableOutput.checkpoint

    def interrupted(self: resumable.ResumableOutput, lines: int) -> None:
        checkpoint(self, lines)
        if lines == 8:
            raise KeyboardInterrupt

    command = ["translate", run, "-i", files / "in.txt", "-o", files / "out"]
    with monkeypatch.context() as patch:
        patch.setattr(resumable.ResumableOutput, "checkpoint", interrupted)
        outcome = heedful(*command)
    assert_one_clear_line(outcome, 130, "interrupted", f"{files / 'out.unfinished'}", "--resume")
    assert heedful(*command, "--resume").code == 0
    assert (files / "out").read_text(encoding="utf-8") == heedful("translate", run, stdin=text(LINES)).out


@pytest.mark.parametrize("options", [[], ["-o", "-"], ["-o", "/dev/null"], ["-o", "out", "--line-buffered"]])
def test_only_a_file_can_be_resumed(run: Path, options: list[str]) -> None:
    assert_one_clear_line(heedful("translate", run, "--resume", *options), 2, "--resume needs --output")


# Kills runs after a random time, each a new process that goes on where the last one was; prints how many
# were killed and how many went on; a whole translation is compared, and the next one starts.
KILLED = """
import json, os, pathlib, random, signal, sys, time
from heedful.cli.main import main
from heedful.tasks import loading
from heedful.bulk import resumable
from heedful.bulk import lines
def start(*arguments):
    child = os.fork()
    if not child:
        sys.argv[1:] = arguments
        main()
    return child
folder, kills, rng = pathlib.Path(sys.argv[1]), int(sys.argv[2]), random.Random(50)
command = ["translate", sys.argv[3], "-i", str(folder / "in"), "--beam-size", "1", "-o"]
started = time.monotonic()
assert os.waitpid(start(*command, str(folder / "whole")), 0)[1] == 0
longest, killed = time.monotonic() - started, 0
manifest, went_on = folder / "out.unfinished.json", 0
while killed < kills:
    went_on += b'"lines"' in (manifest.read_bytes() if manifest.exists() else b"")
    child = start(*command, str(folder / "out"), "--resume")
    time.sleep(rng.uniform(0.0, longest))
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    killed += os.waitstatus_to_exitcode(status) != 0
    if (folder / "out").exists():
        assert (folder / "out").read_bytes() == (folder / "whole").read_bytes()
        (folder / "out").unlink()
assert os.waitpid(start(*command, str(folder / "out"), "--resume"), 0)[1] == 0
print(killed, went_on)
"""


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_kills_at_any_moment_change_no_byte(run: Path, tmp_path: Path) -> None:
    """20 times on 10,000 lines; HEEDFUL_STRIKES is another number."""
    rng = random.Random(50)
    lines = [" ".join(rng.choices(SOURCES, k=rng.randint(1, 2))) for _ in range(10_000)]
    (tmp_path / "in").write_bytes(text(lines))
    kills = os.environ.get("HEEDFUL_STRIKES", "20")
    arguments = [sys.executable, "-c", KILLED, str(tmp_path), kills, str(run)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    killed, went_on = map(int, done.stdout.split())
    assert killed == int(kills)
    assert went_on > 0  # how many depends on how fast the machine is
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert (tmp_path / "out").read_bytes().count(b"\n") == 10_000
