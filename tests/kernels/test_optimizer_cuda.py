"""The optimizer family on CUDA: bits, numbers that stay on the device, traffic; and plans, of the CPU as well."""

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
from minigrad_kernels.optimizer import SGD, Adam, Plan, cuda, cuda_kernels
from minigrad_kernels.optimizer.plan import KEPT
from minigrad_kernels.optimizer.rules import adam

from .kernel_runs import DEVICE, moved, on_host, same_bits
from .test_optimizer import FULL, back, each_rule, hyper, norms, random, there

TOGETHER = hyper(Adam, RATE=0.01, BETA1=0.9, BETA2=0.999, EPS=1e-8, STEP=3)


def test_the_same_bits_wherever_arrays_begin():
    """Of an update one of whose arrays begins 4 bytes late, and of norms."""
    values, results, found = random("adam", [64]), [], set()
    for shifted in range(6):  # the last time none of them
        arrays = [moved(np.zeros(65, "f4"), DEVICE)[k == shifted :][:64] for k in range(5)]
        for array, (value,) in zip(arrays, values, strict=True):
            array[...] = moved(value, DEVICE)
        optimizer.adam(*([array] for array in arrays), TOGETHER)
        results.append([on_host(array) for array in arrays])
        same_bits(results[0], results[-1])
    whole = np.random.default_rng(3).standard_normal(5003).astype(np.float32)
    for shift in range(4):
        found.add(norms([np.concatenate([whole[:shift], whole])[shift:]], DEVICE)[0])
    assert len(found) == 1


def test_a_launch_that_fails_leaves_the_count_to_the_host(monkeypatch, sent):
    """The device may have counted a step that did not happen, so the next call sends its own numbers."""
    plan, lists, host = Plan(), there(random("adam", [(3,)])), random("adam", [(3,)])
    later = hyper(Adam, RATE=0.01, BETA1=0.9, BETA2=0.999, EPS=1e-8, STEP=4)
    optimizer.adam(*lists, TOGETHER, plan)

    def broken(*arguments):
        raise RuntimeError("no such luck")

    with monkeypatch.context() as patch:
        patch.setitem(cuda_kernels.update, 4, broken)
        with pytest.raises(RuntimeError, match="no such luck"):
            optimizer.adam(*lists, later, plan)
    optimizer.adam(*lists, later, plan)
    optimizer.adam(*host, TOGETHER)
    optimizer.adam(*host, later)
    for mine, theirs in zip(host, back(lists), strict=True):
        np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-6)


# ---- traffic ---------------------------------------------------------------------------------------------------------

TABLES = "addresses", "chunks", "numbers", "factor"


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
        assert update[3].global_sectors == update[3].global_sectors_ideal
    empty = there(random(name, [0, 0]), "interpreter")
    assert not counted(lambda: getattr(optimizer, name)(*empty, FULL[name]))


def test_norms_read_once_and_scaling_reads_and_writes_once():
    """The second kernel: each thread reads where its sum begins. A factor of 1 touches nothing."""
    arrays, out = there([random("sgd", [2048, 5000])[0]], "interpreter")[0], interpreter.empty(2, np.float64)
    sizes, chunks = [8192, 20000], 2 + 5
    space = interpreter.empty(optimizer.workspace(arrays), np.uint8)
    squares, sums = counted(lambda: optimizer.squared_norms(arrays, out, space))
    (scaled,), (same,) = (counted(lambda: optimizer.scale(arrays, factor)) for factor in (0.5, 1.0))  # noqa: B023
    assert squares[1:3] == (sizes, [8 * chunks]) and scaled[1:3] == (sizes, sizes) and same[1:3] == ([], [])
    assert sum(sums[1]) == 8 * chunks + 2 * 4 * 2 * 256 and sums[2] == [2 * 8]
    for *_, counts in (squares, scaled):
        assert counts.global_sectors == counts.global_sectors_ideal
        assert counts.shared_wavefronts == counts.shared_wavefronts_ideal


# ---- refusals, plans -------------------------------------------------------------------------------------------------


def test_arrays_of_the_host_and_too_large_ones_are_refused():
    (device,), host = there([[np.ones(3, "f4")]]), [np.ones(3, "f4")]
    kind, two = type(device[0]).__module__, [2 * device] * 3
    for call, name in (
        (lambda: optimizer.adam(device, host, device, device, None, TOGETHER), "adam: gradients[0]"),
        (lambda: optimizer.adam([*device, *host], *two, None, TOGETHER), "adam: parameters[1]"),
        (lambda: optimizer.squared_norms(device, np.empty(1), np.empty(99, np.uint8)), "squared_norms: out"),
        (lambda: optimizer.scale(device, np.ones(1)), "scale: factor"),
    ):
        with pytest.raises(KindError, match="^" + re.escape(f"{name} is numpy.ndarray, wants {kind}")):
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
