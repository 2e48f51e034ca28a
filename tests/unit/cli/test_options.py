from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from heedful.cli.help import GroupedCommand
from heedful.cli.options import OptionsOf, command_of
from heedful.errors import InputError
from heedful.settings.options import Option


@dataclass(frozen=True, kw_only=True)
class Size:
    width: Annotated[int | None, Option("In tokens.", "Sizes", minimum=2)] = None
    is_tall: Annotated[bool, Option("Taller.")] = False
    inner: int = 7  # no option

    def __post_init__(self) -> None:
        if self.width == 13:
            raise InputError("--width 13: an unlucky number")


@dataclass(frozen=True, kw_only=True)
class Colour(Size):
    name: Annotated[str, Option("A name.", metavar="red|blue")] = "red"


@dataclass(frozen=True, kw_only=True)
class Task:
    """Show."""

    first: Annotated[str, Option("What is shown.", is_argument=True)]
    size: Size = field(default_factory=Size)
    last: Annotated[int, Option("", default="three", flags=("--last", "-l"))] = 3


def run(*arguments: str) -> tuple[int, str]:
    seen: list[object] = []

    def command(task: Task) -> None:
        seen.append((task.first, task.size, task.last))

    app = typer.Typer(rich_markup_mode=None)
    app.command(cls=GroupedCommand)(command_of(command))
    outcome = CliRunner().invoke(app, list(arguments))
    return outcome.exit_code, str(seen) + outcome.output


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["a"], ("a", Size(), 3)),
        (["a", "--width", "4", "--is-tall", "--last", "5"], ("a", Size(width=4, is_tall=True), 5)),
        (["a", "-l", "5"], ("a", Size(), 5)),
    ],
)
def test_the_fields_of_a_task_and_of_its_groups_are_options(
    arguments: list[str], wanted: tuple[object, ...]
) -> None:
    assert run(*arguments) == (0, str([wanted]))


def test_the_range_and_the_help_of_an_option_are_those_of_its_field() -> None:
    code, said = run("a", "--width", "1")
    assert code == 2
    assert "--width" in said
    shown = run("--help-all")[1]
    assert "--inner" not in shown
    for each in ("Show.", "What is shown.", "In tokens.", "[default: three]", "Sizes:"):
        assert each in shown


def test_values_that_a_group_refuses_are_an_error_of_usage() -> None:
    code, said = run("a", "--width", "13")
    assert code == 2
    assert "--width 13: an unlucky number" in said


def test_a_group_has_the_options_of_the_class_below_it() -> None:
    seen: list[Colour] = []

    def command(colour: Colour) -> None:
        seen.append(colour)

    command_of(command)(width=3, is_tall=False, name="blue")
    assert seen == [Colour(width=3, name="blue")]


@dataclass(frozen=True, kw_only=True)
class Search:
    size: Annotated[int, Option("Of it.", maximum=9)] = 4
    share: Annotated[float, Option("Of all.", default="a half")] = 0.5
    kind: Annotated[Literal["plain", "fancy"], Option("Of two.")] = "plain"
    is_quick: Annotated[bool, Option("Faster.")] = False
    hidden: Annotated[int, Option("Not here.")] = 1


@dataclass(frozen=True, kw_only=True)
class Overriding:
    """Show."""

    search: Annotated[Mapping[str, Any], OptionsOf((Search,), without=("hidden",))]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [("", {}), ("--size 0 --kind fancy", {"size": 0, "kind": "fancy"}), ("--is-quick", {"is_quick": True})],
)
def test_settings_of_other_classes_are_absent_unless_they_are_set(
    arguments: str, wanted: dict[str, object]
) -> None:
    def command(task: Overriding) -> None:
        typer.echo(task.search)

    app = typer.Typer(rich_markup_mode=None)
    app.command(cls=GroupedCommand)(command_of(command))
    assert CliRunner().invoke(app, arguments.split()).output == f"{wanted}\n"
    shown = CliRunner().invoke(app, ["--help"]).output
    for each in ("--size N", "Of it. [default: 4]", "Of all. [default: a half]", "--kind plain|fancy"):
        assert each in " ".join(shown.split())
    assert "--hidden" not in shown
