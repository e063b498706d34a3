"""Softmax and cross entropy on CUDA: long rows, wrong labels, infinities and NaN, memory traffic."""

import re
from functools import partial
from itertools import product

import numpy as np
import pytest

from minigrad_kernels import interpreter, softmax
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.softmax import cuda

from .cases.softmax import cross_entropy, log_softmax_grad, row, softmax_grad
from .kernel_runs import DEVICE, check, moved, on_host

IGNORED = -100
WIDTHS = [5, 12, 40, 4101]  # teams of 8, 16 and 32 lanes, and of a block


def there(array):
    return moved(array, DEVICE)


def fresh(*shape):
    return there(np.full(shape, np.nan, np.float32))


def report():
    return there(np.array([softmax.NO_WRONG_LABEL]))


def found(wrong):
    return softmax.wrong_label(int(on_host(wrong)[0]))


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_long_rows():
    """Around where blocks begin."""
    makers = partial(row, "softmax"), partial(row, "log_softmax"), softmax_grad, log_softmax_grad, cross_entropy
    for make, shape in product(makers, ((1, 4096), (1, 4100))):
        check(make(shape), np.float32, DEVICE)


# ---- labels ----------------------------------------------------------------------------------------------------------


def losses(x, target, ignore_index, wrong):
    out = fresh(len(x)), fresh(len(x))
    cuda.cross_entropy(there(x), there(target), ignore_index, *out, wrong)
    assert np.isfinite(on_host(out[1])).all()  # logarithms of sums do not depend on labels
    return out[0]


def gradient(x, target, ignore_index, wrong):
    dx, logsumexp = fresh(*x.shape), there(np.log(np.exp(x).sum(1)))
    cuda.cross_entropy_grad(there(x[:, 0] + 3), there(x), there(target), ignore_index, logsumexp, None, dx, wrong)
    return dx


def mean(x, target, ignore_index, wrong):
    """The gradient of the mean, which a wrong label makes NaN itself."""
    out, divisor, logsumexp, dx = fresh(), fresh(), fresh(len(x)), fresh(*x.shape)
    space = there(np.zeros(softmax.workspace(len(x)), np.uint8))
    cuda.cross_entropy_total(there(x), there(target), ignore_index, True, out, divisor, logsumexp, space, wrong)
    counted = target != ignore_index
    bad = counted & ((target < 0) | (target >= x.shape[1]))
    assert on_host(divisor) == counted.sum() and np.isnan(on_host(out)) == bad.any()
    g = there(np.array(2, np.float32))
    cuda.cross_entropy_grad(g, there(x), there(target), ignore_index, logsumexp, divisor, dx, wrong)
    return dx


@pytest.mark.parametrize("call, classes", [(losses, 5), (losses, 40), (losses, 4101), (gradient, 5), (mean, 5)])
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


def test_reports():
    """Of several launches the smallest row stays; what kernels pack is undone. On the CPU launchers look at labels at
    once and leave `wrong` alone; other reports are refused."""
    wrong, x, seen = report(), numbers(50, 10), []
    for n, label in ((30, 11), (20, -7), (25, 12)):
        target = np.zeros(50, np.int64)
        target[n] = label
        losses(x, target, IGNORED, wrong)
        seen.append(found(wrong))
    assert seen == [(30, 11), (20, -7), (20, -7)]
    for number, label in ((0, -1), (0, 0), (5, 10), (2**31 - 257, 2**31 - 1), (2**31 - 257, -(2**31)), (7, -100)):
        assert softmax.wrong_label(int(np.int64(number << 32 | label & 0xFFFFFFFF))) == (number, label)
    x, target, one = numbers(4, 3), np.array([0, 1, 3, 9]), np.array([softmax.NO_WRONG_LABEL])
    with pytest.raises(ShapeError, match=re.escape("cross_entropy: target[2] = 3")):
        softmax.cross_entropy(x, target, IGNORED, np.empty(4, "f4"), np.empty(4, "f4"), one)
    softmax.cross_entropy(x, target % 3, IGNORED, np.empty(4, "f4"), np.empty(4, "f4"), one)
    assert one[0] == softmax.NO_WRONG_LABEL
    for strange in (np.zeros(2, np.int64), np.zeros(1, np.int32), interpreter.array(np.zeros(1, np.int64))):
        with pytest.raises((ShapeError, KindError), match="cross_entropy: wrong "):
            softmax.cross_entropy(x, target % 3, IGNORED, np.empty(4, "f4"), np.empty(4, "f4"), strange)


@pytest.mark.parametrize("rows", [10, 4097, 1_000_000])
@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_means_of_many_losses_keep_their_digits(device, rows):
    """All losses are alike, so their mean is one of them."""
    if device == "interpreter" and rows > 4097:
        rows = 50_000
    x, target = np.broadcast_to(np.array([[0.0, 1.7]], np.float32), (rows, 2)).copy(), np.zeros(rows, np.int64)
    target[rows // 3] = IGNORED
    out, divisor = (moved(np.full((), np.nan, np.float32), device) for _ in range(2))
    logsumexp = moved(np.empty(rows, np.float32), device)
    space = moved(np.zeros(softmax.workspace(rows), np.uint8), device)
    softmax.cross_entropy_total(moved(x, device), moved(target, device), IGNORED, True, out, divisor, logsumexp, space)
    assert on_host(divisor) == rows - 1
    np.testing.assert_allclose(on_host(out), np.logaddexp(np.float32(1.7), 0), rtol=4e-7)


# ---- infinities and NaN ----------------------------------------------------------------------------------------------


def strange(classes):
    """Rows with NaN first and last, with +inf, of -inf alone, with -inf beside numbers, with large numbers."""
    x = numbers(7, classes)
    x[0, -1] = x[1, 0] = np.nan
    x[2, classes // 2], x[3], x[4, 1], x[5], x[6] = np.inf, -np.inf, -np.inf, 3e38, -3e38
    return x


@pytest.mark.parametrize("classes", WIDTHS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_infinities_are_as_on_the_cpu(classes):
    x, target = strange(classes), np.array([0, 1, 0, 1, 1, 0, IGNORED])
    few = x[:5]  # products of the large numbers overflow or not by the order of a sum
    g, p, one = numbers(5, classes), np.abs(numbers(5, classes)), numbers(7, 1)[:, 0]
    logsumexp = np.array([0, 1, np.inf, -np.inf, 2, np.nan, np.nan], np.float32)
    for name, inputs, shapes in [
        ("softmax", (x,), [x.shape]),
        ("log_softmax", (x,), [x.shape]),
        ("softmax_grad", (few, p), [few.shape]),
        ("softmax_grad", (g, few), [few.shape]),
        ("log_softmax_grad", (few, -p), [few.shape]),
        ("log_softmax_grad", (g, np.minimum(few, 5)), [few.shape]),
        ("cross_entropy", (x, target, IGNORED), [(7,), (7,)]),
        ("cross_entropy_grad", (one, x, target, IGNORED, logsumexp, None), [x.shape]),
    ]:
        wanted, results = [np.empty(shape, np.float32) for shape in shapes], [fresh(*shape) for shape in shapes]
        getattr(softmax, name)(*inputs, *wanted)
        getattr(cuda, name)(*map(there, inputs), *results)
        for got, want in zip(results, wanted, strict=True):
            np.testing.assert_allclose(on_host(got), want, rtol=1e-4, atol=1e-4, err_msg=name)


# ---- traffic ---------------------------------------------------------------------------------------------------------


def counts_of(function, *arguments, **options):
    """(name of the kernel, its counts)"""
    with interpreter.recording() as launches:
        function(*arguments, **options)
    ((name, seen),) = launches
    return name, seen.counts


# Times that each function reads its rows: those of the first array, of the second.
READS = {"softmax": (3,), "log_softmax": (3,), "softmax_grad": (2, 2), "log_softmax_grad": (2, 1)}


@pytest.mark.parametrize("function", READS)
def test_rows_are_read_as_often_as_the_docstrings_say(function):
    """On either rung; shuffles need no shared memory within a warp."""
    rows, reads = 4, READS[function]
    for classes in (8, 32, 1056, 4104):
        inputs = [interpreter.array(numbers(rows, classes)) for _ in reads]
        size, shared = 4 * rows * classes, {}
        for rung in ("plain", "warp"):
            name, counts = counts_of(getattr(cuda, function), *inputs, interpreter.empty((rows, classes)), rung=rung)
            assert name == f"softmax_{'grad' if 'grad' in function else 'forward'}_{rung}_f32"
            assert list(counts.bytes_loaded.values()) == [n * size for n in reads]
            assert list(counts.bytes_stored.values()) == [size]
            if classes % 32 == 0:
                assert counts.global_sectors == counts.global_sectors_ideal
            shared[rung] = sum(n for word, n in counts.instructions.items() if word.startswith(("ld.shared", "bar")))
        assert shared["warp"] < shared["plain"] and (classes > 4096 or not shared["warp"])


def test_losses_are_two_reads_and_their_gradient_is_one():
    x, target = interpreter.array(numbers(9, 1024)), interpreter.array(np.arange(9))
    losses, logsumexp = interpreter.empty(9), interpreter.empty(9)
    _, counts = counts_of(softmax.cross_entropy, x, target, IGNORED, losses, logsumexp)
    assert counts.bytes_loaded["x"] == 2 * x.nbytes + 9 * 4  # and the logit of each target
    dx = interpreter.empty(x.shape)
    _, counts = counts_of(softmax.cross_entropy_grad, losses, x, target, IGNORED, logsumexp, None, dx)
    assert counts.bytes_loaded["x"] == x.nbytes and counts.bytes_stored == {"dx": x.nbytes}
    for classes, lanes in ((10, 16), (3, 4), (1, 1)):  # few classes share warps
        x = interpreter.array(numbers(512, classes))
        _, counts = counts_of(softmax.softmax, x, interpreter.empty((512, classes)))
        stores = sum(n for name, n in counts.instructions.items() if name.startswith("st.") and "shared" not in name)
        assert stores == 512 * lanes // 32
