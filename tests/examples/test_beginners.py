"""What a first week meets: parts without imports of their own, a primitive of NumPy's, the command alone.

What goes wrong then, and what the messages say about it, stands in tests/refusals.
"""

import subprocess
import sys

import numpy as np

from minigrad import gradcheck, gradgradcheck, primitive, randn
from minigrad.cli import main
from minigrad.data import Dataset, Loader


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


def test_loader_says_what_it_holds():
    data = Dataset(np.zeros((4, 1, 8, 8), np.uint8), np.array([0, 1, 2, 1]), "abc")
    assert repr(Loader(data, 3)).startswith(f"Loader({data!r}, 2 batches of 3")


def test_command_alone_says_what_there_is(capsys):
    assert main([]) == 2
    shown = capsys.readouterr()
    assert "train a network on a data set" in shown.err and not shown.out
