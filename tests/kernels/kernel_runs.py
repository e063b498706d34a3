"""Runs a row of tests/kernels/cases on a device: its arguments from a fixed seed, its outputs between canaries.

Devices: "cpu" (NumPy's arrays), "interpreter" (its Arrays: the compiled CUDA kernels in NumPy), "cuda" (CuPy's
arrays). Inputs are made, and results are compared, as NumPy's arrays; the copies on a device lie as those do.
"""

import contextlib
import importlib
import os
import zlib
from importlib.util import find_spec

import numpy as np
import pytest

from minigrad_kernels.toolchain import set_threads, threads
from minigrad_kernels.toolchain.modes import winograd

from .cases import all_cases

DEVICE = os.environ.get("MINIGRAD_TEST_DEVICE", "interpreter")  # on which tests of CUDA kernels run them
CANARY = 77.0
EDGE = 16  # canaries on either side of what a kernel may write

CASES = all_cases()
# What a process is to find in its environment so that its tiles are those of another processor.
PROCESSORS = {
    "avx2": {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma"},
    "sse": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
    "neon": {"MINIGRAD_TILES": "neon"},
}
each_type = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])


def part(case, module=""):
    """The function of a row: that of the launcher, or of a module of its family such as ".reference"."""
    return getattr(importlib.import_module(f"minigrad_kernels.{case.family}{module}"), case.function)


def exists(case, module):
    """Whether that module of the row's family has the row's function."""
    name = f"minigrad_kernels.{case.family}{module}"
    found = find_spec(name) and importlib.import_module(name)
    return hasattr(found, case.function) or hasattr(found, "ready")


# ---- arguments -------------------------------------------------------------------------------------------------------


def laid_out(array, layout):
    """An equal array that lies in memory as the layout says."""
    if layout is None:
        return array
    if callable(layout):
        return layout(array)
    return np.ascontiguousarray(array.transpose(layout)).transpose(np.argsort(layout))


def make_input(rng, shape, kind, layout, dtype, integers):
    if shape is None:
        return None
    if callable(kind):
        return laid_out(kind(rng, shape), layout)
    if kind.startswith("index"):
        return laid_out(rng.integers(0, int(kind.split()[1]), shape), layout)
    values = rng.integers(-3, 4, shape) if integers else rng.standard_normal(shape)
    if kind == "positive":
        values = np.abs(values) + (1 if integers else 0.1)
    return laid_out(np.asarray(values, dtype), layout)


def make_inputs(case, dtype, integers=False):
    rng, count = np.random.default_rng(zlib.crc32(str(case).encode())), len(case.shapes)
    kinds = case.kinds + ("float",) * (count - len(case.kinds))
    layouts = case.layouts + (None,) * (count - len(case.layouts))
    rows = zip(case.shapes, kinds, layouts, strict=True)
    return [make_input(rng, shape, kind, layout, dtype, integers) for shape, kind, layout in rows]


def to_tf32(array):
    """Finite float32 rounded to the 10 bits of mantissa that TF32 has, ties away from zero."""
    return ((array.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def spoil(array, value=np.nan):
    """Put a number into the middle."""
    array[tuple(size // 2 for size in array.shape)] = value


def guarded(size, dtype, fill):
    """An array for a kernel to write, and the larger one that it lies in, between canaries."""
    whole = np.full(size + 2 * EDGE, CANARY, dtype)
    middle = whole[EDGE : EDGE + size]
    middle.fill(fill)
    return middle, whole


def intact(whole):
    """Whether the canaries on both sides are still there."""
    edges = on_host(whole)
    return (edges[:EDGE] == CANARY).all() and (edges[-EDGE:] == CANARY).all()


def make_output(output, dtype):
    kind = np.dtype(dtype if output.kind == "float" else output.kind)
    fill = np.iinfo(kind).max if kind.kind in "iu" else np.nan
    layout = output.layout or tuple(range(len(output.shape)))
    middle, whole = guarded(int(np.prod(output.shape)), kind, fill)
    array = middle.reshape([output.shape[axis] for axis in layout]).transpose(np.argsort(layout))
    return array, whole


# ---- devices ---------------------------------------------------------------------------------------------------------


def upload(memory, device):
    if device == "cuda":
        import cupy

        return cupy.asarray(memory)
    from minigrad_kernels import interpreter

    return interpreter.array(memory)


def place(array):
    return array.__array_interface__["data"][0]


def moved(array, device, whole=None):
    """The array on a device, lying in memory as on the host; with `whole`, (array, whole) that lie in one memory."""
    if device == "cpu" or not isinstance(array, np.ndarray):
        return array if whole is None else (array, whole)
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    memory = upload(owner.ravel(order="K").view(np.uint8), device)
    there = [_view(memory, view, place(view) - place(owner)) for view in (array, whole) if view is not None]
    return there[0] if whole is None else tuple(there)


def _view(memory, like, start):
    """An array as `like` on this memory."""
    if isinstance(memory, np.ndarray):
        view = np.ndarray.__new__(type(memory), like.shape, like.dtype, memory, start if like.size else 0, like.strides)
        view.flags.writeable = like.flags.writeable
        return view
    return type(memory)(like.shape, like.dtype, memory.data + start, like.strides)


def on_host(array):
    """The array, or a copy of it, as NumPy's."""
    return array.get() if hasattr(array, "get") else np.asarray(array)


# ---- calls -----------------------------------------------------------------------------------------------------------


def scratch(device, wholes):
    """A workspace: it gives bytes between canaries; wholes: a list that gets the memory in which they lie."""

    def workspace(nbytes, like):
        middle, whole = guarded(nbytes, np.uint8, 255)
        middle, whole = moved(middle, device, whole)
        wholes.append(whole)
        return middle

    return workspace


def run(case, dtype, inputs, device="cpu", function=None):
    """Outputs of the kernel, or of a function with its arguments, after a look that it wrote nothing else."""
    inputs_there = [moved(x, device) for x in inputs]
    there = [moved(array, device, whole) for array, whole in (make_output(output, dtype) for output in case.outputs)]
    wholes = [whole for _, whole in there]
    function = function or part(case)
    before = [on_host(x).copy() if isinstance(x, np.ndarray) else x for x in inputs]
    written = *(array for array, _ in there), *case.absent
    function(*case.arguments(inputs_there), *written, *[scratch(device, wholes)] * case.workspace)
    assert all(map(intact, wholes)), "wrote outside its output"
    for was, now in zip(before, inputs_there, strict=True):
        if isinstance(was, np.ndarray):
            assert np.array_equal(was, on_host(now), equal_nan=was.dtype.kind in "fV"), "changed an input"
    return [on_host(array) for array, _ in there]


def with_halves(launcher, half):
    """A function with the launcher's arguments that calls it with arrays of 16 bits in their place."""

    def function(*arguments):
        contract = launcher.contract
        given = contract.signature.bind(*arguments).arguments
        roles = {name: array.role for _, name, array in contract.arrays if array.dtype in ("float", "either")}
        roles = {name: role for name, role in roles.items() if hasattr(given.get(name), "astype")}
        short = {name: given[name].astype(half) for name in roles}
        launcher(**(given | short))
        for name, role in roles.items():
            if "w" in role:
                given[name][...] = short[name]

    return function


def wanted(case, inputs):
    return case.references(part(case, ".reference"), inputs)


def within_rounding(case, dtype, inputs, results):
    """Check results of random inputs against the reference."""
    bounds = case.bounds(part(case, ".reference"), inputs, np.finfo(dtype).eps)
    for got, want, bound in zip(results, wanted(case, inputs), bounds, strict=True):
        assert got.shape == want.shape
        # Written so that a NaN fails.
        assert (np.abs(got.astype(np.float64) - want) <= bound).all()


def same_bits(one, two):
    for first, second in zip(one, two, strict=True):
        np.testing.assert_array_equal(first, second)


# ---- checks ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def told(*where):
    """Adds to an error which sample and which check it belongs to."""
    try:
        yield
    except Exception as error:
        error.add_note(", ".join(map(str, where)))
        raise


@contextlib.contextmanager
def on_threads(count):
    before = threads()
    set_threads(count)
    try:
        yield
    finally:
        set_threads(before)


def check(case, dtype, device="cpu"):
    """All that the table says of a row: exact results of small integers, results within rounding of random numbers,
    which have the same bits on one thread and on two (on a GPU: twice), and NaN where it belongs, nowhere else."""
    kind = np.dtype(dtype).name
    with winograd(False):  # its fractions round, and its errors are relative to the largest result, not to each
        if case.exact:
            with told(case, kind, "small integers"):
                inputs = make_inputs(case, dtype, integers=True)
                same_bits(run(case, dtype, inputs, device), wanted(case, inputs))
        inputs = make_inputs(case, dtype)
        with told(case, kind, "random numbers"), on_threads(2):
            results = run(case, dtype, inputs, device)
            within_rounding(case, dtype, inputs, results)
        if device != "interpreter":  # in which nothing could make them others
            with told(case, kind, "the same bits on one thread"), on_threads(1):
                same_bits(results, run(case, dtype, inputs, device))
    for position in case.nan if kind == "float32" else ():
        with told(case, kind, f"NaN in input {position}"):
            inputs = make_inputs(case, dtype)
            spoil(inputs[position])
            results = run(case, dtype, inputs, device)
            same_bits(map(np.isnan, results), map(np.isnan, wanted(case, inputs)))


def rows_of(cases, most=48, marks=()):
    """A parameter for each kernel: a list of its rows; several where there are more than `most`."""
    found = {}
    for case in cases:
        found.setdefault(f"{case.family}.{case.function}", []).append(case)
    lists = [rows[k : k + most] for rows in found.values() for k in range(0, len(rows), most)]
    return [pytest.param(rows, id=f"{rows[0]}", marks=marks) for rows in lists]
