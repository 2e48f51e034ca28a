"""Documents that are translated one by one, between the texts of other requests."""

import asyncio
import errno
import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from unittest import TestCase

import psutil
import pytest
from document_files import docx_file
from small_services import RuleTranslator, rule_model

from heedful.documents.document_file import DocumentFile
from heedful.serving import document_jobs
from heedful.serving.document_jobs import (
    DocumentJobs,
    DocumentRequest,
    DocumentState,
    DocumentStore,
    documents_directory,
)
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.refusals import NoSuchDocumentError, TooManyRequestsError
from heedful.serving.service import TranslationRequest, TranslationService
from heedful.spans import literal_rules

SHORT = TranslationRequest(texts=("a short text",), source="en", target="de")


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.001)


class World:
    """Jobs in a directory, a translator, and what was counted."""

    def __init__(self, path: Path, **limits: float) -> None:
        self.translator = RuleTranslator(str.upper)
        self.limits = Limits(cached_characters=0, **limits)  # type: ignore[arg-type]
        self.service = TranslationService([rule_model("m", self.translator)], self.limits, Metrics())
        self.jobs = DocumentJobs(self.service, path)
        self.counted: list[int] = []

    def request(self, text: str | bytes, *, name: str = "a.txt", sender: str = "ann") -> DocumentRequest:
        async def count(characters: int) -> None:
            self.counted.append(characters)

        return DocumentRequest(
            name=name,
            file=io.BytesIO(text.encode() if isinstance(text, str) else text),
            target="de",
            source="en",
            glossary=None,
            owner="ann",
            sender=f"key {sender}",
            key="key",
            count=count,
        )

    def state(self, state: DocumentState) -> DocumentState:
        return self.jobs.store.get(state.id, owner="ann", key="key")

    def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run the work in an event loop of its own, and close everything."""

        async def run() -> None:
            try:
                await work()
            finally:
                self.translator.gate.set()
                await self.jobs.close()
                self.service.close()

        asyncio.run(run())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def num_folders(store: DocumentStore) -> int:
    return sum(each.is_dir() for each in store._path.iterdir())


def lines(number: int) -> str:
    return "".join(f"line {n} of a document\n" for n in range(number))


def test_a_document_is_translated_and_its_file_removed(world: World) -> None:
    async def work() -> None:
        state, task = await world.jobs.submit(world.request(lines(3)))
        done = await task
        assert (done.status, done.characters, done.seconds_remaining) == ("done", 63, None)
        assert world.state(state) == replace(done, changed=world.state(state).changed)
        assert world.jobs.store.result(state).read_text() == lines(3).upper()
        assert not world.jobs.store.source(state).exists()
        assert world.counted == [63]

    world.run(work)


def test_a_document_says_what_is_kept(world: World) -> None:
    async def work() -> None:
        request = replace(world.request("We see Acme.\nWe see it."), keep=literal_rules(["Acme"]))
        _, task = await world.jobs.submit(request)
        assert world.jobs.store.result(await task).read_text() == "WE SEE Acme.\nWE SEE IT."

    world.run(work)


def test_a_short_text_waits_for_no_more_than_a_batch_of_a_document(world: World) -> None:
    async def work() -> None:
        world.translator.gate.clear()
        _, task = await world.jobs.submit(world.request(lines(2000)))
        await until(lambda: len(world.translator.batches) == 1)
        await until(lambda: sum(map(len, world.service._queues)) > 100)
        answer = asyncio.ensure_future(world.service.translate(SHORT))
        await until(
            lambda: any(each.key.text == SHORT.texts[0] for each in world.service._queues[0]._waiting)
        )
        world.translator.gate.set()
        await answer
        batches = list(world.translator.batches)
        (at,) = [n for n, batch in enumerate(batches) if SHORT.texts[0] in batch]
        assert at <= 2  # the one that was being translated, and one more
        assert (await task).status == "done"

    world.run(work)


def test_one_document_is_in_memory_at_a_time_and_the_others_wait(world: World) -> None:
    async def work() -> None:
        world.translator.gate.clear()
        first, first_task = await world.jobs.submit(world.request(lines(10)))
        second, second_task = await world.jobs.submit(world.request(lines(10)))
        await until(lambda: len(world.translator.batches) == 1)
        await asyncio.sleep(0.05)
        assert (world.state(first).status, world.state(second).status) == ("translating", "queued")
        world.translator.gate.set()
        assert [(await each).status for each in (first_task, second_task)] == ["done", "done"]

    world.run(work)


def test_the_time_that_is_left_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_jobs, "_SECONDS", 0.001)

    async def work() -> None:
        rule = world.translator.rule

        def closing(text: str) -> str:
            if text.startswith("line 600 "):
                world.translator.gate.clear()
            return rule(text)

        world.translator.rule = closing
        state, task = await world.jobs.submit(world.request(lines(1500)))
        await until(lambda: not world.translator.gate.is_set())
        await until(lambda: world.state(state).seconds_remaining is not None)
        told = world.state(state)
        assert told.characters == len(lines(1500))
        assert (told.seconds_remaining or 0) >= 1
        world.translator.gate.set()
        assert (await task).status == "done"

    world.run(work)


def test_a_service_that_is_closed_gives_up_its_documents(world: World) -> None:
    threads = threading.active_count()

    async def work() -> None:
        world.translator.gate.clear()
        state, task = await world.jobs.submit(world.request(lines(2000)))
        waiting, _ = await world.jobs.submit(world.request(lines(10)))
        await until(lambda: len(world.translator.batches) == 1)
        world.translator.gate.set()
        await world.jobs.close()
        assert task.cancelled()
        assert len(world.translator.batches) < 100
        for each in (state, waiting):
            with pytest.raises(NoSuchDocumentError):
                world.state(each)

    world.run(work)
    assert threading.active_count() <= threads + 1  # asyncio.run ends its own


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.docx", docx_file(), "a.docx: its parts with text have"),
        ("a.txt", b"\xff secret", "a.txt: not utf-8 (byte 0); convert it to UTF-8"),
        ("a.txt", b"a" * 101, "the document has more than 100 characters"),
    ],
)
def test_a_document_that_cannot_be_translated_says_why(
    name: str, data: bytes, message: str, tmp_path: Path
) -> None:
    world = World(tmp_path, document_characters=100, document_bytes=101)

    async def work() -> None:
        state, task = await world.jobs.submit(world.request(data, name=name))
        done = await task
        assert done.status == "error"
        assert done.error.startswith(message)
        assert str(tmp_path) not in done.error
        assert not world.jobs.store.source(state).exists()
        assert world.counted == []

    world.run(work)


def test_long_markdown_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    world = World(tmp_path, document_characters=100)

    async def work() -> None:
        _, task = await world.jobs.submit(world.request("x$$\n" * 51, name="a.MD"))
        assert (await task).error == "the document has more than 200 bytes of Markdown; split it"

    world.run(work)


def test_a_full_disk_costs_no_translation_and_is_named_where_it_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def work() -> None:
        write = world.jobs.store.write
        monkeypatch.setattr(
            world.jobs.store,
            "write",
            lambda state: full() if state.status == "translating" else write(state),
        )
        state, task = await world.jobs.submit(world.request(lines(3)))
        assert (await task).status == "done"
        assert world.jobs.store.result(state).read_text() == lines(3).upper()
        monkeypatch.setattr(DocumentFile, "write", full)
        _, task = await world.jobs.submit(world.request(lines(3)))
        expected = "the translation cannot be stored: no space left on device; free some space"
        assert (await task).error.lower() == expected
        monkeypatch.setattr(
            world.jobs.store,
            "write",
            lambda state: full() if state.status in ("done", "error") else write(state),
        )
        state, task = await world.jobs.submit(world.request(lines(3)))
        assert (await task).error == "the document cannot be stored; try again later"
        with pytest.raises(NoSuchDocumentError):
            world.state(state)

    world.run(work)


def test_a_fault_of_our_own_is_logged_without_the_text(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: object, **__: object) -> None:
        raise KeyError("-".join(("sec", "ret")))

    monkeypatch.setattr(document_jobs, "translate_units", faulty)

    async def work() -> None:
        _, task = await world.jobs.submit(world.request(lines(3)))
        assert (await task).error == "Internal error; its reason is in the server's log"

    with TestCase().assertLogs("heedful.serving") as logs:
        world.run(work)
    [said] = logs.output
    assert "KeyError" in said
    assert "in faulty" in said
    assert "sec-ret" not in said


def test_only_its_client_with_its_key_knows_a_document_and_takes_it_once(world: World) -> None:
    async def work() -> None:
        state, task = await world.jobs.submit(world.request(lines(3)))
        await task
        get = world.jobs.store.get
        for document_id, owner, key in (
            (state.id, "ben", "key"),
            (state.id, "ann", "other"),
            (state.id, None, ""),
            ("0" * 32, "ann", "key"),
            ("../" + state.id, "ann", "key"),
            ("", "ann", "key"),
        ):
            with pytest.raises(NoSuchDocumentError):
                get(document_id, owner=owner, key=key)
        folder = world.jobs.store.claim(state)
        assert (folder / "result").exists()
        for again in (world.jobs.store.claim, world.state):
            with pytest.raises(NoSuchDocumentError):
                again(state)

    world.run(work)


def test_there_are_not_more_documents_than_allowed_and_old_ones_go(tmp_path: Path) -> None:
    world = World(tmp_path, documents=2)

    async def work() -> None:
        world.translator.gate.clear()

        async def refused(reason: str, address: str) -> None:
            with pytest.raises(TooManyRequestsError, match=reason) as raised:
                await world.jobs.admitted(address).__aenter__()
            assert raised.value.retry_after

        first, first_task = await world.jobs.submit(world.request(lines(3)))
        async with world.jobs.admitted("address 1"):
            await refused("the server has too many", "address 2")
        second, second_task = await world.jobs.submit(world.request(lines(3), sender="ben"))
        await refused("the server has too many", "address 1")
        world.jobs.store.sweep(0.0)
        assert num_folders(world.jobs.store) == 2  # nothing is removed that is translated, or waits
        world.translator.gate.set()
        await asyncio.gather(first_task, second_task)
        world.jobs.store.sweep(3600.0)
        assert num_folders(world.jobs.store) == 2
        world.jobs.store.claim(first)
        time.sleep(0.01)
        world.jobs.store.sweep(0.001)
        assert num_folders(world.jobs.store) == 0
        with pytest.raises(NoSuchDocumentError):
            world.state(second)

    world.run(work)


@pytest.mark.parametrize(("most", "share"), [(1, 1), (2, 1), (5, 3)])
def test_a_client_may_have_half_of_the_documents(most: int, share: int, tmp_path: Path) -> None:
    world = World(tmp_path, documents=most)

    async def work() -> None:
        asked = [world.jobs.submit(world.request(lines(1))) for _ in range(most + 1)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        refused = [each for each in outcomes if isinstance(each, BaseException)]
        assert num_folders(world.jobs.store) == len(outcomes) - len(refused) == share
        for each in refused:
            assert isinstance(each, TooManyRequestsError)
            assert f"you have {share} documents on the server" in each.message
            assert each.retry_after
        if share < most:
            _, task = await world.jobs.submit(world.request(lines(1), sender="ben"))
            assert (await task).status == "done"

    world.run(work)


def test_an_address_sends_half_of_the_documents_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, documents=4)
    admitted = world.jobs.admitted

    async def work() -> None:
        async with admitted("one"), admitted("one"), admitted("other"):
            reason = r"you are sending 2 documents at the same time, .*half of --max-documents"
            with pytest.raises(TooManyRequestsError, match=reason):
                await admitted("one").__aenter__()
            async with admitted("other"):
                with pytest.raises(TooManyRequestsError, match="the server"):
                    await admitted("3").__aenter__()
        async with admitted("one"):
            pass

    world.run(work)


def test_a_document_of_a_process_that_died_is_an_error_and_goes(world: World) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        other = (process.pid, psutil.Process(process.pid).create_time())
    store = world.jobs.store

    async def work() -> None:
        for process in (other, (os.getpid(), 1.0)):
            state = DocumentState(
                id=f"{num_folders(store)}",
                fingerprint="",
                owner="ann",
                sender="key ann",
                name="a.txt",
                process=process,
            )
            store.add(state, io.BytesIO(b"x"))
            assert store.get(state.id, owner="ann", key="").error == (
                "The server stopped; send the document again"
            )
        time.sleep(0.01)
        store.sweep(0.001)
        assert num_folders(store) == 0

    world.run(work)


def test_directories_of_servers_that_live_and_of_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_jobs.tempfile, "gettempdir", lambda: str(tmp_path))
    others = [tmp_path / "heedful-documents-new", tmp_path / "heedful-other", tmp_path / "outside"]
    for each in others:
        each.mkdir()
    left = tmp_path / "heedful-documents-left"
    (left / "AB").mkdir(parents=True)
    (left / "lock").touch()
    (tmp_path / "heedful-documents-link").symlink_to(tmp_path / "outside")
    own = tmp_path / "heedful-documents-archive" / "contract.txt"
    own.parent.mkdir()
    own.touch()
    os.utime(own.parent, (0, 0))
    with documents_directory() as first, documents_directory() as second:
        assert first != second
        assert (first.exists(), second.exists()) == (True, True)
        assert (left.exists(), own.exists()) == (False, True)
        assert all(each.exists() for each in others)
        if os.name == "posix":
            assert first.stat().st_mode & 0o77 == 0
    assert (first.exists(), second.exists()) == (False, False)


def test_documents_that_failed_hold_no_place_and_are_not_kept_without_end(tmp_path: Path) -> None:
    world = World(tmp_path, documents=4)

    async def work() -> None:
        for _ in range(7):
            _, task = await world.jobs.submit(world.request(b"\xff"))
            assert (await task).status == "error"
        assert num_folders(world.jobs.store) == 4
        _, task = await world.jobs.submit(world.request(lines(1)))
        assert (await task).status == "done"

    world.run(work)


def test_a_document_whose_download_broke_off_can_be_asked_for_again(world: World) -> None:
    async def work() -> None:
        state, task = await world.jobs.submit(world.request(lines(3)))
        await task
        world.jobs.store.claim(state)
        world.jobs.store.give_back(state)
        assert world.state(state).status == "done"
        assert world.jobs.store.result(state).read_text() == lines(3).upper()

    world.run(work)


def test_what_was_written_before_a_disk_was_full_is_removed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: DocumentFile, __: list[str], stream: io.BytesIO) -> None:
        stream.write(b"a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(DocumentFile, "write", full)

    async def work() -> None:
        state, task = await world.jobs.submit(world.request(lines(3)))
        assert (await task).status == "error"
        assert [each.name for each in world.jobs.store.result(state).parent.iterdir()] == ["state.json"]

    world.run(work)


def test_a_service_closes_though_a_thread_still_reads_a_document(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, may_end = threading.Event(), threading.Event()

    def endless(*_: object, **__: object) -> None:
        reading.set()
        may_end.wait(60)
        raise AssertionError

    monkeypatch.setattr(document_jobs, "read_document", endless)
    monkeypatch.setattr(document_jobs, "_CLOSING_SECONDS", 0.01)

    async def work() -> None:
        await world.jobs.submit(world.request(lines(3)))
        await asyncio.to_thread(reading.wait, 60)
        await world.jobs.close()
        assert not may_end.is_set()
        may_end.set()

    world.run(work)


def test_reading_has_a_time(tmp_path: Path) -> None:
    world = World(tmp_path, seconds=1e-9)

    async def work() -> None:
        _, task = await world.jobs.submit(world.request(lines(3)))
        assert "not read within" in (await task).error

    world.run(work)
