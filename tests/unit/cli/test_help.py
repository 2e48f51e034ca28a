"""The two helps of a command: the short one for most users, and the complete one."""

import shlex
from dataclasses import dataclass, field
from typing import Annotated

import pytest
import typer
from command_line import heedful
from typer.testing import CliRunner

from heedful.cli.help import GroupedCommand
from heedful.cli.main import commands
from heedful.cli.options import command_of
from heedful.settings.options import Option
from heedful.settings.run import Config


@dataclass(frozen=True, kw_only=True)
class Group:
    chosen: Annotated[int | None, Option("", "Search", minimum=1, is_common=True)] = None
    tuned: Annotated[float | None, Option("", "Search", maximum=2)] = None


@dataclass(frozen=True, kw_only=True)
class Task:
    """Show.

    More of it.

    Examples:
        program --plain 3
    """

    needed: Annotated[str, Option("", "Search")]
    plain: Annotated[int, Option("")] = 1
    special: Annotated[int, Option("", is_common=False)] = 1
    group: Group = field(default_factory=Group)


@dataclass(frozen=True, kw_only=True)
class Plain:
    """Show."""

    plain: Annotated[int, Option("")] = 1


def shown(task: type, option: str) -> str:
    def command(task: object) -> None:
        raise AssertionError

    command.__annotations__ = {"task": task, "return": None}
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(cls=GroupedCommand)(command_of(command))
    outcome = CliRunner().invoke(app, [option])
    assert outcome.exit_code == (2 if "No such option" in outcome.output else 0)
    return outcome.output


def options(text: str) -> set[str]:
    return {line.split()[0] for line in text.splitlines() if line.startswith("  --")}


def test_the_short_help_has_the_common_options_and_the_complete_one_all() -> None:
    short, full = shown(Task, "--help"), shown(Task, "--help-all")
    common = {"--needed", "--plain", "--chosen", "--help-all"}
    assert options(short) - {"--help"} == common
    assert options(full) - {"--help"} == common | {"--special", "--tuned", "--plugin"}
    assert ("More of it." in short, "More of it." in full) == (False, True)
    for text in (short, full):
        assert "Examples:\n  program --plain 3\n" in text
        assert "<int" not in text
        assert "1<=x" not in text


def test_a_command_with_common_options_alone_has_one_help() -> None:
    assert "--help-all" not in shown(Plain, "--help")
    assert "No such option" in shown(Plain, "--help-all")


def test_the_complete_help_of_a_training_has_each_setting_with_its_default() -> None:
    text = " ".join(heedful("train", "--help-all").out.split())
    for section, group in Config.model_fields.items():
        for name in type(group.default).model_fields:
            assert f" {section}.{name} " in text
    assert "Label smoothing (5.4). [default: 0.1]" in text


def test_no_summary_of_a_command_is_cut() -> None:
    summaries = heedful().out.partition("Commands:")[2]
    assert "train" in summaries
    assert "..." not in summaries


EXAMPLES = [
    (name, line.strip())
    for name, run in commands().items()
    for line in (command_of(run).__doc__ or "").partition("\n    Examples:\n")[2].splitlines()
    if line.strip()
]


def test_commands_have_examples() -> None:
    assert {"train", "translate", "serve", "evaluate"} <= {name for name, _ in EXAMPLES}


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_is_a_command_line_of_its_command(name: str, example: str) -> None:
    program, *words = shlex.split(example)
    assert (program, words[: len(name.split())]) == ("heedful", name.split())
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(cls=GroupedCommand)(command_of(commands()[name]))
    context = typer.main.get_command(app).make_context(name, words[len(name.split()) :])
    assert not context.args
