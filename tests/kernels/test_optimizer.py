"""Update rules, norms and scaling against their references, on all devices, over lists of arrays of all shapes.

Also what they move on a GPU, and what plans keep from step to step.
"""

import copy
import pickle
import re
import weakref
from itertools import product
from math import prod

import numpy as np
import pytest

from minigrad_kernels import interpreter, optimizer
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, FILTER
from minigrad_kernels.optimizer import SGD, Adagrad, Adam, Plan, RMSprop, cpu, cuda, reference
from minigrad_kernels.optimizer.plan import KEPT
from minigrad_kernels.optimizer.rules import adam

from .cases import Output
from .kernel_runs import DEVICE, each_type, intact, make_output, moved, on_host, on_threads, same_bits, scratch, told

FEW = [(), (0,), (5,), (3, 4), (3, 4, 2, 5), (2, 3, 4, 5)]
SHAPES = {place: [*FEW, (n - 1,), (n,), (n + 1,)] for place, n in (("cpu", cpu.CHUNK), (DEVICE, cuda.CHUNK))}
ORDERS = {(3, 4, 2, 5): FILTER, (2, 3, 4, 5): CHANNELS_LAST}
SWITCH = (0, 1)
NAMES = {"sgd": SGD, "adam": Adam, "rmsprop": RMSprop, "adagrad": Adagrad}
OPTIONS = {  # all that a rule may be told; the last ones together are a setting in which every number matters
    "sgd": dict(
        RATE=[0.1], MOMENTUM=[0, 0.9], DAMPENING=[0.25], WEIGHT_DECAY=[0, 0.1], NESTEROV=SWITCH, FIRST=[1, 0],
        MAXIMIZE=[1, 0],
    ),
    "adam": dict(
        RATE=[0.01], BETA1=[0.9], BETA2=[0.999], EPS=[1e-8], WEIGHT_DECAY=[0, 0.1], STEP=[1, 7], GREATEST=SWITCH,
        DECOUPLED=[1, 0], MAXIMIZE=[1, 0],
    ),
    "rmsprop": dict(
        RATE=[0.01], ALPHA=[0.9], EPS=[1e-8], WEIGHT_DECAY=[0, 0.1], MOMENTUM=[0, 0.9], CENTRED=SWITCH, MAXIMIZE=[1, 0],
    ),
    "adagrad": dict(RATE=[0.1], LR_DECAY=[0, 0.5], EPS=[1e-10], WEIGHT_DECAY=[0, 0.1], STEP=[1, 7], MAXIMIZE=[1, 0]),
}  # fmt: skip
STATES = {  # which states are there
    "sgd": lambda told: (told["MOMENTUM"] > 0,),
    "adam": lambda told: (True, True, told["GREATEST"] > 0),
    "rmsprop": lambda told: (True, told["CENTRED"] > 0, told["MOMENTUM"] > 0),
    "adagrad": lambda told: (True,),
}
each_place = pytest.mark.parametrize("place", ["cpu", DEVICE])
each_rule = pytest.mark.parametrize("name", NAMES)


def hyper(names, **values):
    array = np.zeros(len(names))
    for name, value in values.items():
        array[names[name]] = value
    return array


def rules(name):
    """(states that are there, numbers) of every setting."""
    for values in product(*OPTIONS[name].values()):
        given = dict(zip(OPTIONS[name], values, strict=True))
        known = {key: value for key, value in given.items() if hasattr(NAMES[name], key)}
        yield STATES[name](given), hyper(NAMES[name], **known)


FULL = {name: [*rules(name)][-1][1] for name in NAMES}


def drawn(name, states, settings, dtype, shapes):
    """Parameters, gradients and states, all of one sign, so that nothing cancels but what the rule subtracts.

    Squared gradients (the first state of rmsprop) are far above the square of the mean gradient. The first step of SGD
    does not read its momentum, which is NaN then.
    """
    rng = np.random.default_rng(5)
    draw = lambda low: [np.array(rng.uniform(low, low + 1, shape), dtype) for shape in shapes]
    lows = (8, 0.5, 0.5) if name == "rmsprop" else (0.5, 0.5, 0.5)
    lists = [draw(0.5), draw(0.5), *(draw(low) if there else None for there, low in zip(states, lows, strict=False))]
    if settings[NAMES[name].MAXIMIZE]:
        lists[1] = [np.negative(gradient, gradient) for gradient in lists[1]]
    if name == "sgd" and settings[SGD.FIRST] and states[0]:
        lists[2] = [np.full_like(buffer, np.nan) for buffer in lists[2]]
    return lists


def random(name, sizes, dtype=np.float32):
    """Lists for a rule with all its states."""
    shapes = [np.atleast_1d(size) for size in sizes]
    return drawn(name, (True,) * len([*rules(name)][-1][0]), FULL[name], dtype, shapes)


def there(lists, place=DEVICE):
    return [arrays and [moved(array.copy(), place) for array in arrays] for arrays in lists]


def back(lists):
    return [arrays and [on_host(array) for array in arrays] for arrays in lists]


def guarded(lists, place):
    """The lists on a device between canaries, images in their layouts, and the memory around the arrays."""
    found, wholes = [], []
    for arrays in lists:
        found.append(None if arrays is None else [])
        for given in arrays or ():
            array, whole = make_output(Output(given.shape, ORDERS.get(given.shape)), given.dtype)
            array[...] = given
            array, whole = moved(array, place, whole)
            found[-1].append(array)
            wholes.append(whole)
    return found, wholes


def within_rounding(name, settings, before, lists):
    """Check that lists are what the rule makes of those before, and that the gradients stayed."""
    for k in range(len(before[0])):
        inputs = [arrays and arrays[k] for arrays in before]
        outputs = [arrays and arrays[k] for arrays in (lists[0], *lists[2:])]
        for got, want in zip(outputs, getattr(reference, name)(*inputs, settings), strict=True):
            assert (got is None) == (want is None)
            if got is not None:
                # All quantities are of one sign and of order 1 to 10; a rule has about 16 roundings.
                size = np.abs(want) + np.abs(inputs[0])
                assert (np.abs(got - want) <= 16 * np.finfo(got.dtype).eps * size).all()
    same_bits(before[1], lists[1])


@each_place
@each_rule
def test_rules_within_rounding_of_their_references(name, place):
    """Every setting, in both types; a GPU's results are within 2 roundings of the CPU's. Chunks of all sizes, on any
    number of threads."""
    for (states, settings), dtype in product(rules(name), (np.float32, np.float64)):
        full = (settings == FULL[name]).all()
        if dtype is np.float64 and place != "cpu" and not full:
            continue
        before, results = drawn(name, states, settings, dtype, SHAPES[place] if full else FEW), []
        for count in (1, 2) if full and place == "cpu" else (1,):
            with told(states, settings, dtype), on_threads(count):
                lists, wholes = guarded(before, place)
                getattr(optimizer, name)(*lists, settings)
                within_rounding(name, settings, before, back(lists))
                assert all(map(intact, wholes))
                results.append(sum(filter(None, back(lists)), []))
        if place != "cpu":
            getattr(optimizer, name)(*(host := there(before, "cpu")), settings)
            for mine, theirs in zip(sum(filter(None, host), []), results[0], strict=True):
                assert (np.abs(mine - theirs) <= 2 * np.finfo(dtype).eps * np.maximum(np.abs(mine), 1)).all()
        same_bits(results[0], results[-1])


@each_place
@each_rule
def test_nan(name, place):
    """It reaches every state behind it, as in the reference: the greatest square so far stays NaN, too."""
    run, states = getattr(optimizer, name), len(random(name, [1])) - 2
    for spoilt in range(1, 2 + states):
        lists = random(name, [6])
        lists[spoilt][0][1] = np.nan
        wanted = getattr(reference, name)(*(arrays[0] for arrays in lists), FULL[name])
        run(*(lists := there(lists, place)), FULL[name])
        updated = back(lists)
        same_bits((np.isnan(got) for (got,) in (updated[0], *updated[2:])), map(np.isnan, wanted))


# ---- norms and scaling -----------------------------------------------------------------------------------------------


def norms(arrays, place="cpu"):
    """The sums of squares."""
    out, wholes = moved(np.full(len(arrays), np.nan), place), []
    optimizer.squared_norms([moved(array, place) for array in arrays], out, scratch(place, wholes))
    assert all(map(intact, wholes))
    return on_host(out)


@each_place
@each_type
def test_norms_and_scaling(dtype, place):
    """Norms are exact on small integers, and of long arrays within 25 roundings; what is not finite shows in its own
    sum; float32 does not overflow on the CPU. Scaling rounds once."""
    rng = np.random.default_rng(1)
    shapes = [*SHAPES[place], *((n,) for n in (cpu.LANES - 1, cpu.LANES, cpu.LANES + 1)), (3 * max(SHAPES[place][-1]),)]
    arrays = [rng.integers(-3, 4, shape).astype(dtype) for shape in shapes]
    for count in (1, 2):
        with on_threads(count):
            np.testing.assert_array_equal(norms(arrays, place), [reference.squared_norm(a) for a in arrays])
    np.testing.assert_array_equal(norms([np.empty(0, dtype)] * 2, place), [0, 0])
    long = rng.standard_normal(70_001).astype(dtype)
    np.testing.assert_allclose(norms([long], place), reference.squared_norm(long), rtol=25 * np.finfo(dtype).eps)
    for value in (np.inf, -np.inf, np.nan):
        arrays = [np.ones(9, dtype), np.ones(cuda.CHUNK + 5, dtype), np.ones(9, dtype)]
        arrays[1][cuda.CHUNK + 2] = value
        out = norms(arrays, place)
        assert out[0] == out[2] == 9 and not np.isfinite(out[1])
    if place == "cpu":
        assert norms([np.full(3, 1e30, dtype)]) == pytest.approx(3e60)
    for squares in ([9.0, 16.0], [0.25], [], [np.inf], [np.nan, 1.0], [1.0] * 700):
        norm, factor = moved(np.full((), 7, dtype), place), moved(np.full(1, 7.0), place)
        optimizer.clip_factor(moved(np.array(squares), place), 2.0, norm, factor)
        wanted = reference.clip_factor(squares, 2.0)
        np.testing.assert_allclose(on_host(norm), wanted[0], rtol=np.finfo(dtype).eps)
        np.testing.assert_allclose(on_host(factor), [wanted[1]], rtol=4e-16)
    before = [np.array(rng.uniform(0.5, 1.5, shape), dtype) for shape in SHAPES[place]]
    for factor in (0.3, moved(np.array([0.3]), place)):
        (arrays,), wholes = guarded([before], place)
        optimizer.scale(arrays, factor)
        same_bits(map(on_host, arrays), [was * dtype(0.3) for was in before])
        assert all(map(intact, wholes))


LOCKED = np.ones(3)
LOCKED.flags.writeable = False
REFUSED = [  # parameters, gradients, momentum buffers
    ([np.ones(3)], [], None, ShapeError, "gradients has 0 arrays for 1 parameters"),
    ([np.ones(3)], [np.ones(2)], None, ShapeError, r"gradients\[0\] has shape \(2,\)"),
    ([np.ones(3)], [np.ones(3, "f4")], None, KindError, r"gradients\[0\] has type float32"),
    ([np.ones(3, int)], [np.ones(3, int)], None, KindError, "wants float32 or float64"),
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
    optimizer.sgd([], [], None, hyper(SGD))  # no parameters are no work
    optimizer.scale([], 2.0)
    optimizer.squared_norms([], np.empty(0), None)


TOGETHER = hyper(Adam, RATE=0.01, BETA1=0.9, BETA2=0.999, EPS=1e-8, STEP=3)


# ---- traffic ---------------------------------------------------------------------------------------------------------

TABLES = "addresses", "chunks", "numbers", "factor"
ideal = lambda counts: counts.global_load_sectors_ideal + counts.global_store_sectors_ideal


def counted(call):
    """[(name, bytes loaded, in the order of arrays, but for tables; bytes stored; counts)]"""
    with interpreter.recording() as launches:
        call()
    of = lambda sizes: sorted(size for array, size in sizes.items() if array not in TABLES)
    return [(name, of(r.counts.bytes_loaded), of(r.counts.bytes_stored), r.counts) for name, r in launches]


@each_rule
def test_an_update_is_one_launch_that_reads_and_writes_each_array_once(name):
    """Of any states; all but gradients are written. Where there are no elements nothing is launched."""
    shapes = [(64, 32), (5000,), (128,)]
    sizes, full = sorted(4 * prod(shape) for shape in shapes), there(random(name, shapes), "interpreter")
    optional = {"sgd": [2], "adam": [4], "rmsprop": [3, 4], "adagrad": []}[name]
    for missing in (optional[:count] for count in range(len(optional) + 1)):
        lists = [None if at in missing else arrays for at, arrays in enumerate(full)]
        numbers, update = counted(lambda: getattr(optimizer, name)(*lists, FULL[name]))  # noqa: B023
        kinds = len(full) - len(missing)
        assert (numbers[0], update[0]) == ("optimizer_coefficients", "optimizer_update_f32")
        assert update[1] == sorted(sizes * kinds) and update[2] == sorted(sizes * (kinds - 1))
        assert update[3].global_sectors == ideal(update[3])
    empty = there(random(name, [0, 0]), "interpreter")
    assert not counted(lambda: getattr(optimizer, name)(*empty, FULL[name]))


def test_norms_read_once_and_scaling_reads_and_writes_once():
    """The second kernel: each thread reads where its sum begins. A factor of 1 touches nothing."""
    arrays, out = there([random("sgd", [2048, 5000])[0]], "interpreter")[0], interpreter.empty(2, np.float64)
    sizes, chunks = [8192, 20000], 2 + 5
    squares, sums = counted(lambda: optimizer.squared_norms(arrays, out, scratch("interpreter", [])))
    (scaled,), (same,) = (counted(lambda: optimizer.scale(arrays, factor)) for factor in (0.5, 1.0))  # noqa: B023
    assert squares[1:3] == (sizes, [8 * chunks]) and scaled[1:3] == (sizes, sizes) and same[1:3] == ([], [])
    assert sum(sums[1]) == 8 * chunks + 2 * 4 * 2 * 256 and sums[2] == [2 * 8]
    for *_, counts in (squares, scaled):
        assert counts.global_sectors == ideal(counts)
        assert counts.shared_wavefronts == counts.shared_wavefronts_ideal


# ---- refusals, plans -------------------------------------------------------------------------------------------------


def test_arrays_of_the_host_and_too_large_ones_are_refused():
    (device,), host = there([[np.ones(3, "f4")]]), [np.ones(3, "f4")]
    for call, name in (
        (lambda: optimizer.adam(device, host, device, device, None, TOGETHER), "adam: gradients[0]"),
        (lambda: optimizer.scale(device, np.ones(1)), "scale: factor"),
    ):
        with pytest.raises(KindError, match="^" + re.escape(f"{name} is numpy.ndarray, wants ")):
            call()
    with pytest.raises(KindError, match="^adam: hyper is"):
        optimizer.adam(*[device] * 4, None, moved(TOGETHER, DEVICE))
    with pytest.raises(ShapeError, match="^optimizer: an array has 2147483648 elements, wants less than"):
        cuda.tables([(0,)], [1 << 31], device[0])


def momentum(parameters, gradients, buffers, plan):
    optimizer.sgd(parameters, gradients, buffers, hyper(SGD, RATE=1, MOMENTUM=0.5), plan)


def test_what_a_plan_has_not_seen_is_refused():
    plan, p, b = Plan(), [np.zeros(2)], [np.zeros(2)]
    momentum(p, [np.ones(2)], None, plan)
    strange = np.ones(4)[::2], np.ones(2, "f4"), np.ones(3), memoryview(np.ones(2)), interpreter.array(np.ones(2))
    for gradients, buffers in (*(([one], None) for one in strange), ([], b), (None, b), ([np.ones(2)], [])):
        for _ in range(2):  # a refused call is not remembered
            with pytest.raises((ShapeError, KindError)):
                momentum(p, gradients, buffers, plan)
    assert (p[0] == -1).all()


def test_a_plan_keeps_no_array_alive_and_few_tables():
    plan, p, keep = Plan(), [np.zeros(2)], []
    for _ in range(9):
        keep.append(np.ones(2))
        gone = weakref.ref(keep[-1])
        momentum(p, keep[-1:], None, plan)
    assert len(plan._kept) == KEPT
    keep.clear()
    assert gone() is None
    assert copy.deepcopy(plan).tables is None and pickle.loads(pickle.dumps(plan)).tables is None


def test_an_average_moves_from_the_nearer_end():
    """From the other end 2^60 would swallow the 1, or what is left of it."""
    for share, (a, b) in product((0.25, 0.75), ((1.0, 3.0), (2.0**60, 1.0), (1.0, 2.0**60), (-5.0, 7.0))):
        _, average, *_ = adam(0.0, b, a, 1.0, 0.0, 3, (1.0, 0.0, 1 - share, share, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0))
        assert average == pytest.approx(a + share * (b - a), rel=1e-15)
