"""The commands and the Python of a page, run as they stand there."""

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from command_line import heedful
from ten_pairs import as_options

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL = ("sh", "-e", "-c")
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
    """

    added: Mapping[str, Sequence[str]] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)
    verbs: list[str] = field(default_factory=list)

    def run(self, page: str) -> None:
        """Run every block of a page, from the first to the last."""
        for language, text in blocks(page):
            if language == "python":
                exec(compile(text, page, "exec"), self.names)
            else:
                self.run_commands(text)

    def run_commands(self, text: str) -> None:
        """Run a block of commands: heedful's in this process, the others by the shell."""
        for command in commands(text):
            first = shlex.split(command)[0]
            if re.search(r"(^|\| *)heedful ", command):
                self.run_heedful(command)
            elif first == "pip":
                check_extras(command)
            elif first == "make":
                subprocess.run(["make", "-n", *shlex.split(command)[1:]], cwd=ROOT, check=True, stdout=-1)
            else:
                subprocess.run([*SHELL, command], check=True, stdout=subprocess.PIPE)

    def run_heedful(self, command: str) -> None:
        """Run one command, with what comes before and after it in its line."""
        before, _, own = command.rpartition("| ")
        stdin = subprocess.run([*SHELL, before], check=True, stdout=-1).stdout if before else b""
        words, stdout = [], None
        rest = iter(shlex.split(own)[1:])
        for word in rest:
            if word == "<":
                stdin = Path(next(rest)).read_bytes()
            elif word == ">":
                stdout = Path(next(rest))
            else:
                words.append(word)
        outcome = heedful(*words, *self.added.get(words[0], ()), stdin=stdin)
        assert outcome.code == 0, (command, outcome.err)
        if stdout is not None:
            stdout.write_text(outcome.out, encoding="utf-8")
        self.verbs.append(words[0])


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
    installed = re.fullmatch(r"pip install '?(?:heedful|\.)(?:\[([\w,-]+)\])?'?", command)
    assert installed, command
    assert set((installed[1] or "").split(",")) <= {"", *project["optional-dependencies"]}, command
