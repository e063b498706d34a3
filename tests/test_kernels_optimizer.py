"""Update rules against their references, over lists of parameters of all shapes, in place."""

from itertools import product

import numpy as np
import pytest

from minigrad_kernels import optimizer
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, FILTER
from minigrad_kernels.optimizer import SGD, Adagrad, Adam, RMSprop, reference
from minigrad_kernels.optimizer.cpu import CHUNK, LANES
from minigrad_kernels.toolchain import set_threads, threads

SHAPES = [(), (0,), (5,), (3, 4), (CHUNK - 1,), (CHUNK,), (CHUNK + 1,), (3, 4, 2, 5), (2, 3, 4, 5)]
ORDERS = {(3, 4, 2, 5): FILTER, (2, 3, 4, 5): CHANNELS_LAST}
CANARY = 77.0
EDGE = 16


def lay_out(array, order):
    """An equal array between canaries, its axes in this order in memory."""
    whole = np.full(array.size + 2 * EDGE, CANARY, array.dtype)
    middle = whole[EDGE : whole.size - EDGE].reshape([array.shape[axis] for axis in order])
    middle[...] = array.transpose(order)
    return middle.transpose(np.argsort(order))


def intact(array):
    whole = array
    while whole.base is not None:
        whole = whole.base
    return (whole[:EDGE] == CANARY).all() and (whole[-EDGE:] == CANARY).all()


def positive(rng, dtype, low=0.5, shapes=SHAPES):
    arrays = [rng.uniform(low, low + 1, shape).astype(dtype) for shape in shapes]
    return [lay_out(a, ORDERS.get(a.shape, tuple(range(a.ndim)))) for a in arrays]


def copies(lists):
    return [None if arrays is None else [a.copy(order="K") for a in arrays] for arrays in lists]


def hyper(names, **values):
    array = np.zeros(len(names))
    for name, value in values.items():
        array[names[name]] = value
    return array


def sgd_rules():
    for momentum, nesterov, maximize, decay, first in product((0, 0.9), (0, 1), (0, 1), (0, 0.1), (0, 1)):
        values = dict(RATE=0.1, MOMENTUM=momentum, DAMPENING=0.25, WEIGHT_DECAY=decay)
        switches = dict(NESTEROV=nesterov, MAXIMIZE=maximize, FIRST=first)
        yield "sgd", (bool(momentum),), hyper(SGD, **values, **switches), maximize


def adam_rules():
    for greatest, decoupled, maximize, decay, step in product((0, 1), (0, 1), (0, 1), (0, 0.1), (1, 7)):
        values = dict(RATE=0.01, BETA1=0.9, BETA2=0.999, EPS=1e-8, WEIGHT_DECAY=decay, STEP=step)
        settings = hyper(Adam, **values, DECOUPLED=decoupled, MAXIMIZE=maximize)
        yield "adam", (True, True, bool(greatest)), settings, maximize


def rmsprop_rules():
    for momentum, centred, maximize, decay in product((0, 0.9), (0, 1), (0, 1), (0, 0.1)):
        values = dict(RATE=0.01, ALPHA=0.9, EPS=1e-8, WEIGHT_DECAY=decay, MOMENTUM=momentum)
        settings = hyper(RMSprop, **values, MAXIMIZE=maximize)
        yield "rmsprop", (True, bool(centred), bool(momentum)), settings, maximize


def adagrad_rules():
    for rate_decay, maximize, decay, step in product((0, 0.5), (0, 1), (0, 0.1), (1, 7)):
        values = dict(RATE=0.1, LR_DECAY=rate_decay, EPS=1e-10, WEIGHT_DECAY=decay, STEP=step)
        yield "adagrad", (True,), hyper(Adagrad, **values, MAXIMIZE=maximize), maximize


RULES = [*sgd_rules(), *adam_rules(), *rmsprop_rules(), *adagrad_rules()]
each_rule = pytest.mark.parametrize(
    "rule", RULES, ids=lambda rule: f"{rule[0]}-{''.join('ny'[s] for s in rule[1])}-{rule[2].tolist()}"
)
each_type = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])


def arguments(rule, dtype, shapes=SHAPES):
    """Parameters, gradients and states, all of one sign, so that nothing cancels but what the rule subtracts."""
    name, states, _, maximize = rule
    rng = np.random.default_rng(5)
    parameters, gradients = positive(rng, dtype, shapes=shapes), positive(rng, dtype, shapes=shapes)
    if maximize:
        for gradient in gradients:
            np.negative(gradient, out=gradient)
    # Squared gradients (the first state of rmsprop) are far above the square of the mean gradient.
    lows = (8, 0.5, 0.5) if name == "rmsprop" else (0.5, 0.5, 0.5)
    pairs = zip(states, lows[: len(states)], strict=True)
    return [parameters, gradients, *(positive(rng, dtype, low, shapes) if s else None for s, low in pairs)]


def within_rounding(rule, before, lists):
    """Check that lists are what the rule makes of those before, and that the gradients stayed."""
    name, _, settings, _ = rule
    for k in range(len(before[0])):
        inputs = [None if arrays is None else arrays[k] for arrays in before]
        outputs = [None if arrays is None else arrays[k] for arrays in (lists[0], *lists[2:])]
        for got, want in zip(outputs, getattr(reference, name)(*inputs, settings), strict=True):
            assert (got is None) == (want is None)
            if got is not None:
                # All quantities are of one sign and of order 1 to 10; a rule has about 16 roundings.
                size = np.abs(want) + np.abs(inputs[0])
                assert (np.abs(got - want) <= 16 * np.finfo(got.dtype).eps * size).all()
    for was, now in zip(before[1], lists[1], strict=True):
        np.testing.assert_array_equal(was, now)


@each_type
@each_rule
def test_rule_within_rounding_of_its_reference(rule, dtype):
    lists = arguments(rule, dtype)
    before = copies(lists)
    getattr(optimizer, rule[0])(*lists, rule[2])
    within_rounding(rule, before, lists)
    assert all(intact(array) for arrays in lists if arrays for array in arrays)


@each_rule
def test_rule_gives_the_same_bits_for_any_number_of_threads(rule):
    results, before = [], threads()
    try:
        for count in (1, 2):
            set_threads(count)
            lists = arguments(rule, np.float32)
            getattr(optimizer, rule[0])(*lists, rule[2])
            results.append([a for arrays in lists if arrays for a in arrays])
    finally:
        set_threads(before)
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


def without_decay():
    """The rules with a weight decay of 0."""
    places = {"sgd": SGD, "adam": Adam, "rmsprop": RMSprop, "adagrad": Adagrad}
    return [rule for rule in RULES if rule[2][places[rule[0]].WEIGHT_DECAY] == 0]


@each_type
@pytest.mark.parametrize("rule", without_decay(), ids=lambda rule: f"{rule[0]}-{rule[1]}-{rule[2].tolist()}")
def test_an_infinite_parameter_meets_no_weight_decay_of_0(rule, dtype):
    """Nor does a reference warn of 0 * inf. The others are as if it were not there."""
    name, _, settings, _ = rule
    lists, others = arguments(rule, dtype), arguments(rule, dtype)
    lists[0][3][1, 2], lists[0][2][4] = np.inf, -np.inf
    inputs = [None if arrays is None else arrays[3].copy() for arrays in lists]
    for run in (lists, others):
        getattr(optimizer, name)(*run, settings)
    found = getattr(reference, name)(*inputs, settings)
    assert lists[0][3][1, 2] == found[0][1, 2] == np.inf and lists[0][2][4] == -np.inf
    lists[0][3][1, 2], lists[0][2][4] = others[0][3][1, 2], others[0][2][4]
    for with_it, without in zip(lists, others, strict=True):
        for a, b in zip(with_it or (), without or (), strict=True):
            np.testing.assert_array_equal(a, b)


@each_type
def test_an_average_that_keeps_nothing_is_the_gradient(dtype):
    """m + (g - m) would be 0 for m = 1e20, g = 1."""
    lists = [[np.array([value], dtype)] for value in (0, 1, 1e20, 1)]
    optimizer.adam(*lists, None, hyper(Adam, BETA2=0.5, EPS=1, STEP=2))
    assert lists[2][0] == 1
    lists = [[np.array([value], dtype)] for value in (0, 1, 1, 1e20)]
    optimizer.rmsprop(*lists, None, hyper(RMSprop, ALPHA=0, EPS=1))
    assert lists[3][0] == 1


def test_first_step_reads_no_momentum_buffer():
    parameters, gradients, buffers = [np.ones(3)], [np.full(3, 2.0)], [np.full(3, np.nan)]
    optimizer.sgd(parameters, gradients, buffers, hyper(SGD, RATE=1, MOMENTUM=0.5, FIRST=1))
    np.testing.assert_array_equal(parameters[0], [-1, -1, -1])
    np.testing.assert_array_equal(buffers[0], [2, 2, 2])


@pytest.mark.parametrize(
    "name, states, settings",
    [
        ("adam", 3, hyper(Adam, RATE=1, BETA1=0.5, BETA2=0.5, EPS=1, STEP=1)),
        ("rmsprop", 3, hyper(RMSprop, RATE=1, ALPHA=0.5, EPS=1, MOMENTUM=0.5)),
        ("adagrad", 1, hyper(Adagrad, RATE=1, EPS=1, STEP=1)),
        ("sgd", 1, hyper(SGD, RATE=1, MOMENTUM=0.5)),
    ],
)
def test_nan_gradient_reaches_every_state(name, states, settings):
    lists = [[np.ones(3, np.float32)] for _ in range(2 + states)]
    lists[1] = [np.array([0, np.nan, 0], np.float32)]
    if name == "rmsprop":
        lists[2][0][:] = 9  # above the square of the mean
    getattr(optimizer, name)(*lists, settings)
    for arrays in lists:
        np.testing.assert_array_equal(np.isnan(arrays[0]), [False, True, False])


def space(arrays):
    """A workspace that begins at an odd address."""
    return np.full(optimizer.workspace(arrays) + 1, 255, np.uint8)[1:]


@each_type
def test_squared_norms_are_exact_on_small_integers(dtype):
    rng = np.random.default_rng(1)
    shapes = [*SHAPES, (LANES - 1,), (LANES,), (LANES + 1,), (3 * CHUNK + 1,)]
    arrays = [rng.integers(-3, 4, shape).astype(dtype) for shape in shapes]
    for count in {1, threads()}:
        out = np.full(len(arrays), np.nan)
        before = threads()
        try:
            set_threads(count)
            optimizer.squared_norms(arrays, out, space(arrays))
        finally:
            set_threads(before)
        np.testing.assert_array_equal(out, [reference.squared_norm(a) for a in arrays])


def test_squared_norms_do_not_overflow_in_float32():
    out = np.empty(1)
    arrays = [np.full(3, 1e30, np.float32)]
    optimizer.squared_norms(arrays, out, space(arrays))
    assert out[0] == pytest.approx(3e60)


@each_type
@pytest.mark.parametrize("squares", [[9.0, 16.0], [0.25], [], [np.inf], [np.nan, 1.0]], ids=str)
def test_clip_factor(dtype, squares):
    norm, factor = np.full((), 7, dtype), np.full(1, 7.0)
    optimizer.clip_factor(np.array(squares), 2.0, norm, factor)
    wanted = reference.clip_factor(squares, 2.0)
    np.testing.assert_allclose([norm, factor[0]], wanted, rtol=np.finfo(dtype).eps)


@each_type
@pytest.mark.parametrize("factor", [0.3, np.array([0.3])], ids=["number", "array"])
def test_scale_rounds_once(dtype, factor):
    arrays = positive(np.random.default_rng(2), dtype)
    before = [a.copy(order="K") for a in arrays]
    optimizer.scale(arrays, factor)
    for was, now in zip(before, arrays, strict=True):
        np.testing.assert_array_equal(now, was * dtype(0.3))
        np.testing.assert_array_equal(now, reference.scale(was, float(dtype(0.3))).astype(dtype))
        assert intact(now)


def test_no_parameters_are_no_work():
    optimizer.sgd([], [], None, hyper(SGD))
    optimizer.adagrad([], [], [], hyper(Adagrad))
    optimizer.scale([], 2.0)
    optimizer.squared_norms([], np.empty(0), np.empty(0, np.uint8))


REFUSED = {
    "length": (lambda: ([np.ones(3)], [], None), ShapeError, "gradients has 0 arrays for 1 parameters"),
    "shape": (lambda: ([np.ones(3)], [np.ones(2)], None), ShapeError, r"gradients\[0\] has shape \(2,\)"),
    "type": (lambda: ([np.ones(3)], [np.ones(3, "f4")], None), KindError, r"gradients\[0\] has type float32"),
    "mixed": (lambda: ([np.ones(3), np.ones(3, "f4")], [np.ones(3)] * 2, None), KindError, r"parameters\[1\]"),
    "integers": (lambda: ([np.ones(3, int)], [np.ones(3, int)], None), KindError, "wants float32 or float64"),
    "gaps": (lambda: ([np.ones(6)[::2]], [np.ones(3)], None), ShapeError, "has gaps"),
    "layout": (lambda: ([np.ones((2, 3))], [np.ones((3, 2)).T], None), ShapeError, "wants those of its parameter"),
    "list": (lambda: ([[1.0]], [np.ones(1)], None), KindError, "wants numpy.ndarray"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_before_any_work(name):
    build, error, words = REFUSED[name]
    parameters, gradients, buffers = build()
    before = np.array(parameters[0], copy=True)
    with pytest.raises(error, match=words):
        optimizer.sgd(parameters, gradients, buffers, hyper(SGD, RATE=1))
    np.testing.assert_array_equal(parameters[0], before)


def test_refuses_a_read_only_parameter_and_a_short_hyper():
    parameter = np.ones(3)
    parameter.flags.writeable = False
    with pytest.raises(ShapeError, match=r"parameters\[0\] is read-only"):
        optimizer.sgd([parameter], [np.ones(3)], None, hyper(SGD, RATE=1))
    with pytest.raises(ShapeError, match=r"hyper has shape \(6,\), wants \(7,\)"):
        optimizer.sgd([np.ones(3)], [np.ones(3)], None, np.zeros(6))
    with pytest.raises(ShapeError, match=r"scale: arrays\[0\] is read-only"):
        optimizer.scale([parameter], 2.0)
    with pytest.raises(ShapeError, match=r"squared_norms: workspace has shape \(14,\), wants 15"):
        optimizer.squared_norms([parameter], np.empty(1), np.empty(14, np.uint8))
    with pytest.raises(ShapeError, match=r"clip_factor: factor has shape \(2,\)"):
        optimizer.clip_factor(np.ones(1), 1.0, np.empty(()), np.empty(2))
    with pytest.raises(ShapeError, match=r"adagrad: sums\[0\] has shape \(2,\)"):
        optimizer.adagrad([np.ones(3)], [np.ones(3)], [np.ones(2)], hyper(Adagrad))
