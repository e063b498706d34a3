"""The rung of the matrix product for Hopper alone: mistakes in it are found, what fits it, and its maps."""

import numpy as np
import pytest

from minigrad_kernels import interpreter
from minigrad_kernels.errors import ShapeError, StateError
from minigrad_kernels.interpreter.tensor_map import TensorMap, encode
from minigrad_kernels.matmul import cuda, cuda_hopper
from tests import standin

from .rungs import TYPES

BF16 = TYPES["bfloat16"]
M, N, K = 64, 16, 6 * 64  # more tiles of k than there are stages


def operands():
    """a, and b turned: both lie along k."""
    rng = np.random.default_rng(0)
    return (rng.integers(-3, 4, shape).astype(BF16) for shape in ((M, K), (N, K)))


def launch(old="", new=""):
    """(the report of a product in whose PTX the old words were replaced, whether the product is right)"""
    a, b = (interpreter.array(x) for x in operands())
    out = interpreter.empty((M, N), BF16)
    ((kernel, *launched),) = cuda.starts(a, b.T, None, False, out, None, "tma")
    text = kernel.ptx()
    assert old in text
    report = interpreter.interpret(text.replace(old, new) if old else text, *launched)
    want = np.asarray(a, np.float32) @ np.asarray(b, np.float32).T
    return report, np.array_equal(np.asarray(out), want.astype(BF16))


MISTAKES = {  # what is replaced, by what -> the kind of the first fault
    ("wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 2;"): "wgmma wait",  # given back too early
    ("mbarrier.arrive.shared::cta.b64", "//"): "mbarrier wait",  # not given back
    ("fence.proxy.tensormap", "//"): "proxy fence",  # maps are not acquired
    ("fence.proxy.async", "//"): "proxy fence",  # mbarriers are not fenced
    ("bar.sync", "//"): "shared race",  # nor waited for
}


@pytest.mark.parametrize("change", MISTAKES, ids=lambda change: change[0])
def test_a_wait_or_a_fence_that_is_missing_is_found(change):
    report, _ = launch(*change)
    assert report.faults and report.faults[0].kind == MISTAKES[change], [str(fault) for fault in report.faults]


def test_it_is_clean_and_reads_boxes_once_and_nothing_outside_of_the_matrices():
    report, right = launch()
    assert not report.faults and right
    assert (report.counts.bytes_loaded["0"], report.counts.bytes_loaded["1"]) == (2 * M * K, 2 * K * N)
    assert report.counts.shared_wavefronts < 100, "mbarriers alone"


LAID = {  # how a lies, (shape, strides): whether the copy engine reads it
    "lines with gaps": ((16, 8), (32, 1), True),
    "one line": ((1, 8), (0, 1), True),
    "a batch": ((3, 16, 8), (-128, 8, 1), False),
    "lines that go backwards": ((16, 8), (-8, 1), False),
    "lines that overlap": ((16, 32), (8, 1), False),
    "one line for all": ((16, 8), (0, 1), False),
}


def test_layouts_that_the_copy_engine_reads_run_and_others_are_refused():
    memory = interpreter.array(np.zeros(4096, BF16))[2048:]
    for shape, strides, fits in LAID.values():
        a = np.lib.stride_tricks.as_strided(memory, shape, [2 * step for step in strides], subok=True)
        b = interpreter.array(np.ones((*shape[:-2], 8, shape[-1]), BF16)).swapaxes(-1, -2)
        out = interpreter.empty((*shape[:-1], 8), BF16)
        if fits:
            cuda.forward(a, b, None, False, out, None, "tma")
            np.testing.assert_array_equal(np.asarray(out), 0)
        else:
            with pytest.raises(ShapeError, match="^matmul: the rung tma wants rows of a and b that follow each other"):
                cuda.forward(a, b, None, False, out, None, "tma")


# ---- maps on a GPU ---------------------------------------------------------------------------------------------------


@pytest.fixture
def driver(monkeypatch):
    """What the driver's function is called with; it makes the interpreter's maps of that."""
    calls = []

    def encode_tiled(place, kind, rank, address, sizes, strides, box, steps, *modes):
        assert place.value % 64 == 0 and rank == 2 and list(steps) == [1, 1]
        calls.append((kind, tuple(sizes), tuple(strides), tuple(box), modes))
        words = encode(TensorMap(address.value, sizes[1], sizes[0], strides[0], box[1], box[0], 2))
        cuda_hopper.ctypes.memmove(place, words.ctypes.data, words.nbytes)
        return 0

    cuda_hopper._encoded.cache_clear()
    monkeypatch.setattr(cuda_hopper, "_driver", lambda: encode_tiled)
    yield calls
    cuda_hopper._encoded.cache_clear()


def test_a_captured_product_keeps_its_maps_and_reads_its_operands_anew(driver):
    """The driver is asked in its own terms: columns first; bfloat16; no interleaving, 128 bytes turned, 256 bytes
    promoted to the second cache, zeros outside."""
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
            a[...] = cupy.asarray(2 * a.get())
            graph.launch(stream)
            stream.synchronize()
        np.testing.assert_array_equal(out.get(), 2 * want)
    modes = 9, (K, M), (2 * K,), (64, 128), (0, 3, 3, 0)
    assert machine.launches and driver == [modes, (9, (K, N), (2 * K,), (64, 256), (0, 3, 3, 0))], "made once"


def test_a_driver_that_refuses_or_is_not_there(monkeypatch):
    map_ = TensorMap(1 << 20, 8, 8, 16, 64, 64, 2)
    monkeypatch.setattr(cuda_hopper, "_driver", lambda: lambda *arguments: 1)
    with pytest.raises(StateError, match="^tensor map: the driver refuses TensorMap.* with error 1; ask for a lower"):
        cuda_hopper._encoded(map_)
    monkeypatch.undo()
    cuda_hopper._driver.cache_clear()

    def no_library(name):
        raise OSError(f"{name}: no such file")

    monkeypatch.setattr(cuda_hopper.ctypes, "CDLL", no_library)
    with pytest.raises(StateError, match="lacks cuTensorMapEncodeTiled: .*no such file; ask for a lower rung"):
        cuda_hopper._encoded(map_)
