"""`heedful serve` in several processes: right answers, shared records, and what happens when one dies."""

import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from command_line import heedful
from redis_server import redis_server
from tiny_bundle import PAIRS, memorised, save_memorised
from translation_server import Reply, TranslationServer, translation_server

from heedful import Transformer, load_plugin, save_bundle
from heedful.settings import plugins

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
def test_several_processes_have_the_plugin_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_LOADED", {})
    plugin, known = tmp_path / "own_relu.py", memorised()
    plugin.write_text("def relu(x):\n    return x.relu()\n", "utf-8")
    model = Transformer(known.config.model.replace(activation=load_plugin(plugin).relu)).eval()
    model.load_state_dict(known.model.state_dict())
    config = known.config.replace(model=model.config)
    save_bundle(replace(known, config=config, network=model), tmp_path / "bundle")
    with translation_server(f"en-de={tmp_path / 'bundle'}", "--workers", 2, "--plugin", plugin) as server:
        wait_for_processes(server, 2)
        for src, tgt in PAIRS:
            assert ask(server, src).json == {"translatedText": tgt}


def test_no_process_goes_on_without_its_parent(bundle: Path) -> None:
    with translation_server(f"en-de={bundle}", "--workers", 2) as server:
        wait_for_processes(server, 2)
        workers = [psutil.Process(number) for number in started(server)]
        server.process.kill()
        _, alive = psutil.wait_procs(workers, timeout=60)
        assert alive == []


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


@pytest.mark.slow
def test_processes_that_load_for_long_are_replaced_one_by_one(bundle: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "slow.py"
    plugin.write_text("import time\ntime.sleep(6)\n", "utf-8")  # uvicorn itself waits for five seconds
    with translation_server(f"en-de={bundle}", "--workers", 2, "--plugin", plugin) as server:
        wait_for_processes(server, 2)
        before = started(server)
        server.process.send_signal(signal.SIGHUP)
        while len(set(started(server))) < 4:
            assert ask(server, PAIRS[0][0]).json == {"translatedText": PAIRS[0][1]}
        assert all(psutil.Process(each).is_running() for each in set(started(server)) - set(before))


def test_servers_with_one_redis_share_keys_rates_and_usage(bundle: Path, tmp_path: Path) -> None:
    """Two whole servers; a client who has used up the rate at one of them is refused by the other."""
    redis = pytest.importorskip("redis")
    keys, english = tmp_path / "keys.json", PAIRS[0][0]
    with redis_server() as url, redis.Redis.from_url(url, decode_responses=True) as records:
        made = heedful("serve", "--make-key", "ann", "--keys", keys, "--shared", url, "--rate", 6)
        assert made.code == 0, made.err
        header = {"Authorization": f"DeepL-Auth-Key {made.out.strip()}"}
        content = {"text": [english], "source_lang": "EN", "target_lang": "DE"}
        arguments = (f"en-de={bundle}", "--keys", keys, "--shared", url)
        with translation_server(*arguments) as one, translation_server(*arguments) as other:
            for server in (one, other):
                assert server.post("/v2/translate", content).status == 403
                records.delete(*records.keys("heedful:rate:*"), "none")
                reply = server.post("/v2/translate", content, **header)
                assert [each["text"] for each in reply.json["translations"]] == [PAIRS[0][1]]
            (rate,) = records.keys("heedful:rate:*")
            # No request is left, by a clock that was set back, so that none comes back while this runs.
            records.hset(rate, mapping={"tokens": 0, "at": int(records.time()[0]) + 86_400})
            refused = [server.post("/v2/translate", content, **header) for server in (one, other)]
            assert [reply.status for reply in refused] == [429, 429]
            usages = []
            for server in (one, other):
                records.delete(rate)
                usages.append(server.ask("GET", "/v2/usage", None, header).json["character_count"])
            assert usages == [2 * len(english)] * 2
