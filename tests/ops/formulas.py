"""The formulas of docstrings as expressions: what of Math and Grads a student could type is evaluated with NumPy.

A head is cut into statements at line ends, semicolons and gaps of two spaces; `NAME = EXPRESSION` is one that can be
evaluated, after a comma words may follow. Everything else is words. How an expression is read stands at the head of
the math sheet (minigrad/sheet.py).
"""

import ast
import math
import re

import numpy as np

__all__ = ["evaluated", "fitted", "statements"]


def statements(text):
    """[(name, compiled expression)] of a head; what is no assignment of an expression is left out."""
    found = []
    for piece in re.split(r"\n|;|\s{2,}", text or ""):
        match = re.fullmatch(r"\s*([A-Za-z]\w*) = (.*?)\s*", piece)
        if match and (code := _compiled(match[2])) is not None:
            found.append((match[1], code))
    return found


def _compiled(text):
    """The code of the longest beginning, up to a comma, that is an expression; None if it is words."""
    commas = [len(text), *(m.start() for m in reversed(list(re.finditer(", ", text))))]
    for end in commas:
        try:
            tree = ast.parse(_python(text[:end]), mode="eval")
        except SyntaxError:
            continue
        if not isinstance(tree.body, ast.Tuple):  # "g, repeated" is an expression and a word
            return compile(ast.fix_missing_locations(_Elementwise().visit(tree)), text, "eval")
    return None


def _python(text):
    """Our notation as Python: powers, transposes, choices, equations."""
    choice = re.fullmatch(r"(.*?) where (.*?), else (.*)", text)
    if choice:
        value, condition, other = choice.groups()
        return f"where({_python(condition)}, {_python(value)}, {_python(other)})"
    text = text.replace("^T", ".mT").replace("^", "**")
    return re.sub(r"(?<![<>!=])=(?!=)", "==", text).strip()


class _Elementwise(ast.NodeTransformer):
    """and, or, not and chains of comparisons for arrays."""

    def visit_BoolOp(self, node):
        self.generic_visit(node)
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        return self._folded(name, node.values)

    def visit_Compare(self, node):
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        links = [ast.Compare(a, [op], [b]) for a, op, b in zip(sides, node.ops, sides[1:], strict=False)]
        return self._folded("logical_and", links)

    def _folded(self, name, values):
        first, *others = values
        for other in others:
            first = ast.Call(ast.Name(name, ast.Load()), [first, other], [])
        return first


def _axes(x, dim):
    if not np.ndim(x):
        return ()
    if dim is None or isinstance(dim, tuple | list) and not dim:
        return tuple(range(np.ndim(x)))
    return tuple(dim) if isinstance(dim, tuple | list) else dim


def _reduction(function):
    """Over dim, which is kept with size 1; over everything where none is given."""

    def reduced(x, dim=None):
        return function(x, axis=_axes(x, dim), keepdims=True)

    return reduced


def _softmax(x, dim):
    powers = np.exp(x - x.max(dim, keepdims=True))
    return powers / powers.sum(dim, keepdims=True)


FUNCTIONS = {
    name: getattr(np, name)
    for name in "exp sqrt sin cos tanh abs sign floor outer where logical_and logical_or flip reshape tril triu".split()
} | {
    "ln": np.log,
    "max": np.maximum,
    "min": np.minimum,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "sum": _reduction(np.sum),
    "mean": _reduction(np.mean),
    "count": lambda x, dim=None: np.prod([x.shape[axis] for axis in np.atleast_1d(_axes(x, dim)).astype(int)]),
    "cumsum": np.cumsum,
    "softmax": _softmax,
    "one_hot": lambda numbers, classes: np.eye(classes)[numbers],
    "transpose": np.swapaxes,
    "movedim": np.moveaxis,
    "e": math.e,
    "pi": math.pi,
}


def evaluated(code, names):
    """The value of an expression; None if it is made of names that nothing defines, which are words."""
    if any(name not in names and name not in FUNCTIONS for name in code.co_names if not _attribute(name)):
        return None
    with np.errstate(all="ignore"):
        return eval(code, {"__builtins__": {}}, FUNCTIONS | names)


def _attribute(name):
    return name in ("mT", "shape")


def fitted(value, shape):
    """A gradient in the shape of its argument: repeated where that is larger, summed where it was broadcast."""
    value = np.asarray(value, float)
    if value.shape == shape:
        return value
    if _without_ones(value.shape) == _without_ones(shape):
        return value.reshape(shape)
    if np.broadcast_shapes(value.shape, shape) == shape:
        return np.broadcast_to(value, shape)
    value = value.sum(tuple(range(value.ndim - len(shape))))
    for axis, size in enumerate(shape):
        if size == 1 != value.shape[axis]:
            value = value.sum(axis, keepdims=True)
    return value


def _without_ones(shape):
    return [size for size in shape if size != 1]
