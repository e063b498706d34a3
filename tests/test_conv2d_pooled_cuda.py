"""Convolution with pooling behind it on CUDA: one launch where windows are 2 x 2, with the bits of the two steps."""

from functools import partial

import numpy as np
import pytest

from minigrad_kernels import conv2d, interpreter
from minigrad_kernels.conv2d import cuda

from .cases.conv2d import pooled
from .kernel_runs import DEVICE, make_inputs, run, same_bits

SQUARES = (2, 2), (2, 2)
CASES = {  # kernel that pools: rows of it, among them maps of odd sizes and channels that fill no vector
    "direct_1_pooled": [
        pooled((2, 1, 9, 11), (32, 1, 3, 3), *SQUARES), pooled((2, 1, 11, 9), (6, 1, 5, 5), *SQUARES, padding=(2, 2)),
        pooled((1, 1, 12, 8), (9, 1, 3, 3), *SQUARES, relu=False, bias=False, stride=(2, 1)),
    ],
    "direct_3_pooled": [pooled((1, 3, 8, 9), (70, 3, 3, 3), *SQUARES, padding=(1, 1))],
    "gemm_128x16_pooled": [
        pooled((2, 6, 13, 12), (16, 6, 5, 5), *SQUARES), pooled((3, 5, 7, 7), (7, 5, 3, 3), *SQUARES),
    ],
    "vector_128x32_pooled": [pooled((1, 8, 18, 19), (20, 8, 3, 3), *SQUARES, relu=False)],
    "vector_64x64_pooled": [pooled((2, 8, 8, 9), (72, 8, 3, 3), *SQUARES, bias=False)],
}  # fmt: skip
ROWS = [(name, case) for name, cases in CASES.items() for case in cases]
each_row = pytest.mark.parametrize("name, case", ROWS, ids=str)
KEPT = [  # what two launches make
    pooled((2, 1, 9, 11), (8, 1, 3, 3), (3, 3), (2, 2)), pooled((2, 1, 9, 11), (8, 1, 3, 3), (2, 2), (1, 1)),
    pooled((2, 1, 9, 11), (8, 1, 3, 3), *SQUARES, (1, 1)), pooled((2, 1, 9, 9), (8, 1, 3, 3), *SQUARES, ceil_mode=True),
    pooled((1, 40, 5, 6), (40, 40, 3, 3), *SQUARES), pooled((1, 2, 6, 6), (8, 2, 3, 3), *SQUARES),
]  # fmt: skip


def apart(*arguments):
    """forward_pooled as two launches."""
    x, w, bias, relu, *rest = arguments
    settings, windows, (out, positions, workspace) = tuple(rest[:4]), tuple(rest[4:8]), rest[8:]
    cuda._convolve_and_pool(x, w, bias, relu, settings, windows, out, positions, workspace)


def launched(call):
    with interpreter.recording() as launches:
        results = call()
    return results, [(name.removeprefix("conv2d_"), report.counts) for name, report in launches]


def both(case, inputs):
    """The results and launches of the launcher, and of the two steps."""
    one, two = (partial(run, case, np.float32, inputs, "interpreter", way) for way in (None, apart))
    return launched(one), launched(two)


@each_row
def test_one_launch_has_the_bits_of_the_two(name, case):
    one, two = both(case, make_inputs(case, np.float32))
    same_bits(one[0], two[0])
    assert [kernel for kernel, _ in one[1]] == [name] and len(two[1]) == 2


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["direct_1_pooled", "gemm_128x16_pooled"])
def test_what_is_not_finite_is_as_in_the_two(name, value):
    """ReLU makes zeros of many, of which the first in a window counts; NaN wins, the last of a window."""
    case = CASES[name][0]
    inputs = make_inputs(case, np.float32, integers=True)
    inputs[0][:, :, 3, 4] = inputs[0][0, 0, -2, -2] = value
    with np.errstate(invalid="ignore"):
        (one, _), (two, _) = both(case, inputs)
    same_bits(one, two)


@pytest.mark.parametrize("case", KEPT, ids=str)
def test_other_windows_and_layers_take_two_launches(case):
    one, two = both(case, make_inputs(case, np.float32))
    same_bits(one[0], two[0])
    assert [name for name, _ in one[1]] == [name for name, _ in two[1]] and len(one[1]) >= 2


@each_row
def test_the_map_before_the_pooling_is_never_in_memory(name, case):
    _, ((_, counts),) = launched(lambda: run(case, np.float32, make_inputs(case, np.float32), "interpreter"))
    out = int(np.prod(case.outputs[0].shape))
    assert counts.bytes_stored == {"result": 4 * out, "positions": out}


def test_arrays_off_the_grid():
    """Positions that begin at an odd address are written one by one, and so is what lies beside them."""
    case = CASES["direct_1_pooled"][0]
    inputs = make_inputs(case, np.float32)
    settings, shape = list(case.params.values()), case.outputs[0].shape
    relu, n, (o, h, w) = settings.pop(0), shape[0], shape[1:]
    found = []
    for late in (0, 1):
        maps = interpreter.empty(n * h * w * o + late, np.float32), interpreter.empty(n * h * w * o + late, np.uint8)
        out, positions = (array[late:].reshape(n, h, w, o).transpose(0, 3, 1, 2) for array in maps)
        arrays = [interpreter.array(array) for array in inputs]
        nbytes = conv2d.workspace(
            "forward_pooled", *(a.shape for a in arrays[:2]), *settings[:4], np.float32, arrays[0]
        )
        space = interpreter.empty(nbytes, np.uint8)
        arrays[0] = arrays[0].transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
        conv2d.forward_pooled(*arrays, relu, *settings, out, positions, space)
        found.append((np.array(out), np.array(positions)))
    same_bits(*found)


def test_all_that_pool_in_one_launch_have_equal_bits(monkeypatch):
    """Tiles of other sizes, one of which is what the table takes."""
    case, found = CASES["vector_64x64_pooled"][0], {}
    inputs = make_inputs(case, np.float32)
    for name in ("vector_64x64", "vector", "vector_128x32", "gemm_128x16"):
        monkeypatch.setattr(cuda, "chosen", lambda *_, name=name: name)
        found[name], ((kernel, _),) = launched(lambda: run(case, np.float32, inputs, "interpreter"))
        assert kernel == {"vector": "vector_128x64_pooled"}.get(name, f"{name}_pooled")
        same_bits(found[name], found["vector_64x64"])


def test_the_fastest_of_one_launch_and_two_is_taken(monkeypatch):
    case, asked = CASES["gemm_128x16_pooled"][0], []

    def choice(op, call, candidates, start, like):
        if op != "conv2d_pooled":
            return None
        asked.append(list(candidates()))
        return cuda.APART

    monkeypatch.setattr(cuda, "chosen", choice)
    results, launches = launched(lambda: run(case, np.float32, make_inputs(case, np.float32), DEVICE))
    assert asked == [["gemm_128x16", cuda.APART]] and len(launches) == 2 and results
