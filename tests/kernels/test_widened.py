"""Launchers on arrays of 16 bits where there are no kernels for them: what float32 gives, rounded once."""

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import matmul, optimizer

from .kernel_runs import CASES, exists, make_inputs, part, run, same_bits, told, widened_arrays, with_halves

HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
each_half = pytest.mark.parametrize("half", HALVES, ids=str)
F = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
NONE = np.empty(0, np.uint8)  # a workspace for what has no use for one


def rows():
    """Of each function's rows the first small one, for each number of axes and each choice of optional inputs.

    Not of forward_pooled, whose positions are those of rounded maxima: tests/kernels/test_conv2d_cpu.py has it.
    """
    found = {}
    for case in CASES:
        sizes = [np.prod(output.shape) for output in case.outputs]
        if 1 < max(sizes) < 4096 and min(sizes) and case.function != "forward_pooled" and exists(case, ".cpu"):
            form = len(case.shapes[0]), tuple(shape is None for shape in case.shapes), case.absent
            found.setdefault((case.family, case.function, form), case)
    return list(found.values())


@each_half
def test_results_are_those_of_float32_rounded(half):
    def of_rounded_inputs(*arguments):
        given, roles = widened_arrays(launch, arguments)
        single = {name: given[name].astype(half).astype(np.float32) for name in roles}
        launch(**(given | single))
        for name, role in roles.items():
            if "w" in role:
                given[name][...] = single[name].astype(half)

    for case in rows():
        with told(case):
            launch, inputs = part(case), make_inputs(case, np.float32)
            functions = with_halves(launch, half), of_rounded_inputs
            got, want = (run(case, np.float32, inputs, function=function) for function in functions)
            same_bits(got, want)
            assert not any(np.isnan(result).any() for result in got if result.dtype.kind == "f")


@each_half
def test_sums_and_lists(half):
    """Sums may be asked for unrounded, too large ones become infinite; lists are updated in place."""
    x, single, short = F.astype(half), np.empty((3, 3), "f4"), np.empty((3, 3), half)
    for out in (single, short):
        matmul.forward(x, x.T, None, False, out, NONE)
    np.testing.assert_allclose(single, x.astype("f8") @ x.T.astype("f8"), rtol=1e-6)
    np.testing.assert_array_equal(short, single.astype(half))
    huge = np.full((1, 2), np.finfo("f4").max if half.name == "bfloat16" else 300, half)
    matmul.forward(huge, huge.T, None, False, short[:1, :1], NONE)
    assert np.isinf(short[0, 0])
    p, g = [F.astype(half), F[0].astype(half)], [np.ones_like(F, half), np.ones(4, half)]
    buffers, wanted, plan = [np.zeros_like(one) for one in p], [one.astype("f4") for one in p], optimizer.Plan()
    for step in (0.25, 0.375):  # the plan sees new copies each time
        optimizer.sgd(p, g, buffers, np.array([0.25, 0, 0.5, 0, 0, 0, 0]), plan)  # rate and momentum
        wanted = [(one - step).astype(half).astype("f4") for one in wanted]
    same_bits([one.astype("f4") for one in p], wanted)
    same_bits(buffers, [np.full(buffer.shape, 1.5, half) for buffer in buffers])
