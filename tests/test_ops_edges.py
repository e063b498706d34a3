"""Ops at the edges of their domains: types, overflow, NaN, ties, rows that do not count, and long sums."""

import warnings

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, device, ops
from minigrad.check import gradcheck, gradgradcheck
from minigrad.engine import grad, write
from minigrad.errors import KindError, MinigradError, ShapeError
from tests.op_cases import all_ops
from tests.test_ops import results, tensors, wrap


def leaf(values):
    return Tensor(np.array(values, np.float64), requires_grad=True)


def beside_torch(name, *arrays, **kwargs):
    """Gradients of an op's sum by minigrad and by PyTorch."""
    torch = pytest.importorskip("torch")
    ours, theirs = (
        [leaf(a) for a in arrays],
        [torch.tensor(np.array(a, np.float64), requires_grad=True) for a in arrays],
    )
    found = grad(ops.sum(getattr(ops, name)(*ours, **kwargs)), ours)
    wanted = torch.autograd.grad(getattr(torch, name)(*theirs, **kwargs).sum(), theirs)
    return [g.data for g in found], [g.numpy() for g in wanted]


# ---- element types ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int64])
def test_sigmoid_of_integers(dtype):
    out = ops.sigmoid(Tensor(np.array([0, 1], dtype)))
    assert out.dtype == np.float32
    np.testing.assert_allclose(out.data, [0.5, 1 / (1 + np.exp(-1))], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int32, np.uint64])
def test_sums_of_integers_are_int64(dtype):
    out = Tensor(np.ones((300, 2), dtype)).sum(0)
    assert out.dtype == np.int64 and out.tolist() == [300, 300]


def test_integers_compare_with_numbers_that_they_cannot_hold():
    x = Tensor(np.array([1, 255], np.uint8))
    assert (x < 300).tolist() == [True, True] and (x == -1).tolist() == [False, False]
    assert (Tensor(np.array([1])) <= 2**70).tolist() == [True]


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x: x + 300, ShapeError, "add: a number does not fit in uint8"),
        (lambda x: x * -1, ShapeError, "mul: a number does not fit in uint8"),
        (lambda x: x.clamp(0, 300), ShapeError, "clamp: a number does not fit in uint8"),
        (lambda x: x.to("uint64") + np.ones(2, np.int64), KindError, "add: no integer type holds both"),
        (lambda x: ops.cat([x.to("uint64"), x.to("int64")]), KindError, "cat: no integer type holds both"),
        (lambda x: x.to("bool") - x.to("bool"), KindError, "sub: not defined for elements bool"),
        (lambda x: ops.pad(x, (1, 1), value=300), ShapeError, "300, which does not fit in uint8"),
    ],
)
def test_integers_that_do_not_fit_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(Tensor(np.array([1, 2], np.uint8)))


@pytest.mark.parametrize(
    "call",
    [
        lambda big: device.accumulate(big.data.copy(), big.data),
        lambda big: minigrad.full(2, 1e300),
        lambda big: Tensor([1e300]),
        lambda big: Tensor(np.array([np.nan]), dtype="int64"),
        lambda big: big + np.array(1e300),
        lambda big: ops.where(big > 0, big, 1e300),
        lambda big: ops.sum(big),
        lambda big: ops.var(big),
        lambda big: ops.var(ops.cat([big, big * np.inf]), correction=9),
        lambda big: ops.logsumexp(big, 0),
        lambda big: big.to("float16").amax(0),
        lambda big: ops.exp(big) - ops.exp(big),
    ],
)
def test_overflow_makes_no_warnings(call):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(Tensor(np.full(2, 3e38, np.float32)))


# ---- sums ------------------------------------------------------------------------------------------------------------


def test_long_columns_keep_their_digits():
    """One by one, 1 is lost beside 2^24 in float32."""
    x = np.ones((100_000, 2), np.float32)
    x[0] = 2**24
    np.testing.assert_allclose(ops.sum(Tensor(x), 0).data, 2**24 + 99_999, rtol=1e-5)


@pytest.mark.parametrize("rows, dtype", [(4095, np.float32), (4096, np.float32), (5000, np.float16), (5000, np.int32)])
def test_long_columns_of_every_type(rows, dtype):
    x = np.random.default_rng(0).integers(-1, 2, (rows, 3)).astype(dtype)
    for array in (x, x[:, ::-1], x.T.copy().T):
        out = ops.sum(Tensor(array), 0, keepdim=True)
        assert out.shape == (1, 3)
        np.testing.assert_array_equal(out.data, array.sum(0, np.int64, keepdims=True))


@pytest.mark.parametrize("correction", [3, 4, 1.5, 0])
@pytest.mark.parametrize("values", [[1.0, 2.0, 4.0], [1.0], []])
def test_var_with_few_elements(values, correction):
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's about degrees of freedom
        wanted = torch.var(torch.tensor(values), dim=0, correction=correction).item()
    np.testing.assert_allclose(ops.var(Tensor(np.array(values, np.float32)), 0, correction).item(), wanted, rtol=1e-6)


def test_var_over_no_dimensions_named_is_over_all():
    x = Tensor(np.arange(6.0).reshape(2, 3))
    assert ops.var(x, ()).item() == ops.var(x).item() and ops.var(x, (), keepdim=True).shape == (1, 1)


# ---- choices and powers ----------------------------------------------------------------------------------------------

NAN = float("nan")


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_at_nan_and_ties_like_pytorch(name):
    found, wanted = beside_torch(name, [NAN, 1, NAN, 2, 3, -1], [1, NAN, NAN, 2, 1, 5])
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_clamp_at_equal_limits_like_pytorch():
    found, wanted = beside_torch("clamp", [-1, 0, 1, 2, 3], [0, 0, 1, 1, 2], [0, 0, 1, 3, 1])
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("shapes", [((40, 500), (40, 500), (40, 500)), ((3, 1), (4,), ()), ((0, 2), (2,), (1, 2))])
def test_where_keeps_every_bit(dtype, shapes):
    rng = np.random.default_rng(0)
    condition, x, y = rng.random(shapes[0]) < 0.5, *(rng.standard_normal(s) * 100 for s in shapes[1:])
    x, y = x.astype(dtype), y.astype(dtype)
    if np.dtype(dtype).kind == "f" and x.size > 3 and x.ndim:
        x.flat[:3] = np.nan, -0.0, np.inf
    out = ops.where(Tensor(condition), Tensor(x), Tensor(y)).data
    assert out.dtype == dtype and out.tobytes() == np.where(condition, x, y).tobytes()


def test_powers_of_and_by_arrays():
    exponents = np.array([2.0, 0.0, 1.0, -1.0])
    x = leaf(np.random.default_rng(0).random((3, 4)) + 0.5)
    for function in (
        lambda x: x**exponents,
        lambda x: np.array([0.5, 2.0, 1.0, 3.0]) ** x,
        lambda x: x ** exponents[0],
    ):
        gradcheck(function, [x])
        gradgradcheck(function, [x])


@pytest.mark.parametrize("exponent", [0, 1, 1.0, 2, 2.0, 3, np.float64(2)])
def test_powers_of_negative_numbers_and_0(exponent):
    x = leaf([-2.0, 0.0, 3.0])
    assert gradcheck(lambda x: x**exponent, [x]) and gradgradcheck(lambda x: x**exponent, [x])
    np.testing.assert_array_equal((x**exponent).data, x.data**exponent)


# ---- losses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("smooth", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ignored_rows_neither_give_nor_take(name, create_graph, smooth, reduction):
    """NaN in rows that do not count reaches neither the loss nor the gradient, even when no row counts."""
    options = {"label_smoothing": smooth} if name == "cross_entropy" else {}
    for classes in ([0, -100], [-100, -100]):
        x = leaf([[1.0, 2.0], [NAN, 3.0]])
        loss = getattr(ops, name)(x, Tensor(np.array(classes)), reduction=reduction, **options)
        gradient = grad(ops.sum(loss), [x], create_graph=create_graph)[0].data
        if reduction == "mean" and classes[0] < 0:
            assert np.isnan(loss.item())
        else:
            assert np.isfinite(loss.data).all()
        assert not gradient[1].any() and np.isfinite(gradient).all()


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_targets_that_change_are_seen(name):
    x, target = leaf(np.zeros((2, 3))), Tensor(np.array([0, 1]))
    loss = getattr(ops, name)(x, target)
    write(target)[...] = 2
    with pytest.raises(RuntimeError, match="was changed after it was used"):
        loss.backward()


# ---- batch normalisation ---------------------------------------------------------------------------------------------


def _read_only():
    array = np.ones(3)
    array.flags.writeable = False
    return Tensor(array)


@pytest.mark.parametrize(
    "variance, error",
    [
        (lambda: np.ones(3), TypeError),
        (lambda: leaf(np.ones(3)) * 1, RuntimeError),
        (lambda: Tensor(np.ones(4)), ValueError),
        (lambda: Tensor(np.ones(3, np.float32)), TypeError),
        (_read_only, RuntimeError),
    ],
)
def test_batch_norm_changes_nothing_when_it_refuses(variance, error):
    x, mean = Tensor(np.random.default_rng(0).standard_normal((5, 3))), Tensor(np.zeros(3))
    with pytest.raises(error, match="batch_norm: running_var"):
        ops.batch_norm(x, mean, variance(), training=True)
    assert not mean.data.any() and mean.version == [0]


# ---- anything else ---------------------------------------------------------------------------------------------------

STRANGE = ("b", None, 1.5, NAN, -1, 0, 7, 10**30, True, (), (1, 2, 3), [[1], [2, 3]], (1.5, 2), (None, None), object())
STRANGE += (slice(0.5, None), np.float32(2), np.array("s"))
STRANGE_ARRAYS = (
    *(np.ones((2, 3), kind) for kind in (np.uint8, np.bool_, np.float16, np.float32)),
    *(np.ones(shape) for shape in ((), (0,), (2, 3, 4, 4))),
)


@pytest.mark.parametrize("op", all_ops(), ids=str)
def test_any_argument_is_taken_or_refused_in_words(op):
    """Whatever stands in place of one argument: a result whose gradient can be taken, or an error of ours."""
    for sample in op.samples[:3]:
        args, kwargs = sample.draw(wrap)
        for position in [i for i, value in enumerate(args) if not isinstance(value, bool)]:
            for strange in (*STRANGE, *STRANGE_ARRAYS[:1], *map(Tensor, STRANGE_ARRAYS)):
                try:
                    out = results(op, [*args[:position], strange, *args[position + 1 :]], kwargs)
                except MinigradError as error:
                    assert ": " in str(error)
                    continue
                assert len(tensors(out)) == len(out)
                for x in out:
                    if x.requires_grad:
                        x.backward(Tensor(np.ones(x.shape, x.dtype)))
