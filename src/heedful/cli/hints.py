"""What to write in place of an option that does not exist: another option, or a setting."""

import shlex
from collections.abc import Sequence

from heedful.errors import likely_names


def hint_for_option(error: Exception, arguments: Sequence[str]) -> str:
    """Return a message for an unknown option that says what to write; "" if nothing is likely.

    `--lr 0.1` of a command with `--set` becomes `--set schedule.peak=0.1`.

    Args:
        error: of click; others have no hint.
        arguments: of the program.
    """
    from heedful.settings.words import WORDS

    name = getattr(error, "option_name", None)
    command = getattr(getattr(error, "ctx", None), "command", None)
    if name is None or command is None or not hasattr(error, "possibilities"):
        return ""
    flags = [flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")]
    keys = list[str]()
    if "--set" in flags:
        from heedful.settings.run import Config  # pydantic, which other usage errors do not need
        from heedful.settings.section import whole_keys

        keys = whole_keys(Config)
    likely = likely_names(name, [*flags, *keys], WORDS) if name.startswith("--") else []
    value = _value_of(name, arguments)
    written = [each if each in flags else f"--set {shlex.quote(f'{each}={value}')}" for each in likely]
    return f"no such option: {name}; write {' or '.join(written)}" if written else ""


def _value_of(name: str, arguments: Sequence[str]) -> str:
    """Return the value that was given to the option, as `--name=value` or `--name value`."""
    for argument, following in zip(arguments, [*arguments[1:], "-"], strict=True):
        if argument.startswith(f"{name}="):
            return argument.removeprefix(f"{name}=")
        if argument == name:
            return "..." if following.startswith("--") or following == "-" else following
    return "..."
