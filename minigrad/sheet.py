"""The math sheet.

Every op, optimiser and schedule: formula, gradients, shapes, types, errors, source. Written from the docstrings by
`minigrad math --page`; `minigrad math conv2d` prints one entry.

How to read it. `g` is the gradient that arrives, of the shape of `out`; `dinput` is the gradient that leaves for the
argument `input`, and `x` is the first argument. `^` is a power, `^T` a transpose of the last two dimensions, `ln` the
natural logarithm, `@` the matrix product, and `a where c, else b` chooses element by element. `sum(x, dim)`,
`mean(x, dim)` and `count(x, dim)` keep `dim` with size 1, and so stand `g` and `out` of a reduction. A gradient has
the shape of its argument: where the argument was repeated by broadcasting, the gradient is summed over the
repetitions. A weight that is None is all ones, a bias that is None is 0, and losses are those of `reduction="mean"`.
Formulas with indices or words say the same where no short expression does. The tests evaluate the formulas and compare
them with the engine in float64.

An entry is a public op, an optimiser, a schedule, or another function of training that states its Math. What an op does
not restate is that of the head of its file.
"""

import difflib
import inspect
import re
import sys
import textwrap
from typing import NamedTuple

from minigrad_kernels.errors import ShapeError

from . import ops, optim
from .optim import lr_scheduler

__all__ = ["HEADS", "SHARED", "Entry", "entries", "entry", "families", "page", "sections"]

HEADS = ("Math", "Grads", "Shapes", "Types", "Errors", "Source")
SHARED = ("Types", "Errors", "Source")  # these may stand in the head of a file for all its ops


class Entry(NamedTuple):
    """One line of the sheet: a function or class that states its mathematics."""

    name: str
    value: object
    module: object

    @property
    def text(self):
        """The docstring, without its indentation."""
        return inspect.getdoc(self.value)

    @property
    def summary(self):
        return self.text.partition("\n")[0]

    @property
    def signature(self):
        """name(arguments), as one would call it."""
        return f"{self.name}{inspect.signature(self.value)}"

    @property
    def shared(self):
        """{head: text} of the head of the file, for what the docstring does not restate."""
        own, stated = sections(self.text), sections(inspect.getdoc(self.module))
        return {head: stated[head] for head in SHARED if head in stated and head not in own}

    def __str__(self):
        shared = [f"{head:<8}{text}".replace("\n", "\n        ") for head, text in self.shared.items()]
        head = ["", "From the head of the file:", *shared] if shared else []
        return "\n".join([self.signature, self.module.__name__, "", self.text, *head])


def sections(text):
    """{head: its lines without indentation} of a docstring."""
    found = re.findall(rf"^({'|'.join(HEADS)})  +(.*(?:\n {{2,}}.*)*)", text or "", re.MULTILINE)
    return {head: inspect.cleandoc(body) for head, body in found}


def entries():
    """{name: Entry}: ops before optimisers, files by their names, names by the alphabet."""
    named = {name: getattr(ops, name) for name in ops.__all__}
    for package in (optim, lr_scheduler):
        values = {name: getattr(package, name) for name in package.__all__ if name not in named}
        named |= {name: value for name, value in values.items() if "Math" in sections(inspect.getdoc(value))}
    found = [Entry(name, value, sys.modules[inspect.unwrap(value).__module__]) for name, value in named.items()]
    place = lambda one: (one.name not in ops.__all__, one.module.__name__, one.name.lower())
    return {one.name: one for one in sorted(found, key=place)}


def families():
    """{title of a file: its Entries}."""
    found = {}
    for one in entries().values():
        found.setdefault(inspect.getdoc(one.module).partition("\n")[0].rstrip("."), []).append(one)
    return found


def entry(name):
    """The Entry of this name, in upper or lower case; ValueError with the nearest names where there is none."""
    known = {one.name.lower(): one for one in entries().values()}
    if name.lower() not in known:
        near = difflib.get_close_matches(name.lower(), known, n=4, cutoff=0.5)
        hint = f"near it are {', '.join(known[one].name for one in near)}" if near else "minigrad math lists all"
        raise ShapeError(f"math: no formula is called {name!r}; {hint}")
    return known[name.lower()]


def page():
    """The whole sheet as Markdown, with the head of this file first."""
    parts = [f"# {inspect.cleandoc(__doc__)}\n".replace(".\n", "\n", 1)]
    for title, members in families().items():
        parts.append(f"## {title}\n")
        shared = {}
        for one in members:
            shared |= one.shared
        if shared:
            parts.append("\n".join(f"- {head}: {' '.join(text.split())}" for head, text in shared.items()) + "\n")
        for one in members:
            body = inspect.cleandoc(one.text.partition("\n")[2])
            source = one.module.__name__.replace(".", "/")
            source += "/__init__.py" if hasattr(one.module, "__path__") else ".py"
            parts.append(f"### {one.name}\n\n{one.summary} [`{source}`](../../{source})\n")
            wrapped = {"break_long_words": False, "break_on_hyphens": False}
            call = textwrap.fill(one.signature, 100, subsequent_indent="    ", **wrapped)
            parts.append(f"```text\n{call}\n\n{body}\n```\n")
    return "\n".join(parts)
