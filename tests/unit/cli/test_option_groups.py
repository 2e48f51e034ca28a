from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from heedful.cli.option_groups import with_option_groups
from heedful.settings.options import Option


@dataclass(frozen=True, kw_only=True)
class Size:
    width: Annotated[int | None, Option("In tokens.", "Sizes", minimum=2)] = None
    is_tall: Annotated[bool, Option("Taller.")] = False
    inner: int = 7  # no option


@dataclass(frozen=True, kw_only=True)
class Colour(Size):
    name: Annotated[str, Option("A name.", metavar="red|blue")] = "red"


def run(*arguments: str) -> tuple[int, str]:
    seen: list[object] = []

    def command(
        first: Annotated[str, typer.Argument()],
        size: Size = Size(),
        last: Annotated[int, typer.Option("--last")] = 3,
    ) -> None:
        """Show."""
        seen.append((first, size, last))

    app = typer.Typer(rich_markup_mode=None)
    app.command()(with_option_groups(command))
    outcome = CliRunner().invoke(app, list(arguments))
    return outcome.exit_code, str(seen) + outcome.output


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["a"], ("a", Size(), 3)),
        (["a", "--width", "4", "--is-tall", "--last", "5"], ("a", Size(width=4, is_tall=True), 5)),
    ],
)
def test_the_fields_of_a_group_are_options(arguments: list[str], wanted: tuple[object, ...]) -> None:
    assert run(*arguments) == (0, str([wanted]))


def test_the_range_and_the_help_of_an_option_are_those_of_its_field() -> None:
    code, said = run("a", "--width", "1")
    assert code == 2
    assert "--width" in said
    assert "--inner" not in run("--help")[1]
    assert "In tokens." in run("--help")[1]


def test_two_groups_of_one_family_share_their_options() -> None:
    @with_option_groups
    def command(colour: Colour = Colour()) -> None:
        assert colour == Colour(width=3, name="blue")

    command(width=3, is_tall=False, name="blue")


def test_a_command_without_groups_is_left_alone() -> None:
    def command(first: int) -> None: ...

    assert with_option_groups(command) is command
