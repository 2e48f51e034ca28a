"""The page of docs/reference/ about the layouts that `heedful import` reads, from their declarations."""

import inspect
import json
from collections.abc import Iterable, Mapping
from textwrap import dedent
from typing import Any

from heedful.interop import marian_native, opennmt
from heedful.interop.ctranslate2 import argos, weights
from heedful.interop.huggingface.generation import GENERATION_KEYS
from heedful.interop.huggingface.reading import FIXED, KEYS, WITHOUT_EFFECT, Family
from heedful.interop.keys import Keys
from heedful.interop.layouts import FAMILIES, LAYOUTS
from heedful.interop.tables import Table

HEAD = """\
`heedful import --layout NAME` takes these names; usually the layout is recognised. Tables have the other
system's names on the left and heedful's on the right, in the notation of `heedful/interop/tables.py`. A
weight that is not in the table and a key that is not listed are refused by name.
[Importing and exporting](../interop.md) says what is exact and how it is tested."""
FILES = "A file of weights: a state dict of `torch.save`, or safetensors."
DIRECTORIES = """\
A directory that transformers' `save_pretrained` wrote. `generation_config.json` gives the search. In every
`config.json`,"""


def layouts() -> Iterable[str]:
    """Yield the parts of the page."""
    yield HEAD
    yield "## Files of weights"
    yield FILES
    for name, layout in LAYOUTS.items():
        yield f"### {name}"
        yield _weights(layout)
    yield "## Directories of transformers"
    yield DIRECTORIES + f" these keys are ignored: {_listed(WITHOUT_EFFECT - GENERATION_KEYS)}."
    yield f"These must have one value, or be missing: {_only(FIXED)}."
    for family in FAMILIES.values():
        yield f"### {family.model_type}"
        yield from _family(family)
    yield "## Other systems"
    yield from _marian()
    yield from _opennmt()
    yield from _ctranslate2()


def _marian() -> Iterable[str]:
    yield f"### {marian_native.LAYOUT}"
    yield _doc(marian_native)
    yield (
        "`{n}` is the number of a layer there, `{i}` here; NORM is `ln` or `rms`, PRE is `_pre` if a layer "
        "normalises first, CELL is `ffn_NORM` otherwise."
    )
    parts = marian_native.LAYERS, marian_native.ATTENTION, marian_native.CELLS, marian_native.EMBEDDINGS
    norms = marian_native.EMBEDDING_NORM, marian_native.FINAL_NORM
    yield _weights(Table("\n".join((*parts, *norms))))
    for text, fixed, ignored in (
        ("the model", marian_native.FIXED, marian_native.WITHOUT_EFFECT),
        ("decoder.yml", marian_native.SEARCH_FIXED, marian_native.SEARCH_WITHOUT_EFFECT),
    ):
        yield f"Options of {text} that are refused unless they are missing or {_one_of(fixed)}."
        yield f"Ignored: {_listed(ignored)}."


def _opennmt() -> Iterable[str]:
    eole = opennmt.EOLE_FIXED | opennmt.EOLE_ROTARY_FIXED
    for name, keys, rows, fixed in (
        (opennmt.LAYOUT, opennmt.OPENNMT, opennmt.OPENNMT_WEIGHTS, opennmt.OPENNMT_FIXED),
        (opennmt.EOLE, opennmt.EOLE_KEYS, opennmt.EOLE_WEIGHTS, eole),
    ):
        yield f"### {name}"
        if name == opennmt.LAYOUT:
            yield _doc(opennmt)
        yield _keys(keys)
        theirs, ours = opennmt.MATRICES[rows][1]
        yield "With a gate:"
        yield _weights(Table(rows.replace("MATRICES", theirs).replace("OURS", ours)))
        yield f"Keys that are refused unless they are missing or {_one_of(fixed)}."


def _ctranslate2() -> Iterable[str]:
    yield "### ctranslate2"
    yield _doc(weights)
    yield "With a gate; without one, there is no `linear_0_noact`, and `linear_0` is `feed_forward.inner`:"
    yield _weights(weights.GATED)
    yield f"Variables that are refused unless they are missing or {_one_of(weights.FIXED)}."
    yield "### argos"
    yield _doc(argos)


def _doc(module: object) -> str:
    return inspect.getdoc(module) or ""


def _one_of(values: Mapping[str, Iterable[Any]]) -> str:
    """Say which values keys must have if they are there; a key without any must be missing."""
    each = (
        f"`{key}` = {' or '.join(f'`{json.dumps(v)}`' for v in only) or 'nothing'}"
        for key, only in values.items()
    )
    return ", ".join(each)


def _family(family: Family) -> Iterable[str]:
    yield f"Layout `{family.layout}`."
    if family.keys.read == KEYS.read:
        yield (
            "Every family from fairseq has these keys:"
            if family.layout == "marian"
            else "It has the keys of [marian](#marian), but:"
        )
    if family.keys.read != KEYS.read or family.layout == "marian":
        yield _keys(family.keys)
    own = {key: value for key, value in family.keys.fixed.items() if key not in FIXED}
    if own:
        yield f"Refused unless {_only(own)}."
    ignored = {*family.keys.ignored} - {*KEYS.ignored}
    if ignored:
        yield f"Ignored: {_listed(ignored)}."
    yield _weights(family.weights)


def _keys(keys: Keys) -> str:
    rows = ["| key | heedful |", "|---|---|"]
    for key, names in keys.read.items():
        rows.append(f"| `{key}` | {_listed((f'model.{name}' for name in names), in_order=True)} |")
    for key, choices in keys.choices.items():
        values = (
            f"`{json.dumps(value)}`: {_fixed({f'model.{k}': v for k, v in ours.items()}) or 'nothing'}"
            for value, ours in choices.items()
        )
        rows.append(f"| `{key}` | {'; '.join(values)} |")
    both = (f"`encoder_{key}` = `decoder_{key}`" for key in keys.equal)
    return "\n".join(rows) + "".join(f"\n\nRefused unless {each}." for each in both)


def _weights(table: Table) -> str:
    facts = _fixed({f"model.{key}": value for key, value in table.facts.items()})
    rows = "\n".join(line.rstrip() for line in dedent(table.rows).splitlines() if line.strip())
    words = "Embeddings, positions and output are found by words in their names." if table.by_words else ""
    adapted = "" if table.adapt is None else (inspect.getdoc(table.adapt) or "").replace("\n\n", " ")
    parts = (
        table.about,
        f"Every model has {facts}." if facts else "",
        f"```text\n{rows}\n```",
        words,
        adapted,
    )
    return "\n\n".join(filter(None, parts))


def _only(values: Mapping[str, tuple[Any, ...]]) -> str:
    """Say which value keys must have if they have one."""
    return _fixed({key: value for key, (value,) in values.items()})


def _fixed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"`{key} = {json.dumps(value)}`" for key, value in values.items())


def _listed(names: Iterable[str], *, in_order: bool = False) -> str:
    return ", ".join(f"`{name}`" for name in (names if in_order else sorted(names)))
