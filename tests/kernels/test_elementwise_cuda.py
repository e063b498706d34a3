"""ReLU, leaky ReLU, erf and dropout on CUDA beside the CPU: special numbers, masks bit for bit, memory traffic."""

import math
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import elementwise, interpreter
from minigrad_kernels.elementwise import cuda

from .kernel_runs import DEVICE, moved, on_host, told

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


def both(name, arrays, settings=None, begin=0):
    """The results of a function on the device, whose arrays begin so many elements late, and on the CPU."""
    settings = FUNCTIONS[name][1] if settings is None else settings
    there = [moved(np.concatenate([array[:begin], array]), DEVICE)[begin:] for array in arrays]
    whole, out = moved(np.full(begin + arrays[0].size, 7, arrays[0].dtype), DEVICE), np.empty_like(arrays[0])
    getattr(elementwise, name)(*there, *settings, whole[begin:])
    getattr(elementwise, name)(*arrays, *settings, out)
    whole = on_host(whole)
    assert (whole[:begin] == 7).all()
    return whole[begin:], out


@each_type
@each_function
def test_as_on_the_cpu(name, dtype):
    """The same bits, but for erf, which libdevice has polynomials of its own for. Also at NaN, at 0 and far out, and
    where arrays begin anywhere."""
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e30, 1.0], dtype)
    for size, begin in ((1, 0), (3, 0), (1023, 0), (1026, 1)):
        arrays = [numbers(size, dtype, seed) for seed in range(FUNCTIONS[name][0])]
        for array in arrays:
            array[-8:] = special[-size:]
        with told(size, begin), np.errstate(invalid="ignore"):
            got, want = both(name, arrays, begin=begin)
            if name == "erf":
                np.testing.assert_allclose(got, want, rtol=5 * np.finfo(dtype).eps)
            else:
                np.testing.assert_array_equal(got, want)
                np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[want == 0]))


@each_type
def test_erf_is_within_its_promise(dtype):
    """Four roundings of float32; three of float64."""
    x = np.concatenate([np.linspace(-6, 6, 1501), np.geomspace(1e-30, 1e-3, 500)]).astype(dtype)
    want = np.array([math.erf(v) for v in x.astype(float)])
    error, info = np.abs(both("erf", [x])[0].astype(float) - want), ml_dtypes.finfo(dtype)
    roundings = {np.float32: 4, np.float64: 3}[dtype]
    assert (error <= roundings * float(info.eps) * np.abs(want) + float(info.smallest_subnormal) / 2).all()


@each_type
def test_masks_are_those_of_the_cpu(dtype):
    """For keys and steps at the ends of their words. The last probability but one rounds to 1: it drops everything."""
    keys = (0, 0), (1, 2**32), (2**32 - 1, 3), (2**64 - 1, 2**64 - 1), (12345 << 31, 77)
    settings = [*product((0.4,), keys, (1, 6, 999)), *product((0, 1e-9, 1 - 2**-30, 1 - 2**-34, 1), keys[:1], (400,))]
    for p, (seed, step), size in settings:
        with told(p, seed, step, size):
            np.testing.assert_array_equal(*both("dropout", [numbers(size, dtype)], (p, seed, step)))


@each_function
@each_type
def test_traffic_is_each_array_once(name, dtype):
    """In whole sectors; threads of dropout move four elements, one after the other. Empty arrays launch nothing."""
    count, settings = FUNCTIONS[name]
    arrays = [interpreter.array(numbers(2048, dtype)) for _ in range(count)]
    out = interpreter.empty(2048, dtype)
    with interpreter.recording() as launches:
        getattr(cuda, name)(*arrays, *settings, out)
        getattr(cuda, name)(*(array[:0] for array in arrays), *settings, out[:0])
    ((_, report),) = launches
    counts = report.counts
    assert [loaded for array, loaded in counts.bytes_loaded.items() if array != "key"] == count * [out.nbytes]
    assert list(counts.bytes_stored.values()) == [out.nbytes]
    if name != "dropout":
        assert counts.global_sectors == counts.global_sectors_ideal == (count + 1) * out.nbytes // 32
