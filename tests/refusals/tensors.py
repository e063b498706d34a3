"""What Tensors refuse beside the ops: making, reading, backward, modes, devices, and what the host has no room for."""

from functools import partial

import numpy as np

import minigrad
from minigrad import Tensor, cuda, graph, nn
from minigrad.core.tape import write
from minigrad.nn import functional as F
from tests.device.stand_in_gpus import gpus
from tests.refusals import row

SETTING = partial(gpus, 2, capacity=1 << 22)
NAN, MILLION = float("nan"), 10**6
X, SCALAR, WHOLE = Tensor(np.ones((2, 3), np.float32)), Tensor(np.float32(1)), Tensor(np.array([0, 1]))


def leaf(*shape):
    return Tensor(np.ones(shape, np.float32), requires_grad=True)


# ---- making ----------------------------------------------------------------------------------------------------------

MADE = [
    row(TypeError, "dtype: got 'floaty', wanted an element type such as", minigrad.zeros, 2, dtype="floaty"),
    row(TypeError, "device is 'gpu', wanted 'cpu', 'cuda'", minigrad.rand, 2, device="gpu"),
    row(TypeError, "requires_grad is 'yes', wanted True or False", minigrad.randn, 2, requires_grad="yes"),
    row(TypeError, "generator is a int, wanted a Generator", minigrad.rand, 2, generator=3),
    row(TypeError, "zeros_like: input is a ndarray, wanted a Tensor; wrap it", minigrad.zeros_like, np.ones(2)),
    row(TypeError, "full: fill_value is 'a', wanted a number", minigrad.full, 2, "a"),
    row(ValueError, "arange: start, end, step are 0, 5, 0; wanted finite ones", minigrad.arange, 0, 5, 0),
    row(TypeError, "from_dlpack: source is a int, wanted an array of a library", minigrad.from_dlpack, 5),
    row(ValueError, "manual_seed: seed is -1, wanted an integer from 0", minigrad.manual_seed, -1),
    row(TypeError, "data is a masked array.*data.filled", Tensor, np.ma.masked_array([1.0, 2.0], [True, False])),
    row(TypeError, "element type is object, wanted bool", Tensor, np.array([1, None])),
    row(TypeError, "data is a ragged list, wanted rows of one length", Tensor, [[1], [1, 2]]),
    row(TypeError, "data is or holds None of type NoneType, wanted numbers", Tensor, [1.0, None]),
    row(TypeError, "data is a Tensor already; use it as it is", Tensor, X),
    row(RuntimeError, "was made by mul", nn.init.zeros_, 2 * leaf(2)),
    row(ValueError, r"kaiming_normal_: tensor has shape \(2,\), wanted", nn.init.kaiming_normal_, leaf(2)),
    row(ValueError, "mode is 'fan', wanted 'fan_in' or 'fan_out'", nn.init.kaiming_uniform_, X, mode="fan"),
    row(ValueError, "uniform_: a is 3.0 and b 2.0, wanted a <= b", nn.init.uniform_, X, 3, 2),
    row(ValueError, "normal_: std is -1, wanted at least 0", nn.init.normal_, X, 0, -1),
]

# ---- reading, the tape -----------------------------------------------------------------------------------------------


SEVERAL, INNER = r"self has shape \(2, 3\), wanted a single element", 2 * leaf(2)
LOSS = leaf(2).sum()
NUMPY = r"numpy: self requires a gradient, which NumPy would lose; call .detach\(\).numpy\(\)"
NONE = "the Tensor has no history and does not require a gradient; make what you differentiate by with requires_g"
READ = [
    row(ValueError, f"item: {SEVERAL}", X.item),
    row(TypeError, "len: self has no dimensions", len, SCALAR),
    row(RuntimeError, NUMPY, leaf(2).numpy),
    row(BufferError, r"dlpack: self requires a gradient, .*call .detach\(\)", np.from_dlpack, leaf(2)),
    row(TypeError, "to: got 'half', wanted an element type such as 'float32' or a device: 'cpu'", X.to, "half"),
    row(TypeError, "to: got 'CPU', wanted .* or a device: 'cpu', 'cuda', .* or 'interpreter'", X.to, "CPU"),
    row(TypeError, "to: got 'gpu', wanted .* or a device: 'cpu', 'cuda', ", nn.Linear(2, 3).to, "gpu"),
    row(RuntimeError, "requires_grad_: self is the result of an operation; use .detach", INNER.requires_grad_, False),
    row(RuntimeError, f"backward: {NONE}", SCALAR.backward),
    row(RuntimeError, r"an output of shape \(2,\) is no scalar; pass a .* or take .sum\(\) or", leaf(2).backward),
    row(ValueError, "gradient .*shape", LOSS.backward, Tensor(np.ones(2, np.float32))),
    row(RuntimeError, r"grad: inputs\[0\] does not require a gradient", minigrad.grad, LOSS, X),
    row(TypeError, "grad: an output is a float, wanted a Tensor", minigrad.grad, 1.0, leaf(2)),
    row(RuntimeError, "register_hook: .*the hook would never be called", X.register_hook, print),
    row(RuntimeError, "hook: wants a leaf that", INNER.register_post_accumulate_grad_hook, print),
    row(RuntimeError, "retain_grad: self does not require a gradient", X.retain_grad),
    row(RuntimeError, "write: the Tensor was made by mul; only leaves", write, INNER),
]

# ---- modes -----------------------------------------------------------------------------------------------------------


def entered(mode, *args, **options):
    with mode(*args, **options):
        return "a block that ran"


STEP = graph.capture(lambda *args, **options: X)
MODES = [
    row(TypeError, "deterministic: mode is .*, wanted True or False", entered, minigrad.deterministic, "on"),
    row(TypeError, "tf32: mode is .*, wants True or False", entered, minigrad.tf32, 2),
    row(TypeError, "capture: function is a int, wanted a function", graph.capture, 3),
    row(TypeError, r"arguments\[0\] requires a gradient; pass arguments\[0\].detach\(\)", STEP, leaf(2)),
    row(RuntimeError, "Tensor 1 of the arguments is on cpu, the graph on cuda:0", lambda: STEP(X.to("cuda"), X)),
]

# ---- devices: two GPUs of the stand-in, one of which is nearly full --------------------------------------------------


def x(place, *shape):
    return minigrad.ones(*shape, device=place)


def classes(place, *values):
    return Tensor(np.array(values)).to(place)


MIXED = {
    "add": lambda one, other: x(one, 2) + x(other, 2),
    "conv2d": lambda one, other: nn.Conv2d(3, 4, 3).to(other)(x(one, 1, 3, 5, 5)),
    "cat": lambda one, other: F.cat([x(one, 2), x(other, 2)]),
    "cross_entropy": lambda one, other: F.cross_entropy(x(one, 2, 3), classes(other, 0, 1)),
    "embedding": lambda one, other: F.embedding(classes(one, 0, 1), x(other, 3, 2)),
}
PLACES = ("cuda:0", "cpu"), ("cpu", "cuda:0"), ("cuda:0", "cuda:1")


def found_later(look):
    """A wrong label on a GPU is found when somebody looks at the loss."""
    return look(F.cross_entropy(minigrad.zeros(3, 3, device="cuda"), classes("cuda", 0, 7, 1)))


LATER = r"cross_entropy: target\[1\] = 7 is not the number of a class; its loss and gradient are NaN \(found when"
FULL = "cuda:0 is out of memory: wanted .* bytes, but .* are free.*use a smaller batch"
DEVICES = [
    *(
        row(RuntimeError, rf"(?=.*{one})(?=.*{other}).*(wanted one device|move)", call, one, other)
        for call in MIXED.values()
        for one, other in PLACES
    ),
    *(row(ValueError, LATER, found_later, look) for look in (Tensor.item, Tensor.numpy, Tensor.cpu, repr)),
    row(IndexError, "embedding: the indices run", lambda: F.embedding(classes("cuda", 5), x("cuda", 3, 2)).tolist()),
    row(MemoryError, FULL, lambda: x("cuda", 10**7)),
    row(RuntimeError, "device is 'cuda:2', but the GPUs .*: 'cuda:0', 'cuda:1'", lambda: x("cuda:2", 2)),
    row(TypeError, "stream", lambda: cuda.stream(3).__enter__()),
]

# ---- what the host has no room for -----------------------------------------------------------------------------------

WORDS = r": the host is out of memory: wanted [\d,]+ bytes, but [\d,]+ are free; use a smaller shape or batch"


def wide(*shape):
    """A Tensor of this shape in the memory of one element."""
    return Tensor(np.broadcast_to(np.zeros((), np.float32), shape))


def without_room(function, *args, **options):
    """The call itself; its arguments are larger than what may be looked at."""
    return row(MemoryError, WORDS, lambda: function(*args, **options))


MEMORY = [
    without_room(minigrad.zeros, MILLION, MILLION),
    without_room(F.matmul, wide(MILLION, 1), wide(1, MILLION)),
    without_room(F.conv2d, wide(1, 1, 4, 4), wide(1, 1, 1, 1), padding=MILLION),
]

REFUSALS = [*MADE, *READ, *MODES, *DEVICES, *MEMORY]
