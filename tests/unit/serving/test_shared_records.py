"""Records of clients in Redis: shared by processes, exact at the same moment, and refused when it is gone."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from command_line import heedful
from redis_server import redis_server

from heedful.errors import InputError
from heedful.serving import records
from heedful.serving.access import load_keys, make_key, share_keys, without_password
from heedful.serving.records import ClientRecords, SharedRecords
from heedful.serving.refusals import TooManyRequestsError, UnavailableError

redis = pytest.importorskip("redis")
T = TypeVar("T")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture
def url(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(records, "REDIS_SECONDS", 60.0)  # a machine may be slow
    with redis.Redis.from_url(server) as client:
        client.flushall()
    return server


def with_records(url: str, work: Callable[[SharedRecords, SharedRecords], Awaitable[T]]) -> T:
    """The result of work with the records of two servers."""

    async def run() -> T:
        one, other = (SharedRecords(url, key_required=True) for _ in range(2))
        try:
            return await work(one, other)
        finally:
            await one.close()
            await other.close()

    return asyncio.run(run())


def test_keys_are_known_to_all_servers_until_others_are_shared(url: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first = make_key(path, "ann", requests_per_minute=7)
    share_keys(url, load_keys(path))

    async def found(one: SharedRecords, other: SharedRecords) -> list[object]:
        return [await one.find(first), await other.find(first), await one.find("hf-other")]

    [ann] = load_keys(path)
    assert with_records(url, found) == [ann, ann, None]
    share_keys(url, None)  # a server without keys of its own leaves them
    assert with_records(url, found) == [ann, ann, None]
    share_keys(url, [])
    assert with_records(url, found) == [None, None, None]
    with redis.Redis.from_url(url) as client:
        client.flushall()
    made = heedful("serve", "--make-key", "bob", "--keys", path, "--shared", url)
    assert made.code == 0

    async def is_bob(one: SharedRecords, _: SharedRecords) -> str:
        key = await one.find(made.out.strip())
        return "" if key is None else key.name

    assert with_records(url, is_bob) == "bob"


def test_a_rate_is_that_of_all_servers_together(url: str) -> None:
    """Of 100 requests at once to two servers, as many come through as to one: a sixth of the rate."""

    async def admitted(one: SharedRecords, other: SharedRecords) -> list[BaseException | None]:
        work = [each.count_request("key ann", 60) for each in (one, other) for _ in range(50)]
        return await asyncio.gather(*work, return_exceptions=True)

    outcomes = with_records(url, admitted)
    refused = [each for each in outcomes if each is not None]
    assert all(isinstance(each, TooManyRequestsError) and each.retry_after == 1 for each in refused)
    # One more comes with each second that the test takes.
    assert 10 <= len(outcomes) - len(refused) < 70


def test_a_bucket_fills_by_the_clock_of_redis(url: str) -> None:
    """A client who used all requests an hour ago has all of them again, and no more."""
    with redis.Redis.from_url(url) as client:
        now = client.time()[0]
        client.hset("heedful:rate:a", mapping={"tokens": 0, "at": now - 3600})
        client.hset("heedful:rate:b", mapping={"tokens": 0, "at": now + 3600})  # of a clock that was set back

    async def counts(one: SharedRecords, _: SharedRecords) -> list[int | None]:
        async def until_refused(client: str) -> int | None:
            for number in range(100):
                try:
                    await one.count_request(client, 6)
                except TooManyRequestsError as error:
                    return number if number else error.retry_after
            return None

        return [await until_refused("a"), await until_refused("b")]

    assert with_records(url, counts) == [1, 10]


def test_usage_is_that_of_all_servers_together(url: str) -> None:
    async def used(one: SharedRecords, other: SharedRecords) -> list[int]:
        await asyncio.gather(*(each.add_characters("ann", n) for each in (one, other) for n in range(1, 101)))
        return [await one.characters("ann"), await other.characters("ann"), await one.characters("bob")]

    assert with_records(url, used) == [10_100, 10_100, 0]


def test_a_redis_that_does_not_answer_is_said_to_clients_and_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"redis://ann:secret@127.0.0.1:{port}/0"

    async def refused(one: SharedRecords, other: SharedRecords) -> list[BaseException | None]:
        work = one.find("a"), one.count_request("a", 1), other.add_characters("a", 1), other.characters("a")
        return list(await asyncio.gather(*work, return_exceptions=True))

    assert [type(each) for each in with_records(url, refused)] == [UnavailableError] * 4
    with pytest.raises(InputError, match=rf"--shared redis://127.0.0.1:{port}/0: ") as error:
        share_keys(url, None)
    assert "secret" not in str(error.value)
    with pytest.raises(InputError, match="--shared nothing"):
        share_keys("nothing", None)


def test_records_of_one_process_are_its_own() -> None:
    async def used() -> list[int]:
        one, other = ClientRecords(None), ClientRecords(None)
        await one.add_characters("", 5)
        return [await one.characters(""), await other.characters("")]

    assert asyncio.run(used()) == [5, 0]
    assert without_password("rediss://:p@h:1/0") == "rediss://h:1/0"
