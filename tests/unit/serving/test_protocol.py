"""Connections whose clients are slow, send too much, or leave: over real sockets, with short clocks."""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import requests
import uvicorn
from running_services import Running, running
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from heedful.serving.server import DELIVERED, HeaderTimeoutProtocol, connection_limits

HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
QUESTION = b"GET /translate?q=a&source=en&target=de HTTP/1.1\r\nHost: x\r\n\r\n"
UNREAD = b"HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


def read_answer(connection: socket.socket) -> bytes:
    """Return the head and the body of one answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        byte = connection.recv(1)
        assert byte, data
        data += byte
    head = data.lower()
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")
    )
    while len(data) < len(head) + length:
        chunk = connection.recv(len(head) + length - len(data))
        assert chunk, data
        data += chunk
    return data


def read_all(connection: socket.socket) -> bytes:
    """Return what comes until the server closes the connection."""
    data = b""
    try:
        while chunk := connection.recv(65536):
            data += chunk
    except ConnectionError:
        pass
    return data


def test_no_part_of_an_answer_waits_for_the_one_before(server: Running) -> None:
    with server.connect(HEALTH) as connection:
        read_answer(connection)
        (there,) = (
            each.transport.get_extra_info("socket")
            for each in server.server.server_state.connections
            if isinstance(each, HeaderTimeoutProtocol) and each.client == connection.getsockname()
        )
        assert there.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def impatient(connection: socket.socket, patch: pytest.MonkeyPatch) -> None:
    """Let the server have no patience from now on with a client that it has answered."""
    connection.sendall(HEALTH)
    assert read_answer(connection).startswith(b"HTTP/1.1 200")
    patch.setattr(HeaderTimeoutProtocol, "read_seconds", 0.05)
    patch.setattr(HeaderTimeoutProtocol, "write_seconds", 0.05)


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(60_000):
        if condition():
            return
        time.sleep(0.001)
    raise AssertionError("it did not come true in a minute")


BEGUN = [b"G", HEALTH[:-2] + b"X: "]


@pytest.mark.parametrize("begun", [b"", *BEGUN])
def test_the_first_head_has_its_time(server: Running, monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(HeaderTimeoutProtocol, "read_seconds", 0.05)
    with server.connect(begun) as connection:
        assert read_all(connection) == b""


@pytest.mark.parametrize("begun", BEGUN)
def test_every_other_head_has_its_time(
    server: Running, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    with server.connect() as connection:
        impatient(connection, monkeypatch)
        connection.sendall(begun)
        assert read_all(connection) == b""


def test_a_head_that_begins_in_one_piece_with_the_request_before_has_its_time(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.connect() as connection:
        impatient(connection, monkeypatch)
        connection.sendall(HEALTH + b"GET /hea")
        assert read_all(connection).count(b"HTTP/1.1 200") == 1


def drip(connection: socket.socket, data: bytes) -> bytes:
    """Send a byte at a time until the server closes the connection; return what it sent."""
    received = b""
    connection.settimeout(0.02)
    for byte in data:
        try:
            connection.sendall(bytes([byte]))
            chunk = connection.recv(65536)
            if not chunk:
                return received
            received += chunk
        except TimeoutError:
            continue
        except ConnectionError:
            return received
    raise AssertionError("the connection is still open")


def test_a_byte_at_a_time_makes_no_head_longer(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with server.connect() as connection:
        impatient(connection, monkeypatch)
        assert drip(connection, b"GET /health HTTP/1.1\r\nX: " + b"x" * 3000) == b""


@pytest.mark.parametrize("path", ["/languages", "/suggest", "/nope"])
def test_a_body_that_no_route_reads_has_its_time(
    server: Running, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    with server.connect() as connection:
        impatient(connection, monkeypatch)
        connection.sendall(f"POST {path} ".encode() + UNREAD)
        assert b'"' in drip(connection, b"x" * 3000)


def test_a_body_that_no_route_reads_and_that_comes_in_time_keeps_the_connection(server: Running) -> None:
    with server.connect(b"POST /nope " + UNREAD + b"x" * 500) as connection:
        assert read_answer(connection).startswith(b"HTTP/1.1 404")
        connection.sendall(b"x" * 500 + HEALTH)
        assert read_answer(connection).startswith(b"HTTP/1.1 200")


def test_a_client_that_never_reads_is_closed(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with server.connect() as connection:
        impatient(connection, monkeypatch)
        connection.setblocking(False)
        question = b"GET /spec HTTP/1.1\r\nHost: x\r\n\r\n" * 3000
        with suppress(BlockingIOError):
            connection.send(question)
        wait_until(lambda: server.num_connections() == 0)


def test_a_client_that_asks_for_much_and_reads_it_gets_everything(server: Running) -> None:
    with server.connect(b"GET /spec HTTP/1.1\r\nHost: x\r\n\r\n" * 300) as connection:
        answers = 0
        for _ in range(300):
            answers += read_answer(connection).startswith(b"HTTP/1.1 200")
        assert answers == 300


def test_a_connection_that_waits_for_its_client_makes_room() -> None:
    with running(max_connections=10) as server:
        slow = [server.connect() for _ in range(8)]
        slow += [server.connect(b"POST /nope " + UNREAD) for _ in range(8)]
        slow += [server.connect(HEALTH + b"G") for _ in range(8)]
        server.translator.gate.clear()
        with server.connect(QUESTION) as asked:
            wait_until(lambda: bool(server.translator.batches))
            for _ in range(40):
                with server.connect(HEALTH) as connection:
                    assert read_answer(connection).startswith(b"HTTP/1.1 200")
            server.translator.gate.set()
            assert b'"A"' in read_answer(asked)  # who waits for the server keeps the place
        for connection in slow:
            connection.close()


def test_where_all_wait_for_the_server_the_answer_is_503() -> None:
    with running(max_connections=4) as server:
        server.translator.gate.clear()
        asked = [server.connect(QUESTION) for _ in range(3)]
        wait_until(lambda: len(server.server.server_state.tasks) == 3)
        with server.connect(HEALTH) as connection:
            assert read_all(connection).startswith(b"HTTP/1.1 503")
        server.translator.gate.set()
        for connection in asked:
            assert read_answer(connection).startswith(b"HTTP/1.1 200")
            connection.close()


def test_connections_are_fewer_than_files() -> None:
    for max_files in (64, 256, 300, 1024, 4096, 2**20):
        connections, backlog = connection_limits(max_files, 30)
        assert 1 <= connections <= max(1, max_files - 30 - 2 * backlog)
        assert 8 <= backlog <= 2048


@pytest.mark.parametrize("path", ["/translate", "/v2/translate", "/nope"])
def test_clients_that_send_too_much_see_why(server: Running, path: str) -> None:
    body = json.dumps({"q": "a" * 12_000_000}).encode()
    status = 404 if path == "/nope" else 413
    with pytest.raises(HTTPError) as caught:
        urlopen(server.url + path, body, timeout=60)
    with caught.value as error:
        assert error.code == status
        assert status == 404 or b"a body may have" in error.read()
    for _ in range(3):
        assert requests.post(server.url + path, body, timeout=60).status_code == status
    connection = HTTPConnection(*server.address, timeout=60)
    connection.request("POST", path, body)
    with connection.getresponse() as response:
        assert response.status == status
    connection.close()


def test_reading_on_after_a_refusal_has_an_end(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with server.connect() as slow:
        impatient(slow, monkeypatch)
        slow.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
        slow.sendall(b"x" * 200_000)
        assert drip(slow, b"x" * 3000).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", 431),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20_000 + b"\r\n", 431),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET /" + b"a" * 1_000_000, 414),
        (b"nonsense\r\n\r\n", 400),
        (b"POST /health " + UNREAD[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00" * 100, 400),
    ],
)
@pytest.mark.parametrize("before", [b"", HEALTH])
def test_heads_have_a_limit(server: Running, request_: bytes, status: int, before: bytes) -> None:
    with server.connect(before + request_) as connection:
        if before:
            assert read_answer(connection).startswith(b"HTTP/1.1 200")
        answer = read_all(connection)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert list(json.loads(answer.split(b"\r\n\r\n", 1)[1])) == ["error"]


def test_a_head_below_the_limit_is_answered(server: Running) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 32_000 + b"\r\n\r\n"
    with server.connect(2 * head) as connection:
        assert read_answer(connection).startswith(b"HTTP/1.1 200")
        assert read_answer(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("target", ["http://x/health", "HTTP://x:5000/health?a=b", "https://x/health"])
def test_the_target_may_be_a_whole_address(server: Running, target: str) -> None:
    with server.connect(f"GET {target} HTTP/1.1\r\nHost: y\r\n\r\n".encode()) as connection:
        assert b'"ok"' in read_answer(connection)
    with server.connect(b"GET http://x HTTP/1.1\r\nHost: y\r\n\r\n") as connection:
        assert b"<html" in read_answer(connection)


@pytest.mark.parametrize("questions", [1, 3])
def test_a_client_that_sends_no_more_gets_its_answers(server: Running, questions: int) -> None:
    with server.connect(QUESTION * questions) as connection:
        connection.shutdown(socket.SHUT_WR)
        answers = read_all(connection)
    assert answers.count(b'{"translatedText":"A"}') == questions


FORM = b"POST /translate HTTP/%b\r\nHost: x\r\n%bContent-Length: 23\r\n\r\nq=a&source=en&target=de"
ONE_VERSION_EACH = [FORM % (b"1.1", b""), FORM % (b"1.1", b"Connection: close\r\n"), FORM % (b"1.0", b"")]


@pytest.mark.parametrize("question", ONE_VERSION_EACH)
def test_a_client_that_sends_no_more_gets_nothing_but_its_answer(server: Running, question: bytes) -> None:
    server.translator.gate.clear()
    with server.connect(question) as connection:
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(1)  # before there is one
        server.translator.gate.set()
        answer += read_all(connection)
    head, body = answer.split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert head.count(b"HTTP/1.1") == 1
    assert body == b'{"translatedText":"A"}'


@pytest.mark.parametrize("question", ONE_VERSION_EACH)
def test_a_client_that_is_gone_is_not_waited_for(server: Running, question: bytes) -> None:
    server.translator.gate.clear()
    server.connect(question).close()
    with server.connect(question) as other:
        other.shutdown(socket.SHUT_WR)
        wait_until(lambda: server.num_connections() == 1)
        wait_until(lambda: len(server.server.server_state.tasks) == 1)  # of the client who is still there
        server.translator.gate.set()
        assert b'{"translatedText":"A"}' in read_all(other)


@pytest.mark.parametrize("is_gone", [True, False])
def test_an_answer_is_not_delivered_to_a_client_that_is_gone(is_gone: bool) -> None:
    async def ask() -> bool:
        may_go, told = asyncio.Event(), asyncio.get_running_loop().create_future()

        async def answer(scope: Scope, _: Receive, send: Send) -> None:
            headers = [(b"content-length", b"1000")]  # so that the body is written at once
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await may_go.wait()
            await send({"type": "http.response.body", "body": b"x" * 1000})
            told.set_result(asyncio.ensure_future(scope["state"][DELIVERED]()))

        config = uvicorn.Config(
            answer, http=HeaderTimeoutProtocol, ws="none", lifespan="off", log_config=None
        )
        state = ServerState()
        server = await asyncio.get_running_loop().create_server(
            lambda: HeaderTimeoutProtocol(config, state, {}), "127.0.0.1", 0
        )
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(HEALTH)
            await reader.readuntil(b"\r\n\r\n")
            if is_gone:  # with nothing unread: it says no more than that it sends no more
                writer.close()
            else:
                writer.write_eof()
            await asyncio.sleep(0.01)
            may_go.set()
            delivered: bool = await (await told)
            writer.close()
            return delivered

    assert asyncio.run(ask()) is not is_gone
