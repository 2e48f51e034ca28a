"""`heedful VERB ...`: the table of verbs, the program, and its errors: one line on stderr, with an exit code.

Verbs are imported by name: they use the rest of cli/, and cli/ may not import verbs/. Bugs show a traceback.
"""

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, TextIO

import typer

from heedful.cli.help import GroupedCommand, hint_for_option
from heedful.cli.options import command_of
from heedful.errors import HeedfulError, Terminated, install_hint, is_out_of_memory, suggestion

FAILURE = 1
USAGE = 2
INTERRUPTED = 130  # 128 + SIGINT, as in shells

_OUT_OF_MEMORY = (
    "out of memory; free some and run the command again (training continues with --resume), or use smaller "
    "batches: batch.tokens of a new run, --batch-tokens elsewhere"
)
_COMPLETION = "_HEEDFUL_COMPLETE"  # with a value, a shell asks for completions (typer)
_TOO_LONG = re.compile(r"[^/:\s]{256,}")  # for the name of a file, anywhere

# Commands, in the order of a typical first use.
COMMANDS = (
    "demo", "pairs", "adapt", "prepare", "train", "translate", "serve", "evaluate", "score", "verify",
    "align", "attention", "plot", "average", "distill", "back-translate", "shortlist", "inspect", "import",
    "export", "push", "draw heads",
)  # fmt: skip
# Modules of heedful.verbs and functions in them, where these are not VERB and `command`.
_FUNCTIONS = {
    "import": ("import_", "command"),
    "distill": ("synthetic", "distill"),
    "back-translate": ("synthetic", "back_translate"),
    "draw heads": ("draw", "draw_heads"),
}
GROUPS = {"draw": "Draw the importance of a model's heads."}


@contextmanager
def report_errors() -> Iterator[None]:
    """Print errors that the user can fix as one line, `error: where: what; what to do`; also a decorator.

    Raises:
        SystemExit: with the exit code, after such an error.
    """
    try:
        yield
        sys.stdout.flush()
    except HeedfulError as error:
        exit_with_error(str(error), error.exit_code)
    except Terminated:  # the trainer has reported it
        sys.exit(0)
    except KeyboardInterrupt as error:
        exit_with_error(str(error) or "interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader, `head` for example, has seen enough
        _abandon(sys.stdout)
        sys.exit(FAILURE)
    except OSError as error:
        exit_with_error(_describe(error), FAILURE)
    except (MemoryError, RuntimeError, ImportError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            exit_with_error(f"this command needs torch: {install_hint('torch')}", FAILURE)
        if not is_out_of_memory(error):
            raise
        exit_with_error(_OUT_OF_MEMORY, FAILURE)
    finally:
        _flush_or_abandon(sys.stderr)


def exit_with_error(message: str, code: int) -> None:
    """Flush stdout, print one line, and end the program; names that no file can have are shortened.

    Raises:
        SystemExit: always.
    """
    _flush_or_abandon(sys.stdout)
    message = _TOO_LONG.sub(lambda name: f"{name[0][:40]}... ({len(name[0]):,} characters)", message)
    with suppress(OSError):
        print(f"error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    sys.exit(code)


def _describe(error: OSError) -> str:
    if error.errno == errno.EBADF and sys.__stdout__ is None:
        return "stdout: is closed, so the results cannot be printed; redirect it to a file or to /dev/null"
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}no space left on the disk; free some and run the command again"
    what = error.strerror or str(error) or type(error).__name__
    return f"{where}{what[0].lower()}{what[1:]}"


def _flush_or_abandon(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError:
        _abandon(stream)


def _abandon(stream: TextIO) -> None:
    """Redirect a stream to the null device: the interpreter's last flush would fail with a traceback."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def commands(names: Iterable[str] = COMMANDS) -> dict[str, Callable[[Any], None]]:
    """Return the functions of commands by their names, such as `draw heads`."""
    functions: dict[str, Callable[[Any], None]] = {}
    for name in names:
        module, function = _FUNCTIONS.get(name, (name, "command"))
        functions[name] = getattr(import_module(f"heedful.verbs.{module}"), function)
    return functions


def program(arguments: Sequence[str]) -> typer.Typer:
    """Return the program with the verb that the arguments begin with, or with all verbs.

    Only that verb is imported: all of them would add a sixth to the time of translating a line.
    """
    requested = next((argument for argument in arguments if argument != "--"), "")
    names = [name for name in COMMANDS if name.split()[0] == requested]
    app = typer.Typer(
        name="heedful",
        callback=heedful,
        invoke_without_command=True,
        add_completion=not names or _COMPLETION in os.environ,
        rich_markup_mode=None,  # plain help: importing rich would slow `--help` down
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    parents = {"": app}
    for name, run in commands(names or COMMANDS).items():
        group, _, verb = name.rpartition(" ")
        if group not in parents:
            parents[group] = typer.Typer(rich_markup_mode=None)
            app.add_typer(parents[group], name=group, help=GROUPS[group])
        # Reported inside of click too, which would turn Ctrl-C into its own Abort.
        command = report_errors()(command_of(run, has_options=bool(names)))
        parents[group].command(verb, cls=GroupedCommand)(command)
    return app


def heedful(
    context: typer.Context,
    *,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Encoder-decoder Transformers: train, translate, score, explain.

    Text goes from stdin to stdout; progress to stderr. Exit codes: 0 success, 1 failure, 2 usage error.
    """
    if show_version:
        from importlib.metadata import version  # 20 ms

        print(f"heedful {version('heedful')}")
        context.exit()
    if context.invoked_subcommand is None:
        print(context.get_help())


@report_errors()
def main() -> None:
    """Run the command line; a usage error becomes one line and exit code 2."""
    # Closed streams would give their numbers to the next files; results that cannot be printed are an error.
    for name, flags in (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # bars are for terminals
    arguments = sys.argv
    if _COMPLETION in os.environ:  # a shell completes this command line: bash, or another
        arguments = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()
    try:
        code = typer.main.get_command(program(arguments[1:])).main(prog_name="heedful", standalone_mode=False)
    except Exception as error:
        if not hasattr(error, "format_message"):  # only errors of usage have one; click or typer defines them
            raise
        where = getattr(getattr(error, "ctx", None), "command_path", "heedful")
        message = error.format_message().replace(": Value error,", ":").rstrip(".?")
        if message.startswith("No such command") and "Did you mean" not in message:
            group = where.removeprefix("heedful").strip()
            known = [name.removeprefix(f"{group} ") for name in COMMANDS if name.startswith(f"{group} ")]
            message += suggestion(message.split("'")[1], known or COMMANDS)
        exit_with_error(f"{hint_for_option(error, sys.argv) or message}; see {where} --help", USAGE)
    sys.stdout.flush()
    sys.exit(code if isinstance(code, int) else 0)
