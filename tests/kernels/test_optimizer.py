"""Update rules, norms and scaling against their references, on all devices, over lists of arrays of all shapes."""

from itertools import product

import numpy as np
import pytest

from minigrad_kernels import optimizer
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, FILTER
from minigrad_kernels.optimizer import SGD, Adagrad, Adam, RMSprop, cpu, cuda, reference

from .kernel_runs import DEVICE, moved, on_host, on_threads, same_bits, told

FEW = [(), (0,), (5,), (3, 4), (3, 4, 2, 5), (2, 3, 4, 5)]
SHAPES = {place: [*FEW, (n - 1,), (n,), (n + 1,)] for place, n in (("cpu", cpu.CHUNK), (DEVICE, cuda.CHUNK))}
ORDERS = {(3, 4, 2, 5): FILTER, (2, 3, 4, 5): CHANNELS_LAST}
CANARY = 77.0
EDGE = 16


def lay_out(array, order):
    """An equal array between canaries, its axes in this order in memory."""
    whole = np.full(array.size + 2 * EDGE, CANARY, array.dtype)
    middle = whole[EDGE : whole.size - EDGE].reshape([array.shape[axis] for axis in order])
    middle[...] = array.transpose(order)
    return middle.transpose(np.argsort(order))


def whole_of(array):
    while array.base is not None:
        array = array.base
    return array


def positive(rng, dtype, low, shapes):
    arrays = [rng.uniform(low, low + 1, shape).astype(dtype) for shape in shapes]
    return [lay_out(a, ORDERS.get(a.shape, tuple(range(a.ndim)))) for a in arrays]


def copies(lists):
    return [None if arrays is None else [a.copy(order="K") for a in arrays] for arrays in lists]


def there(lists, place):
    return [None if arrays is None else [moved(array, place) for array in arrays] for arrays in lists]


def guarded(lists, place):
    """The lists on a device, and the memory around their arrays, which begins and ends with canaries."""
    pairs = [None if arrays is None else [moved(a, place, whole_of(a)) for a in arrays] for arrays in lists]
    wholes = [whole for arrays in pairs for _, whole in arrays or ()]
    return [None if arrays is None else [array for array, _ in arrays] for arrays in pairs], wholes


def back(lists):
    return [None if arrays is None else [on_host(array) for array in arrays] for arrays in lists]


def intact(whole):
    edges = on_host(whole)
    return (edges[:EDGE] == CANARY).all() and (edges[-EDGE:] == CANARY).all()


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
NAMES = {"sgd": SGD, "adam": Adam, "rmsprop": RMSprop, "adagrad": Adagrad}
# One setting of each rule in which every number matters, and the states that it has.
FULL = {
    "sgd": (hyper(SGD, RATE=0.1, MOMENTUM=0.9, DAMPENING=0.25, WEIGHT_DECAY=0.1, NESTEROV=1), 1),
    "adam": (hyper(Adam, RATE=0.1, BETA1=0.9, BETA2=0.99, EPS=1e-3, WEIGHT_DECAY=0.1, STEP=2), 3),
    "rmsprop": (hyper(RMSprop, RATE=0.1, ALPHA=0.9, EPS=1e-3, WEIGHT_DECAY=0.1, MOMENTUM=0.5), 3),
    "adagrad": (hyper(Adagrad, RATE=0.1, LR_DECAY=0.1, EPS=1e-3, WEIGHT_DECAY=0.1, STEP=2), 1),
}
each_type = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f4", "f8"])
each_place = pytest.mark.parametrize("place", ["cpu", DEVICE])


def arguments(rule, dtype, shapes):
    """Parameters, gradients and states, all of one sign, so that nothing cancels but what the rule subtracts."""
    name, states, _, maximize = rule
    rng = np.random.default_rng(5)
    parameters, gradients = positive(rng, dtype, 0.5, shapes), positive(rng, dtype, 0.5, shapes)
    if maximize:
        for gradient in gradients:
            np.negative(gradient, out=gradient)
    # Squared gradients (the first state of rmsprop) are far above the square of the mean gradient.
    lows = (8, 0.5, 0.5) if name == "rmsprop" else (0.5, 0.5, 0.5)
    pairs = zip(states, lows[: len(states)], strict=True)
    return [parameters, gradients, *(positive(rng, dtype, low, shapes) if there else None for there, low in pairs)]


def random(name, sizes, dtype=np.float32):
    """Lists for a rule with all its states, laid out in C order."""
    rule = name, (True,) * FULL[name][1], None, 0
    return copies(arguments(rule, dtype, [np.atleast_1d(size) for size in sizes]))


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


@each_place
@pytest.mark.parametrize("name", NAMES)
def test_rules_within_rounding_of_their_references(name, place):
    """Every setting, in both types; a GPU's results are within 2 roundings of the CPU's."""
    for rule, dtype in product([rule for rule in RULES if rule[0] == name], (np.float32, np.float64)):
        with told(rule[1], rule[2], dtype):
            before = arguments(rule, dtype, FEW)
            host, (lists, wholes) = copies(before), guarded(copies_between_canaries(before), place)
            getattr(optimizer, name)(*lists, rule[2])
            within_rounding(rule, before, back(lists))
            assert all(map(intact, wholes))
            if place != "cpu":
                getattr(optimizer, name)(*host, rule[2])
                for mine, theirs in zip(host, back(lists), strict=True):
                    for one, two in zip(mine or (), theirs or (), strict=True):
                        assert (np.abs(one - two) <= 2 * np.finfo(dtype).eps * np.abs(one)).all()


def copies_between_canaries(lists):
    lay = lambda a: lay_out(a, ORDERS.get(a.shape, tuple(range(a.ndim))))
    return [None if arrays is None else list(map(lay, arrays)) for arrays in lists]


@each_place
@each_type
@pytest.mark.parametrize("name", FULL)
def test_chunks_of_all_sizes_on_any_number_of_threads(name, dtype, place):
    settings, states = FULL[name]
    rule, results = (name, (True,) * states, settings, 0), []
    before = arguments(rule, dtype, SHAPES[place])
    for count in (1, 2) if place == "cpu" else (1,):
        with on_threads(count):
            lists, wholes = guarded(copies_between_canaries(before), place)
            getattr(optimizer, name)(*lists, settings)
        results.append(back(lists))
        assert all(map(intact, wholes))
    within_rounding(rule, before, results[0])
    same_bits(*(sum(lists, []) for lists in (results[0], results[-1])))


@each_place
@pytest.mark.parametrize("name", FULL)
def test_infinities_and_nan(name, place):
    """An infinite parameter meets no weight decay of 0, and the others do not notice it. NaN reaches every state behind
    it, as in the reference: the greatest square so far stays NaN, too."""
    settings, states = FULL[name]
    lists, others = random(name, [6]), random(name, [6])
    lists[0][0][:2] = np.inf, -np.inf
    without_decay = settings.copy()
    without_decay[NAMES[name].WEIGHT_DECAY] = 0
    on_device = there(lists, place), there(others, place)
    for run in on_device:
        getattr(optimizer, name)(*run, without_decay)
    (p, *found), (q, *wanted) = ([arrays[0] for arrays in back(run)] for run in on_device)
    np.testing.assert_array_equal(p[:2], [np.inf, -np.inf])
    same_bits((p[2:], *found), (q[2:], *wanted))
    for spoilt in range(1, 2 + states):
        lists = random(name, [6])
        lists[spoilt][0][1] = np.nan
        wanted = getattr(reference, name)(*(arrays[0] for arrays in lists), settings)
        lists = there(lists, place)
        getattr(optimizer, name)(*lists, settings)
        updated = back(lists)
        same_bits((np.isnan(got) for (got,) in (updated[0], *updated[2:])), map(np.isnan, wanted))


@each_type
def test_an_average_that_keeps_nothing_is_the_gradient(dtype):
    """m + (g - m) would be 0 for m = 1e20, g = 1."""
    lists = [[np.array([value], dtype)] for value in (0, 1, 1e20, 1)]
    optimizer.adam(*lists, None, hyper(Adam, BETA2=0.5, EPS=1, STEP=2))
    assert lists[2][0] == 1
    lists = [[np.array([value], dtype)] for value in (0, 1, 1, 1e20)]
    optimizer.rmsprop(*lists, None, hyper(RMSprop, ALPHA=0, EPS=1))
    assert lists[3][0] == 1


@each_place
def test_the_first_step_reads_no_momentum_buffer(place):
    lists = there([[np.ones(6)], [np.full(6, 2.0)], [np.full(6, np.nan)]], place)
    optimizer.sgd(*lists, hyper(SGD, RATE=1, MOMENTUM=0.5, FIRST=1))
    (p,), _, (buffer,) = back(lists)
    assert (p == -1).all() and (buffer == 2).all()


# ---- norms and scaling -----------------------------------------------------------------------------------------------


def norms(arrays, place="cpu"):
    """The sums of squares, in a workspace of just the size, which on the CPU begins at an odd address."""
    odd = place == "cpu"
    out = moved(np.full(len(arrays), np.nan), place)
    space = moved(np.full(optimizer.workspace(arrays) + odd, 255, np.uint8), place)[odd:]
    optimizer.squared_norms([moved(array, place) for array in arrays], out, space)
    return on_host(out)


@each_place
@each_type
def test_squared_norms(dtype, place):
    """Exact on small integers; what is not finite shows in its own sum; float32 does not overflow on the CPU."""
    rng = np.random.default_rng(1)
    shapes = [*SHAPES[place], *((n,) for n in (cpu.LANES - 1, cpu.LANES, cpu.LANES + 1)), (3 * max(SHAPES[place][-1]),)]
    arrays = [rng.integers(-3, 4, shape).astype(dtype) for shape in shapes]
    for count in (1, 2):
        with on_threads(count):
            np.testing.assert_array_equal(norms(arrays, place), [reference.squared_norm(a) for a in arrays])
    np.testing.assert_array_equal(norms([np.empty(0, dtype)] * 2, place), [0, 0])
    for value in (np.inf, -np.inf, np.nan):
        arrays = [np.ones(9, dtype), np.ones(cuda.CHUNK + 5, dtype), np.ones(9, dtype)]
        arrays[1][cuda.CHUNK + 2] = value
        out = norms(arrays, place)
        assert out[0] == out[2] == 9 and not np.isfinite(out[1])
    if place == "cpu":
        assert norms([np.full(3, 1e30, dtype)]) == pytest.approx(3e60)


@each_place
@each_type
def test_clip_factor(dtype, place):
    for squares in ([9.0, 16.0], [0.25], [], [np.inf], [np.nan, 1.0], [1.0] * 700):
        norm, factor = moved(np.full((), 7, dtype), place), moved(np.full(1, 7.0), place)
        optimizer.clip_factor(moved(np.array(squares), place), 2.0, norm, factor)
        wanted = reference.clip_factor(squares, 2.0)
        np.testing.assert_allclose(on_host(norm), wanted[0], rtol=np.finfo(dtype).eps)
        np.testing.assert_allclose(on_host(factor), [wanted[1]], rtol=4e-16)


@each_place
@each_type
def test_scale_rounds_once(dtype, place):
    before = positive(np.random.default_rng(2), dtype, 0.5, SHAPES[place])
    for factor in (0.3, moved(np.array([0.3]), place)):
        (arrays,), wholes = guarded(copies_between_canaries([before]), place)
        optimizer.scale(arrays, factor)
        same_bits(map(on_host, arrays), [was * dtype(0.3) for was in before])
        assert all(map(intact, wholes))


def test_no_parameters_are_no_work():
    optimizer.sgd([], [], None, hyper(SGD))
    optimizer.scale([], 2.0)
    optimizer.squared_norms([], np.empty(0), np.empty(0, np.uint8))


LOCKED = np.ones(3)
LOCKED.flags.writeable = False
REFUSED = [  # parameters, gradients, momentum buffers
    ([np.ones(3)], [], None, ShapeError, "gradients has 0 arrays for 1 parameters"),
    ([np.ones(3)], [np.ones(2)], None, ShapeError, r"gradients\[0\] has shape \(2,\)"),
    ([np.ones(3)], [np.ones(3, "f4")], None, KindError, r"gradients\[0\] has type float32"),
    ([np.ones(3), np.ones(3, "f4")], [np.ones(3)] * 2, None, KindError, r"parameters\[1\]"),
    ([np.ones(3, int)], [np.ones(3, int)], None, KindError, "wants float32 or float64"),
    ([np.ones(6)[::2]], [np.ones(3)], None, ShapeError, "has strides"),
    ([np.ones((2, 3))], [np.ones((3, 2)).T], None, ShapeError, "wants C order"),
    ([[1.0]], [np.ones(1)], None, KindError, "wants numpy.ndarray"),
    ([LOCKED], [np.ones(3)], None, ShapeError, r"parameters\[0\] is read-only"),
    ([np.ones(3)], [np.ones(3)], [np.ones(2)], ShapeError, r"momentum_buffers\[0\] has shape \(2,\)"),
]


def test_refuses_before_any_work():
    for parameters, gradients, buffers, error, words in REFUSED:
        before = np.array(parameters[0], copy=True)
        with told(words), pytest.raises(error, match=words):
            optimizer.sgd(parameters, gradients, buffers, hyper(SGD, RATE=1))
        np.testing.assert_array_equal(parameters[0], before)
    with pytest.raises(ShapeError, match=r"hyper has shape \(6,\), wants \(7,\)"):
        optimizer.sgd([np.ones(3)], [np.ones(3)], None, np.zeros(6))
    with pytest.raises(ShapeError, match=r"squared_norms: workspace has shape \(14,\), wants 15"):
        optimizer.squared_norms([LOCKED], np.empty(1), np.empty(14, np.uint8))
    with pytest.raises(ShapeError, match=r"clip_factor: factor has shape \(2,\)"):
        optimizer.clip_factor(np.ones(1), 1.0, np.empty(()), np.empty(2))
