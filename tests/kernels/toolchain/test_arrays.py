"""Kernels of arrays with shapes: how they are declared, what their compiled code gets, and that all ways give the same.

The simulator of Numba runs those of the library in test_simulator.py.
"""

import numpy as np
import pytest

from minigrad_kernels import interpreter
from minigrad_kernels.errors import KindError, StateError
from minigrad_kernels.toolchain.cuda import KERNELS, compiler, cuda, each_float, kernel
from minigrad_kernels.toolchain.cuda.memory import View
from tests import standin

compiled = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")


@kernel("f32[:,:] x, f32[:] row, f32* out, i32 n", threads=32)
def added(x, row, out, n):
    """out = n * x.T, with a row added to x if there is one"""
    i = cuda.grid(1)
    if i < x.size:
        r, c = i // x.shape[1], i % x.shape[1]
        v = x[r, c] * n
        if row.size:
            v += row[c]
        out[c * x.shape[0] + r] = v


def test_a_signature_of_arrays():
    assert added.signature == (("x", "f32[:,:]"), ("row", "f32[:]"), ("out", "f32*"), ("n", "i32"))
    fields = ["x.meminfo", "x.parent", "x.size", "x.itemsize", "x", "x.shape0", "x.shape1", "x.strides0", "x.strides1"]
    assert [name for name, _ in added.parameters[:9]] == fields and dict(added.parameters)["x"] == "f32*"
    assert len(added.parameters) == 9 + 7 + 2
    assert repr(added) == "<kernel toolchain_added(f32[:,:] x, f32[:] row, f32* out, i32 n)>"


def test_one_function_for_both_types():
    def doubled(x, slope):
        x[0] += slope

    made = each_float("_[:] x, _ slope", threads=32)(doubled)
    assert {size: found.signature for size, found in made.items()} == {
        4: (("x", "f32[:]"), ("slope", "f32")), 8: (("x", "f64[:]"), ("slope", "f64"))
    }  # fmt: skip
    for found in made.values():
        del KERNELS[found.name]


def test_the_key_follows_the_axes():
    def function(x):
        x[0] = 1

    keys = set()
    for signature in ("f32* x", "f32[:] x", "f32[:,:] x", "f64[:] x"):
        keys.add(kernel(signature, threads=32, variant="axes")(function).key)
        del KERNELS["toolchain_function_axes"]
    assert len(keys) == 4


X = np.arange(12, dtype=np.float32).reshape(3, 4)
LAYOUTS = {
    "C order": X,
    "Fortran's": np.asfortranarray(X),
    "part": np.arange(60, dtype=np.float32).reshape(6, 10)[1::2, 1:9:2],
    "backwards": X[::-1, ::-1],
    "one row": np.broadcast_to(X[1], (3, 4)),
}


@compiled
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_strides_on_the_interpreter(layout):
    x, row = LAYOUTS[layout], np.float32([1, 2, 3, 4])
    for given, want in ((row, 2 * x + row), (None, 2 * x)):
        out = interpreter.empty((4, 3))
        added((1,), (32,), (x.view(interpreter.Array), given, out, 2))
        np.testing.assert_array_equal(out, want.T)


@compiled
def test_a_view_is_what_the_kernel_sees():
    """Memory of an array from its first element on, with other sizes and strides."""
    x, out = interpreter.array(X), interpreter.empty(4)
    added((1,), (32,), (View(x[1], (2, 2), (8, 4)), None, out, 1))
    np.testing.assert_array_equal(out, [4, 6, 5, 7])
    with pytest.raises(StateError, match="out of bounds: ld.f32 reads 4 bytes at byte 32 of x, which has 16"):
        added((1,), (32,), (View(x[1], (2, 2), (32, 4)), None, out, 1))


@compiled
@pytest.mark.parametrize("layout", ["C order", "part"])
def test_arrays_of_a_gpu(layout):
    """The launcher packs what the machine code takes; the stand-in for CuPy interprets it."""
    with standin.installed() as machine:
        import cupy

        whole = cupy.asarray(LAYOUTS["part"].base.reshape(6, 10))
        x = whole[1::2, 1:9:2] if layout == "part" else cupy.asarray(X)
        out = cupy.empty((4, 3), np.float32)
        added((1,), (32,), (x, None, out, 3))
        np.testing.assert_array_equal(out.get(), 3 * LAYOUTS[layout].T)
        words = machine.launches[-1].words
        assert words[:9] == (0, 0, 12, 4, x.data.ptr, *x.shape, *x.strides) and words[9:16] == (0,) * 7
        with pytest.raises(KindError, match="toolchain_added: got 3 arguments, wants 4"):
            added((1,), (32,), (x, None, out))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((X[0], None, X, 1), r"toolchain_added: x is an array of 1 axes, wants f32\[:,:\]"),
        ((X, X, X, 1), r"toolchain_added: row is an array of 2 axes, wants f32\[:\]"),
        ((X, 0, X, 1), r"toolchain_added: row is 0, wants f32\[:\]"),
    ],
)
def test_refuses_what_is_no_such_array(arguments, message):
    with pytest.raises(KindError, match=message):
        added.flat(arguments)


@compiled
def test_refuses_elements_of_another_type():
    with pytest.raises(KindError, match=r"x has type float64, wants elements of 4 bytes"):
        added((1,), (32,), (X.astype("f8"), None, X.copy(), 1))
