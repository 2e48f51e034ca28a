"""`heedful serve --workers`: right answers, and what happens when a process dies."""

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from tiny_bundle import PAIRS, save_memorised
from translation_server import Reply, TranslationServer, translation_server

pytestmark = pytest.mark.skipif(os.name == "nt", reason="uvicorn has no workers there")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_memorised(tmp_path_factory.mktemp("served") / "tiny")


def ask(server: TranslationServer, english: str) -> Reply:
    return server.post("/translate", {"q": english, "source": "en", "target": "de"})


def started(server: TranslationServer) -> list[int]:
    """The processes that have answered or could, in the order of their start."""
    lines = [line for line in server.log if "Started server process" in line]
    return [int(line.split("[")[1].split("]")[0]) for line in lines]


def wait_for_processes(server: TranslationServer, count: int) -> None:
    server.wait_until_it_listens()
    while len(started(server)) < count:
        assert server.process.poll() is None
        time.sleep(0.01)


@pytest.mark.slow
def test_several_processes_answer_and_one_that_is_killed_is_replaced(bundle: Path) -> None:
    with translation_server(f"en-de={bundle}", "--workers", 2) as server, ThreadPoolExecutor(8) as clients:
        wait_for_processes(server, 2)
        replies = clients.map(lambda number: ask(server, PAIRS[number % 6][0]), range(120))
        assert [reply.json for reply in replies] == [
            {"translatedText": PAIRS[number % 6][1]} for number in range(120)
        ]
        psutil.Process(started(server)[0]).kill()
        wait_for_processes(server, 3)
        assert len(set(started(server))) == 3
        assert ask(server, PAIRS[0][0]).json == {"translatedText": PAIRS[0][1]}
        assert server.terminate() == 0


@pytest.mark.slow
def test_a_process_that_cannot_be_replaced_is_one_line(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    shutil.copytree(bundle, path)
    with translation_server(f"en-de={path}", "--workers", 2) as server:
        wait_for_processes(server, 2)
        path.rename(tmp_path / "elsewhere")
        psutil.Process(started(server)[0]).kill()
        while not any("cannot start" in line for line in server.log):
            assert server.process.poll() is None
            time.sleep(0.01)
        assert ask(server, PAIRS[0][0]).json == {"translatedText": PAIRS[0][1]}  # by the other one
        (tmp_path / "elsewhere").rename(path)
        wait_for_processes(server, 3)
        assert server.terminate() == 0
    log = "".join(server.log)
    assert f"a process cannot start: {path}: no such directory" in log
    assert "Traceback" not in log
