"""What docs/serving.md shows is run here: its curl commands, against a real server."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_bundle import save_memorised
from translation_server import TranslationServer, translation_server

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
COMMANDS = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)).splitlines()
JSON = "-H 'Content-Type: application/json' -d"  # for curl before 7.82, which has no --json


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TranslationServer]:
    bundle = save_memorised(tmp_path_factory.mktemp("examples") / "tiny")
    with translation_server(f"en-de={bundle}") as running:
        yield running


def test_the_page_has_examples_of_each_dialect() -> None:
    text = " ".join(COMMANDS)
    assert len(COMMANDS) > 10
    assert all(path in text for path in ("/translate", "/detect", "/languages", "/v2/translate", "?from=en"))


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_is_answered(server: TranslationServer, command: str) -> None:
    words = shlex.split(command.replace("localhost:5000", server.url.split("/")[2]).replace("--json", JSON))
    done = subprocess.run([*words, "--silent", "--fail-with-body"], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)
    if "/translate" in command:
        assert "die Katze schläft" in re.sub("<[^>]*>", "", done.stdout.decode())
