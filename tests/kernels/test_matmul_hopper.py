"""The rung of the matrix product for Hopper alone: mistakes in it are found, what fits it, and its tables."""

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import interpreter
from minigrad_kernels.errors import ShapeError, StateError
from minigrad_kernels.interpreter.tensor_map import TensorMap, decode, encode
from minigrad_kernels.matmul import cuda
from minigrad_kernels.matmul import cuda_hopper as tensor_map
from tests import standin

BF16 = ml_dtypes.bfloat16
M, N, K = 64, 16, 6 * 64  # more tiles of k than there are stages


def operands():
    """a, and b turned: both lie along k."""
    rng = np.random.default_rng(0)
    return (rng.integers(-3, 4, shape).astype(BF16) for shape in ((M, K), (N, K)))


def launch(change=lambda text: text):
    """(the report of a product whose PTX was changed, whether the product is right)"""
    a, b = (interpreter.array(x) for x in operands())
    b, out = b.T, interpreter.empty((M, N), BF16)
    ((kernel, *launched),) = cuda.starts(a, b, None, False, out, None, "tma")
    grid, block, arguments, shared = launched
    before = kernel.ptx()
    text = change(before)
    assert change(before) is before or text != before, "the change is none"
    report = interpreter.interpret(text, grid, block, arguments, shared)
    return report, np.array_equal(np.asarray(out), (np.asarray(a, np.float32) @ np.asarray(b, np.float32)).astype(BF16))


def replaced(old, new, count=-1):
    return lambda text: text.replace(old, new, count)


MISTAKES = {  # change, the kind of the first fault
    "a stage is given back before its products are over": (
        replaced("wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 2;"), "wgmma wait",
    ),
    "one warp less gives it back": (replaced("mbarrier.arrive.shared::cta.b64", "//"), "mbarrier wait"),
    "the maps are not acquired": (replaced("fence.proxy.tensormap", "//"), "proxy fence"),
    "the mbarriers are not fenced": (replaced("fence.proxy.async", "//"), "proxy fence"),
    "no barrier after they are made": (replaced("bar.sync", "//"), "shared race"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_wait_or_a_fence_that_is_missing_is_found(what):
    change, kind = MISTAKES[what]
    report, _ = launch(change)
    assert report.faults and report.faults[0].kind == kind, [str(fault) for fault in report.faults]


def test_it_is_clean():
    report, right = launch()
    assert not report.faults and right


def test_boxes_are_read_once_and_nothing_outside_of_the_matrices():
    counts = launch()[0].counts
    assert (counts.bytes_loaded["0"], counts.bytes_loaded["1"]) == (2 * M * K, 2 * K * N)
    assert counts.shared_wavefronts < 100, "mbarriers alone"


# ---- what fits -------------------------------------------------------------------------------------------------------


def shaped(kind, shape, strides):
    """An array of the interpreter with these strides in elements."""
    memory = interpreter.array(np.zeros(4096, kind))
    at = memory[2048:] if min(strides) < 0 else memory
    return np.lib.stride_tricks.as_strided(at, shape, [2 * step for step in strides], subok=True)


LAID = {  # how a lies: what the copy engine reads, and what it does not
    "lines with gaps": ((16, 8), (32, 1), True),
    "one line": ((1, 8), (0, 1), True),
    "a batch of one matrix": ((3, 16, 8), (0, 8, 1), True),
    "a batch that goes backwards": ((3, 16, 8), (-128, 8, 1), True),
    "lines that go backwards": ((16, 8), (-8, 1), False),
    "lines that overlap": ((16, 32), (8, 1), False),
    "one line for all": ((16, 8), (0, 1), False),
}


@pytest.mark.parametrize("what", LAID)
def test_layouts_that_the_copy_engine_reads_run_and_others_are_refused(what):
    shape, strides, fits = LAID[what]
    a = shaped(BF16, shape, strides)
    b = interpreter.array(np.ones((*shape[:-2], 8, shape[-1]), BF16)).swapaxes(-1, -2)
    out = interpreter.empty((*shape[:-1], 8), BF16)
    if fits:
        cuda.forward(a, b, None, False, out, None, "tma")
        np.testing.assert_array_equal(np.asarray(out), 0)
    else:
        with pytest.raises(ShapeError, match="^matmul: the rung tma wants rows of a and b that follow each other"):
            cuda.forward(a, b, None, False, out, None, "tma")


# ---- tables on a GPU -------------------------------------------------------------------------------------------------


class Driver:
    """Stands for the driver's function: notes what it is called with, and makes the interpreter's maps of it."""

    def __init__(self):
        self.calls = []

    def __call__(self, place, kind, rank, address, sizes, strides, box, steps, *modes):
        assert place % 64 == 0 and rank == 2 and list(steps) == [1, 1]
        self.calls.append((kind, tuple(sizes), tuple(strides), tuple(box), modes))
        map_ = TensorMap(address, sizes[1], sizes[0], strides[0], box[1], box[0], 2)
        words = encode(map_)
        tensor_map.ctypes.memmove(place, words.ctypes.data, words.nbytes)
        return 0


@pytest.fixture
def driver(monkeypatch):
    found = Driver()
    tensor_map._table.cache_clear()
    monkeypatch.setattr(tensor_map, "_driver", lambda: found)
    yield found
    tensor_map._table.cache_clear()


def test_the_driver_is_asked_for_maps_in_its_own_terms(driver):
    """Columns first; 9 is bfloat16; no interleaving, 128 bytes turned, 256 bytes promoted to the second cache."""
    array = interpreter.array(np.zeros((100, 72), BF16))
    words = tensor_map._encoded("bfloat16", TensorMap(interpreter.address(array), 100, 72, 144, 64, 64, 2))
    assert driver.calls == [(9, (72, 100), (144,), (64, 64), (0, 3, 3, 0))]
    assert decode(words).columns == 72


def test_the_numbers_are_those_of_the_driver():
    bindings = pytest.importorskip("cuda.bindings.driver")
    for name, number in tensor_map.KINDS.items():
        assert getattr(bindings.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name.upper()}") == number
    assert bindings.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B == tensor_map.TURNED_128
    assert bindings.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B == tensor_map.SECOND_CACHE_256
    assert bindings.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE == tensor_map.PLAIN
    assert bindings.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE == tensor_map.ZEROS


def test_a_driver_that_refuses_or_is_not_there(monkeypatch):
    map_ = TensorMap(1 << 20, 8, 8, 16, 64, 64, 2)
    monkeypatch.setattr(tensor_map, "_driver", lambda: lambda *arguments: 1)
    with pytest.raises(StateError, match="^tensor map: the driver refuses TensorMap.* with error 1; ask for a lower"):
        tensor_map._encoded("float16", map_)
    monkeypatch.undo()
    tensor_map._driver.cache_clear()

    def no_library(name):
        raise OSError(f"{name}: no such file")

    monkeypatch.setattr(tensor_map.ctypes, "CDLL", no_library)
    with pytest.raises(StateError, match="lacks cuTensorMapEncodeTiled: .*no such file; ask for a lower rung"):
        tensor_map._encoded("float16", map_)


def test_a_captured_product_keeps_its_maps_and_reads_its_operands_anew(driver):
    with standin.installed(devices=1) as machine:
        import cupy

        a, b = (cupy.asarray(x) for x in operands())
        b, out = b.T, cupy.zeros((M, N), BF16)
        cuda.forward(a, b, None, False, out, None, "tma")
        want = out.get()
        with cupy.cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            cuda.forward(a, b, None, False, out, None, "tma")
            graph = stream.end_capture()
            a *= 2
            graph.launch(stream)
            stream.synchronize()
        np.testing.assert_array_equal(out.get(), 2 * want)
        assert machine.launches and len(driver.calls) == 2, "equal maps are made once"
