"""ReLU, leaky ReLU, erf and dropout on CUDA: masks of dropout bit for bit, memory traffic."""

import math

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import elementwise, interpreter
from minigrad_kernels.elementwise import cuda, reference

from .kernel_runs import DEVICE, moved, on_host

FUNCTIONS = {  # name: (arrays that are read, numbers between them and the output)
    "relu": (1, ()),
    "relu_grad": (2, ()),
    "leaky_relu": (1, (0.3,)),
    "leaky_relu_grad": (2, (0.3,)),
    "erf": (1, ()),
    "dropout": (1, (0.3, 2**40 + 7, 5)),
}
each_type = pytest.mark.parametrize("dtype", [np.float32, np.float64])
each_function = pytest.mark.parametrize("name", FUNCTIONS)


def numbers(size, dtype=np.float32, seed=3):
    return np.random.default_rng(seed).standard_normal(size).astype(dtype) * 2


def on_device(name, arrays, settings=None):
    """The result of a function of cuda.py, as a NumPy array."""
    out = moved(np.full_like(arrays[0], np.nan), DEVICE)
    settings = FUNCTIONS[name][1] if settings is None else settings
    getattr(cuda, name)(*(moved(array, DEVICE) for array in arrays), *settings, out)
    return on_host(out)


def on_cpu(name, arrays, settings=None):
    out = np.empty_like(arrays[0])
    getattr(elementwise, name)(*arrays, *(FUNCTIONS[name][1] if settings is None else settings), out)
    return out


@each_type
@each_function
@pytest.mark.parametrize("size", [1, 3, 4, 1023, 1026])
def test_as_on_the_cpu(name, dtype, size):
    """The same bits, but for erf, which libdevice has polynomials of its own for. Also at NaN, at 0 and far out."""
    arrays = [numbers(size, dtype, seed) for seed in range(FUNCTIONS[name][0])]
    far = 1e30
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1 / far, -far, 1.0], dtype)
    for array in arrays:
        array[-8:] = special[-size:]
    with np.errstate(invalid="ignore"):
        got, want = (result.astype(float) for result in (on_device(name, arrays), on_cpu(name, arrays)))
    if name == "erf":
        np.testing.assert_allclose(got, want, rtol=5 * ml_dtypes.finfo(dtype).eps)
    else:
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[want == 0]))


@each_type
def test_erf_is_within_its_promise(dtype):
    """Four roundings of float32; three of float64."""
    x = np.concatenate([np.linspace(-6, 6, 1501), np.geomspace(1e-30, 1e-3, 500)]).astype(dtype)
    want = np.array([math.erf(v) for v in x.astype(float)])
    error, info = np.abs(on_device("erf", [x]).astype(float) - want), ml_dtypes.finfo(dtype)
    roundings = {np.float32: 4, np.float64: 3}[dtype]
    assert (error <= roundings * float(info.eps) * np.abs(want) + float(info.smallest_subnormal) / 2).all()


# ---- dropout -----------------------------------------------------------------------------------------------------


@each_type
@pytest.mark.parametrize("size", [1, 4, 6, 999, 2048])
@pytest.mark.parametrize("seed, step", [(0, 0), (1, 2**32), (2**32 - 1, 3), (2**64 - 1, 2**64 - 1), (12345 << 31, 77)])
def test_masks_are_those_of_the_cpu(dtype, size, seed, step):
    settings = 0.4, np.uint64(seed), np.uint64(step)
    ones = np.ones(size, dtype)
    got = on_device("dropout", [ones], settings)
    np.testing.assert_array_equal(got, on_cpu("dropout", [ones], (0.4, seed, step)))
    kept = reference.dropout(ones, 0.4, seed, step) != 0
    np.testing.assert_array_equal(got != 0, kept)


@each_type
@pytest.mark.parametrize("p", [0, 1e-9, 0.5, 1 - 2**-30, 1 - 2**-34, 1])
def test_probabilities_at_the_edges(dtype, p):
    """The last but one rounds to 1, and so drops everything."""
    x = numbers(400, dtype)
    np.testing.assert_array_equal(on_device("dropout", [x], (p, 1, 2)), on_cpu("dropout", [x], (p, 1, 2)))


# ---- launches ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_empty_arrays_launch_nothing(name):
    with interpreter.recording() as launches:
        for dtype in (np.float32, np.float64):
            on_device(name, [np.empty(0, dtype)] * FUNCTIONS[name][0])
    assert not launches


@each_function
@each_type
def test_traffic_is_each_array_once(name, dtype):
    """In whole sectors; of dropout each thread moves four elements, one after the other."""
    count, settings = FUNCTIONS[name]
    arrays = [interpreter.array(numbers(2048, dtype)) for _ in range(count)]
    out = interpreter.empty(2048, dtype)
    with interpreter.recording() as launches:
        getattr(cuda, name)(*arrays, *settings, out)
    ((_, report),) = launches
    counts = report.counts
    assert [loaded for array, loaded in counts.bytes_loaded.items() if array != "key"] == count * [out.nbytes]
    assert list(counts.bytes_stored.values()) == [out.nbytes]
    if name != "dropout":
        assert counts.global_sectors == counts.global_sectors_ideal == (count + 1) * out.nbytes // 32


@each_function
def test_arrays_may_begin_anywhere(name):
    count, settings = FUNCTIONS[name]
    arrays = [numbers(67, seed=seed)[1:] for seed in range(count)]
    whole = moved(np.zeros(67, np.float32), DEVICE)
    getattr(elementwise, name)(*(moved(array, DEVICE) for array in arrays), *settings, whole[1:])
    np.testing.assert_allclose(on_host(whole)[1:], on_cpu(name, arrays), rtol=1e-6)
    assert on_host(whole)[0] == 0
