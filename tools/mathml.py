"""An extension of Sphinx: formulas as MathML, which browsers show by themselves, without a script."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def show_inline(translator: Any, node: nodes.math) -> None:  # noqa: ANN401 - writers have no common type
    """Write a formula within a line."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def show_block(translator: Any, node: nodes.math_block) -> None:  # noqa: ANN401
    """Write a formula on a line of its own."""
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer as `html_math_renderer = "mathml"`."""
    app.add_html_math_renderer("mathml", (show_inline, None), (show_block, None))
    return {"parallel_read_safe": True}
