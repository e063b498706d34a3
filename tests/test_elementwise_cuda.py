"""ReLU, leaky ReLU, erf and dropout on CUDA: both rungs, masks of dropout bit for bit, splitting, memory traffic."""

import math
import re
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import elementwise, interpreter
from minigrad_kernels.elementwise import cuda, cuda_plain, reference
from minigrad_kernels.errors import ShapeError

from .kernel_runs import CASES, DEVICE, make_inputs, moved, on_host, run, within_rounding

ROWS = [case for case in CASES if case.family == "elementwise"]
FUNCTIONS = {  # name: (arrays that are read, numbers between them and the output)
    "relu": (1, ()),
    "relu_grad": (2, ()),
    "leaky_relu": (1, (0.3,)),
    "leaky_relu_grad": (2, (0.3,)),
    "erf": (1, ()),
    "dropout": (1, (0.3, 2**40 + 7, 5)),
}
BF16 = ml_dtypes.bfloat16
RUNGS = [("plain", np.float32), ("plain", np.float64), ("vector", np.float32), ("vector", np.float16), ("vector", BF16)]
NAMES = ["plain-f4", "plain-f8", "vector-f4", "vector-f2", "vector-bf2"]
each_rung = pytest.mark.parametrize("rung, dtype", RUNGS, ids=NAMES)
each_function = pytest.mark.parametrize("name", FUNCTIONS)


def numbers(size, dtype=np.float32, seed=3):
    return np.random.default_rng(seed).standard_normal(size).astype(dtype) * 2


def on_device(name, arrays, rung, settings=None):
    """The result of a function of cuda.py, as a NumPy array."""
    out = moved(np.full_like(arrays[0], np.nan), DEVICE)
    settings = FUNCTIONS[name][1] if settings is None else settings
    getattr(cuda, name)(*(moved(array, DEVICE) for array in arrays), *settings, out, rung=rung)
    return on_host(out)


def on_cpu(name, arrays, settings=None):
    out = np.empty_like(arrays[0])
    getattr(elementwise, name)(*arrays, *(FUNCTIONS[name][1] if settings is None else settings), out)
    return out


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_plain_rungs_of_float32(case, monkeypatch):
    """The rows that otherwise take a higher one."""
    monkeypatch.setattr(cuda, "choose", lambda op, rung, misfits: "plain")
    inputs = make_inputs(case, np.float32)
    within_rounding(case, np.float32, inputs, run(case, np.float32, inputs, DEVICE))


@each_rung
@each_function
@pytest.mark.parametrize("size", [1, 3, 4, 1023, 1026])
def test_as_on_the_cpu(name, rung, dtype, size):
    """The same bits, but for erf, which libdevice has polynomials of its own for. Also at NaN, at 0 and far out."""
    arrays = [numbers(size, dtype, seed) for seed in range(FUNCTIONS[name][0])]
    far = 2.0**15 if dtype == np.float16 else 1e30
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1 / far, -far, 1.0], dtype)
    for array in arrays:
        array[-8:] = special[-size:]
    with np.errstate(invalid="ignore"):
        got, want = (result.astype(float) for result in (on_device(name, arrays, rung), on_cpu(name, arrays)))
    if name == "erf":
        np.testing.assert_allclose(got, want, rtol=5 * ml_dtypes.finfo(dtype).eps)
    else:
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[want == 0]))


@each_rung
def test_erf_is_within_its_promise(rung, dtype):
    """Four roundings of float32; three of float64; one of 16 bits, and below their normal numbers half the least."""
    x = np.concatenate([np.linspace(-6, 6, 1501), np.geomspace(1e-30, 1e-3, 500)]).astype(dtype)
    want = np.array([math.erf(v) for v in x.astype(float)])
    error, info = np.abs(on_device("erf", [x], rung).astype(float) - want), ml_dtypes.finfo(dtype)
    roundings = {np.float32: 4, np.float64: 3}.get(dtype, 0.51)
    assert (error <= roundings * float(info.eps) * np.abs(want) + float(info.smallest_subnormal) / 2).all()


# ---- dropout -----------------------------------------------------------------------------------------------------


@each_rung
@pytest.mark.parametrize("size", [1, 4, 6, 999, 2048])
@pytest.mark.parametrize("seed, step", [(0, 0), (1, 2**32), (2**32 - 1, 3), (2**64 - 1, 2**64 - 1), (12345 << 31, 77)])
def test_masks_are_those_of_the_cpu(rung, dtype, size, seed, step):
    settings = 0.4, np.uint64(seed), np.uint64(step)
    ones = np.ones(size, dtype)
    got = on_device("dropout", [ones], rung, settings)
    np.testing.assert_array_equal(got, on_cpu("dropout", [ones], (0.4, seed, step)))
    kept = reference.dropout(ones, 0.4, seed, step) != 0
    np.testing.assert_array_equal(got != 0, kept)


@each_rung
@pytest.mark.parametrize("p", [0, 1e-9, 0.5, 1 - 2**-30, 1 - 2**-34, 1])
def test_probabilities_at_the_edges(rung, dtype, p):
    """The last but one rounds to 1, and so drops everything."""
    x = numbers(400, dtype)
    np.testing.assert_array_equal(on_device("dropout", [x], rung, (p, 1, 2)), on_cpu("dropout", [x], (p, 1, 2)))


@each_rung
def test_masks_beyond_32_bits_of_blocks(rung, dtype):
    """Elements 4 * first and on of a larger array, as its next launch would have them."""
    first, size, seed, step = 2**32 - 2, 22, 2**63 + 9, 2**35
    kernels = cuda.cuda_vector.KERNELS["dropout"]
    kernels = cuda_plain.KERNELS["dropout"] if rung == "plain" else {np.dtype(name): kernels[name] for name in kernels}
    x, out = (moved(np.ones(size, dtype), DEVICE) for _ in range(2))
    kernels[np.dtype(dtype)](
        (1,), (256,), (x, out, size, 2**31, 1.0, moved(np.array([seed, 5], np.uint64), DEVICE), step - 5, first)
    )
    key, counter = (seed % 2**32, seed >> 32), (step % 2**32, step >> 32)
    blocks = [reference.philox((b % 2**32, b >> 32, *counter), key) for b in range(first, first + 6)]
    words = np.array(blocks, np.uint64).reshape(-1)[:size]
    np.testing.assert_array_equal(on_host(out), words >= 2**31)


# ---- launches ----------------------------------------------------------------------------------------------------


@each_function
def test_large_arrays_take_several_launches(name, monkeypatch):
    """Here of 400 elements each; the mask goes on where it was."""
    arrays = [numbers(1003, seed=seed) for seed in range(FUNCTIONS[name][0])]
    whole = on_device(name, arrays, None)
    monkeypatch.setattr(cuda, "PIECE", 400)
    with interpreter.recording() as launches:
        pieces = on_device(name, arrays, None)
    np.testing.assert_array_equal(pieces, whole)
    if DEVICE == "interpreter":
        assert [launched for launched, _ in launches] == 3 * [f"elementwise_{name}_vector"]


def test_pieces_tear_no_philox_block():
    assert cuda.PIECE % 4 == 0 and cuda.PIECE < 2**31


@pytest.mark.parametrize("name", FUNCTIONS)
def test_empty_arrays_launch_nothing(name):
    with interpreter.recording() as launches:
        for rung, dtype in RUNGS:
            on_device(name, [np.empty(0, dtype)] * FUNCTIONS[name][0], rung)
    assert not launches


def there(size, start=0, dtype=np.float32):
    """An array on the interpreter that begins `start` elements after a multiple of 16 bytes."""
    return interpreter.array(numbers(size + start, dtype))[start:]


@each_function
@pytest.mark.parametrize("late", range(3))
def test_arrays_off_the_grid_take_the_plain_rung(name, late):
    """Any one of them that begins 4 bytes after a multiple of 16."""
    count, settings = FUNCTIONS[name]
    arrays = [there(64, int(late == i)) for i in range(count + 1)]
    with interpreter.recording() as launches:
        getattr(elementwise, name)(*arrays[:-1], *settings, arrays[-1])
    rung = "vector" if late > count else "plain_f32"
    assert [launched for launched, _ in launches] == [f"elementwise_{name}_{rung}"]


@each_function
@each_rung
def test_traffic_is_each_array_once(name, rung, dtype):
    """In whole sectors, and in the vector rung 128 elements to the request of a warp."""
    count, settings = FUNCTIONS[name]
    arrays, out = [there(2048, dtype=dtype) for _ in range(count)], interpreter.empty(2048, dtype)
    with interpreter.recording() as launches:
        getattr(cuda, name)(*arrays, *settings, out, rung=rung)
    ((_, report),) = launches
    counts = report.counts
    key = 2 * (2048 // (128 if rung == "vector" else 32)) if name == "dropout" else 0  # each warp reads seed and step
    assert [loaded for array, loaded in counts.bytes_loaded.items() if array != "key"] == count * [out.nbytes]
    assert list(counts.bytes_stored.values()) == [out.nbytes]
    assert counts.global_sectors == counts.global_sectors_ideal == (count + 1) * out.nbytes // 32 + key
    requests = [n for op, n in counts.instructions.items() if op.startswith(("ld.global", "st.global")) and n]
    assert sum(requests) == (count + 1) * out.nbytes // ((128 if rung == "vector" else 32) * out.itemsize) + key


@pytest.mark.parametrize("dtype", [np.float16, BF16])
@each_function
def test_16_bits_off_the_grid_are_moved_onto_it(name, dtype):
    """Four elements in 64 bits want a multiple of 8 bytes."""
    arrays = [numbers(67, dtype, seed)[1:] for seed in range(FUNCTIONS[name][0])]
    want, settings = on_cpu(name, arrays), FUNCTIONS[name][1]
    inputs = [moved(numbers(67, dtype, seed), DEVICE)[1:] for seed in range(len(arrays))]
    whole = moved(np.zeros(67, dtype), DEVICE)
    getattr(elementwise, name)(*inputs, *settings, whole[1:])
    np.testing.assert_allclose(on_host(whole)[1:].astype(float), want.astype(float), rtol=2**-7)
    assert on_host(whole)[0] == 0
    with pytest.raises(ShapeError, match=f"^{name}: the rung vector wants addresses that are multiples of 8"):
        getattr(cuda, name)(*inputs, *settings, whole[1:], rung="vector")
    with pytest.raises(ShapeError, match=f"^{name}: the rung plain wants float32 or float64"):
        getattr(cuda, name)(*inputs, *settings, whole[1:], rung="plain")


@pytest.mark.parametrize(
    "arrays",
    [(there(8, dtype=np.float64), there(8, dtype=np.float64)), (there(8, 1), there(8))],
    ids=["float64", "off the grid"],
)
def test_refuses_the_vector_rung(arrays):
    words = "relu: the rung vector wants float32, and addresses that are multiples of 16"
    with pytest.raises(ShapeError, match="^" + re.escape(words)):
        cuda.relu(*arrays, rung="vector")
    with pytest.raises(ShapeError, match="^erf: rung is 'tiled', wants one of plain, vector"):
        partial(cuda.erf, rung="tiled")(*arrays)
