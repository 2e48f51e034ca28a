"""Write docs/reference/: commands, keys of the configuration, layouts of models, the names in Python.

    python tools/reference.py          # or make docs

The commands' tasks say what the options are, the schema what the keys are, tables what the layouts are
(layouts_reference.py), signatures and docstrings what the names in Python are (python_reference.py); nothing
is written by hand.
CI's documentation job fails where the committed files differ.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from heedful.cli.main import commands
from heedful.cli.options import HELP_ALL, command_of
from heedful.settings.options import options_of
from heedful.settings.run import Config
from heedful.settings.section import Section
from layouts_reference import layouts
from python_reference import examples_fenced, python_names

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
NOT_BY_HAND = "<!-- Written by tools/reference.py (make docs) from the code; changes here are lost. -->"
OF_COMMANDS = """\
Text flows from stdin to stdout; progress goes to stderr. The exit code is 0 on success, 1 on failure and 2
on wrong usage. After a failure, one line on stderr says where and what it was, and what to do.
`heedful --version` shows the version, `heedful COMMAND --help` the options that most people need, and
`heedful COMMAND --help-all` the same options as this page."""
OF_KEYS = """\
These are the keys of a recipe (`heedful train CONFIG.toml`) and of `--set section.key=value`. A run's
`config.toml` has all of them. Numbers in parentheses are sections of the paper. A default of none means
that the key has no value. To set another key to none, give it the value `false`. `preset = "small"` at the
top of a file selects other defaults."""
LARGE = 2**31  # a limit from here on is that of the machine's integers, not of the setting
TYPES = {int: "integer", float: "number", str: "text", Path: "path"}
JSON_TYPES = {"integer": "integer", "number": "number", "string": "text", "boolean": "`true` or `false`"}
DEFAULT = re.compile(r"\s*\[default: (.*)\]$")


def command_line() -> str:
    """Return the page of the commands."""
    parts = [
        "# Commands",
        NOT_BY_HAND,
        OF_COMMANDS,
        *(_command(f"heedful {name}", command_of(run)) for name, run in commands().items()),
    ]
    return "\n\n".join(parts) + "\n"


def configuration() -> str:
    """Return the page of the keys of a configuration."""
    parts = ["# Configuration", NOT_BY_HAND, OF_KEYS]
    for name, field in Config.model_fields.items():
        kind: type[Section] = type(field.default)
        schema, helps = kind.model_json_schema(), {key: each.help for key, each in options_of(kind).items()}
        rows = [
            [f"`{name}.{key}`", *_key({"description": helps.get(key)} | entry)]
            for key, entry in schema["properties"].items()
        ]
        parts += [
            f"## {name}",
            examples_fenced(schema["description"]),
            _table(["key", "value", "default", "description"], rows),
        ]
    return "\n\n".join(parts) + "\n"


def python() -> str:
    """Return the page of the names in Python."""
    return "\n\n".join(["# Python", NOT_BY_HAND, *python_names()]) + "\n"


def imports() -> str:
    """Return the page of the layouts of models."""
    return "\n\n".join(["# Layouts", NOT_BY_HAND, *layouts()]) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": command_line,
    "configuration.md": configuration,
    "layouts.md": imports,
    "python.md": python,
}


def _command(title: str, command: Callable[..., None]) -> str:
    hints = get_type_hints(command, include_extras=True)
    arguments: list[list[str]] = []
    options: dict[str, list[list[str]]] = {"Options": []}
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name == HELP_ALL:
            continue
        kind, info = get_args(hints[parameter.name])[:2]
        row = _row(kind, info, parameter)
        if isinstance(info, ArgumentInfo):
            arguments.append(row)
        else:
            options.setdefault(info.rich_help_panel or "Options", []).append(row)
    text, _, examples = (inspect.getdoc(command) or "").partition("\n\nExamples:\n")
    parts = [f"## {title}", text]
    if examples:
        parts.append("\n".join(["```sh", *map(str.strip, examples.splitlines()), "```"]))
    for heading, rows in {"Arguments": arguments, **options}.items():
        if rows:
            parts += [f"**{heading}**", _table(["", "value", "default", "description"], rows)]
    return "\n\n".join(parts)


def _row(kind: object, info: ArgumentInfo | OptionInfo, parameter: inspect.Parameter) -> list[str]:
    """Return the name, values, default and help of an argument or option."""
    names: list[str] = [f"--{parameter.name.replace('_', '-')}"]
    if isinstance(info, ArgumentInfo):
        names = [re.sub(r"^\[([^][]*)\]$", r"\1", info.metavar or parameter.name.upper())]
    elif flags := [each for each in (info.default, *(info.param_decls or ())) if _is_flag(each)]:
        names = [str(each) for each in flags]
    text = info.help or ""
    required = parameter.default is inspect.Parameter.empty
    default = "required" if required else _shown(parameter.default)
    if written := DEFAULT.search(text):
        text = text[: written.start()]
        default = default if written[1] == str(parameter.default) else written[1]
    value, repeated = _type(kind)
    if info.metavar and isinstance(info, OptionInfo):
        value = info.metavar.strip("<>")
    limits = f", at least {info.min:g}" if info.min is not None else ""
    limits += f", at most {info.max:,}" if info.max is not None else ""
    again = ", several times" if repeated and isinstance(info, OptionInfo) else ""
    return [", ".join(f"`{each}`" for each in names), value + limits + again, default, text]


def _is_flag(declaration: object) -> bool:
    """Return whether this is a name; typer takes the first of them for a default, until a command is made."""
    return isinstance(declaration, str) and declaration.startswith("-")


def _type(kind: object) -> tuple[str, bool]:
    """Return a type in words, and whether there may be several values."""
    if get_origin(kind) in (Union, UnionType):
        kind = next(each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is list:
        return _type(get_args(kind)[0])[0], True
    return TYPES.get(kind, ""), False  # type: ignore[call-overload]


def _shown(default: object) -> str:
    return "" if default is None or default is False or default == () else f"`{default}`"


def _key(entry: dict[str, Any]) -> Iterator[str]:
    """Yield values, default and description of a key, from its JSON schema."""
    default = entry["default"]
    yield _values(entry)
    yield "none" if default is None else f"`{json.dumps(default)}`"
    yield entry["description"]


def _values(entry: dict[str, Any]) -> str:
    if "anyOf" in entry:
        return ", ".join(_values(each) for each in entry["anyOf"] if each.get("type") != "null")
    if entry.get("format") == "plugin":
        return "`plugin:Name`"
    if "enum" in entry:
        return ", ".join(f"`{json.dumps(each)}`" for each in entry["enum"])
    if "const" in entry:
        return f"`{json.dumps(entry['const'])}`"
    if "$ref" in entry:
        return "tables"
    if entry["type"] == "array":
        return f"list of {_values(entry.get('items') or entry['prefixItems'][0])}"
    return JSON_TYPES[entry["type"]] + _range(entry)


def _range(entry: dict[str, Any]) -> str:
    least, above = entry.get("minimum"), entry.get("exclusiveMinimum")
    most, below = entry.get("maximum"), entry.get("exclusiveMaximum")
    if entry["type"] == "integer" and above is not None:
        least, above = above + 1, None
    limits = [f"at least {least:,}"] if least is not None else []
    limits += [f"above {above:,}"] if above is not None else []
    limits += [f"at most {most:,}"] if most is not None and most < LARGE else []
    limits += [f"below {below:,}"] if below is not None and below < LARGE else []
    return "".join(f", {limit}" for limit in limits)


def _table(head: list[str], rows: list[list[str]]) -> str:
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for file_name, page in PAGES.items():
        (REFERENCE / file_name).write_text(page(), encoding="utf-8")
