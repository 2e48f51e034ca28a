"""API keys and rates."""

import asyncio
import json
import os
import stat
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi import Request

from heedful.errors import InputError
from heedful.serving import records
from heedful.serving.access import ApiKey, KeyRing, lines_of_keys, load_keys, make_key, revoke_key
from heedful.serving.gateway import Gateway
from heedful.serving.limits import Limits
from heedful.serving.records import ClientRecords
from heedful.serving.refusals import TooManyRequestsError, UnauthorizedError
from heedful.serving.service import LoadLimiter


def gateway(keys: list[ApiKey] | None = None, **limits: int) -> Gateway:
    """Return a gateway to a service that has nothing but limits."""
    service = SimpleNamespace(limits=Limits(**limits))
    return Gateway(service, ClientRecords(None if keys is None else KeyRing(keys)))  # type: ignore[arg-type]


def authorize(gateway: Gateway, key: str, address: str) -> str:
    request = Request({"type": "http", "headers": [], "client": (address, 1)})
    return asyncio.run(gateway.authorize(request, {"api_key": key}))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds since the start, which only the test changes."""
    now = [0.0]
    monkeypatch.setattr(records.time, "monotonic", lambda: now[0])
    return now


def test_a_key_is_known_by_its_hash_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first, second = make_key(path, "ann"), make_key(path, "bob", requests_per_minute=5)
    text = path.read_text()
    assert first not in text
    assert second not in text
    ring = KeyRing(load_keys(path))
    assert [ring.find(first), ring.find(second)] == load_keys(path)
    assert [key.name for key in load_keys(path)] == ["ann", "bob"]
    for wrong in ("", first[:-1], first + "x", text, "\ud800"):
        assert ring.find(wrong) is None


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_only_its_owner_reads_the_file(tmp_path: Path) -> None:
    make_key(tmp_path / "keys.json", "ann")
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o600


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_a_changed_file_keeps_its_links_and_its_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "etc" / "keys.json", tmp_path / "keys.json"
    real.parent.mkdir()
    make_key(real, "ann")
    real.chmod(0o640)
    link.symlink_to(real)
    make_key(link, "bob")
    assert link.is_symlink()
    assert [key.name for key in load_keys(real)] == ["ann", "bob"]
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_keys_that_are_made_at_once_are_all_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    context = get_context("fork" if sys.platform == "linux" else "spawn")
    with ProcessPoolExecutor(4, mp_context=context) as pool:
        made = list(pool.map(partial(make_key, path), map(str, range(24))))
    ring = KeyRing(path=path)
    assert all(ring.find(key) for key in made)


def test_a_server_knows_new_keys_and_forgets_revoked_ones(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first = make_key(path, "ann")
    ring = KeyRing(path=path)
    second = make_key(path, "bob")
    assert (ring.find(first), ring.find(second)) != (None, None)
    revoke_key(path, "ann")
    assert ring.find(first) is None
    assert ring.find(second) is not None
    path.write_text("not a file of keys")
    assert ring.find(second) is not None  # what was read before counts
    with pytest.raises(InputError):
        KeyRing(path=path)


def test_a_key_that_is_not_there_cannot_be_revoked(tmp_path: Path) -> None:
    make_key(tmp_path / "keys.json", "ann")
    with pytest.raises(InputError, match="'bob'"):
        revoke_key(tmp_path / "keys.json", "bob")


def test_the_lines_of_keys_have_names_and_rates(tmp_path: Path) -> None:
    made = [
        make_key(tmp_path / "keys.json", "ann"),
        make_key(tmp_path / "keys.json", "bob", requests_per_minute=5),
    ]
    lines = lines_of_keys(tmp_path / "keys.json")
    assert [line.split("\t")[0] for line in lines] == ["ann", "bob"]
    assert "5" in lines[1]
    assert not any(key in "".join(lines) for key in made)


def test_a_name_has_one_key(tmp_path: Path) -> None:
    make_key(tmp_path / "keys.json", "ann")
    with pytest.raises(InputError, match="'ann'"):
        make_key(tmp_path / "keys.json", "ann")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"keys": [{"name": "a"}]}', "\xff", '{"keys": 3}'])
def test_another_file_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match=r"keys\.json") as error:
        load_keys(path)
    assert "\n" not in str(error.value)


def test_without_keys_everybody_may_ask() -> None:
    assert authorize(gateway(), "", "1.2.3.4") == ""
    assert authorize(gateway(), "any", "1.2.3.4") == ""


def test_with_keys_only_those_who_have_one(tmp_path: Path) -> None:
    key = make_key(tmp_path / "keys.json", "ann")
    clients = gateway(load_keys(tmp_path / "keys.json"))
    assert authorize(clients, key, "1.2.3.4") == "ann"
    for wrong in ("", "hf-other"):
        with pytest.raises(UnauthorizedError):
            authorize(clients, wrong, "1.2.3.4")


def test_requests_come_at_their_rate_and_a_few_at_once(clock: list[float]) -> None:
    clients = gateway(requests_per_minute=30)
    for _ in range(5):  # ten seconds' worth
        authorize(clients, "", "a")
    with pytest.raises(TooManyRequestsError) as error:
        authorize(clients, "", "a")
    assert error.value.retry_after == 2
    authorize(clients, "", "b")  # another address
    clock[0] = 2.0
    authorize(clients, "", "a")
    with pytest.raises(TooManyRequestsError):
        authorize(clients, "", "a")


@pytest.mark.parametrize(("per_minute", "at_once"), [(1, 1), (3, 1), (12, 2), (60, 10), (100, 16)])
def test_a_sixth_of_a_rate_and_at_least_one_request_may_come_at_once(
    clock: list[float], per_minute: int, at_once: int
) -> None:
    clients = gateway(requests_per_minute=per_minute)
    for _ in range(at_once):
        authorize(clients, "", "a")
    with pytest.raises(TooManyRequestsError):
        authorize(clients, "", "a")


@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        ("2001:db8::1", "2001:db8::ffff:0:0:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:1.2.3.4", "1.2.3.4", True),
        ("::ffff:1.2.3.4", "::ffff:1.2.3.5", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("1.2.3.4", "1.2.3.5", False),
        ("", "unix", False),
    ],
)
def test_clients_are_counted_by_the_network_that_is_theirs(
    clock: list[float], one: str, other: str, are_one: bool
) -> None:
    clients = gateway(requests_per_minute=1)
    authorize(clients, "", one)
    with pytest.raises(TooManyRequestsError) if are_one else nullcontext():
        authorize(clients, "", other)


def test_a_key_may_have_a_rate_of_its_own(tmp_path: Path, clock: list[float]) -> None:
    key = make_key(tmp_path / "keys.json", "ann", requests_per_minute=6)
    clients = gateway(load_keys(tmp_path / "keys.json"), requests_per_minute=600)
    authorize(clients, key, "a")
    with pytest.raises(TooManyRequestsError, match="6"):
        authorize(clients, key, "b")


def test_the_addresses_that_are_remembered_are_bounded(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_REMEMBERED", 10)
    clients = gateway(requests_per_minute=6)
    for number in range(100):
        authorize(clients, "", str(number))
    assert len(clients.records._buckets) == 10


def test_places_are_held_as_long_as_a_request_and_no_longer() -> None:
    async def hold_places() -> None:
        load = LoadLimiter(Limits(characters=60, waiting_characters=100))
        async with load.admitted(60):
            with pytest.raises(TooManyRequestsError) as error:
                await load.admitted(41).__aenter__()
            assert (error.value.retry_after or 0) >= 1
            async with load.admitted(40):
                assert load.characters == 100
        with pytest.raises(KeyError):
            async with load.admitted(100):
                raise KeyError
        assert load.characters == 0

    asyncio.run(hold_places())


def test_limits_that_let_nobody_in_are_refused() -> None:
    with pytest.raises(InputError, match=r"--max-waiting 10.*--max-characters 20"):
        Limits(characters=20, waiting_characters=10)
    assert json.dumps(vars(Limits()))
