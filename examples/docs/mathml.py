"""Formulas of the site as MathML, which browsers draw by themselves: no script, no font, nothing fetched."""

from docutils.nodes import SkipNode
from latex2mathml.converter import convert


def written(node, display):
    return convert(node.astext().replace(r"\_", "_"), display=display)  # a plain underscore is what \text wants


def inline(translator, node):
    translator.body.append(written(node, "inline"))
    raise SkipNode


def block(translator, node):
    translator.body.append(f'<div class="formula">{written(node, "block")}</div>\n')
    raise SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True}
