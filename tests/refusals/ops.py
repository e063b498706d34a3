"""What the ops refuse: the refusals of their tables, of which each row is a call by Draws."""

import re
from functools import partial

import minigrad
from minigrad import Tensor, ops
from tests.op_cases import all_ops


def called(function, *args, **kwargs):
    """Random ops start from one seed."""
    minigrad.manual_seed(0)
    return function(*args, **kwargs)


def rows():
    for op in all_ops():
        for refusal in op.refusals:
            args, kwargs = refusal.call.draw(lambda array, wants_gradient: Tensor(array, wants_gradient))
            yield (
                f"{op.name}: {refusal.call}",
                partial(called, getattr(ops, op.name), *args, **kwargs),
                refusal.error,
                re.escape(refusal.message),
            )


REFUSALS = list(rows())
