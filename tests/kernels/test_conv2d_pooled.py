"""Convolution with pooling behind it on the CPU: the bits of the two ops, in one pass where images fit the cache."""

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import conv2d, pool2d
from minigrad_kernels.conv2d import cpu
from minigrad_kernels.layout import CHANNELS_LAST
from minigrad_kernels.toolchain import threads

from .cases.conv2d import POOLED, pooled
from .kernel_runs import each_type, make_inputs, run, same_bits

each_row = pytest.mark.parametrize("case", POOLED, ids=str)


def apart(case, dtype, inputs):
    """The results of the two ops, one after the other."""
    relu, *rest = case.params.values()
    settings, windows = rest[:4], rest[4:]
    x, w, _ = inputs
    shape = conv2d.output_shape(x.shape, w.shape, None, *settings)
    convolved, out, positions = (
        np.empty([shape[axis] for axis in CHANNELS_LAST], kind).transpose(0, 3, 1, 2)
        for shape, kind in (
            (shape, dtype),
            (case.outputs[0].shape, dtype),
            (case.outputs[1].shape, case.outputs[1].kind),
        )
    )
    space = np.empty(conv2d.workspace("forward", x.shape, w.shape, *settings, dtype), np.uint8)
    conv2d.forward(*inputs, relu, *settings, convolved, space)
    pool2d.max_forward(convolved, *windows, out, positions)
    return out, positions


@each_type
@each_row
def test_has_the_bits_of_the_two_ops(case, dtype):
    inputs = make_inputs(case, dtype)
    same_bits(run(case, dtype, inputs), apart(case, dtype, inputs))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_the_first_of_equal_maxima_of_16_bits_is_that_of_the_two_ops(dtype):
    """Sums that differ may be equal once rounded."""
    case = pooled((4, 8, 34, 34), (8, 8, 3, 3), (8, 8), (8, 8))
    inputs = [array if array is None else array.astype(dtype) for array in make_inputs(case, np.float32)]
    same_bits(run(case, dtype, inputs), apart(case, dtype, inputs))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_as_in_the_two_ops(value):
    case = POOLED[2]
    inputs = make_inputs(case, np.float32)
    inputs[0][:, :, 3, 4] = inputs[0][0, 0, 9, 9] = value
    same_bits(run(case, np.float32, inputs), apart(case, np.float32, inputs))


def in_one_pass(x, w):
    return not cpu._pooled(x, w, (1, 1), (0, 0), (1, 1), 1, 4, threads(), 0).convolved


def test_images_that_fit_the_cache_are_pooled_where_they_were_made():
    assert in_one_pass((64, 1, 28, 28), (32, 1, 3, 3)) and in_one_pass((64, 6, 14, 14), (16, 6, 5, 5))
    assert not in_one_pass((4, 8, 300, 300), (64, 8, 3, 3))
