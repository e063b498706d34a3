"""minigrad/core/methods.pyi, what type checkers see of the methods of Tensor, written from the table that binds them.

python -m tests.typing_face     writes it anew; a test compares
"""

import inspect
from pathlib import Path

from minigrad.ops import methods

FILE = Path(__file__).resolve().parents[1] / "minigrad" / "core" / "methods.pyi"
HEAD = '''"""What type checkers see of the operators and methods that ops/methods.py binds to Tensor.

Written by tests/typing_face.py. Nothing imports this file when the program runs.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from .tensor import Tensor

__all__ = ["Methods"]

Operand: TypeAlias = "Tensor | np.ndarray | np.generic | float"
Dims: TypeAlias = int | Sequence[int] | None

class Methods:
    T: Tensor

'''
TYPES = {  # of arguments, by their names; Any for all others
    "other": "Operand",
    "exponent": "Operand",
    "dim": "Dims",
    "keepdim": "bool",
    "index": "Tensor",
}
SEVERAL = {"max", "min", "split", "chunk", "unbind", "sort", "topk", "nonzero"}  # results that are no single Tensor


def _signature(name, op):
    """The parameters of a method as a type checker reads them."""
    first, *others = inspect.signature(op).parameters.values()
    texts = ["self"]
    for parameter in others:
        keyword_only = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        if keyword_only and not any(text.startswith("*") for text in texts):
            texts.append("*")
        listed = name in methods.LISTED.split() and len(texts) == 1
        default, kind = parameter.default, TYPES.get(parameter.name, "Any")
        kind += " | None" if default is None and kind == "Operand" else ""
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "*" if listed else "")
        text = f"{stars}{parameter.name}: {kind}"
        texts.append(text if default is inspect.Parameter.empty else f"{text} = {default!r}")
    return ", ".join(texts)


def face():
    """The text of the file."""
    compared = {"__eq__": "object", "__ne__": "object"}
    lines = []
    for name in (*methods.BINARY, *methods.REFLECTED):
        other, result = compared.get(name, "Operand"), "Any" if name in compared else "Tensor"
        lines.append(f"    def {name}(self, other: {other}) -> {result}: ...")
    for name, op in methods.METHODS.items():
        lines.append(f"    def {name}({_signature(name, op)}) -> {'Any' if name in SEVERAL else 'Tensor'}: ...")
    lines += [f"    def {name}(self) -> Tensor: ..." for name in methods.CONVERSIONS]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(face())
