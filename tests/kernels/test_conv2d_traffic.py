"""What the rungs of the convolution and of its input gradient cost, against what their docstrings say."""

from functools import partial

import numpy as np
import pytest

from minigrad_kernels import interpreter
from minigrad_kernels.conv2d import cuda, cuda_register, cuda_vector

from .kernel_runs import make_inputs, run
from .test_conv2d_cuda import SAME, TWO, both

FLOAT = 4  # bytes


def costs(name, function, x, w, **settings):
    """The Counts of the only launch of a rung, with any numbers."""
    (case,) = [case for case in both(x, w, **settings) if case.function == function]
    with interpreter.recording() as launches:
        run(case, np.float32, make_inputs(case, np.float32), "interpreter", partial(getattr(cuda, function), rung=name))
    ((_, report),) = launches
    return report.counts


def number(counts, prefix):
    """How many instructions, of all warps, begin so."""
    return sum(count for opcode, count in counts.instructions.items() if opcode.startswith(prefix))


@pytest.mark.parametrize("function", ["forward", "input_grad"])
@pytest.mark.parametrize("name", ["vector_128x16", "vector"])
def test_tiles_read_what_is_inside_once_for_each_tap_and_whole_sectors(name, function):
    _, (down, columns) = cuda.TILES[name]
    reads, h, w = 16, 8, 2 * down // 8  # two tiles of pixels, one of columns
    c, o = (reads, columns) if function == "forward" else (columns, reads)
    found = costs(name, function, (1, c, h, w), (o, c, 3, 3), **SAME)
    inside = (3 * h - 2) * (3 * w - 2)  # taps of all pixels that are not padding
    assert found.bytes_loaded["source"] == found.sector_bytes_loaded["source"] == FLOAT * reads * inside
    assert found.bytes_loaded["filters"] == found.sector_bytes_loaded["filters"] == 2 * FLOAT * 9 * c * o
    assert found.bytes_stored["result"] == found.sector_bytes_stored["result"] == FLOAT * columns * h * w
    assert number(found, "fma") == h * w * columns * 9 * reads // 32
    assert found.shared_wavefronts <= 1.1 * found.shared_wavefronts_ideal
    tiles = 9 * reads // 8
    assert found.barriers == 2 * (tiles + 1)


def test_multiplications_of_a_strided_input_gradient_are_those_of_the_formula():
    """Classes of 128 pixels each, which meet 4, 2, 2 and 1 taps: no tap is multiplied that a pixel does not meet."""
    found = costs("register", "input_grad", (1, 64, 16, 32), (8, 64, 3, 3), **TWO)
    assert number(found, "fma") == 128 * 64 * 9 * 8 // 32


def test_tiled_reads_each_element_once_for_16_sums():
    h, w, c, o = 8, 8, 5, 32
    found = costs("tiled", "forward", (1, c, h, w), (o, c, 3, 3), **SAME)
    assert found.bytes_loaded["x"] == FLOAT * c * (3 * h - 2) * (3 * w - 2) * (o // 16)
    assert found.bytes_loaded["w"] == FLOAT * 9 * c * o * (h * w // 16)
    assert number(found, "fma") == h * w * o * 48 // 32  # 45 steps fill three tiles


@pytest.mark.parametrize("c", [1, 3])
def test_register_reads_images_through_the_cache_and_filters_once_for_each_block(c):
    """32 channels are 4 threads for each pixel, which read the same words."""
    h, w, o = 16, 16, 32
    found = costs("register", "forward", (2, c, h, w), (o, c, 3, 3), **SAME)
    inside = 2 * (3 * h - 2) * (3 * w - 2)
    assert found.bytes_loaded["source"] == FLOAT * c * inside * 4
    assert found.sector_bytes_loaded["source"] <= 4 * FLOAT * c * inside
    blocks = 2 * h * w // cuda_register.pixels_of(o)
    assert found.bytes_loaded["filters"] == blocks * FLOAT * 9 * c * o
    assert found.bytes_stored["result"] == found.sector_bytes_stored["result"] == FLOAT * 2 * h * w * o
    assert number(found, "fma") == 2 * h * w * o * 9 * c // 32
    assert found.shared_wavefronts <= 1.1 * found.shared_wavefronts_ideal


def test_slices_travel_through_the_workspace_once():
    (case, _) = both((1, 64, 4, 4), (64, 64, 3, 3), **SAME)
    with interpreter.recording() as launches:
        run(case, np.float32, make_inputs(case, np.float32), "interpreter", partial(cuda.forward, rung="split"))
    tiles, add = (report.counts for _, report in launches)
    slices, size = tiles.bytes_stored["result"] // (FLOAT * 16 * 64), FLOAT * 16 * 64
    assert slices == 9 and add.bytes_loaded == {"partial": slices * size} and add.bytes_stored == {"out": size}
    assert tiles.bytes_loaded["filters"] == FLOAT * 9 * 64 * 64


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("adjoint", [False, True])
def test_the_inner_loop_of_the_largest_tile_is_mostly_arithmetic(adjoint, architecture):
    pytest.importorskip("numba_cuda")
    from minigrad_kernels.toolchain.cuda import report

    kernel = cuda_vector.VECTOR[128, 64][adjoint]
    (loop,) = [found for found in report.loops(kernel, architecture) if found["FFMA"]]
    assert loop["FFMA"] == 512 and loop.total() <= 640
    assert loop["LDS.128"] + loop["LDS.64"] == 33  # one finds the tap
    assert loop["LDG.E.128.CONSTANT"] == 3 and loop["BAR.SYNC.DEFER_BLOCKING"] == 1
    assert kernel.binary(architecture).registers <= 128
