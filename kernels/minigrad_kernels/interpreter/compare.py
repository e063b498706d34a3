"""Comparisons and choices: setp, set, selp, slct."""

import numpy as np

from . import formats
from .operations import DTYPES, Operation, Unknown, is_float, opcode

COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
COMBINE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
WORDS = " ".join((*COMPARE, *UNSIGNED, *UNORDERED, "num", "nan", *COMBINE, "ftz"))


def comparison(kind, flags):
    """The function of two arrays that the modifiers name; on floats, .eq and its like are false where one is NaN."""
    names = [flag for flag in flags if flag not in COMBINE and flag != "ftz"]
    if len(names) != 1:
        raise Unknown("wants one comparison")
    (name,) = names
    if kind == "bf16" or kind in ("f16x2", "bf16x2"):
        raise Unknown(f"compares .{kind}, which is not known")
    function = _comparison(name, is_float(kind))
    if "ftz" in flags:
        return lambda x, y: function(formats.flush_subnormal(x), formats.flush_subnormal(y))
    return function


def _comparison(name, floats):
    if name in ("num", "nan"):
        nan = lambda x, y: np.isnan(x) | np.isnan(y)
        return nan if name == "nan" else (lambda x, y: ~nan(x, y))
    if name in UNORDERED:
        test = COMPARE[UNORDERED[name]]
        return lambda x, y: test(x, y) | np.isnan(x) | np.isnan(y)
    test = COMPARE[UNSIGNED.get(name, name)]
    if floats and name == "ne":
        return lambda x, y: np.less(x, y) | np.greater(x, y)
    return test


@opcode("setp", flags=WORDS)
def set_predicate(name, kinds, flags):
    """p|q: the comparison, and its negation, each combined with a third operand if there is one."""
    (kind,) = kinds
    test = comparison(kind, flags)
    combine = next((COMBINE[flag] for flag in flags if flag in COMBINE), None)
    if combine is None:
        return Operation(test, ("pred",), (kind, kind))
    return Operation(lambda x, y, p: combine(test(x, y), p), ("pred",), (kind, kind, "pred"))


@opcode("setp|", flags=WORDS)
def set_two_predicates(name, kinds, flags):
    (kind,) = kinds
    test = comparison(kind, flags)
    combine = next((COMBINE[flag] for flag in flags if flag in COMBINE), None)

    def function(x, y, *p):
        result = test(x, y)
        if combine is None:
            return result, ~result
        return combine(result, p[0]), combine(~result, p[0])

    sources = (kind, kind) if combine is None else (kind, kind, "pred")
    return Operation(function, ("pred", "pred"), sources)


@opcode("set", flags=WORDS)
def set_number(name, kinds, flags):
    """1.0, or all bits set in integers, where the comparison holds; else 0."""
    result, kind = kinds
    test = comparison(kind, flags)
    dtype = DTYPES[result]
    one = dtype(1) if is_float(result) else np.invert(dtype(0))
    combine = next((COMBINE[flag] for flag in flags if flag in COMBINE), None)
    if combine is None:
        return Operation(lambda x, y: np.where(test(x, y), one, dtype(0)), (result,), (kind, kind))
    function = lambda x, y, p: np.where(combine(test(x, y), p), one, dtype(0))
    return Operation(function, (result,), (kind, kind, "pred"))


@opcode("selp")
def select(name, kinds, flags):
    (kind,) = kinds
    return Operation(lambda x, y, p: np.where(p, x, y), (kind,), (kind, kind, "pred"))


@opcode("slct", flags="ftz")
def select_by_sign(name, kinds, flags):
    """The first where the third is not negative; NaN chooses the second."""
    kind, by = kinds
    flush = formats.flush_subnormal if "ftz" in flags else (lambda z: z)
    return Operation(lambda x, y, z: np.where(flush(z) >= 0, x, y), (kind,), (kind, kind, by))
