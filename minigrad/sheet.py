"""The sheet of formulas: what the docstrings of ops, losses, layers' functions and optimisers state, by family.

An entry is a public op, an optimiser, a schedule, or another function of training that states its Math. The heads are
Math, Grads, Shapes, Types, Errors and Source; what an op does not restate is that of the head of its file.
"""

import difflib
import inspect
import re
import sys
import textwrap
from dataclasses import dataclass

from minigrad_kernels.errors import ShapeError

from . import ops, optim
from .optim import lr_scheduler

__all__ = ["HEADS", "SHARED", "Entry", "entries", "entry", "families", "page", "sections"]

HEADS = ("Math", "Grads", "Shapes", "Types", "Errors", "Source")
SHARED = ("Types", "Errors", "Source")  # these may stand in the head of a file for all its ops
UNBROKEN = {"break_long_words": False, "break_on_hyphens": False}
PREAMBLE = """# The math sheet

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
"""


@dataclass(frozen=True)
class Entry:
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
    def own(self):
        """{head: text} of the docstring."""
        return sections(self.text)

    @property
    def shared(self):
        """{head: text} of the head of the file, for what the docstring does not restate."""
        stated = sections(inspect.getdoc(self.module))
        return {head: stated[head] for head in SHARED if head in stated and head not in self.own}

    def __str__(self):
        lines = [self.signature, f"{self.module.__name__}", "", self.text]
        shared = [f"{head:<8}{text}".replace("\n", "\n        ") for head, text in self.shared.items()]
        return "\n".join([*lines, *(["", "From the head of the file:", *shared] if shared else [])])


def sections(text):
    """{head: its lines without indentation} of a docstring."""
    found = re.findall(rf"^({'|'.join(HEADS)})  +(.*(?:\n {{2,}}.*)*)", text or "", re.MULTILINE)
    return {head: inspect.cleandoc(body) for head, body in found}


def _module(value):
    return sys.modules[inspect.unwrap(value).__module__]


def entries():
    """{name: Entry}, in the order of the families."""
    named = {name: getattr(ops, name) for name in ops.__all__}
    for package in (optim, lr_scheduler):
        values = {name: getattr(package, name) for name in package.__all__ if name not in named}
        named |= {name: value for name, value in values.items() if "Math" in sections(inspect.getdoc(value))}
    found = [Entry(name, value, _module(value)) for name, value in named.items()]
    return {entry.name: entry for entry in sorted(found, key=_place)}


def _place(entry):
    """Ops before optimisers, files by their names, names by the alphabet."""
    return not entry.module.__name__.startswith("minigrad.ops"), entry.module.__name__, entry.name.lower()


def families():
    """{title of a file: its Entries}."""
    found = {}
    for one in entries().values():
        found.setdefault(inspect.getdoc(one.module).partition("\n")[0].rstrip("."), []).append(one)
    return found


def entry(name):
    """The Entry of this name, in upper or lower case; ValueError with the nearest names where there is none."""
    known = entries()
    if name not in known:
        lower = {one.lower(): one for one in known}
        if name.lower() in lower:
            return known[lower[name.lower()]]
        near = [lower[one] for one in difflib.get_close_matches(name.lower(), lower, n=4, cutoff=0.5)]
        near += [one for one in known if name.lower() in one.lower() and one not in near][:4]
        hint = f"; near it are {', '.join(near)}" if near else "; minigrad math lists all"
        raise ShapeError(f"math: no formula is called {name!r}{hint}")
    return known[name]


def page():
    """The whole sheet as Markdown."""
    parts = [PREAMBLE]
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
            parts.append(f"### {one.name}\n\n{one.summary} [`{source}`](../../{source}{_ending(one.module)})\n")
            call = textwrap.fill(one.signature, 100, subsequent_indent="    ", **UNBROKEN)
            parts.append(f"```text\n{call}\n\n{body}\n```\n")
    return "\n".join(parts)


def _ending(module):
    return "/__init__.py" if hasattr(module, "__path__") else ".py"
