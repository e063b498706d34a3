"""Communication as ops of the tape: gradients that cross ranks equal those of one process."""

import threading

import numpy as np
import pytest

from minigrad import Tensor, no_grad, ones, tensor
from minigrad.nn import functional as F
from minigrad.parallel import DeadlineError, recv, send
from tests.parallel.parallel_runs import on_ranks


def numbers(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def weight(rank):
    return Tensor(numbers(4, 4, seed=rank), requires_grad=True)


# ---- send and recv ---------------------------------------------------------------------------------------------------


def test_an_anchor_leads_back_to_what_was_sent_and_ranks_that_both_send_first_do_not_wait():
    """In both directions of the tape; what is sent is a copy."""

    def run(world):
        other, w = 1 - world.rank, weight(world.rank)
        sent = send(F.tanh(w), other, tag=7)
        send(early := ones(2), other)
        early.array[:] = 5
        out = recv(other, tag=7, anchor=sent)
        assert recv(other).tolist() == [1, 1]
        (out * (world.rank + 1)).sum().backward()
        return w.grad.numpy()

    weights = [weight(rank) for rank in range(2)]
    (F.tanh(weights[0]) * 2 + F.tanh(weights[1])).sum().backward()
    assert [g.tobytes() for g in on_ranks(run, 2)] == [w.grad.numpy().tobytes() for w in weights]


LAYOUTS = {
    "channels last": numbers(2, 4, 5, 3).transpose(0, 3, 1, 2),
    "gaps": numbers(6, 8)[::2, 1:5],
    "no elements": numbers(0, 3),
    "bools": np.array([True, False]),
    "16 bits": np.array(3.5, np.float16),
}


def test_arrays_lie_on_the_other_rank_as_they_lay_and_constants_have_no_gradient():
    def run(world):
        if world.rank:
            found = [recv(0).array for _ in LAYOUTS]
            return found, [recv(0, anchor=ones((), requires_grad=True)).requires_grad for _ in range(3)]
        for array in LAYOUTS.values():
            send(Tensor(array), 1)
        with no_grad():
            third = send(weight(0) * 2, 1)
        return [one.requires_grad for one in (third, send(tensor([1, 2, 3]), 1), send(weight(0).detach(), 1))]

    wanted, (found, wanting) = on_ranks(run, 2)
    assert wanted == wanting == [False] * 3
    for (name, array), other in zip(LAYOUTS.items(), found, strict=True):
        assert (other.dtype, other.shape) == (array.dtype, array.shape), name
        np.testing.assert_array_equal(other, array, name)
    assert found[0].strides == LAYOUTS["channels last"].strides


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_a_gradient_that_never_comes_is_an_error_within_the_deadline():
    noticed = threading.Event()

    def run(world):
        if world.rank:
            return recv(0).item(), noticed.wait(20.0)
        with pytest.raises(DeadlineError, match="no message from rank 1"):
            send(weight(0).sum(), 1).backward()
        noticed.set()

    on_ranks(run, 2, timeout=0.3)
