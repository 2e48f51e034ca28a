"""`heedful VERB ...`: the list of verbs, and the handling of errors."""

import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.align import align
from heedful.cli.attention import attention
from heedful.cli.average import average
from heedful.cli.bench import BENCHES
from heedful.cli.demo import demo
from heedful.cli.draw import DRAWINGS
from heedful.cli.evaluate import evaluate
from heedful.cli.export import export
from heedful.cli.grouped_help import GroupedCommand
from heedful.cli.import_ import import_
from heedful.cli.inspect import inspect
from heedful.cli.mistakes import USAGE, one_line_for_mistakes, stop
from heedful.cli.option_groups import with_option_groups
from heedful.cli.plot import plot
from heedful.cli.push import push
from heedful.cli.score import score
from heedful.cli.serve import serve
from heedful.cli.shortlist import shortlist
from heedful.cli.train import train
from heedful.cli.translate import translate

# In the order of a typical first use.
VERBS: tuple[Callable[..., None], ...] = (
    demo, train, translate, serve, evaluate, score, align, attention, plot, average, shortlist, inspect,
    import_, export, push,
)  # fmt: skip

app = typer.Typer(
    name="heedful",
    add_completion=False,
    rich_markup_mode=None,  # plain help: importing rich would slow `--help` down
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench, draw = typer.Typer(rich_markup_mode=None), typer.Typer(rich_markup_mode=None)
for group, verbs in ((app, VERBS), (bench, BENCHES), (draw, DRAWINGS)):
    for verb in verbs:
        group.command(verb.__name__.rstrip("_"), cls=GroupedCommand)(
            one_line_for_mistakes()(with_option_groups(verb))
        )
app.add_typer(draw, name="draw", help="Draw parts of the paper, lengths of text, or heads of a model.")
app.add_typer(bench, name="bench", help="Measure the speed of training or translation.")


def _show_version(requested: bool) -> None:
    if requested:
        print(f"heedful {version('heedful')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def heedful(
    context: typer.Context,
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Encoder-decoder Transformers: train, translate, score, explain.

    Text goes from stdin to stdout; progress to stderr. Exit codes: 0 success, 1 failure, 2 usage error.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def _open_closed_streams() -> None:
    """Replace closed standard streams by the null device; otherwise the next file would get their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


@one_line_for_mistakes()
def main() -> None:
    """Run the command line; a usage error becomes one line and exit code 2."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # bars are for terminals
    try:
        code = typer.main.get_command(app).main(prog_name="heedful", standalone_mode=False)
    except Exception as error:
        # A usage error: of click in older versions of typer, of its own copy of click in newer ones.
        say = getattr(error, "format_message", None)
        if say is None:
            raise
        where = getattr(getattr(error, "ctx", None), "command_path", "heedful")
        stop(f"{say().rstrip('.?')}; see {where} --help", USAGE)
    sys.stdout.flush()
    sys.exit(code if isinstance(code, int) else 0)
