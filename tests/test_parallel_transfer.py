"""Communication as ops of the tape: gradients that cross ranks equal those of one process."""

import threading
import time

import numpy as np
import pytest

from minigrad import Tensor, grad, no_grad, ones, tensor
from minigrad.core.errors import KindError, ShapeError, StateError
from minigrad.nn import functional as F
from minigrad.parallel import local
from minigrad.parallel.errors import DeadlineError, DisagreementError
from minigrad.parallel.local import LocalTransport, run_local
from minigrad.parallel.transfer import _on_the_way, all_reduce, recv, send, settle

LIMIT = 20.0  # seconds


def numbers(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def weight(rank):
    return Tensor(numbers(4, 4, seed=rank), requires_grad=True)


class Rendezvous(LocalTransport):
    """A transport that copies nothing and whose messages have left only when they were taken, as large ones of MPI."""

    def post(self, to, channel, header, payload):
        with self.mail.changed:
            if self.mail.reason:
                return super().post(to, channel, header, payload)
            taken = threading.Event()
            self.mail.waiting[self.rank, to, channel].append((header, payload, taken))
            self.mail.changed.notify_all()
        return _Lent(taken)

    def take(self, source, channel, deadline):
        header, payload, taken = super().take(source, channel, deadline)
        payload = payload.copy()
        taken.set()
        return header, payload


class _Lent:
    def __init__(self, taken):
        self.taken = taken

    def wait(self, deadline):
        if not self.taken.wait(max(0, deadline - time.monotonic())):
            raise DeadlineError("not taken")


@pytest.fixture(params=["copied", "lent"])
def transport(request, monkeypatch):
    """Both kinds of delivery: done at once, and done when taken."""
    if request.param == "lent":
        monkeypatch.setattr(local, "LocalTransport", Rendezvous)


# ---- send and recv ---------------------------------------------------------------------------------------------------


def chain(world):
    """Three products with a ReLU between them, one a rank; the loss is in the last."""
    w = weight(world.rank)
    x = (
        Tensor(numbers(5, 4, seed=9), requires_grad=True)
        if world.rank == 0
        else recv((5, 4), "float64", world.rank - 1)
    )
    out = F.relu(x @ w)
    end = send(out, world.rank + 1) if world.rank < world.size - 1 else (out * out).sum()
    end.backward()
    settle(world)
    return end.item(), w.grad.numpy(), x.grad.numpy() if world.rank == 0 else None


def test_the_gradient_of_a_chain_over_three_ranks_is_that_of_one(transport):
    found = run_local(chain, 3, timeout=LIMIT)
    weights, x = [weight(rank) for rank in range(3)], Tensor(numbers(5, 4, seed=9), requires_grad=True)
    out = x
    for w in weights:
        out = F.relu(out @ w)
    loss = (out * out).sum()
    loss.backward()
    assert [end for end, *_ in found] == [0, 0, loss.item()]
    for (_, g, _), w in zip(found, weights, strict=True):
        assert g.tobytes() == w.grad.numpy().tobytes()
    assert found[0][2].tobytes() == x.grad.numpy().tobytes()


def there_and_back(world):
    w = weight(world.rank)
    if world.rank == 1:
        x = recv(None, None, 0)
        send(F.tanh(x @ w), 0, tag=7).backward()
        return w.grad.numpy()
    x = ones(3, 4, dtype="float64")
    out = recv((3, 4), None, 1, tag=7, anchor=send(x @ w, 1))
    (out * out).sum().backward()
    return w.grad.numpy()


def test_an_anchor_leads_from_a_result_back_to_what_was_sent(transport):
    found = run_local(there_and_back, 2, timeout=LIMIT)
    first, second = weight(0), weight(1)
    out = F.tanh((ones(3, 4, dtype="float64") @ first) @ second)
    (out * out).sum().backward()
    for g, w in zip(found, (first, second), strict=True):
        assert g.tobytes() == w.grad.numpy().tobytes()


def exchange(world):
    """Both ranks send before they receive, in both directions of the tape."""
    other, w = 1 - world.rank, weight(world.rank)
    sent = send(w * 2, other)
    out = recv((4, 4), "float64", other, anchor=sent)
    (out * (world.rank + 1)).sum().backward()
    return w.grad.numpy()


def test_ranks_that_both_send_first_do_not_wait_for_each_other(transport):
    first, second = run_local(exchange, 2, timeout=LIMIT)
    assert (first == 4).all() and (second == 2).all()


def double(world):
    """|dL/dx|^2 and its gradient, L = sum tanh(x w)^2 with the product on rank 0 and the rest on rank 1."""
    if world.rank == 1:
        x = recv(None, None, 0)
        y = F.tanh(x)
        (y * y).sum().backward(create_graph=True)
        send(ones(1), 0, tag=1)  # a word that both have gone backward once
        return None
    x, w = Tensor(numbers(2, 4, seed=5), requires_grad=True), weight(0)
    (g,) = grad(send(x @ w, 1), x, create_graph=True)
    recv(None, None, 1, tag=1)
    return g.requires_grad, g.detach().numpy()


def test_the_gradient_can_be_recorded():
    (recorded, g), _ = run_local(double, 2, timeout=LIMIT)
    x, w = Tensor(numbers(2, 4, seed=5), requires_grad=True), weight(0)
    y = F.tanh(x @ w)
    assert recorded
    np.testing.assert_allclose(g, grad((y * y).sum(), x)[0].numpy(), rtol=1e-13)


def second_order(world):
    """The gradient of sum (dL/dh)^2 for h, where L = sum h^4 / 4 is computed on rank 1 and h = 2 x on rank 0."""
    anchor = ones((), dtype="float64", requires_grad=True)
    if world.rank == 1:
        h = recv(None, None, 0, anchor=anchor)
        (returned,) = grad((h * h * h * h).sum() / 4, anchor, create_graph=True)
        assert returned.item() == 0
        returned.backward()  # the way of the gradient, backward: rank 0 sends, this rank goes on to h
        return None
    x = Tensor(np.array([1.0, -2.0, 3.0]), requires_grad=True)
    (g,) = grad(send(x * 2, 1), x, create_graph=True)
    (g * g).sum().backward()
    return x.grad.numpy()


def test_second_order_crosses_ranks():
    """L = sum (2 x)^4 / 4, g = 2 (2 x)^3, d(sum g^2)/dx = 2 g 3 (2 x)^2 4."""
    found, _ = run_local(second_order, 2, timeout=LIMIT)
    x = np.array([1.0, -2.0, 3.0])
    np.testing.assert_allclose(found, 2 * 2 * (2 * x) ** 3 * 3 * (2 * x) ** 2 * 4)


def twice(world):
    ends = [chain(world)[0] for _ in range(2)]
    w = weight(world.rank)
    x = Tensor(numbers(2, 4)) if world.rank == 0 else recv(None, None, world.rank - 1)
    out = x @ w
    end = send(out, world.rank + 1) if world.rank < world.size - 1 else out.sum()
    end.backward()
    try:
        end.backward()
    except StateError as error:
        assert "freed" in str(error)
    else:
        raise AssertionError("a second backward went through")
    return ends + [chain(world)[0]]


def test_a_second_backward_is_refused_before_anything_is_sent():
    """Else the chain that follows would find messages of the one before."""
    for first, second, third in run_local(twice, 3, timeout=LIMIT):
        assert first == second == third


def unwanted(world):
    """Nobody waits for a gradient that nobody wants."""
    if world.rank == 0:
        w = weight(0)
        sent = [send(tensor([1, 2, 3]), 1), send(w.detach(), 1)]
        with no_grad():
            sent.append(send(w * 2, 1))
        return [one.requires_grad for one in sent]
    found = [recv(None, None, 0, anchor=ones((), requires_grad=True)) for _ in range(3)]
    assert found[0].tolist() == [1, 2, 3]
    return [one.requires_grad for one in found]


def test_constants_have_no_gradient():
    assert run_local(unwanted, 2, timeout=LIMIT) == [[False] * 3] * 2


LAYOUTS = {
    "C order": numbers(2, 3, 4, 5),
    "channels last": numbers(2, 4, 5, 3).transpose(0, 3, 1, 2),
    "axes of size 1": numbers(4, 3, 1).transpose(2, 1, 0),
    "a transpose": numbers(3, 4).T,
    "gaps": numbers(6, 8)[::2, 1:5],
    "repeats": np.broadcast_to(numbers(3, 1), (3, 4)),
    "read only": np.frombuffer(numbers(4).tobytes()),
    "no elements": numbers(0, 3),
    "a scalar": np.array(3.5),
    "integers": np.arange(6, dtype=np.int32).reshape(2, 3),
    "bools": np.array([True, False]),
    "16 bits": numbers(3).astype(np.float16),
}


def laid_out(world):
    if world.rank == 0:
        for array in LAYOUTS.values():
            send(Tensor(array), 1)
        return settle(world)
    return [recv(array.shape, array.dtype, 0).data for array in LAYOUTS.values()]


def test_arrays_lie_on_the_other_rank_as_they_lay_on_the_first():
    _, found = run_local(laid_out, 2, timeout=LIMIT)
    for (name, array), other in zip(LAYOUTS.items(), found, strict=True):
        assert (other.dtype, other.shape) == (array.dtype, array.shape), name
        np.testing.assert_array_equal(other, array, name)
        if array.size and name not in ("gaps", "repeats"):
            wanted, got = ([s for s, n in zip(a.strides, a.shape, strict=True) if n > 1] for a in (array, other))
            assert got == wanted, name
        assert other.flags.writeable


def tagged(world):
    if world.rank == 0:
        for number in range(20):
            send(ones(2) * number, 1, tag=number % 2)
        return []
    return [recv((2,), "float32", 0, tag=tag).tolist()[0] for tag in (1, 0) for _ in range(10)]


def test_messages_of_a_tag_arrive_in_their_order_and_tags_do_not_wait_for_each_other(transport):
    assert run_local(tagged, 2, timeout=LIMIT)[1] == [*range(1, 20, 2), *range(0, 20, 2)]


def kept(world):
    if world.rank == 0:
        for _ in range(5):
            send(ones(3), 1)
        waiting = len(_on_the_way[world])
        world.recv(np.empty(1), 1, 50)
        settle(world)
        return waiting, len(_on_the_way[world])
    settle(world)  # which sent nothing
    world.send(np.zeros(1), 0, 50).wait()
    return [recv(None, None, 0).tolist() for _ in range(5)]


def test_arrays_are_held_until_they_have_left(monkeypatch):
    monkeypatch.setattr(local, "LocalTransport", Rendezvous)
    assert run_local(kept, 2, timeout=LIMIT)[0] == (10, 0)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, kind, words",
    [
        (lambda w: send(np.ones(3), 1, world=w), KindError, "send: input is a ndarray"),
        (lambda w: send(ones(3), 1, tag=31, world=w), ShapeError, "tag is 31, wanted one from 0 to 30"),
        (lambda w: send(ones(3), 0, world=w), ShapeError, "this rank itself"),
        (lambda w: send(ones(3), 2, world=w), ShapeError, "from 0 to 1"),
        (lambda w: send(ones(3), 1, world="all"), KindError, "world is 'all'"),
        (lambda w: send(ones(*[1] * 17), 1, world=w), ShapeError, "17 dimensions"),
        (lambda w: recv((-1,), None, 1, world=w), ShapeError, "not negative"),
        (lambda w: recv(None, None, 1, tag=-1, world=w), ShapeError, "tag is -1"),
        (lambda w: recv(None, None, 1, anchor=ones(3), world=w), ShapeError, "anchor has shape"),
        (lambda w: recv(None, None, 1, anchor=tensor(3), world=w), ShapeError, "wanted a floating scalar"),
        (lambda w: all_reduce(np.ones(3), w), KindError, "all_reduce: input is a ndarray"),
        (lambda w: all_reduce(tensor([1, 2]), w), KindError, "floating"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(call, kind, words):
    def run(world):
        if world.rank == 0:
            with pytest.raises(kind, match=words):
                call(world)
            assert not any(world.transport.mail.waiting.values())

    run_local(run, 2, timeout=LIMIT)


@pytest.mark.parametrize(
    "shape, dtype, words",
    [((3, 2), None, r"sent shape \(2, 3\), but \(3, 2\)"), ((), None, r"but \(\)"), (None, "float64", "float32, but")],
)
def test_something_else_than_expected_is_an_error(shape, dtype, words):
    def run(world):
        if world.rank == 0:
            send(ones(2, 3), 1)
        else:
            recv(shape, dtype, 0)

    with pytest.raises(DisagreementError, match=words):
        run_local(run, 2, timeout=LIMIT)


def test_a_gradient_that_never_comes_is_an_error_within_the_deadline():
    noticed = threading.Event()

    def run(world):
        if world.rank == 0:
            with pytest.raises(DeadlineError, match="no message from rank 1"):
                send(weight(0), 1).backward()
            noticed.set()
        else:
            recv(None, None, 0).detach()
            assert noticed.wait(LIMIT)

    run_local(run, 2, timeout=1.0)


# ---- all_reduce ------------------------------------------------------------------------------------------------------


def reduced(world):
    x = Tensor(numbers(3, 4, seed=world.rank), requires_grad=True)
    total = all_reduce(x * x)
    (first,) = grad((total * total).sum() * (world.rank + 1), x, create_graph=True)
    (second,) = grad(first.sum(), x)
    return x.detach().numpy(), total.detach().numpy(), first.detach().numpy(), second.numpy()


def test_all_reduce_and_its_gradients_of_both_orders():
    """Over three ranks t = sum x_r^2 and L = (1 + 2 + 3) sum t^2: dL/dx_r = 24 t x_r."""
    found = run_local(reduced, 3, timeout=LIMIT)
    xs = [Tensor(x, requires_grad=True) for x, *_ in found]
    total = xs[0] * xs[0] + xs[1] * xs[1] + xs[2] * xs[2]
    firsts = grad((total * total).sum() * 6, xs, create_graph=True)
    seconds = grad(sum(first.sum() for first in firsts), xs)
    for (_, t, first, second), wanted, deeper in zip(found, firsts, seconds, strict=True):
        assert t.tobytes() == found[0][1].tobytes()
        np.testing.assert_allclose(t, total.detach().numpy(), rtol=1e-14)
        np.testing.assert_allclose(first, wanted.detach().numpy(), rtol=1e-13)
        np.testing.assert_allclose(second, deeper.numpy(), rtol=1e-13)


def test_all_reduce_leaves_its_input_and_keeps_its_layout():
    def run(world):
        x = numbers(2, 4, 5, 3, dtype=np.float32).transpose(0, 3, 1, 2)
        before = x.copy()
        out = all_reduce(Tensor(x))
        assert out.data.strides == x.strides and (x == before).all()
        return out.numpy()

    one, other = run_local(run, 2, timeout=LIMIT)
    np.testing.assert_array_equal(one, 2 * numbers(2, 4, 5, 3, dtype=np.float32).transpose(0, 3, 1, 2))
    assert one.tobytes() == other.tobytes()
