"""Every place in the source where a tensor is moved to a device or made on one, and the source without it."""

import ast
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import heedful

_ROOT = Path(heedful.__file__).parent
# Other systems' formats: they are read and written on the CPU.
_LEFT_OUT = ("interop/",)
_MOVES = {"to", "cpu", "cuda"}


@dataclass(frozen=True)
class Transfer:
    """A call that names a device.

    Attributes:
        file: below the package.
        function: the outermost function around it.
        call: as it is written.
        number: among the calls of the function that are written so.
    """

    file: str
    function: str
    call: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.function}: {self.call}" + (f" ({self.number})" if self.number else "")


@cache
def transfers() -> tuple[Transfer, ...]:
    """All of them, as they come in the source."""
    found = []
    for path in sorted(_ROOT.rglob("*.py")):
        file = path.relative_to(_ROOT).as_posix()
        if not file.startswith(_LEFT_OUT):
            found += list(_of_file(file, ast.parse(path.read_text(encoding="utf-8"))))
    return tuple(found)


def _of_file(file: str, tree: ast.Module) -> Iterator[Transfer]:
    for name, function in _functions(tree):
        seen: dict[str, int] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and _without_device(node) is not None:
                call = ast.unparse(node)
                yield Transfer(file, name, call, seen.get(call, 0))
                seen[call] = seen.get(call, 0) + 1


def _functions(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield f"{prefix}{node.name}", node


def _without_device(call: ast.Call) -> ast.expr | None:
    """Return the call without its device; None if it names none."""
    if ast.unparse(call.func) == "to_device":
        return call.args[0]
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name in _MOVES:
        assert isinstance(call.func, ast.Attribute)
        others = [each for each in call.args if not _is_device(each)]
        if name == "to" and len(others) == len(call.args):
            return None  # another type alone
        if not others:
            return call.func.value
        return ast.Call(call.func, others, [each for each in call.keywords if each.arg != "non_blocking"])
    others_of = [each for each in call.keywords if each.arg != "device"]
    if len(others_of) == len(call.keywords) or not _makes_tensors(call.func):
        return None
    return ast.Call(call.func, call.args, others_of)


def _is_device(argument: ast.expr) -> bool:
    written = ast.unparse(argument)
    return "device" in written or written in ("'cpu'", "table")


def _makes_tensors(function: ast.expr) -> bool:
    return (
        ast.unparse(function).startswith(("torch.", "array_namespace"))
        or ast.unparse(function) == "causal_mask"
    )


class _Remove(ast.NodeTransformer):
    def __init__(self, transfer: Transfer) -> None:
        self._transfer = transfer
        self.seen = 0

    def visit_Call(self, node: ast.Call) -> ast.expr:
        written = ast.unparse(node)
        if written == self._transfer.call:
            self.seen += 1
            if self.seen == self._transfer.number + 1:
                without = _without_device(node)
                assert without is not None
                return ast.copy_location(without, node)
        self.generic_visit(node)
        return node


@contextmanager
def removed(transfer: Transfer) -> Iterator[None]:
    """Run the package's own function without the transfer inside the block."""
    path = _ROOT / transfer.file
    tree = ast.parse(path.read_text(encoding="utf-8"))
    around = dict(_functions(tree))[transfer.function]
    remove = _Remove(transfer)
    remove.visit(around)
    assert remove.seen > transfer.number, transfer
    code = compile(ast.fix_missing_locations(tree), str(path), "exec")
    function = _function_of(transfer)
    before = function.__code__
    function.__code__ = _code_of(code, transfer.function.split("."))
    try:
        yield
    finally:
        function.__code__ = before


def _code_of(code: CodeType, names: list[str]) -> CodeType:
    for name in names:
        code = next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name)
    return code


def _function_of(transfer: Transfer) -> FunctionType:
    module = "heedful." + transfer.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    value: Any = importlib.import_module(module)
    for name in transfer.function.split("."):
        value = value.__dict__[name]
    for inner in ("__func__", "fget", "func"):
        value = getattr(value, inner, value)
    while hasattr(value, "__wrapped__"):
        value = value.__wrapped__
    assert isinstance(value, FunctionType)
    return value
