"""docs/pictures.md is run: its commands on little text, and its Python."""

import re
import shlex
from pathlib import Path

import pytest
from command_line import heedful
from tiny_bundle import PAIRS, save_memorised

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "pictures.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for language, i in (("en", 0), ("de", 1)):
        for name in ("train", "test"):
            lines = [pair[i] + "\n" for pair in PAIRS]
            Path(f"{name}.{language}").write_text("".join(lines), encoding="utf-8")
    for run in ("en-de", "other", "demo"):
        save_memorised(tmp_path / "runs" / run / "best")
        log = tmp_path / "runs" / run / "log.jsonl"
        log.write_text('{"event": "step", "step": 7, "nll": 1.5}\n', encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_every_command_of_the_page_runs(folder: Path) -> None:
    lines = "".join(blocks("sh")).splitlines()
    assert len(lines) > 6
    for line in lines:
        out = b""
        for command in line.split(" | "):
            words, _, stdin = command.partition(" < ")
            outcome = heedful(*shlex.split(words)[1:], stdin=Path(stdin).read_bytes() if stdin else out)
            assert outcome.code == 0, (line, outcome.err)
            out = outcome.out.encode()
    for name in re.findall(r"--output (\S+)", "\n".join(lines)):
        assert (folder / name).stat().st_size
    assert (folder / "heads.png").stat().st_size


@pytest.mark.slow
def test_the_python_of_the_page_runs(folder: Path) -> None:
    (code,) = blocks("python")
    exec(compile(code, "pictures.md", "exec"), {})
