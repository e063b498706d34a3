"""Every row of tests/refusals: the class of the error, the words of its message, and that nothing was changed.

And every public name that computes has a row.
"""

import re
from functools import partial

import pytest

import minigrad
from minigrad import draw, nn, ops
from minigrad.core import create
from tests.refusals import check, families, setting

ROWS = [
    pytest.param(family, row, id=f"{family}-{i}-{row[0]}")
    for family, rows in families().items()
    for i, row in enumerate(rows)
]
WITHOUT = {  # public names that refuse nothing
    "Identity": "gives back whatever it is given",
    "Graph": "is made by draw.graph, which refuses",
    "GradcheckError": "is what gradcheck raises",
    "MinigradError": "is the class of all errors",
    "no_grad": "takes no argument",
    "enable_grad": "takes no argument",
    "is_grad_enabled": "takes no argument",
    "is_deterministic": "takes no argument",
    "empty_cache": "takes no argument",
    "default_generator": "is a Generator, whose manual_seed refuses as minigrad.manual_seed",
    **dict.fromkeys(("cuda", "nn", "functional", "init", "optim", "profile"), "is a module"),
    **dict.fromkeys(("inf", "nan", "pi"), "is a number"),
    **dict.fromkeys("bool float16 bfloat16 float32 float64 int8 int16 int32 int64 long uint8".split(), "is a type"),
    **dict.fromkeys(("export_onnx", "load_weights"), "works on files, whose refusals stand with those of files"),
}
PUBLIC = {name for home in (minigrad, ops, nn, nn.functional, nn.init, create, draw) for name in home.__all__}


@pytest.mark.parametrize("family, row", ROWS)
def test_refused(family, row):
    with setting(family):
        check(row)


def test_every_public_name_refuses_something_or_says_why_not():
    rows = {re.match(r"\w+", row[0])[0] for family in families().values() for row in family if row[0][0].isalpha()}
    missing = PUBLIC - rows - set(WITHOUT)
    assert not missing, f"no row in tests/refusals, and no reason here: {sorted(missing)}"
    assert not set(WITHOUT) - PUBLIC, f"no public names: {sorted(set(WITHOUT) - PUBLIC)}"


@pytest.mark.parametrize("call, error", [(lambda: 3, ValueError), (lambda: nn.Linear(0.5, 1), ValueError)])
def test_a_row_that_is_not_refused_as_it_says_fails(call, error):
    with pytest.raises(AssertionError):
        check(("a call that is taken, or refused by another error", call, error, ""))


def test_a_row_that_changes_what_it_was_given_fails():
    parameter = nn.Parameter([1.0])

    def changes(parameter):
        parameter.array[...] = 2
        parameter.requires_grad_("yes")

    with pytest.raises(AssertionError, match="a Tensor is another after it was refused"):
        check(("a call", partial(changes, parameter), TypeError, "requires_grad_"))


def test_refusals_are_many():
    assert sum(map(len, families().values())) >= 3000
