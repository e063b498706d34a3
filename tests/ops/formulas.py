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
    for end in [len(text), *(m.start() for m in reversed(list(re.finditer(", ", text))))]:
        try:
            tree = ast.parse(_python(text[:end]), mode="eval")
        except SyntaxError:
            continue
        if not isinstance(tree.body, ast.Tuple):  # "g, repeated" is an expression and a word
            return compile(tree, text, "eval")
    return None


def _python(text):
    """Our notation as Python: choices, truth and chains of comparisons of arrays, powers, transposes, equations."""
    if choice := re.fullmatch(r"(.*?) where (.*?), else (.*)", text):
        value, condition, other = choice.groups()
        return f"where({_python(condition)}, {_python(value)}, {_python(other)})"
    text = re.sub(r"(\w+) (<=?) (\w+) (<=?) (\w+)", r"\1 \2 \3 and \3 \4 \5", text)
    for word, sign in (("and", "&"), ("or", "|")):
        text = f"({text.replace(f' {word} ', f') {sign} (')})" if f" {word} " in text else text
    text = text.replace("^T", ".mT").replace("^", "**")
    return re.sub(r"(?<![<>!=])=(?!=)", "==", text).strip()


def _axes(x, dim):
    if not np.ndim(x):
        return ()
    if dim is None or isinstance(dim, tuple | list) and not dim:
        return tuple(range(np.ndim(x)))
    return tuple(dim) if isinstance(dim, tuple | list) else dim


def _softmax(x, dim):
    powers = np.exp(x - x.max(dim, keepdims=True))
    return powers / powers.sum(dim, keepdims=True)


PLAIN = "exp sqrt sin cos tanh abs sign floor outer where flip reshape tril triu cumsum".split()
FUNCTIONS = {name: getattr(np, name) for name in PLAIN} | {
    "ln": np.log,
    "max": np.maximum,
    "min": np.minimum,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "sum": lambda x, dim=None: np.sum(x, axis=_axes(x, dim), keepdims=True),
    "mean": lambda x, dim=None: np.mean(x, axis=_axes(x, dim), keepdims=True),
    "count": lambda x, dim=None: np.prod([x.shape[axis] for axis in np.atleast_1d(_axes(x, dim)).astype(int)]),
    "softmax": _softmax,
    "one_hot": lambda numbers, classes: np.eye(classes)[numbers],
    "transpose": np.swapaxes,
    "movedim": np.moveaxis,
    "e": math.e,
    "pi": math.pi,
}


def evaluated(code, names):
    """The value of an expression; None if it is made of names that nothing defines, which are words."""
    if not {*code.co_names} <= {*names, *FUNCTIONS, "mT", "shape"}:
        return None
    with np.errstate(all="ignore"):
        return eval(code, {"__builtins__": {}}, FUNCTIONS | names)


def fitted(value, shape):
    """A gradient in the shape of its argument: repeated where that is larger, summed where it was broadcast."""
    value = np.asarray(value, float)
    if [size for size in value.shape if size != 1] == [size for size in shape if size != 1]:
        return value.reshape(shape)
    if np.broadcast_shapes(value.shape, shape) == shape:
        return np.broadcast_to(value, shape)
    value = value.sum(tuple(range(value.ndim - len(shape))))
    return value.sum(tuple(axis for axis, size in enumerate(shape) if size == 1), keepdims=True)
