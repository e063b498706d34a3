"""The table that the files of rules fill."""

from collections.abc import Callable

from ...primitive import Primitive

__all__ = ["RULES", "rule"]

RULES: dict[Primitive, Callable] = {}


def rule(*primitives):
    """State the rule of primitives: a decorator."""

    def state(function):
        RULES.update(dict.fromkeys(primitives, function))
        return function

    return state
