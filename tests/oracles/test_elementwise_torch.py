"""Ops beside PyTorch where it matters most: kinks, ties, 0, infinities, NaN; value, first and second derivatives.

What depends on what is compared too: a gradient that PyTorch can differentiate again must be differentiable here.
"""

import inspect
import itertools
from functools import partial

import numpy as np
import pytest

from minigrad import Tensor, ops
from minigrad.core.tape import grad
from minigrad.ops.elementwise import activations, arithmetic
from tests.oracles.beside_torch import numbers, torch


class Torch:
    """torch's functions under the names of minigrad.ops."""

    def __getattr__(self, name):
        return getattr(torch.nn.functional, name, None) or getattr(torch, name)


THEIRS = Torch()


def orders(call, lib, make, grad, arrays, depth, dtype):
    """[[value], first derivatives, second ...] of call(lib, *Tensors) by all the Tensors, of these arrays."""
    sources = [make(np.array(array, dtype), requires_grad=True) for array in arrays]
    found = [[call(lib, *sources)]]
    while len(found) <= depth and (live := [x for x in found[-1] if x is not None and x.requires_grad]):
        ones = [make(np.ones(tuple(x.shape), dtype)) for x in live]
        found.append(grad(live, sources, ones, create_graph=True, allow_unused=True))
    return found


def named(name, *args, **options):
    return lambda lib, *x: getattr(lib, name)(*x, *args, **options)


# ---- elementwise -----------------------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")
FINITE = [0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 0.5, 3.0, 1e4, -1e4, 30.0, -30.0, 100.0, -100.0, 19.0, -20.0]
FINITE += [88.9, -88.9, 710.2, -710.2]  # where e^x overflows, but e^x / 2 does not
SPECIAL = [NAN, INF, -INF, *FINITE]
MANY = np.tile(SPECIAL, 4)[:64]  # so many that torch takes its vectors: its scalar loop gives elu another gradient
PAIRS = np.array(list(itertools.product(SPECIAL, SPECIAL))).T
MASK = np.arange(64) % 3 == 0


def unary():
    """The names of the functions that need one argument alone."""
    for name in (*arithmetic.__all__, *activations.__all__):
        parameters = inspect.signature(getattr(ops, name)).parameters.values()
        if sum(p.default is p.empty for p in parameters) == 1 and name != "to":
            yield name


FUNCTIONS = {
    **{name: named(name) for name in unary()},
    **{f"x ** {number}": named("pow", number) for number in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, 2.5, NAN, INF)},
    **{f"{number} ** x": lambda lib, x, number=number: lib.pow(number, x) for number in (0, 1, 2, -1, 0.5, INF)},
    "gelu tanh": named("gelu", approximate="tanh"),
    "leaky_relu 0": named("leaky_relu", 0.0),
    "softplus 2 3": named("softplus", 2.0, 3.0),
    "clamp 0 1": named("clamp", 0.0, 1.0),
    "clamp 1 -1": named("clamp", 1.0, -1.0),
    "clamp NaN": named("clamp", NAN, 1.0),
    "where": lambda lib, x: lib.where(Tensor(MASK) if lib is ops else torch.tensor(MASK), x, 1.5),
    "2 - x": lambda lib, x: 2 - x,
    "2 / x": lambda lib, x: 2 / x,
}
BINARY = "add sub mul div maximum minimum remainder pow clamp".split()

# ---- reductions and losses -------------------------------------------------------------------------------------------

POINTS = ([0.0, 0.0], [3.0, -4.0], [0.0, 2.0, 0.0], [2.0, -2.0, 1.0], [NAN, 1.0, 2.0], [INF, 1.0], [-INF, -INF])
REDUCTIONS = {
    **{name: named(name, 0) for name in ("amax", "amin", "cumsum", "logsumexp", "mean", "prod", "cumprod")},
    **{name: named(name) for name in ("max", "min")},
    **{f"{name} {n}": named(name, correction=n) for name in ("var", "std") for n in (0, 1)},
    **{f"norm {p}": named("norm", p) for p in (1, 1.5, 2, 3, INF)},
}

ERRORS = [-2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 1e30, -1e30, INF, -INF, NAN]
LOGITS = [0.0, -0.0, 30.0, -30.0, 200.0, -200.0, 1e4, -1e4]
SHARES = [0.0, 0.0, 1.0, 1.0, 1e-20, 1e-20, 1 - 2**-24, 1 - 2**-24, 0.3]
SCORES = [[0.0, -INF, 1.0], [1e4, 0.0, -1e4], [INF, 0.0, 0.0], [NAN, 0.0, 0.0], [3e38, -3e38, 0.0]]
TARGET = np.array([0, 1, 0, 2, -100])
ZEROS, HARD = np.zeros(13), [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.9]


def of_classes(lib, x, smooth):
    target = (Tensor if lib is ops else torch.tensor)(TARGET)
    return lib.cross_entropy(x, target, reduction="none", label_smoothing=smooth)


LOSSES = {  # the function of both libraries, and its Tensors
    **{name: (named(name, reduction="none"), ERRORS, ZEROS) for name in ("mse_loss", "l1_loss")},
    "smooth_l1_loss": (named("smooth_l1_loss", beta=0.5, reduction="none"), ERRORS, ZEROS),
    "huber_loss": (named("huber_loss", delta=0.5, reduction="none"), ERRORS, ZEROS),
    "binary_cross_entropy": (named("binary_cross_entropy", reduction="none"), SHARES, HARD),
    "logits": (named("binary_cross_entropy_with_logits", reduction="none"), LOGITS, [0.0, 1.0, 0.5, 0.0] * 2),
    "kl_div": (named("kl_div", reduction="none"), [0.0, -1.0, 1.0, -INF, 0.5], [0.0, 1.0, 0.5, 0.0, 2.0]),
    "softmax": (named("softmax", 1), SCORES),
    "log_softmax": (named("log_softmax", 1), SCORES),
    "cross_entropy": (partial(of_classes, smooth=0.0), SCORES),
    "cross_entropy smooth": (partial(of_classes, smooth=0.1), SCORES),
}


def rows():
    """(call, places where it is looked at, order of the highest derivative, element type)."""
    for name, call in FUNCTIONS.items():
        yield pytest.param(call, [[MANY]], 2, np.float64, id=name)
    for name in BINARY:
        yield pytest.param(named(name), [PAIRS], 2, np.float64, id=f"{name} of pairs")
    for name, call in REDUCTIONS.items():
        depth = 1 if name.startswith("norm") else 2  # twice PyTorch's may be NaN at 0
        # Of products PyTorch divides the result by NaN or infinity; the gradient of an infinite variance is NaN here.
        finite = name.split()[0] in ("prod", "cumprod", "var")
        places = [[point] for point in POINTS if not finite or np.isfinite(point).all()]
        yield pytest.param(call, places, depth, np.float64, id=name)
    for name, (call, *arrays) in LOSSES.items():
        yield pytest.param(call, [arrays], 1, np.float32, id=name)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, about degrees of freedom
@pytest.mark.parametrize("call, places, depth, dtype", [*rows()])
def test_at_special_points(call, places, depth, dtype):
    precision = 1e-12 if dtype == np.float64 else 1e-5
    for arrays in places:
        ours = orders(call, ops, Tensor, grad, arrays, depth, dtype)
        theirs = orders(call, THEIRS, torch.tensor, torch.autograd.grad, arrays, depth, dtype)
        for wanted in theirs[len(ours) :]:  # a derivative of what does not change may be none here, and zeros there
            assert not any(numbers(b).any() for b in wanted)
        for order, (mine, wanted) in enumerate(zip(ours, theirs, strict=False)):
            for i, (a, b) in enumerate(zip(mine, wanted, strict=True)):
                if a is None or b is None:
                    assert a is b is None
                else:
                    what = f"order {order}, argument {i}"
                    np.testing.assert_allclose(numbers(a), numbers(b), precision, precision, err_msg=what)


# ---- element types ---------------------------------------------------------------------------------------------------

TYPES = "bool uint8 int32 int64 float16 float32 float64".split()
OF_TYPES = "add sub mul div pow remainder maximum minimum eq lt logical_and bitwise_and".split()


def kind(call, make, arguments):
    """The element type of a result, None for a refusal."""
    arguments = [make(one) if isinstance(one, np.ndarray) else one for one in arguments]
    try:
        return str(call(*arguments).dtype).removeprefix("torch.")
    except (TypeError, ValueError, RuntimeError):
        return None


@pytest.mark.deep
@pytest.mark.parametrize("name", OF_TYPES)
def test_types_of_pairs(name):
    """Each type with each, and with Python's numbers; what one refuses the other refuses."""
    first = [np.resize([2, 1, 3], shape).astype(one) for one in TYPES for shape in ((3,), ())]
    wants_tensors = name in ("maximum", "minimum", "logical_and")  # torch takes no numbers there
    for pair in itertools.product(first, first if wants_tensors else (*first, 2, 1.5)):
        assert kind(getattr(ops, name), Tensor, pair) == kind(getattr(THEIRS, name), torch.tensor, pair), pair
