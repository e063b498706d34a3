"""Kernels along elements, rows, columns and windows on CUDA, beyond the tables of cases: digits, labels, choices.

What they move is counted in test_traffic.py.
"""

import math
import re
from itertools import product

import numpy as np
import pytest

from minigrad_kernels import bias, elementwise, interpreter, norm, pool2d, softmax
from minigrad_kernels.bias import cuda as bias_cuda
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.norm import cuda as norm_cuda
from minigrad_kernels.norm import reference
from minigrad_kernels.pool2d import cuda as pool_cuda
from minigrad_kernels.pool2d.cuda_vector import by
from minigrad_kernels.softmax import cuda as softmax_cuda

from .cases import bias as of_sums
from .cases import elementwise as of_elements
from .cases import norm as of_columns
from .cases import pool2d as of_windows
from .cases import softmax as of_rows
from .cases.softmax import IGNORED
from .kernel_runs import (
    DEVICE,
    each_type,
    exists,
    make_inputs,
    moved,
    on_host,
    part,
    run,
    same_bits,
    scratch,
    told,
    with_halves,
)
from .kernel_runs import wanted as defined
from .rungs import TYPES, unwritten

EPS = 1e-5


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def there(array):
    return moved(array, DEVICE)


def fresh(*shape):
    return there(np.full(shape, np.nan, np.float32))


# ---- numbers that are not finite -------------------------------------------------------------------------------------

WIDTHS = (5, 12), (5, 40), (5, 4101)  # teams of 16 and 32 lanes, and of a block
SPECIAL = [
    *(of_elements.row(name, (1026,)) for name in ("relu", "relu_grad", "erf")),
    *(of_elements.leaky(name, (1026,), 0.3) for name in ("leaky_relu", "leaky_relu_grad")),
    of_elements.dropout((1026,), 0.3),
    *(of_columns.statistics(shape) for shape in ((80, 12), (80, 5))),  # on the rungs vector and plain
    *(of_columns.standardize(shape) for shape in WIDTHS),
    *(case for shape in WIDTHS for case in of_rows.rows(shape)),
    *(of_rows.cross_entropy(shape) for shape in WIDTHS),
    *(
        case
        for channels, window in product((8, 5), (((2, 2), (2, 2)), ((3, 2), (2, 3), (1, 0), (1, 2), True)))
        for case in of_windows.maximum((2, channels, 9, 11), *window)[:2]
    ),
    *of_windows.plain((2, 5, 9, 11), 3, 2, 1),
]


def test_what_is_not_finite_and_ties_are_as_on_the_cpu():
    """Small numbers, many of them alike, with NaN, infinities and -0 among them, also in the first row; and one row,
    or window, of -inf alone. Pooling and what goes element by element have the CPU's bits."""
    for case in SPECIAL:
        inputs = make_inputs(case, np.float32, integers=True)
        rng = np.random.default_rng(7)
        for x in inputs:
            if x is not None and x.dtype.kind == "f":
                odd = rng.choice(np.float32([np.nan, np.inf, -np.inf, -0.0]), x.shape)
                x[...] = np.where(rng.random(x.shape) < min(0.1, 4 / x[0].size), odd, x)
                x[-1] = -np.inf
        with told(case), np.errstate(all="ignore"):
            results = run(case, np.float32, inputs, DEVICE)
            wanted = run(case, np.float32, inputs) if exists(case, ".cpu") else defined(case, inputs)
            exact = case.family in ("pool2d", "elementwise") and case.function != "erf"
            for got, want in zip(results, wanted, strict=True):
                np.testing.assert_allclose(got, want, *((0, 0) if exact else (1e-4, 1e-4)))
                if exact and case.family == "elementwise":
                    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[want == 0]))


# ---- digits ----------------------------------------------------------------------------------------------------------


@each_type
def test_erf_is_within_its_promise(dtype):
    """Four roundings of float32; three of float64."""
    x = np.concatenate([np.linspace(-6, 6, 1501), np.geomspace(1e-30, 1e-3, 500)]).astype(dtype)
    want, info = np.array([math.erf(v) for v in x.astype(float)]), np.finfo(dtype)
    elementwise.erf(there(x), out := there(np.full_like(x, np.nan)))
    error = np.abs(on_host(out).astype(float) - want)
    roundings = {np.float32: 4, np.float64: 3}[dtype]
    assert (error <= roundings * float(info.eps) * np.abs(want) + float(info.smallest_subnormal) / 2).all()


@pytest.mark.parametrize("rung", ["plain", "vector"])
def test_statistics_keep_their_digits(rung):
    """Far from 0, where inputs are rounded first, so that only arithmetic is left to lose anything; about a first row
    that is far from all others. A thread's own lines; lines joined in a block; parts, the last of fewer rows."""
    peak = np.zeros((3000, 1), np.float32)
    peak[0] = 1000
    far = [(numbers(*shape), at) for shape in ((9, 1024), (2100, 64), (4096, 1)) for at in (1e3, -1e5)]
    for x, centre in [*far, (numbers(3000, 8), peak)]:
        x = x + np.float32(centre)
        out = fresh(x.shape[1]), fresh(x.shape[1])
        norm_cuda.batch_statistics(there(x), *out, scratch(DEVICE, []), None, None, 0, rung)
        (mean, variance), (true_mean, true_variance) = map(on_host, out), reference.batch_statistics(x)
        with told(x.shape):
            assert np.abs(variance / true_variance - 1).max() <= (1e-5 if centre is peak else 2e-6)
            assert np.abs(mean - true_mean).max() <= 1e-4 if centre is peak else 1e-6 + 6e-8 * abs(centre)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_columns_in_several_parts(dtype):
    """A second kernel adds the sums of the parts, which are float32 beside 16 bits, too."""
    x, sums, mean, variance = numbers(33, 1024).astype(dtype), *(fresh(1024) for _ in range(3))
    with interpreter.recording() as reports:
        bias.column_sums(there(x), sums, scratch(DEVICE, []))
        norm.batch_statistics(there(x), mean, variance, scratch(DEVICE, []))
    wide = x.astype(np.float64)
    for got, want in ((sums, wide.sum(0)), (mean, wide.mean(0)), (variance, wide.var(0))):
        np.testing.assert_allclose(on_host(got), want, 1e-4, 1e-4)
    if DEVICE == "interpreter":
        names = [name for name, _ in reports]
        assert len(names) == 4 and all(("16" in name) == (dtype is np.float16) for name in names[::2]), names


@pytest.mark.parametrize("half, ending", [("float16", "f16"), ("bfloat16", "bf16")])
def test_kernels_of_16_bits_give_what_those_of_float32_give_rounded(half, ending):
    for case in (*of_sums.rows((9, 8)), *of_windows.maximum((2, 4, 5, 7), (3, 2), (2, 2), (1, 1))):
        launcher, inputs = part(case), make_inputs(case, np.float32)
        widened = lambda contract=launcher.contract, **given: contract.widened(*contract.bind((), given))
        widened.contract = launcher.contract
        with interpreter.recording() as reports:
            own = run(case, np.float32, inputs, DEVICE, with_halves(launcher, TYPES[half]))
        assert DEVICE != "interpreter" or reports[0][0].endswith(f"_{ending}"), reports
        with told(case.function):
            same_bits(own, run(case, np.float32, inputs, DEVICE, with_halves(widened, TYPES[half])))


@pytest.mark.parametrize("rows", [4097, 1_000_000])
@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_means_of_many_losses_keep_their_digits(device, rows):
    """All losses are alike, so their mean is one of them."""
    rows = min(rows, 50_000) if device == "interpreter" else rows
    x, target = np.broadcast_to(np.array([[0.0, 1.7]], np.float32), (rows, 2)).copy(), np.zeros(rows, np.int64)
    target[rows // 3] = IGNORED
    out, divisor = (moved(np.full((), np.nan, np.float32), device) for _ in range(2))
    sums, given = moved(np.empty(rows, np.float32), device), (moved(x, device), moved(target, device), IGNORED)
    softmax.cross_entropy_total(*given, True, out, divisor, sums, scratch(device, []))
    assert on_host(divisor) == rows - 1
    np.testing.assert_allclose(on_host(out), np.logaddexp(np.float32(1.7), 0), rtol=4e-7)


def test_quotients_by_products():
    """The formula in Python's integers, at all that can go wrong: next to multiples, and at the ends of 31 bits."""
    rng, end = np.random.default_rng(0), 2**31
    powers = [2**k + d for k in range(31) for d in (-1, 0, 1)]
    for d in {*range(1, 300), *powers, end - 1, *rng.integers(1, end, 500).tolist()} - {0}:
        factor, shift = by(d) % 2**32, by(d) >> 32
        last = (end - 1) // d * d
        for n in (0, 1, d - 1, d, d + 1, last - 1, last, end - 1, *rng.integers(0, end, 5).tolist()):
            assert shift < 32 and ((2 * n * factor >> 32) >> shift == n // d or not 0 <= n < end), (n, d)


# ---- labels ----------------------------------------------------------------------------------------------------------


def report():
    return there(np.array([softmax.NO_WRONG_LABEL]))


def found(wrong):
    return softmax.wrong_label(int(on_host(wrong)[0]))


def losses(x, target, ignore_index, wrong):
    out = fresh(len(x)), fresh(len(x))
    softmax_cuda.cross_entropy(there(x), there(target), ignore_index, *out, wrong)
    assert np.isfinite(on_host(out[1])).all()  # logarithms of sums do not depend on labels
    return out[0]


def gradient(x, target, ignore_index, wrong):
    """Of the losses; and of their mean, which a wrong label makes NaN itself."""
    out, divisor, logsumexp, mean, own = fresh(), fresh(), fresh(len(x)), fresh(*x.shape), fresh(*x.shape)
    given = there(x), there(target), ignore_index
    softmax_cuda.cross_entropy_total(*given, True, out, divisor, logsumexp, scratch(DEVICE, []), wrong)
    counted = target != ignore_index
    bad = counted & ((target < 0) | (target >= x.shape[1]))
    assert on_host(divisor) == counted.sum() and np.isnan(on_host(out)) == bad.any()
    softmax_cuda.cross_entropy_grad(there(np.float32(2)[...]), *given, logsumexp, divisor, mean, wrong)
    softmax_cuda.cross_entropy_grad(there(x[:, 0] + 3), *given, logsumexp, None, own, wrong)
    np.testing.assert_array_equal(np.isnan(on_host(own)), np.isnan(on_host(mean)))
    return own


@pytest.mark.parametrize("call, classes", [(losses, 5), (losses, 4101), (gradient, 5)])
def test_rows_of_wrong_labels_are_nan_and_the_first_is_reported(call, classes):
    """Many blocks find some. Rows beside them are as they should be, and ignored ones are 0, whatever is there."""
    rows = 300 if classes < 4101 else 20
    x, target = numbers(rows, classes), np.arange(rows) % classes
    bad = {rows - 1: 2**40, rows - 4: -1, 13: classes, 14: -(2**63), 7: 2**62, 8: classes + 3}
    target[list(bad)] = list(bad.values())
    target[[2, 5]] = IGNORED
    wrong = report()
    result = on_host(call(x, target, IGNORED, wrong)).reshape(rows, -1)
    is_wrong = np.isin(np.arange(rows), list(bad))[:, None]
    np.testing.assert_array_equal(np.isnan(result), np.broadcast_to(is_wrong, result.shape))
    assert not result[[2, 5]].any()
    assert found(wrong) == (7, 2**31 - 1)  # as near to 2**62 as 32 bits come
    unreported = on_host(call(x, target, IGNORED, None)).reshape(rows, -1)
    np.testing.assert_array_equal(unreported, result)
    for ignored in (-1, 2**40):
        target, wrong = np.array([0, ignored, classes - 1, ignored]), report()
        assert np.isfinite(on_host(call(x[:4], target, ignored, wrong))).all() and found(wrong) is None


# ---- choice and refusals ---------------------------------------------------------------------------------------------


def fits(family, *arrays):
    """Whether the higher rung takes matrices, or images of (x, out, positions)."""
    if family == "bias":
        return bias_cuda.rung_of("sums", None, *arrays) == "vector"
    return pool_cuda.fits(arrays[0].shape[3], arrays[2], *arrays[:2])


def test_the_higher_rung_runs_where_every_array_fits():
    """Not float64; sizes of whole vectors, and no array that begins off a multiple of a vector's bytes."""
    matrix = lambda *shape, **more: unwritten(shape, **more)
    assert fits("bias", matrix(8, 16), matrix(8, 16), None) and not fits("bias", matrix(3, 5))
    assert not fits("bias", matrix(8, 16, dtype=np.float64))
    image = lambda c, late, dtype=np.float32: unwritten((1, 4, 4, c), dtype=dtype, late=late)
    pooled = lambda c, late=None, kinds=("f4", "f4", "u1"): fits(
        "pool2d", *(image(c, int(at == late), kind) for at, kind in enumerate(kinds))
    )
    assert pooled(4) and pooled(8) and not any(pooled(c) for c in (1, 3, 6))
    assert not pooled(4, kinds=("f8", "f8", "u1")) and not pooled(4, kinds=("f4", "f4", "i4"))
    assert pooled(4, kinds=("f2", "f2", "u1")) and fits("bias", matrix(8, 16, dtype="f2"))
    for late, kind in product(range(3), ("f4", "f2")):
        arrays = [matrix(8, 16, dtype=kind, late=int(at == late)) for at in range(3)]
        assert not fits("bias", *arrays) and not pooled(4, late, (kind, kind, "u1"))


FAR = np.broadcast_to(interpreter.empty(1), (1 << 16, 1, 1 << 15, 1)).view(interpreter.Array)
TABLES = [pool2d.adaptive_windows(4, 2)] * 2
ONES = unwritten((3, 5))
REFUSED = [
    (lambda: bias_cuda.column_sums(ONES, ONES[0], None, "tiled"), "column_sums: rung is 'tiled', wants one that"),
    (lambda: bias_cuda.rung_of("sums", "vector", ONES), "sums: rung is 'vector', wants one that"),
    (
        lambda: pool2d.average_forward(FAR, *TABLES, FAR),
        "average_forward: x has shape (65536, 1, 32768, 1), wants less",
    ),
]


def test_rungs_that_do_not_fit_and_arrays_that_are_too_large_are_refused():
    for call, words in REFUSED:
        with told(words), pytest.raises(ShapeError, match="^" + re.escape(words)):
            call()
