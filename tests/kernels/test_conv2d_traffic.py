"""What the rungs of the convolution and of its gradients cost, against what their docstrings say.

The instructions of their loops stand in the manifest of the kernels.
"""

import pytest

from minigrad_kernels.conv2d import cuda_register

from .cases.conv2d import rows
from .rungs import TYPES, number, recorded
from .test_conv2d_cuda import DIRECTIONS, SAME, TWO, rung_of


def costs(rung, direction, x, w, kind="float32", **settings):
    """The counts of the first launch of a rung."""
    case = rows(x, w, **settings)[DIRECTIONS.index(direction)]
    return recorded(rung_of(case, rung), kind, case)[0][1]


@pytest.mark.deep
@pytest.mark.parametrize("direction", DIRECTIONS[:2])
@pytest.mark.parametrize("rung, kind, columns, steps", [
    ("narrow", "float32", 16, 8), ("vector", "float32", 64, 8), ("tensor", "float16", 64, 32),
    ("tensor", "tf32", 64, 16),
])  # fmt: skip
def test_tiles_read_what_is_inside_once_for_each_tap_and_whole_sectors(rung, kind, columns, steps, direction):
    """Two tiles of pixels, one of columns: no product is made twice, and few words of shared memory meet in a bank."""
    reads, h, w, size = 16, 8, 32, TYPES[kind].itemsize
    c, o = (reads, columns) if direction == "forward" else (columns, reads)
    found = costs(rung, direction, (1, c, h, w), (o, c, 3, 3), kind, **SAME)
    inside, tiles = (3 * h - 2) * (3 * w - 2), -(-9 * reads // steps)  # taps of all pixels that are not padding
    assert found.bytes_loaded["source"] == size * reads * inside
    assert size == 2 or found.sector_bytes_loaded["source"] == size * reads * inside
    assert found.bytes_loaded["filters"] == found.sector_bytes_loaded["filters"] == 2 * size * 9 * c * o
    assert found.bytes_stored["result"] == found.sector_bytes_stored["result"] == size * columns * h * w
    assert found.shared_wavefronts <= 1.1 * found.shared_wavefronts_ideal
    if kind == "float32":
        assert number(found, "fma") == h * w * columns * 9 * reads // 32 and found.barriers == 2 * (tiles + 1)
    else:
        assert number(found, "mma") == h * w // 16 * (columns // 8) * 2 * tiles


def test_rungs_below_cost_what_they_say():
    """A strided input gradient multiplies no tap that a pixel does not meet: its classes of 128 pixels meet 4, 2, 2 and
    1. An element serves 16 sums in tiled. 32 channels are 4 threads of register for each pixel, which read the same."""
    found = costs("register", "input_grad", (1, 64, 16, 32), (8, 64, 3, 3), **TWO)
    assert number(found, "fma") == 128 * 64 * 9 * 8 // 32
    h, w, c, o = 8, 8, 5, 32
    found, inside = costs("tiled", "forward", (1, c, h, w), (o, c, 3, 3), **SAME), (3 * h - 2) * (3 * w - 2)
    assert found.bytes_loaded["x"] == 4 * c * inside * (o // 16)
    assert found.bytes_loaded["w"] == 4 * 9 * c * o * (h * w // 16)
    assert number(found, "fma") == h * w * o * 48 // 32  # 45 steps fill three tiles
    c = 3
    found = costs("register", "forward", (4, c, h, w), (o, c, 3, 3), **SAME)
    assert found.bytes_loaded["source"] == 4 * c * inside * 4 * 4
    assert found.sector_bytes_loaded["source"] <= 4 * c * inside * 4 * 4
    blocks = 4 * h * w // cuda_register.pixels_of(o)
    assert (
        found.bytes_loaded["filters"] == blocks * 4 * 9 * c * o and number(found, "fma") == 4 * h * w * o * 9 * c // 32
    )
    assert found.shared_wavefronts <= 1.1 * found.shared_wavefronts_ideal


def test_slices_travel_through_the_workspace_once():
    case = rows((1, 64, 4, 4), (64, 64, 3, 3), **SAME)[0]
    (_, tiles), (_, add) = recorded(rung_of(case, None), "float32", case)
    size = 4 * 16 * 64
    assert tiles.bytes_stored["result"] == 9 * size and tiles.bytes_loaded["filters"] == 4 * 9 * 64 * 64
    assert add.bytes_loaded == {"partial": 9 * size} and add.bytes_stored == {"out": size}


@pytest.mark.deep
@pytest.mark.parametrize("rung, kind, x, w, tile", [
    ("vector", "float32", (2, 32, 12, 12), (64, 32, 3, 3), 96),
    ("narrow", "float32", (1, 32, 10, 10), (32, 32, 3, 3), 96),
    ("tensor", "float16", (1, 16, 12, 10), (64, 16, 3, 3), 128),
    ("tensor", "tf32", (1, 16, 12, 10), (64, 16, 3, 3), 128),
])  # fmt: skip
def test_tiles_of_weight_gradients_read_g_once_and_x_once_for_each_tap(rung, kind, x, w, tile):
    found, size, pixels = costs(rung, "weight_grad", x, w, kind), TYPES[kind].itemsize, x[0] * (x[2] - 2) * (x[3] - 2)
    assert found.bytes_loaded["x"] == size * pixels * 9 * x[1]
    assert found.bytes_loaded["g"] == size * pixels * w[0] * -(-9 * x[1] // tile)
    assert found.shared_wavefronts <= 1.05 * found.shared_wavefronts_ideal
    if kind == "float32":
        assert (
            32 * number(found, "fma") == pixels * 9 * x[1] * w[0] and found.global_sectors == found.global_sectors_ideal
        )


@pytest.mark.deep
@pytest.mark.parametrize("x, w", [((4, 1, 26, 26), (32, 1, 3, 3)), ((2, 3, 16, 16), (64, 3, 3, 3))])
def test_the_rung_register_of_weight_gradients_reads_x_once_for_each_tap_and_g_once(x, w):
    """Threads of one lane that own other rows read the same of g; mostly they lie in one warp."""
    found, pixels, filter_rows = costs("register", "weight_grad", x, w), x[0] * (x[2] - 2) * (x[3] - 2), 9 * x[1]
    assert 32 * number(found, "fma") <= 1.15 * pixels * filter_rows * w[0]
    assert found.bytes_loaded["x"] <= 4 * pixels * filter_rows * w[0] // 4
    assert found.sector_bytes_loaded["g"] <= 2.3 * 4 * pixels * w[0]
    assert found.shared_wavefronts <= 1.1 * found.shared_wavefronts_ideal
