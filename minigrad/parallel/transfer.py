"""Communication as differentiable ops: what goes one way in the forward pass, its gradient goes the other way.

    send        its gradient comes back from the rank that received
    recv        its gradient goes to the rank that sent
    all_reduce  a sum over ranks, whose gradient is the sum over ranks of the gradients

A node of the tape needs something that leads to it and something it leads to. What send returns is a scalar zero whose
only purpose is that backward() begins there; recv has an `anchor`, a scalar of which the values are made to depend.
So a rank that sends an activation away and gets a result back anchors the second in the first:

    sent = send(hidden, 1)
    out = recv(1, anchor=sent)
    loss(out).backward()        # through out to rank 1, and from there back into hidden

With each array goes what it is: type, shape, the order of its axes in memory, and whether its gradient is wanted. Thus
the array lies on the other rank as it lay here, and a kernel finds the same bits.

Errors  those of the Communicator; TypeError and ValueError for arguments that cannot be, before anything is sent
Source  Akiba, Fukuda and Suzuki 2017, "ChainerMN: scalable distributed deep learning framework"
"""

import json

from minigrad_kernels.errors import KindError, ShapeError

from .. import device as devices
from ..core.check import floats_of, integer_of
from ..core.create import zeros
from ..core.modes import is_grad_enabled
from ..core.primitive import primitive
from ..core.tensor import tensor_of
from .collectives import FIRST_TAG
from .communicator import Communicator
from .transport import deadline_after
from .world import init

TAGS = 31  # as many again are for the gradients


def world_of(op, world):
    """The world that is meant: the one given, or that of parallel.init()."""
    world = init() if world is None else world
    if not isinstance(world, Communicator):
        raise KindError(f"{op}: world is {world!r}, wanted a Communicator, as parallel.init() gives")
    return world


# ---- from one rank to another ----------------------------------------------------------------------------------------


@primitive
def _send(input, to, tag, back, world, wanted):
    """Zero, once the input is on its way."""
    order = devices.order_of(input)
    flat = devices.host(devices.contiguous(input, order).transpose(order).reshape(-1))
    what = json.dumps([str(input.dtype), wanted, input.shape, order])
    world.transport.post(to, FIRST_TAG + tag, what, flat)
    return devices.zeros((), input.dtype, like=input)


@primitive
def _recv(anchor, payload, shape, dtype, order, source, tag, back, world):
    """The array that came, on the device of the anchor."""
    out = devices.empty(shape, dtype, order, anchor)
    devices.assign(out.transpose(order).reshape(-1), payload.view(dtype))
    return out


def _sent(input, to, tag, back, world):
    return _send(input, to, tag, back, world, is_grad_enabled() and input.requires_grad)


def _received(anchor, source, tag, back, world):
    """What comes next, part of the tape if the sender wants its gradient."""
    what, payload = world.transport.take(source, FIRST_TAG + tag, deadline_after(world.timeout))
    dtype, wanted, shape, order = json.loads(what)
    anchor, lies = anchor if wanted else anchor.detach(), (tuple(shape), devices.element_type(dtype), tuple(order))
    return _recv(anchor, payload, *lies, source, tag, back, world)


# The gradient hangs on `out`, so that a backward through the gradient comes by here once more.
_send.grads(input=lambda out, to, tag, back, world: _received(out, to, back, tag, world))
_recv.grads(anchor=lambda g, source, tag, back, world: _sent(g, source, back, tag, world))


def send(input, to, tag=0, world=None):
    """Send a Tensor to a rank, which calls recv.

    to      a rank of the world
    tag     a number from 0 to 30; messages of one tag arrive in the order in which they were sent
    world   a Communicator; default that of parallel.init()

    It returns before the Tensor has arrived, of which a copy is sent.

    Math    out = 0
    Grads   dinput = what the recv on that rank got as its gradient, whatever g is
    Shapes  out ()
    """
    world, input = world_of("send", world), tensor_of("send", "input", input)
    _check("send", "to", to, tag, world)
    return _sent(input, to, tag, TAGS + tag, world)


def recv(source, tag=0, world=None, anchor=None, device=None):
    """The Tensor that a rank sent by send.

    source, tag     the rank that sends, and the tag that it names
    world           a Communicator; default that of parallel.init()
    anchor          a scalar Tensor on which the result is to depend, so that backward() goes on to what sent it
    device          where the result is to lie; default that of the anchor, else the CPU

    Grads   sent to `source`, if the Tensor required a gradient there; danchor = 0
    Shapes  out as sent
    """
    world = world_of("recv", world)
    _check("recv", "source", source, tag, world)
    if anchor is None:
        anchor = zeros((), device=device or "cpu", requires_grad=is_grad_enabled())
    if tensor_of("recv", "anchor", anchor).shape != () or not devices.is_floating(anchor.dtype):
        raise ShapeError(f"recv: anchor has shape {anchor.shape} of {anchor.dtype}, wanted a floating scalar")
    anchor = anchor if device is None else anchor.to(device)
    return _received(anchor, source, tag, TAGS + tag, world)


def _check(op, name, rank, tag, world):
    world.check_rank(op, name, rank)
    if rank == world.rank:
        raise ShapeError(f"{op}: {name} is {rank}, which is this rank itself; wanted another")
    if not 0 <= integer_of(op, "tag", tag) < TAGS:
        raise ShapeError(f"{op}: tag is {tag}, wanted one from 0 to {TAGS - 1}")


# ---- over all ranks --------------------------------------------------------------------------------------------------


@primitive
def _all_reduce(input, world, label):
    """The sum over ranks, in memory of its own."""
    out = devices.copy(floats_of("all_reduce", "input", input), devices.order_of(input))
    return world.all_reduce(out, label=label)


_all_reduce.grads(input=lambda g, world, label: _all_reduce(g, world, label))


def all_reduce(input, world=None, label=""):
    """The sum of the Tensors of all ranks, on each of them.

    world   a Communicator; default that of parallel.init()
    label   stands in errors

    The gradient is that of the losses of all ranks together, so all ranks must go backward through it.

    Math    out = x_0 + x_1 + ... + x_(n-1), pairwise under minigrad.deterministic(True)
    Grads   dinput = the sum over ranks of g
    Shapes  out as input, which must be the same on all ranks
    Types   floating
    """
    return _all_reduce(tensor_of("all_reduce", "input", input), world_of("all_reduce", world), label)
