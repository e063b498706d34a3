"""What updates keep from step to step: no result depends on it, and no array lives longer for it."""

import copy
import pickle
import weakref
from itertools import product

import numpy as np
import pytest

from minigrad_kernels import interpreter, optimizer
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.optimizer import SGD
from minigrad_kernels.optimizer.plan import KEPT
from minigrad_kernels.optimizer.rules import adam

from .test_optimizer import hyper


def momentum(parameters, gradients, buffers, plan):
    optimizer.sgd(parameters, gradients, buffers, hyper(SGD, RATE=1, MOMENTUM=0.5), plan)


def test_a_plan_follows_every_change():
    """Of the gradients alone, of a state, of the parameters, of which states there are, of their number."""
    plan, zero = optimizer.Plan(), [np.zeros(2)]
    p, buffer, other = [np.zeros(2)], [np.zeros(2)], [np.zeros(2)]
    momentum(p, [np.ones(2)], buffer, plan)
    momentum(p, [np.full(2, 3.0)], buffer, plan)
    assert (p[0] == -4.5).all() and (buffer[0] == 3.5).all()
    momentum(p, zero, other, plan)
    assert (p[0] == -4.5).all() and (other[0] == 0).all()
    momentum(p, [np.ones(2)], None, plan)
    assert (p[0] == -5.5).all() and (other[0] == 0).all()
    momentum(zero, [np.ones(2)], buffer, plan)
    assert (zero[0] == -2.75).all() and (p[0] == -5.5).all()
    momentum([*p, *zero], [np.ones(2), np.ones(2)], [*other, *buffer], plan)
    assert (p[0] == -6.5).all() and (zero[0] == -5.125).all()


def test_what_a_plan_has_not_seen_is_refused():
    plan, p, b = optimizer.Plan(), [np.zeros(2)], [np.zeros(2)]
    momentum(p, [np.ones(2)], None, plan)
    strange = np.ones(4)[::2], np.ones(2, "f4"), np.ones(3), memoryview(np.ones(2)), interpreter.array(np.ones(2))
    for gradients, buffers in (*(([one], None) for one in strange), ([], b), (None, b), ([np.ones(2)], [])):
        for _ in range(2):  # a refused call is not remembered
            with pytest.raises((ShapeError, KindError)):
                momentum(p, gradients, buffers, plan)
    assert (p[0] == -1).all()


def test_a_plan_keeps_no_array_alive_and_few_tables():
    plan, p = optimizer.Plan(), [np.zeros(2)]
    keep = []
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
