"""Every kernel against its reference: exact on small integers, within rounding on random numbers, at all edges."""

import importlib
import os
import platform
import re
import subprocess
import sys
import zlib

import numpy as np
import pytest

from minigrad_kernels.toolchain import set_threads, threads

from .cases import all_cases, all_refusals

CANARY = 77.0
EDGE = 16  # canaries on either side of what a kernel may write

CASES = all_cases()
each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_type = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])


def generator(case):
    return np.random.default_rng(zlib.crc32(str(case).encode()))


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
    return laid_out(values.astype(dtype), layout)


def make_inputs(case, dtype, integers=False):
    rng, count = generator(case), len(case.shapes)
    kinds = case.kinds + ("float",) * (count - len(case.kinds))
    layouts = case.layouts + (None,) * (count - len(case.layouts))
    rows = zip(case.shapes, kinds, layouts, strict=True)
    return [make_input(rng, shape, kind, layout, dtype, integers) for shape, kind, layout in rows]


def guarded(size, dtype, fill):
    """An array for a kernel to write, and the larger one that it lies in, between canaries."""
    whole = np.full(size + 2 * EDGE, CANARY, dtype)
    middle = whole[EDGE : EDGE + size]
    middle.fill(fill)
    return middle, whole


def make_output(output, dtype):
    kind = np.dtype(dtype if output.kind == "float" else output.kind)
    fill = np.nan if kind.kind == "f" else np.iinfo(kind).max
    layout = output.layout or tuple(range(len(output.shape)))
    middle, whole = guarded(int(np.prod(output.shape)), kind, fill)
    array = middle.reshape([output.shape[axis] for axis in layout]).transpose(np.argsort(layout))
    return array, whole


def part(case, module=""):
    return getattr(importlib.import_module(f"minigrad_kernels.{case.family}{module}"), case.function)


def run(case, dtype, inputs):
    """Outputs of the kernel, after a look that it wrote nothing else."""
    outputs = [make_output(output, dtype) for output in case.outputs]
    arguments, guards = [array for array, _ in outputs], [whole for _, whole in outputs]
    if case.workspace:
        # The extra byte in front makes the workspace start at an odd address.
        size = case.workspace(inputs, case.params, np.dtype(dtype))
        workspace, whole = guarded(size + 1, np.uint8, 255)
        arguments.append(workspace[1:])
        guards.append(whole)
    before = [None if x is None else x.copy() for x in inputs]
    part(case)(*inputs, *case.params.values(), *arguments)
    for whole in guards:
        assert (whole[:EDGE] == CANARY).all() and (whole[-EDGE:] == CANARY).all(), "wrote outside its output"
    for was, now in zip(before, inputs, strict=True):
        assert was is None or np.array_equal(was, now, equal_nan=was.dtype.kind == "f"), "changed an input"
    return [array for array, _ in outputs]


def wanted(case, inputs):
    return case.references(part(case, ".reference"), inputs)


@each_type
@pytest.mark.parametrize("case", [case for case in CASES if case.exact], ids=str)
def test_exact_on_small_integers(case, dtype):
    inputs = make_inputs(case, dtype, integers=True)
    for got, want in zip(run(case, dtype, inputs), wanted(case, inputs), strict=True):
        np.testing.assert_array_equal(got, want)


@each_type
@each_case
def test_within_rounding_on_random_numbers(case, dtype):
    inputs = make_inputs(case, dtype)
    references = wanted(case, inputs)
    bounds = case.bounds(part(case, ".reference"), inputs, np.finfo(dtype).eps)
    for got, want, bound in zip(run(case, dtype, inputs), references, bounds, strict=True):
        assert got.shape == want.shape
        # Written so that a NaN fails.
        assert (np.abs(got.astype(np.float64) - want) <= bound).all()


@each_type
@each_case
def test_same_bits_for_any_number_of_threads(case, dtype):
    inputs, results, before = make_inputs(case, dtype), [], threads()
    try:
        for count in (1, 2):
            set_threads(count)
            results.append(run(case, dtype, inputs))
    finally:
        set_threads(before)
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "case, position", [(case, i) for case in CASES for i in case.nan], ids=lambda value: str(value)
)
def test_nan_reaches_what_it_must(case, position):
    inputs = make_inputs(case, np.float32)
    spoiled = inputs[position]
    spoiled[tuple(size // 2 for size in spoiled.shape)] = np.nan
    for got, want in zip(run(case, np.float32, inputs), wanted(case, inputs), strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


@pytest.mark.parametrize("refusal", all_refusals(), ids=str)
def test_refuses(refusal):
    with pytest.raises(refusal.error, match="^" + re.escape(refusal.message)):
        refusal.call()


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="names instruction sets of x86-64")
@pytest.mark.parametrize("name, features", [("x86-64-v3", "+avx,+avx2,+fma"), ("generic", "")])
def test_tiles_of_other_instruction_sets(name, features):
    """The rows for products again, in a process for which Numba compiles for a lesser processor."""
    settings = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    rows = "exact and float32 and (matmul or conv2d)"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__, "-k", rows]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
