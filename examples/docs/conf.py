"""Settings of the documentation site, and how it reads docstrings: build.py says how it is built."""

import re

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


def setup(app):
    app.connect("autodoc-process-docstring", process_docstring)
