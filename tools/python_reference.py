"""The page of docs/reference/ about the interface in Python, from signatures and docstrings."""

import re
from collections.abc import Iterator
from importlib import import_module
from inspect import formatannotation
from inspect import signature as signature_of
from pathlib import Path
from typing import Any, get_type_hints

import griffe

import heedful
from heedful.settings.options import options_of

SOURCE = Path(__file__).resolve().parent.parent / "src"
PUBLIC = """\
`import heedful` is instant: a name is looked up when it is first used. These names can be imported from
`heedful`, and only they are stable. The keys of a `Config` are in [configuration.md](configuration.md)."""
ERRORS = """\
All are a `HeedfulError`, and in `heedful.errors`; `heedful` has those that are caught most often."""
OTHERS = """\
What the documentation names besides, to be imported from the module that is shown."""
# By heading: modules inside heedful, and names in them.
FURTHER = {
    "Results of a search": ["decoding.translation.TextHypothesis", "decoding.translation.ScoredText"],
    "Search strategies": [
        "settings.options.DecodingOptions",
        "settings.options.SharedOptions",
        "settings.options.BeamOptions",
        "decoding.strategies.protocol.Greedy",
        "decoding.strategies.beam.BeamSearch",
        "decoding.strategies.beam.DiverseBeamSearch",
        "decoding.strategies.sampling.Sampling",
        "decoding.strategies.sampling.MinimumBayesRisk",
        "decoding.strategies.protocol.Strategy",
    ],
    "Training": ["training.step.LossFunction", "training.loss.Loss", "data.batches.Batch"],
    "Scores": ["evaluation.metrics.evaluate_texts", "evaluation.metrics.compare_systems"],
    "Attention": ["analysis.attention_maps.AttentionMaps"],
}
INHERITED = {"search", "check"}  # the methods of every strategy, described at `Strategy`
TITLES = {
    griffe.DocstringSectionKind.parameters: "Parameters",
    griffe.DocstringSectionKind.attributes: "Attributes",
    griffe.DocstringSectionKind.raises: "Raises",
}
WIDTH = 100


def python_names() -> Iterator[str]:
    """Yield the parts of the page, below its heading."""
    package = griffe.load("heedful", search_paths=[SOURCE], docstring_parser="google")
    tree = {"HeedfulError", *(each.__name__ for each in heedful.HeedfulError.__subclasses__())}
    public = [package[name] for name in heedful.__all__ if name != "__version__"]
    errors = [each for name, each in package["errors"].members.items() if name in tree]
    yield PUBLIC
    for each in public:
        if each.name not in tree:
            yield from described(each, "##")
    yield f"## Errors\n\n{ERRORS}"
    yield "\n".join(f"- `{each.name}`: {sentence(each)}" for each in errors)
    yield f"## Further names\n\n{OTHERS}"
    for heading, names in FURTHER.items():
        yield f"### {heading}"
        for name in names:
            yield from described(package[name], "####")


def described(thing: griffe.Object | griffe.Alias, level: str) -> Iterator[str]:
    """Yield heading, signature and docstring of a class or function, then those of its public members."""
    if isinstance(thing, griffe.Alias):
        thing = thing.final_target
    yield f"{level} {thing.name}"
    module = "heedful" if thing.name in heedful.__all__ else thing.module.path
    yield f"```text\nfrom {module} import {thing.name}\n\n{signature(thing)}".rstrip() + "\n```"
    yield from docstring(thing)
    yield from keywords(thing)
    yield from fields_taken(thing)
    if thing.is_class and "__init__" in thing.members:
        yield from list(docstring(thing["__init__"]))[1:]
    for name, member in thing.members.items() if thing.is_class else ():
        if name.startswith("_") or not member.docstring or isinstance(member, griffe.Alias):
            continue
        if name not in INHERITED or thing.name == "Strategy":
            yield f"**`{thing.name}.{name}`**"
            yield f"```text\n{signature(member)}\n```"
            yield from docstring(member)


def signature(thing: griffe.Object) -> str:
    """Return the signature of a class, function or property; a long one has a parameter in each line."""
    if not isinstance(thing, griffe.Class | griffe.Function):
        return f"{thing.name}: {getattr(thing, 'annotation', '')}"
    for each in thing.parameters:
        if isinstance(each.annotation, griffe.ExprSubscript) and str(each.annotation.left) == "Annotated":
            each.annotation = each.annotation.slice.elements[0]  # type: ignore[union-attr]
    text = thing.signature().replace("AtLeastOne", "int")
    if isinstance(thing, griffe.Function) and (task := task_of(thing)):
        hints = get_type_hints(task)
        taken = signature_of(task).parameters.values()
        shown = [each.replace(annotation=Written(shown_type(hints[each.name]))) for each in taken]
        returned = Written(str(thing.returns))
        text = f"{thing.name}{signature_of(task).replace(parameters=shown, return_annotation=returned)}"
    if len(text) > WIDTH:
        start, end = text.index("(") + 1, text.rindex(")")
        parameters = "".join(f"    {each},\n" for each in at_commas(text[start:end]))
        text = f"{text[:start]}\n{parameters}{text[end:]}"
    return "".join(f"@{each}\n" for each in sorted({"classmethod", "staticmethod"} & thing.labels)) + text


def keywords(thing: griffe.Object) -> Iterator[str]:
    """Yield the names and types of a function's `**keywords`, if they are a TypedDict."""
    for parameter in thing.parameters if isinstance(thing, griffe.Function) else ():
        name = str(parameter.annotation).partition("Unpack[")[2].rstrip("]")
        if name and name != "TrainingSettings":  # these are the keys of configuration.md
            types = get_type_hints(getattr(import_module(thing.module.path), name))
            rows = (f"`{key}: {shown_type(kind)}`" for key, kind in types.items())
            yield f"Keywords of `{name}`: {', '.join(rows)}"


class Written(str):
    """A type as it is to be shown in a signature."""

    __repr__ = str.__str__


def task_of(function: griffe.Function) -> Any:  # noqa: ANN401
    """Return the dataclass that has the arguments of a function as fields (`taking`); None: no such one."""
    for decorator in function.decorators:
        name, _, task = str(decorator.value).rstrip(")").partition("(")
        if name == "taking":
            return getattr(import_module(function.module.path), task)
    return None


def fields_taken(thing: griffe.Object) -> Iterator[str]:
    """Yield the help of a function's arguments, if they are the fields of a dataclass."""
    if isinstance(thing, griffe.Function) and (task := task_of(thing)):
        helps = {name: option.help for name, option in options_of(task).items()}
        rows = [f"- `{name}`: {helps[name]}" for name in signature_of(task).parameters if name in helps]
        yield "Parameters:\n\n" + "\n".join(rows)


def shown_type(kind: object) -> str:
    """Return a type without its modules."""
    return re.sub(r"[\w.]+\.(\w+)", r"\1", formatannotation(kind)).replace("NoneType", "None")


def at_commas(parameters: str) -> list[str]:
    """Split a list of parameters, but not inside of brackets."""
    parts, depth = [""], 0
    for letter in parameters:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [each.strip() for each in parts]


def docstring(thing: griffe.Object) -> Iterator[str]:
    """Yield the sections of a docstring as Markdown."""
    for section in thing.docstring.parsed if thing.docstring else ():
        if section.kind is griffe.DocstringSectionKind.text:
            yield examples_fenced(section.value)
        elif section.kind in TITLES:
            rows = [
                f"- `{getattr(each, 'name', None) or each.annotation}`: {one_line(each.description)}"
                for each in section.value
            ]
            yield f"{TITLES[section.kind]}:\n\n" + "\n".join(rows)
        elif section.kind is griffe.DocstringSectionKind.returns:
            yield f"Returns: {one_line(' '.join(each.description for each in section.value))}"
        elif section.kind is griffe.DocstringSectionKind.examples:
            yield from (f"```text\n{text}\n```" for _, text in section.value)
        elif section.kind is griffe.DocstringSectionKind.admonition:
            yield f"```text\n{section.value.contents}\n```"
        else:
            raise ValueError(f"{thing.path}: no form for a section of {section.kind.value}")


def examples_fenced(text: str) -> str:
    """Return a text whose lines as in an interpreter are a block of code."""
    text = re.sub(r" *# doctest:.*", "", text)
    return re.sub(
        r"(?:^>>> .*\n?(?:^(?!>>>).+\n?)*)+",
        lambda code: f"```text\n{code[0].strip()}\n```",
        text,
        flags=re.M,
    )


def sentence(thing: griffe.Object) -> str:
    """Return the first line of a docstring."""
    return thing.docstring.value.split("\n", 1)[0] if thing.docstring else ""


def one_line(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())
