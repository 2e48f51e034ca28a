"""The hub as a user meets it: commands in processes of their own, told where it is by their environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Outcome
from hub_client import environment
from hub_server import hub_server
from tiny_bundle import PAIRS, save_memorised

SOURCE, TARGET = PAIRS[0]
TRANSLATED = Outcome(0, f"{TARGET}\n", "")  # nothing on stderr: no bars where nobody looks


def run(*args: object, variables: dict[str, str]) -> Outcome:
    command = [sys.executable, "-m", "heedful", *map(str, args)]
    environ = {**os.environ, **variables}
    done = subprocess.run(
        command, env=environ, input=f"{SOURCE}\n".encode(), capture_output=True, check=False
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.slow
def test_a_model_is_pushed_by_one_and_used_by_another(tmp_path: Path) -> None:
    bundle = save_memorised(tmp_path / "bundle")
    with hub_server() as hub:
        pushed = run("push", bundle, "ann/model", variables=environment(hub, tmp_path / "ann"))
        assert pushed == Outcome(0, f"{hub.endpoint}/ann/model/commit/{hub.repos['ann/model'].head}\n", "")
        bob = environment(hub, tmp_path / "bob", token="token-of-bob")
        assert run("translate", "ann/model", variables=bob) == TRANSLATED
