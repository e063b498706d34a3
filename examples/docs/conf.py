"""Settings of the documentation site, how it reads docstrings and how it shows formulas: build.py builds it."""

import html
import inspect
import re

from docutils.nodes import SkipNode
from docutils.utils.math import latex2mathml
from sphinx.util import logging

project = "minigrad"
author = "The minigrad authors"
copyright = "The minigrad authors"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "minigrad"
html_copy_source = False
html_show_sphinx = False
templates_path: list[str] = []
nb_execution_mode = "off"  # notebooks come with their outputs
myst_heading_anchors = 6
myst_enable_extensions = ["dollarmath"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
highlight_language = "text"  # formulas in docstrings are no programs
smartquotes = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"  # browsers know it, so no script is fetched from elsewhere
pygments_style = "friendly"
pygments_dark_style = "monokai"

FORMULAS = ("Math", "Grads", "Shapes")  # kept as they are typed
ENTRY = re.compile(r"(\S.*?)  +(\S.*)")


def escaped(text):
    """Plain text as reStructuredText: code stays code, everything else means itself."""
    pieces = re.split(r"`([^`]+)`", " ".join(text.split()))
    prose = [re.sub(r"([\\*`_|])", r"\\\1", piece) for piece in pieces[::2]]
    code = [f"``{piece}``" for piece in pieces[1::2]] + [""]
    return "".join(a + (rf"\ {b}\ " if b else "") for a, b in zip(prose, code, strict=True))


def indented(lines, width):
    return [" " * width + line if line else "" for line in lines]


def literal(lines):
    return ["::", "", *indented(lines, 4), ""]


def parts(lines):
    """[(term, lines)] of a block: a term for lines `term   text`, continued by indented ones; "" for prose."""
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        match = ENTRY.fullmatch(line)
        if match and not line.startswith(" "):
            found.append((match[1], [match[2]]))
        elif found and found[-1][0] and line.startswith(" "):
            found[-1][1].append(line[8:] if found[-1][0] in FORMULAS and line[:8].isspace() else line.strip())
        elif found and not found[-1][0]:
            found[-1][1].append(line)
        else:
            found.append(("", [line]))
    return found


def rendered(lines):
    """A docstring of this project as reStructuredText: prose, lists of arguments, formulas and heads."""
    out = []
    for block in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        out += _rendered_block(block.split("\n"))
    return out


def _rendered_block(block):
    if all(line.startswith(" ") for line in block):
        return literal([line.removeprefix("    ") for line in block])
    out = []
    for term, body in parts(block):
        if not term:
            out += [escaped(" ".join(body)), ""]
            continue
        out.append(f"**{term}**" if term[0].isupper() else f"``{term}``")
        out += indented(literal(body) if term in FORMULAS else [escaped(" ".join(body)), ""], 4)
    return out


def process_docstring(app, what, name, obj, options, lines):
    lines[:] = rendered(lines)


def process_signature(app, what, name, obj, options, signature, returned):
    """A class is called with the arguments of __init__, also where Module.__new__ takes any."""
    if what == "class" and inspect.isfunction(obj.__init__):
        _, *arguments = inspect.signature(obj.__init__).parameters.values()
        bare = [argument.replace(annotation=inspect.Parameter.empty) for argument in arguments]
        return str(inspect.Signature(bare)), None
    return None


# ---- formulas in TeX -------------------------------------------------------------------------------------------------

WORDS = {r"\dots": r"\ldots", r"\big": "", r"\Big": "", r"\textstyle": ""}  # that docutils does not know


def mathml(tex, display):
    """TeX as MathML; as it is, with a warning, where docutils does not know a word of it."""
    known = re.sub(r"\\[A-Za-z]+", lambda word: WORDS.get(word[0], word[0]), tex)
    known = re.sub(r"frac *(\d)(\d)", r"frac{\1}{\2}", known)  # it would take 12 for one number
    try:
        return latex2mathml.tex2mathml(known, as_block=display)
    except (SyntaxError, ValueError) as error:  # MathError is one or the other
        logging.getLogger(__name__).warning("formula %s: %s", tex, error)
        return f"<code>{html.escape(tex)}</code>"


def visit_math(self, node):
    self.body.append(mathml(node.astext(), display=False))
    raise SkipNode


def visit_block(self, node):
    self.body.append(f'<div class="math">{mathml(node.astext(), display=True)}</div>')
    raise SkipNode


def setup(app):
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-process-signature", process_signature)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_block, None))
