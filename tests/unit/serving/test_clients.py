"""API keys and rates."""

import json
import os
import stat
from pathlib import Path

import pytest

from heedful.errors import InputError
from heedful.serving import access as clients_module
from heedful.serving.access import Clients, KeyRing, load_keys, make_key
from heedful.serving.limits import Limits
from heedful.serving.refusals import KeyRefusedError, SlowDownError
from heedful.serving.service import Admission


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds since the start, which only the test changes."""
    now = [0.0]
    monkeypatch.setattr(clients_module.time, "monotonic", lambda: now[0])
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


def test_a_name_has_one_key(tmp_path: Path) -> None:
    make_key(tmp_path / "keys.json", "ann")
    with pytest.raises(InputError, match="there is a key for 'ann'"):
        make_key(tmp_path / "keys.json", "ann")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"keys": [{"name": "a"}]}', "\xff", '{"keys": 3}'])
def test_another_file_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match=r"no file of keys \(.*\); make one") as error:
        load_keys(path)
    assert "\n" not in str(error.value)


def test_without_keys_everybody_may_ask() -> None:
    assert Clients(None, Limits()).authorize("", "1.2.3.4") == ""
    assert Clients(None, Limits()).authorize("any", "1.2.3.4") == ""


def test_with_keys_only_those_who_have_one(tmp_path: Path) -> None:
    key = make_key(tmp_path / "keys.json", "ann")
    clients = Clients(KeyRing(load_keys(tmp_path / "keys.json")), Limits())
    assert clients.authorize(key, "1.2.3.4") == "ann"
    for wrong in ("", "hf-other"):
        with pytest.raises(KeyRefusedError):
            clients.authorize(wrong, "1.2.3.4")


def test_requests_come_at_their_rate_and_a_few_at_once(clock: list[float]) -> None:
    clients = Clients(None, Limits(requests_per_minute=30))
    for _ in range(5):  # ten seconds' worth
        clients.authorize("", "a")
    with pytest.raises(SlowDownError) as error:
        clients.authorize("", "a")
    assert error.value.retry_after == 2
    clients.authorize("", "b")  # another address
    clock[0] = 2.0
    clients.authorize("", "a")
    with pytest.raises(SlowDownError):
        clients.authorize("", "a")


def test_a_key_may_have_a_rate_of_its_own(tmp_path: Path, clock: list[float]) -> None:
    key = make_key(tmp_path / "keys.json", "ann", requests_per_minute=6)
    clients = Clients(KeyRing(load_keys(tmp_path / "keys.json")), Limits(requests_per_minute=600))
    clients.authorize(key, "a")
    with pytest.raises(SlowDownError, match="6 per 1 minute"):
        clients.authorize(key, "b")


def test_the_addresses_that_are_remembered_are_bounded(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_module, "_REMEMBERED", 10)
    clients = Clients(None, Limits(requests_per_minute=6))
    for number in range(100):
        clients.authorize("", str(number))
    assert len(clients._buckets) == 10


def test_places_are_held_as_long_as_a_request_and_no_longer() -> None:
    admission = Admission(100)
    with admission.admitted(60):
        with pytest.raises(SlowDownError) as error, admission.admitted(41):
            pass
        assert (error.value.retry_after or 0) >= 1
        with admission.admitted(40):
            assert admission.characters == 100
    with pytest.raises(KeyError), admission.admitted(100):
        raise KeyError
    assert admission.characters == 0


def test_limits_that_let_nobody_in_are_refused() -> None:
    with pytest.raises(InputError, match=r"--max-waiting 10: must be at least --max-characters 20"):
        Limits(characters=20, waiting_characters=10)
    assert json.dumps(vars(Limits()))
