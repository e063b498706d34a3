"""The weight gradient of convolution on CUDA: which rung runs, what each of them costs and refuses."""

import re
from itertools import product

import numpy as np
import pytest

from minigrad_kernels import interpreter
from minigrad_kernels.conv2d import cuda_register, cuda_vector, cuda_weight
from minigrad_kernels.conv2d.cuda_walk import MOST_PIXELS, problem_of
from minigrad_kernels.conv2d.cuda_weight import weight_grad, weight_grad_workspace
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, FILTER
from minigrad_kernels.toolchain.cuda import compiler, report

from .kernel_runs import make_inputs, wanted
from .test_conv2d_weight_cuda import row

pytestmark = pytest.mark.deep

# ---- choice ----------------------------------------------------------------------------------------------------------

CHOICE = {  # what small CNNs learn: (x, w, ...) -> rung
    "first layer of MNIST": (((64, 1, 28, 28), (32, 1, 3, 3)), "register"),
    "second layer of MNIST": (((64, 32, 26, 26), (64, 32, 3, 3)), "vector"),
    "first layer of LeNet": (((64, 1, 28, 28), (6, 1, 5, 5)), "register"),
    "second layer of LeNet": (((64, 6, 12, 12), (16, 6, 5, 5)), "register"),
    "first layer of CIFAR-10": (((64, 3, 32, 32), (64, 3, 3, 3), (1, 1), (1, 1)), "register"),
    "16 channels": (((64, 16, 32, 32), (16, 16, 3, 3), (1, 1), (1, 1)), "vector_96x32"),
    "16 to 32 channels": (((64, 16, 32, 32), (32, 16, 3, 3), (2, 2), (1, 1)), "vector_96x32"),
    "32 channels": (((64, 32, 16, 16), (32, 32, 3, 3), (1, 1), (1, 1)), "vector_96x32"),
    "64 channels": (((64, 64, 8, 8), (64, 64, 3, 3), (1, 1), (1, 1)), "vector"),
    "odd channels": (((64, 33, 8, 8), (35, 33, 3, 3)), "register"),
    "groups of 8": (((64, 64, 8, 8), (64, 8, 3, 3), (1, 1), (1, 1), (1, 1), 8), "vector_96x32"),
    "depthwise": (((64, 64, 8, 8), (64, 1, 3, 3), (1, 1), (1, 1), (1, 1), 64), "plain"),
    "depthwise, odd": (((64, 67, 8, 8), (67, 1, 3, 3), (1, 1), (1, 1), (1, 1), 67), "plain"),
    "1x1": (((64, 64, 8, 8), (64, 64, 1, 1)), "pointwise"),
    "1x1 to few": (((64, 64, 8, 8), (8, 64, 1, 1)), "vector_96x32"),
    "1x1, stride 2": (((64, 64, 8, 8), (128, 64, 1, 1), (2, 2)), "vector"),
}


def problem(x, w, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    return problem_of(x, w, stride, padding, dilation, groups)


def chosen(p, itemsize=4, x_aligned=True, others_aligned=True, rung=None):
    return cuda_weight._rung(p, {4: "float32", 8: "float64"}[itemsize], x_aligned, others_aligned, rung)


def test_the_best_rung_is_chosen_by_shape():
    for what, (geometry, name) in CHOICE.items():
        p = problem(*geometry)
        assert (chosen(p), chosen(p, itemsize=8)) == (name, "plain"), what


def test_places_that_are_no_multiples_of_16_bytes_take_rungs_that_load_one_by_one():
    p = problem(*CHOICE["64 channels"][0])
    assert {chosen(p, x_aligned=False), chosen(p, others_aligned=False)} == {"register"}
    case = row((3, 4, 6, 6), (8, 4, 3, 3))
    inputs = make_inputs(case, np.float32, integers=True)
    late = lambda array: lying(array, 1)
    for which in product((late, lying), repeat=2):
        x, g = (lay(array) for lay, array in zip(which, reversed(inputs), strict=True))
        dw, space = empty(case)
        weight_grad(g, x, *case.params.values(), dw, space)
        np.testing.assert_array_equal(dw, wanted(case, inputs)[0])


def lying(array, start=0):
    """On the interpreter, channels last, so many elements behind a multiple of 16 bytes."""
    memory = interpreter.empty(array.size + start, array.dtype)
    shape = [array.shape[axis] for axis in CHANNELS_LAST]
    there = memory[start:].reshape(shape)
    there[...] = array.transpose(CHANNELS_LAST)
    return there.transpose(np.argsort(CHANNELS_LAST))


def empty(case):
    """dw and workspace on the interpreter."""
    w = case.outputs[0].shape
    dw = interpreter.empty([w[axis] for axis in FILTER], np.float32).transpose(np.argsort(FILTER))
    return dw, interpreter.empty(case.workspace(None, case.params, np.dtype(np.float32)), np.uint8)


def test_slices_cover_all_pixels_are_short_and_not_too_many():
    for n, size, c, o, taps in product((1, 3, 64, 400), (1, 8, 32), (1, 16, 512), (1, 64, 512), (1, 3)):
        p = problem((n, c, size + taps - 1, size + taps - 1), (o, c, taps, taps))
        assert p.pixels == n * size**2
        assert (p.slices - 1) * p.depth < p.pixels <= p.slices * p.depth and p.depth % 32 == 0
        assert p.slices * p.size <= 1 << 23 or p.slices == 1
        assert p.depth <= MOST_PIXELS or p.size * (p.pixels // MOST_PIXELS) > 1 << 22


def test_threads_of_the_rung_register_cover_dw():
    for rows, columns in product((1, 9, 25, 150, 297, 4000), (1, 6, 64, 513)):
        down, across, lanes, blocks = cuda_register.shares_of(rows, columns)
        assert 32 <= down * across * lanes <= 256 and lanes & (lanes - 1) == 0
        assert down <= 16 and across <= 16 and blocks * down * across * 36 >= rows * columns


REFUSED = {
    "no such rung": (((2, 3, 5, 5), (4, 3, 3, 3)), {}, "fast", "rung is 'fast', wants one of plain, vector"),
    "vector of float64": (((2, 4, 5, 5), (4, 4, 3, 3)), {"itemsize": 8}, "vector", "the rung vector wants float32"),
    "vector of odd filters": (
        ((2, 4, 5, 5), (6, 4, 3, 3)), {}, "vector", "the rung vector wants multiples of 4 channels and filters",
    ),
    "vector of odd places": (
        ((2, 4, 5, 5), (8, 4, 3, 3)), {"x_aligned": False}, "vector", "the rung vector wants multiples of 4",
    ),
    "register of large filters": (
        ((2, 2, 5, 25), (4, 2, 1, 17)), {}, "register", "the rung register wants at most 16 x 16 taps",
    ),
    "register of single channels": (
        ((2, 4, 5, 5), (4, 1, 3, 3), (1, 1), (0, 0), (1, 1), 4), {}, "register",
        "the rung register wants groups of more than one channel and filter",
    ),
    "many groups": (
        ((1, 1 << 17, 1, 1), (1 << 17, 2, 1, 1), (1, 1), (0, 0), (1, 1), 1 << 16), {}, "register",
        "the rung register wants at most 65535 groups, got 65536",
    ),
    "pointwise of few": (
        ((2, 16, 5, 5), (32, 16, 1, 1)), {}, "pointwise", "the rung pointwise wants 1x1 filters, stride 1, no padding",
    ),
}  # fmt: skip


def test_a_rung_that_does_not_fit_says_why():
    for geometry, settings, rung, message in REFUSED.values():
        with pytest.raises(ShapeError, match="^" + re.escape("conv2d weight_grad: " + message)):
            chosen(problem(*geometry), **settings, rung=rung)


def test_sizes_beyond_32_bits_are_refused():
    words = r"conv2d weight_grad: x has shape \(65536, 1, 256, 128\), 2147483648 elements, wants less than 2147483648"
    with pytest.raises(ShapeError, match=words):
        weight_grad_workspace((65536, 1, 256, 128), (1, 1, 3, 3), (1, 1), (0, 0), (1, 1), 1, 4)
    assert problem((65535, 1, 256, 128), (1, 1, 3, 3)).slices <= 4096
    with pytest.raises(
        ShapeError, match=r"conv2d weight_grad: stride \(536870912, 1\), padding .* lead 536870919 pixels"
    ):
        problem((1, 1, 4, 4), (1, 1, 3, 3), (1 << 29, 1))


# ---- cost ------------------------------------------------------------------------------------------------------------


def counted(x, w, *settings, rung=None):
    """(problem, name of the kernel, its counts) of one call on random numbers."""
    case = row(x, w, *settings)
    arrays = [lying(array) for array in make_inputs(case, np.float32)]
    with interpreter.recording() as launches:
        weight_grad(*arrays, *case.params.values(), *empty(case), rung)
    name, found = launches[0]
    return problem(x, w, *settings), name, found.counts


def products(counts):
    """Fused multiply-adds of all threads."""
    return 32 * sum(n for name, n in counts.instructions.items() if name.startswith("fma"))


VECTOR_ROWS = {
    "vector": ((2, 32, 12, 12), (64, 32, 3, 3)),
    "vector_96x32": ((1, 32, 16, 16), (32, 32, 3, 3), (1, 1), (1, 1)),
}


@pytest.mark.parametrize("rung", VECTOR_ROWS)
def test_the_vector_rung_multiplies_what_it_must_and_moves_whole_sectors(rung):
    p, name, counts = counted(*VECTOR_ROWS[rung], rung=rung)
    assert name == f"conv2d_weight_vector_96x{p.columns}"
    assert p.rows % 96 == 0 and p.slices == 1 and p.pixels % 8 == 0  # so that nothing is multiplied in vain
    assert products(counts) == p.pixels * p.size
    assert counts.global_sectors == counts.global_sectors_ideal
    assert counts.shared_wavefronts == counts.shared_wavefronts_ideal
    assert counts.bytes_loaded["g"] == p.rows // 96 * 4 * p.pixels * p.columns
    outside = 1 - counts.bytes_loaded["x"] / (4 * p.pixels * p.rows)
    assert (outside == 0) == (p.padding == (0, 0)) and outside < 0.15


REGISTER_ROWS = {  # geometry: rows and columns that the threads own
    "9x32": (((4, 1, 26, 26), (32, 1, 3, 3)), 9, 32),
    "27x64": (((2, 3, 16, 16), (64, 3, 3, 3), (1, 1), (1, 1)), 27, 64),
    "144x16": (((2, 16, 16, 16), (16, 16, 3, 3), (1, 1), (1, 1)), 144, 16),
}


@pytest.mark.parametrize("what", REGISTER_ROWS)
def test_the_rung_register_reads_x_once_for_each_tap_and_g_once(what):
    """Threads of one lane that own other rows read the same of g; mostly they lie in one warp."""
    geometry, rows, columns = REGISTER_ROWS[what]
    p, name, counts = counted(*geometry, rung="register")
    assert name.startswith("conv2d_weight_register") and p.size == rows * columns
    assert products(counts) <= 1.15 * p.pixels * rows * columns  # warps at a border of an image go both ways
    assert counts.bytes_loaded["x"] <= 4 * p.pixels * rows * -(-columns // 4)
    assert counts.sector_bytes_loaded["g"] <= 2.3 * 4 * p.pixels * p.columns
    assert counts.shared_wavefronts <= 1.1 * counts.shared_wavefronts_ideal


@pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("columns, least", [(64, 0.8), (32, 0.7)])
def test_the_main_loop_multiplies_most_of_the_time(columns, least, architecture):
    found = report.loops(cuda_vector.WEIGHT_VECTOR[columns], architecture)
    shares = [loop["FFMA"] / loop.total() for loop in found]
    assert max(shares) >= least
