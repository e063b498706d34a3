"""Ops at the edges of their domains: types, overflow, NaN, ties, rows that do not count."""

import math
import warnings

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, device, gradcheck, gradgradcheck, ops
from minigrad.core.errors import KindError, ShapeError
from minigrad.core.tape import grad, write
from tests.op_cases import all_ops
from tests.test_ops import results, tensors, wrap


def leaf(values):
    return Tensor(np.array(values, np.float64), requires_grad=True)


# ---- element types ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int64])
def test_sigmoid_of_integers(dtype):
    out = ops.sigmoid(Tensor(np.array([0, 1], dtype)))
    assert out.dtype == np.float32
    np.testing.assert_allclose(out.array, [0.5, 1 / (1 + np.exp(-1))], rtol=1e-6)


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
        (lambda x: ops.masked_fill(x, x == 1, -1), ShapeError, "masked_fill: value is -1, which does not fit in uint8"),
        (lambda x: ops.masked_fill(x.to("float16"), x == 1, 1e6), ShapeError, "masked_fill: value is 1000000.0, which"),
        (lambda x: ops.masked_fill(x.to("float32"), x == 1, -1e39), ShapeError, "does not fit in float32"),
    ],
)
def test_integers_that_do_not_fit_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(Tensor(np.array([1, 2], np.uint8)))


@pytest.mark.parametrize(
    "call",
    [
        lambda big: device.accumulate(big.array.copy(), big.array),
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


# ---- choices and powers ----------------------------------------------------------------------------------------------

NAN = float("nan")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("shapes", [((40, 500), (40, 500), (40, 500)), ((3, 1), (4,), ()), ((0, 2), (2,), (1, 2))])
def test_where_keeps_every_bit(dtype, shapes):
    rng = np.random.default_rng(0)
    condition, x, y = rng.random(shapes[0]) < 0.5, *(rng.standard_normal(s) * 100 for s in shapes[1:])
    x, y = x.astype(dtype), y.astype(dtype)
    if np.dtype(dtype).kind == "f" and x.size > 3 and x.ndim:
        x.flat[:3] = np.nan, -0.0, np.inf
    out = ops.where(Tensor(condition), Tensor(x), Tensor(y)).array
    assert out.dtype == dtype and out.tobytes() == np.where(condition, x, y).tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3, 4), (3, 0)])
def test_where_of_a_condition_alone(shape):
    condition = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 3
    found = ops.where(Tensor(condition))
    assert all(places.dtype == np.int64 and places.node is None for places in found)
    for places, wanted in zip(found, np.nonzero(np.atleast_1d(condition)), strict=True):
        np.testing.assert_array_equal(places.array, wanted)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64])
def test_powers_by_integer_tensors(dtype):
    x = leaf([2.0, -3.0, 0.0, 0.5])
    exponents = np.array([0, 1, 1, 1], dtype)
    (x ** Tensor(exponents)).sum().backward()
    np.testing.assert_array_equal(x.grad.array, [0, 1, 1, 1])


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
    np.testing.assert_array_equal((x**exponent).array, x.array**exponent)


def test_a_power_that_is_a_root_is_that_of_sqrt():
    x = Tensor(np.array([-math.inf, -0.0, 4.0]))
    np.testing.assert_array_equal((x**0.5).array, [math.nan, 0, 2])
    assert np.signbit((x**0.5).array[1])


def test_whole_powers_at_the_ends_of_the_range():
    x = Tensor(np.array([-math.inf, -1e30, -0.0, 1e-30, math.nan], np.float32))
    for exponent in (-8, -3, -2, -1, 3, 4, 8):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose((x**exponent).array, x.array**exponent, rtol=1e-6)


# ---- functions and activations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype, bound", [(np.float32, 4), (np.float64, 2)])
def test_erf_is_exact_to_a_few_roundings(dtype, bound):
    x = np.concatenate([np.linspace(-7, 7, 100_001), np.logspace(-37, 0, 10_000), [np.inf, -np.inf]]).astype(dtype)
    wanted = np.array([math.erf(value) for value in x.tolist()])
    out = ops.erf(Tensor(x)).array
    assert (np.abs(out - wanted) <= bound * np.finfo(dtype).eps * np.abs(wanted)).all() and np.abs(out).max() == 1


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu", "silu", "softplus", "gelu", "erf"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_activations_far_out(name, dtype):
    """No overflow, and no NaN in gradients of first or second order."""
    x = Tensor(np.array([-1e4, -100, -20, 0, 20, 100, 1e4], dtype), requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = getattr(ops, name)(x)
        (first,) = grad(out.sum(), x, create_graph=True)
        (second,) = grad(first.sum(), x)
    assert out.dtype == first.dtype == second.dtype == dtype
    assert all(np.isfinite(one.array).all() for one in (out, first, second))


def test_half_precision_is_worked_on_in_float32():
    x = np.linspace(-3, 3, 61).astype(np.float16)
    for name in ("relu", "leaky_relu", "erf", "gelu"):
        wanted = getattr(ops, name)(Tensor(x.astype(np.float32))).array
        np.testing.assert_allclose(getattr(ops, name)(Tensor(x)).array, wanted, rtol=2e-3, atol=2e-3)


# ---- conversions -----------------------------------------------------------------------------------------------------


def test_to_gives_the_tensor_itself_or_a_copy():
    x = leaf([1.0, 2.0])
    for same in (x.to("float64"), x.to("cpu"), x.to(x), x.to("cpu", "float64"), x.to(None), x.to(dtype=None)):
        assert same is x
    for copy in (x.to("float64", copy=True), x.to("cpu", copy=True), x.to(x, copy=True), ops.to(x, copy=True)):
        assert not np.shares_memory(copy.array, x.array)
        (copy * copy).sum().backward()
    assert x.grad.tolist() == [8.0, 16.0]


def test_to_loses_history_through_integers():
    x = leaf([1.5, 2.0])
    assert not x.to("int64").requires_grad and not x.to("bool").to("float64").requires_grad
    assert x.to("float16").requires_grad


@pytest.mark.parametrize("name", ["a", "a5", "S", "float", "longdouble", "", "Float32", "cpu64"])
def test_names_that_numpy_alone_knows_are_refused_without_a_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KindError, match="to: dtype is .* wanted an element type"):
            leaf([1.0]).to(name)


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
        gradient = grad(ops.sum(loss), [x], create_graph=create_graph)[0].array
        if reduction == "mean" and classes[0] < 0:
            assert np.isnan(loss.item())
        else:
            assert np.isfinite(loss.array).all()
        assert not gradient[1].any() and np.isfinite(gradient).all()


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_targets_that_change_are_seen(name):
    x, target = leaf(np.zeros((2, 3))), Tensor(np.array([0, 1]))
    loss = getattr(ops, name)(x, target)
    write(target)[...] = 2
    with pytest.raises(RuntimeError, match="was changed after it was used"):
        loss.backward()


# ---- batch normalisation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variance, error",
    [
        (lambda: np.ones(3), TypeError),
        (lambda: Tensor(np.ones(4)), ValueError),
    ],
)
def test_batch_norm_changes_nothing_when_it_refuses(variance, error):
    x, mean = Tensor(np.random.default_rng(0).standard_normal((5, 3))), Tensor(np.zeros(3))
    with pytest.raises(error, match="batch_norm: running_var"):
        ops.batch_norm(x, mean, variance(), training=True)
    assert not mean.array.any() and mean.version == [0]


# ---- other norms, dropout -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 3, 5), (2, 3, 4, 4), (2, 3, 2, 2, 3)])
def test_running_statistics_like_pytorch(shape):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, mean, var = rng.standard_normal(shape), rng.standard_normal(3), rng.random(3)
    ours, theirs = [Tensor(a.copy()) for a in (x, mean, var)], [torch.tensor(a) for a in (x, mean, var)]
    for used in (True, False):
        out = ops.batch_norm(*ours, momentum=0.3, training=used)
        wanted = torch.nn.functional.batch_norm(*theirs, momentum=0.3, training=used)
        for a, b in zip([out, *ours], [wanted, *theirs], strict=True):
            np.testing.assert_allclose(a.array, b.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "instance_norm"])
def test_norms_far_from_zero(name):
    x = (np.random.default_rng(0).standard_normal((4, 6, 50)) + 1000).astype(np.float32)
    arguments = {"layer_norm": ((6, 50),), "group_norm": (3,), "instance_norm": ()}[name]
    near, exact = (getattr(ops, name)(Tensor(x.astype(t)), *arguments).array for t in (np.float32, np.float64))
    np.testing.assert_allclose(near, exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["dropout", "dropout1d", "dropout2d"])
def test_dropout_of_integers_where_nothing_is_dropped(name):
    x = Tensor(np.ones((2, 3, 4), np.int64))
    assert getattr(ops, name)(x, 0.5, False) is x and getattr(ops, name)(x, 0) is x


# ---- anything else ---------------------------------------------------------------------------------------------------

STRANGE = ("b", None, 1.5, NAN, -1, 0, 7, 10**30, True, (), (1, 2, 3), [[1], [2, 3]], (1.5, 2), (None, None), object())
STRANGE += (slice(0.5, None), np.float32(2), np.array("s"))
STRANGE_ARRAYS = (
    *(np.ones((2, 3), kind) for kind in (np.uint8, np.bool_, np.float16, np.float32)),
    *(np.ones(shape) for shape in ((), (0,), (2, 3, 4, 4))),
)


@pytest.mark.filterwarnings("ignore:.* they broadcast to:UserWarning")  # losses, as in PyTorch
@pytest.mark.parametrize("op", all_ops(), ids=str)
def test_any_argument_is_taken_or_refused(op):
    """Whatever stands in place of one argument: a result whose gradient can be taken, or an error."""
    for sample in op.samples[:3]:
        args, kwargs = sample.draw(wrap)
        for position in [i for i, value in enumerate(args) if not isinstance(value, bool)]:
            for strange in (*STRANGE, *STRANGE_ARRAYS[:1], *map(Tensor, STRANGE_ARRAYS)):
                try:
                    out = results(op, [*args[:position], strange, *args[position + 1 :]], kwargs)
                except Exception:  # ours, or what Python and NumPy raise
                    continue
                assert len(tensors(out)) == len(out)
                for x in out:
                    if x.requires_grad:
                        x.backward(Tensor(np.ones(x.shape, x.dtype)))
