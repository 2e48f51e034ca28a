"""Shells complete commands and their options."""

import shutil
import subprocess
import sys

import pytest
from command_line import heedful


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("heedful tr", {"train", "translate"}),
        ("heedful back", {"back-translate"}),
        ("heedful train --valid-s", {"--valid-src"}),
        ("heedful translate --help", {"--help", "--help-all"}),
        ("heedful draw heads --out", {"--output"}),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_the_words_that_may_follow(
    line: str, wanted: set[str], shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "_HEEDFUL_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    for name, value in variables.items():
        if shell == "bash" or not name.startswith("COMP_"):
            monkeypatch.setenv(name, value)
    outcome = heedful()
    assert outcome.code == 0
    words = outcome.out.replace('"', " ").replace(":", " ").replace("(", " ").split()
    assert {word for word in words if word.startswith(line.split()[-1])} == wanted


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_by_the_script_that_is_shown() -> None:
    script = heedful("--show-completion", "bash").out
    program = f"{sys.executable} -m heedful"
    steps = f"""
        heedful() {{ {program} "$@"; }}
        {script.replace("$1", program)}
        COMP_WORDS=(heedful train --find); COMP_CWORD=2
        _heedful_completion heedful
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "--norc", "-c", steps], capture_output=True, text=True, check=True)
    assert done.stdout == "--find-lr\n", done.stderr
