"""Count the functions, files and modules that four tasks use: python tools/trace_tasks.py BUNDLE [-v].

The tasks: a line through `heedful translate`, a training step from batch to update, a POST to /translate,
and a paragraph of a .docx through `heedful translate --document`. Printed are the numbers of distinct
functions of heedful that are called (what runs at import is not counted), of the files that they are in,
and of the modules that the line imports; with -v, their names too.
"""

import asyncio
import contextlib
import gc
import io
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import heedful
from heedful.cli.main import main

PACKAGE = str(Path(heedful.__file__).parent)
LINE = "the cat sleeps ."
Names = dict[str, list[str]]


def is_importing(frame: FrameType | None) -> bool:
    """Return whether a module of heedful is being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(PACKAGE):
            return True
        frame = frame.f_back
    return False


@contextmanager
def traced() -> Iterator[set[tuple[str, str]]]:
    """Give the set of (file, function) to which each function is added that is called in the block."""
    functions: set[tuple[str, str]] = set()

    def on_call(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        is_named = code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<")
        if event == "call" and is_named and not is_importing(frame):
            functions.add((code.co_filename[len(PACKAGE) + 1 :], code.co_qualname))

    threading.setprofile(on_call)
    sys.setprofile(on_call)
    try:
        yield functions
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def names_of(functions: set[tuple[str, str]]) -> Names:
    """Return the names of functions and of their files, in order."""
    return {
        "functions": sorted(f"{file}: {name}" for file, name in functions),
        "files": sorted({file for file, _ in functions}),
    }


def run(*arguments: str, stdin: str = "") -> None:
    """Run a command of heedful in this process.

    Raises:
        RuntimeError: it fails, with what it says.
    """
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with (
        mock.patch.object(sys, "argv", ["heedful", *arguments]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")),
        contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")),
        contextlib.redirect_stderr(said),
    ):
        try:
            main()
        except SystemExit as end:
            if end.code:
                said.seek(0)
                raise RuntimeError(said.read()) from None


def trace_line(bundle: Path) -> Names:
    """Return the names of functions, files and modules that the translation of a line needs."""
    with traced() as functions:
        run("translate", str(bundle), "--device", "cpu", stdin=f"{LINE}\n")
    modules = sorted(name for name in sys.modules if name.partition(".")[0] == "heedful")
    return names_of(functions) | {"modules": modules}


def trace_document(bundle: Path) -> Names:
    """Return the names of functions and files that the translation of a .docx with one paragraph needs."""
    import docx

    with tempfile.TemporaryDirectory() as folder:
        document = docx.Document()
        document.add_paragraph(LINE)
        document.save(f"{folder}/a.docx")
        options = ("--document", f"{folder}/a.docx", "--output", f"{folder}/b.docx", "--device", "cpu")
        with traced() as functions:
            run("translate", str(bundle), *options)
    return names_of(functions)


def trace_request(bundle: Path) -> Names:
    """Return the names of functions and files that answer the first request of a service."""
    applications: list[Any] = []
    with (
        traced() as functions,  # before the thread of the model is started
        mock.patch("heedful.serving.server.run", lambda application, *_: applications.append(application)),
    ):
        run("serve", f"en-de={bundle}", "--port", "0", "--device", "cpu")
        gc.collect()  # what only ends when it is collected would be counted below
        functions.clear()
        assert asyncio.run(post(applications[0])) == 200
    return names_of(functions)


async def post(application: Callable[..., Any]) -> int:
    """Return the status of the answer to a POST of a line to /translate."""
    body = json.dumps({"q": LINE, "source": "en", "target": "de"}).encode()
    statuses: list[int] = []
    waiting = asyncio.Event()
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in messages:
            return message
        await waiting.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/translate", "raw_path": b"/translate", "query_string": b"", "root_path": "",
        "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    await application(scope, receive, send)
    return statuses[0]


def trace_step() -> Names:
    """Return the names of functions and files of a training step in one process, from batch to update."""
    from heedful.training.parallel.process_group import Rank, SingleProcess

    steps: list[set[tuple[str, str]]] = []
    step = SingleProcess.step

    def traced_step(group: SingleProcess, plan: Any, **options: Any) -> Any:  # noqa: ANN401
        with traced() as functions:
            metrics = step(group, plan, **options)
        steps.append(functions)
        return metrics

    text = "\n".join(["the cat sleeps .", "a dog runs .", "the old woman reads a book ."] * 40)
    settings = (
        "train.max_steps=3", "train.processes=1", "tokenizer.vocab_size=60", "data.allow_overlap=true",
        "train.device=cpu", "train.max_minutes=false",
    )  # fmt: skip
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(SingleProcess, "step", traced_step),
        mock.patch.object(Rank, "prefetch", lambda rank: None),  # the batch is made in this process
    ):
        (Path(folder) / "a").write_text(text, encoding="utf-8")
        files = [
            part for name in ("src", "tgt", "valid-src", "valid-tgt") for part in (f"--{name}", f"{folder}/a")
        ]
        overrides = [part for each in settings for part in ("--set", each)]
        run("train", "--preset", "tiny", *files, *overrides, "--output", f"{folder}/run")
    return names_of(steps[1])  # the first also fills caches


if __name__ == "__main__":
    bundle = Path(sys.argv[1])
    tasks = {"a line": trace_line(bundle), "a step": trace_step()}
    tasks |= {"a request": trace_request(bundle), "a .docx": trace_document(bundle)}
    for task, found in tasks.items():
        if "-v" in sys.argv:
            print("\n".join(each for names in found.values() for each in names))
        print(f"{task}: " + ", ".join(f"{len(names)} {kind}" for kind, names in found.items()))
