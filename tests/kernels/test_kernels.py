"""Every kernel against its reference, a test for the rows of each: see kernel_runs.check. What all launchers refuse."""

import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from minigrad_kernels import interpreter
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.launcher import ANY

from .kernel_runs import (
    CASES,
    PROCESSORS,
    check,
    each_type,
    exists,
    make_inputs,
    make_output,
    part,
    rows_of,
    same_bits,
    scratch,
    told,
)

ROWS = [case for case in CASES if exists(case, ".cpu")]


@each_type
@pytest.mark.parametrize("rows", rows_of(ROWS))
def test_rows(rows, dtype):
    for case in rows:
        check(case, dtype)


def misfits(array, declared):
    """(error, words, what is no such array)"""
    yield KindError, "has type int16", np.empty_like(array, np.int16)
    yield KindError, None, array.tolist()
    yield KindError, None, interpreter.array(array)
    yield ShapeError, None, array[None]
    if array.ndim:
        yield ShapeError, None, np.empty_like(array, shape=(array.shape[0] + 1, *array.shape[1:]))
    inner = max(range(array.ndim), key=lambda axis: (array.shape[axis] > 1, -array.strides[axis]), default=None)
    if array.size > 1 and declared.order != ANY:
        wide = np.empty_like(array, shape=[size * (1 + (axis == inner)) for axis, size in enumerate(array.shape)])
        yield (
            ShapeError,
            "has strides",
            wide[tuple(slice(None, None, 1 + (axis == inner)) for axis in range(array.ndim))],
        )
    if "w" in declared.role:
        locked = array.copy(order="K")
        locked.flags.writeable = False
        yield ShapeError, "is read-only", locked


# More images than indices name, rows than are summed, and rows than places name, are right.
FREE = {("pad_crop_normalize", "images"), ("add_rows", "out")}
FREE |= {("column_sums", "x"), ("batch_statistics", "x")}


def test_launchers_refuse_what_is_not_as_declared():
    """Each array of each kernel: of another type, kind or shape, with gaps, read-only; nothing is written then."""
    for rows in rows_of(ROWS, len(ROWS)):
        fit = [case for case in rows.values[0] if all(size > 1 for shape in case.shapes for size in shape or ())]
        case = max(fit, key=lambda one: (sum(shape is not None for shape in one.shapes), -len(str(one))))
        launch, inputs = part(case), make_inputs(case, np.float32)
        outputs = [make_output(output, np.float32)[0] for output in case.outputs]
        fresh = [output.copy() for output in outputs]
        given = [*case.arguments(inputs), *outputs, *case.absent, *[scratch("cpu", [])] * case.workspace]
        for position, name, declared in launch.contract.arrays:
            array = given[position] if position < len(given) else None
            for error, words, wrong in misfits(array, declared) if array is not None else ():
                if (case.function, name) in FREE and getattr(wrong, "shape", ())[1:] == array.shape[1:]:
                    continue
                with told(case, name, words), pytest.raises(error, match=words):
                    launch(*given[:position], wrong, *given[position + 1 :])
        same_bits(outputs, fresh)


@pytest.mark.deep
@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="names instruction sets of x86-64")
@pytest.mark.parametrize("settings", PROCESSORS.values(), ids=PROCESSORS)
def test_tiles_of_other_instruction_sets(settings):
    """The rows for products again, in a process whose tiles are those of another processor."""
    files = [__file__, __file__.replace("test_kernels", "test_conv2d_cpu")]
    rows = "test_rows and float32 and (matmul or conv2d) or winograd_is_close"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--deep", *files, "-k", rows]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
