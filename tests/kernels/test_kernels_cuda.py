"""The rows of tests/kernels/cases that CUDA kernels exist for: the interpreter runs the code that the compiler made."""

import numpy as np
import pytest

from minigrad_kernels.bias import cuda as bias_cuda

from .kernel_runs import CASES, DEVICE, check, exists, rows_of

# Elements of an operand; float64 has the formula alone, and large convolutions are in test_rungs.py.
LARGE = 4_000


def elements(case):
    return max(np.prod(shape) for shape in case.shapes if shape is not None)


ROWS = [case for case in CASES if exists(case, ".cuda") and (case.family != "conv2d" or elements(case) < LARGE)]
FIRST = [*{(case.family, case.function): case for case in reversed(ROWS)}.values()]  # of each kernel
OTHERS = [case for case in ROWS if case not in FIRST]


def each_row(families=None):
    """The first row of each kernel, and with --deep the others."""
    first, others = ([case for case in rows if families is None or case.family in families] for rows in (FIRST, OTHERS))
    return pytest.mark.parametrize("rows", [*rows_of(first), *rows_of(others, 8, pytest.mark.deep)])


@each_row()
def test_rows(rows):
    for case in rows:
        for dtype in (np.float32, np.float64):
            if dtype is np.float32 or elements(case) < LARGE:
                check(case, dtype, DEVICE)


@each_row(("bias", "norm"))
def test_plain_rungs_of_float32(rows, monkeypatch):
    """The matrices that otherwise take a higher one."""
    monkeypatch.setattr(bias_cuda, "choose", lambda op, rung, misfits: "plain")
    for case in rows:
        check(case, np.float32, DEVICE)
