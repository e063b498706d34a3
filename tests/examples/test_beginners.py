"""What a first week meets: parts without imports of their own, names that are nearly right, a primitive of NumPy's.

What goes wrong then, and what the messages say about it, stands in tests/refusals.
"""

import subprocess
import sys

import numpy as np

from minigrad import gradcheck, gradgradcheck, primitive, randn


def test_primitive_of_a_sum():
    """NumPy gives a scalar there, which is no array."""

    @primitive
    def total(input):
        return input.sum()

    total.grads(input=lambda g, input_shape: g.expand(input_shape))
    x = randn(3, dtype="float64", requires_grad=True)
    assert type(total(x).array) is np.ndarray
    assert gradcheck(total, x) and gradgradcheck(total, x)


def test_parts_are_there_without_an_import_of_their_own():
    program = (
        "import minigrad; minigrad.draw.graph; minigrad.data.digits; minigrad.train.fit; minigrad.checkpoint.save; "
        "minigrad.gradcheck; minigrad.models.lenet; minigrad.parallel.run_local; minigrad.report.Report; "
        "minigrad.sofmax"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "module 'minigrad' has no attribute 'sofmax'. Did you mean: 'softmax'?" in done.stderr
