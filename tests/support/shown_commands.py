"""The commands and the Python of a page, run as they stand there, and the answers that it shows.

A line of a block that begins with `#` shows what the line before it prints; `...` stands for more of it.
"""

import io
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from operator import eq
from pathlib import Path
from typing import Any
from unittest.mock import patch

from command_line import heedful
from ten_pairs import as_options
from translation_server import translation_server

from heedful import Config, load_config
from heedful.settings.loading import parse_override
from heedful.tasks import train

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL = ("sh", "-e", "-c")
JSON = "-H 'Content-Type: application/json' -d"  # for curl before 7.82, which has no --json
# Added to training commands, so that they are over in seconds.
SHORT = as_options(
    {
        "train.max_minutes": 0.02,
        "train.threads": 1,
        "valid.decode_sentences": 2,
        "data.cache_dir": "cache",
        "data.allow_overlap": "true",  # where validation is the first of ten pairs
    }
)
# For models that begin here: a size at which a run takes seconds and an export no longer.
SMALL_LAYERS = as_options(
    {
        "model.d_model": 64,
        "model.d_ff": 64,
        "model.num_heads": 4,
        "model.num_encoder_layers": 1,
        "model.num_decoder_layers": 1,
    }
)
SMALL_VOCABULARY = as_options({"tokenizer.vocab_size": 200})  # not for models that have one already


def blocks(page: str) -> list[tuple[str, str]]:
    """Return language and text of each block of a page, a path in the repository."""
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


@dataclass
class Runner:
    """Runs the blocks of a page in the current directory.

    Attributes:
        added: words to add to the commands of a verb.
        names: what the Python of the page has before it; afterwards also what it has defined.
        verbs: the verbs that were run.
        server: host and port to ask in place of localhost:5000.
        compare_tags: whether the tags of an answer are compared, too; a model's attention says where they go.
        answers: the answers that were shown, and compared.
    """

    added: Mapping[str, Sequence[str]] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)
    verbs: list[str] = field(default_factory=list)
    server: str | None = None
    compare_tags: bool = True
    answers: list[str] = field(default_factory=list)

    def run(self, page: str) -> None:
        """Run every block of a page, from the first to the last."""
        for language, text in blocks(page):
            if language == "python":
                self.run_python(text, page)
            else:
                self.run_commands(text)

    def run_python(self, text: str, page: str) -> None:
        """Run a block of Python; its trainings have the settings that are added to those of commands."""
        added = [parse_override(each) for each in self.added.get("train", ()) if each != "--set"]

        def load(path: Path | None, *, preset: str | None, overrides: list[tuple[str, Any]]) -> Config:
            return load_config(path, preset=preset, overrides={**dict(overrides), **dict(added)})

        with patch.object(train, "load_config", load), redirect_stdout(io.StringIO()) as out:
            exec(compile(text, page, "exec"), self.names)
        for shown in re.findall(r"^print\(.*\n# (.*)$", text, re.MULTILINE):
            self.compare(shown, out.getvalue())

    def run_commands(self, text: str) -> None:
        """Run a block of commands: heedful's in this process, the others by the shell."""
        out = ""
        for command in commands(text):
            if command.startswith("# "):
                self.compare(command.removeprefix("# "), out)
            else:
                out = self.run_command(command)

    def run_command(self, command: str) -> str:
        """Run one command; return what it prints."""
        first = shlex.split(command)[0]
        if re.search(r"(^|\| *)heedful ", command):
            return self.run_heedful(command)
        if first == "curl":
            return self.run_curl(command)
        if first == "pip":
            check_extras(command)
            return ""
        if first == "make":
            words, folder = ["make", "-n", *shlex.split(command)[1:]], ROOT
        else:
            words, folder = [*SHELL, command], Path()
        return subprocess.run(words, cwd=folder, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout

    def run_curl(self, command: str) -> str:
        """Ask the server; return its answer, which must be JSON and no refusal."""
        assert self.server, command
        words = shlex.split(command.replace("localhost:5000", self.server).replace("--json", JSON))
        words += ["--silent", "--show-error", "--fail-with-body"]
        done = subprocess.run(words, check=False, stdout=subprocess.PIPE, encoding="utf-8")
        assert done.returncode == 0, (command, done.stdout)
        assert json.loads(done.stdout), command
        return done.stdout

    def compare(self, shown: str, out: str) -> None:
        """Check that what a page shows is what a command printed."""
        self.answers.append(shown)
        if not self.compare_tags:
            shown, out = (re.sub(r"<[^>]*>", "", text) for text in (shown, out))
        if shown.startswith(("{", "[{")):
            parts = json.loads(re.sub(r"(, )?\.\.\.", "", shown))
            assert (has if "..." in shown else eq)(json.loads(out), parts), (shown, out)
        else:
            assert out.strip() == shown

    def run_heedful(self, command: str) -> str:
        """Run one command, with what comes before and after it in its line; return what it prints."""
        before, _, own = command.rpartition("| ")
        stdin = self.run_command(before).encode() if before else b""
        words, stdout = [], None
        rest = iter(shlex.split(own)[1:])
        for word in rest:
            if word == "<":
                stdin = Path(next(rest)).read_bytes()
            elif word == ">":
                stdout = Path(next(rest))
            else:
                words.append(word)
        if words[0] == "serve":
            with translation_server(*words[1:]) as server:
                assert server.ask("GET", "/languages").status == 200
            self.verbs.append(words[0])
            return ""
        outcome = heedful(*words, *self.added.get(words[0], ()), stdin=stdin)
        assert outcome.code == 0, (command, outcome.err)
        if stdout is not None:
            stdout.write_text(outcome.out, encoding="utf-8")
        self.verbs.append(words[0])
        return outcome.out


def has(whole: object, parts: object) -> bool:
    """Return whether a JSON value has the parts: some of the keys, the first of the items."""
    if isinstance(parts, dict) and isinstance(whole, dict):
        return all(key in whole and has(whole[key], part) for key, part in parts.items())
    if isinstance(parts, list) and isinstance(whole, list):
        return len(whole) >= len(parts) and all(map(has, whole, parts))
    return whole == parts


def commands(text: str) -> Iterator[str]:
    """Yield the commands of a block; a loop is one."""
    loop: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        loop += [line] if loop or line.startswith("for ") else []
        if not loop:
            yield line
        elif line == "done":
            yield "\n".join(loop)
            loop = []


def check_extras(command: str) -> None:
    """Check that what a line installs is heedful, with extras that it has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = re.fullmatch(r"pip install '?\.(?:\[([\w,-]+)\])?'?", command)
    assert installed, command
    assert set((installed[1] or "").split(",")) <= {"", *project["optional-dependencies"]}, command
