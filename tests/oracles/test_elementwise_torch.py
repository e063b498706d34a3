"""Elementwise ops beside PyTorch where it matters most: kinks, ties, 0, infinities, NaN; value, first and second order.

What depends on what is compared too: a gradient that PyTorch can differentiate again must be differentiable here.
"""

import inspect
import itertools
import warnings

import ml_dtypes
import numpy as np
import pytest

from minigrad import Tensor, ops
from minigrad.core.tape import grad
from minigrad.ops.elementwise import activations, arithmetic

torch = pytest.importorskip("torch")

NAN, INF = float("nan"), float("inf")
FINITE = [0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 0.5, 3.0, 1e4, -1e4, 30.0, -30.0, 100.0, -100.0, 19.0, -20.0]
FINITE += [88.9, -88.9, 710.2, -710.2]  # where e^x overflows, but e^x / 2 does not
SPECIAL = [NAN, INF, -INF, *FINITE]
PAIRS = tuple(np.array(list(itertools.product(SPECIAL, SPECIAL))).T)
TRIPLES = tuple(np.array(list(itertools.product([NAN, INF, -INF, 0.0, 1.0, -1.0, 2.0], repeat=3))).T)
MASK = np.arange(64) % 3 == 0
WIDE = [np.tile(SPECIAL, 4)[:64]] * 2


class Torch:
    """torch's functions under the names of minigrad.ops."""

    def __getattr__(self, name):
        return getattr(torch.nn.functional, name, None) or getattr(torch, name)


def orders(function, sources, grad, ones, depth=2):
    """[[value], first derivatives, second ...] of a function by all its sources, and which of them have a history."""
    found, histories = [[function(*sources)]], []
    while True:
        live = [x for x in found[-1] if x is not None and x.requires_grad]
        histories.append([x is not None and x.requires_grad for x in found[-1]])
        if not live or len(found) > depth:
            return found, histories
        found.append(grad(live, sources, [ones(x) for x in live], create_graph=True, allow_unused=True))


def beside_torch(call, arrays, dtype, depth=2):
    """Compare call(ops, MASK) and call(torch, MASK), functions of Tensors, at these arrays."""
    arrays = [np.array(array, dtype) for array in arrays]
    ours, our_history = orders(
        call(ops, Tensor(MASK)),
        [Tensor(array, requires_grad=True) for array in arrays],
        grad,
        lambda x: Tensor(np.ones(x.shape, x.dtype)),
        depth,
    )
    theirs, their_history = orders(
        call(Torch(), torch.tensor(MASK)),
        [torch.tensor(array, requires_grad=True) for array in arrays],
        torch.autograd.grad,
        torch.ones_like,
        depth,
    )
    assert our_history == their_history
    precision = 1e-12 if dtype == np.float64 else 1e-5
    for order, (mine, wanted) in enumerate(zip(ours, theirs, strict=True)):
        for i, (a, b) in enumerate(zip(mine, wanted, strict=True)):
            if a is None or b is None:
                assert a is b is None
                continue
            a, b = a.detach().array, b.detach().numpy(force=True)
            np.testing.assert_allclose(a, b, precision, precision, err_msg=f"order {order}, argument {i}")


def wants(name):
    """How many arguments an op cannot do without."""
    parameters = inspect.signature(getattr(ops, name)).parameters.values()
    return sum(p.default is p.empty for p in parameters)


FAMILIES = (arithmetic, activations)
UNARY = [name for family in FAMILIES for name in family.__all__ if wants(name) == 1 and name != "to"]
POWERS = (0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, 2.0, 1.0, 0.0, -0.0, 2.5, NAN, INF)


def named(name):
    return lambda lib, mask: getattr(lib, name)


def power_to(exponent):
    return lambda lib, mask: lambda x: lib.pow(x, exponent)


def power_of(base):
    return lambda lib, mask: lambda x: lib.pow(base, x)


FUNCTIONS = {
    **{name: named(name) for name in UNARY},
    **{f"x ** {number}": power_to(number) for number in POWERS},
    **{f"{number} ** x": power_of(number) for number in POWERS},
    "gelu tanh": lambda lib, mask: lambda x: lib.gelu(x, approximate="tanh"),
    "elu 0.5": lambda lib, mask: lambda x: lib.elu(x, 0.5),
    "elu -1.5": lambda lib, mask: lambda x: lib.elu(x, -1.5),
    "leaky_relu 0": lambda lib, mask: lambda x: lib.leaky_relu(x, 0.0),
    "leaky_relu -1": lambda lib, mask: lambda x: lib.leaky_relu(x, -1.0),
    "softplus 2 3": lambda lib, mask: lambda x: lib.softplus(x, 2.0, 3.0),
    "clamp 0 1": lambda lib, mask: lambda x: lib.clamp(x, 0.0, 1.0),
    "clamp 1 -1": lambda lib, mask: lambda x: lib.clamp(x, 1.0, -1.0),
    "clamp 0 0": lambda lib, mask: lambda x: lib.clamp(x, 0, 0),
    "clamp NaN": lambda lib, mask: lambda x: lib.clamp(x, NAN, 1.0),
    "clamp inf": lambda lib, mask: lambda x: lib.clamp(x, -INF, INF),
    "clamp min": lambda lib, mask: lambda x: lib.clamp(x, 1.0),
    "clamp max": lambda lib, mask: lambda x: lib.clamp(x, max=-1.0),
    "2 + x": lambda lib, mask: lambda x: 2 + x,
    "2 - x": lambda lib, mask: lambda x: 2 - x,
    "2 * x": lambda lib, mask: lambda x: 2 * x,
    "2 / x": lambda lib, mask: lambda x: 2 / x,
    "x / 2": lambda lib, mask: lambda x: x / 2,
    "2 ** x": lambda lib, mask: lambda x: 2**x,
    "x * x": lambda lib, mask: lambda x: x * x,
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_at_special_points(name, dtype):
    # 64 elements, so that torch takes its vectors: its scalar loop gives elu another gradient at NaN. And of inf its
    # gelu makes NaN in float32 alone.
    points = FINITE if name == "gelu" and dtype == np.float32 else SPECIAL
    beside_torch(FUNCTIONS[name], [np.tile(points, 4)[:64]], dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", "add sub mul div maximum minimum remainder pow".split())
def test_pairs_of_special_points(name, dtype):
    beside_torch(lambda lib, mask: getattr(lib, name), PAIRS, dtype)


CHOICES = {
    "clamp": (lambda lib, mask: lib.clamp, TRIPLES),
    "clamp min": (lambda lib, mask: lib.clamp, PAIRS),
    "clamp max": (lambda lib, mask: lambda x, high: lib.clamp(x, max=high), PAIRS),
    "where": (lambda lib, mask: lambda x, y: lib.where(mask, x, y), WIDE),
    "where number": (lambda lib, mask: lambda x: lib.where(mask, x, 1.5), WIDE[:1]),
    "masked_fill": (lambda lib, mask: lambda x: lib.masked_fill(x, mask, INF), WIDE[:1]),
    "masked_fill 0-d": (lambda lib, mask: lambda x, y: lib.masked_fill(x, mask, y), [WIDE[0], NAN]),
    "div floor": (lambda lib, mask: lambda x, y: lib.div(x, y, rounding_mode="floor"), PAIRS),
    "div trunc": (lambda lib, mask: lambda x, y: lib.div(x, y, rounding_mode="trunc"), PAIRS),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CHOICES)
def test_choices_at_special_points(name, dtype):
    beside_torch(*CHOICES[name], dtype)


# ---- element types ---------------------------------------------------------------------------------------------------

TYPES = "bool uint8 int32 int64 float16 bfloat16 float32 float64".split()
OPERANDS = (*TYPES, True, 2, 1.5)
FLOATING = ("hardtanh", "relu", "relu6")  # which take integers in PyTorch
SINGLE = f"{' '.join(name for name in UNARY if name not in FLOATING)} isnan isfinite isinf logical_not bitwise_not"
BINARY = (
    "add sub mul div pow remainder maximum minimum eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and"
)


def operand(kind, shape, make):
    """A Tensor of small numbers without 0, or the number itself."""
    return typed(make, np.resize([2, 1, 3], shape), kind) if isinstance(kind, str) else kind


def typed(make, array, kind):
    """A Tensor of an element type; PyTorch takes no arrays of bfloat16."""
    return make(array.astype("float32")).bfloat16() if kind == "bfloat16" else make(array.astype(kind))


def kind(call, *arguments):
    """The element type of a result, None for a refusal."""
    try:
        return str(call(*arguments).dtype).removeprefix("torch.")
    except (TypeError, ValueError, RuntimeError):
        return None


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", SINGLE.split())
def test_types_of_functions(name, dtype):
    ours, theirs = (typed(make, np.array([0, 1, 2]), dtype) for make in (Tensor, torch.tensor))
    assert kind(getattr(ops, name), ours) == kind(getattr(Torch(), name), theirs)


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((3,), ()), ((), (3,)), ((), ())], ids=str)
@pytest.mark.parametrize("name", [*BINARY.split(), "floor", "trunc", "where"])
def test_types_of_pairs(name, shapes):
    """Each type with each, and with Python's numbers; what one refuses the other refuses."""
    calls = {
        "floor": lambda lib, x, y: lib.div(x, y, rounding_mode="floor"),
        "trunc": lambda lib, x, y: lib.div(x, y, rounding_mode="trunc"),
        "where": lambda lib, x, y: lib.where(x == 1, x, y),
    }
    call = calls.get(name, lambda lib, x, y: getattr(lib, name)(x, y))
    wants_tensors = name in ("maximum", "minimum") or name.startswith("logical")  # torch takes no numbers there
    for kinds in itertools.product(TYPES, TYPES if wants_tensors else OPERANDS):
        if name == "pow" and kinds == ("bool", True):
            continue  # a power that torch takes for a copy
        ours, theirs = (
            [operand(*one, make) for one in zip(kinds, shapes, strict=True)] for make in (Tensor, torch.tensor)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, wanted = kind(call, ops, *ours), kind(call, Torch(), *theirs)
        assert found == wanted, kinds


@pytest.mark.parametrize("half", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)], ids=str)
@pytest.mark.parametrize("name", ["sigmoid", "silu", "gelu", "gelu tanh", "softplus", "softplus 2 3"])
def test_half_precision_is_rounded_once(name, half):
    """Far out, where a step in 11 bits would leave nothing, values and gradients are those of float64, rounded."""
    points, eps = np.linspace(-11, 11, 89).astype(half), float(ml_dtypes.finfo(half).eps)
    found = []
    for dtype in (half, np.float64):
        x = Tensor(points.astype(dtype), requires_grad=True)
        out = FUNCTIONS[name](ops, MASK)(x)
        found.append((out.array, *(g.array for g in grad(out.sum(), x))))
    for short, exact, near in zip(*found, (1e-6, eps / 2), strict=True):  # sigmoid keeps its rounded result
        assert short.dtype == half
        np.testing.assert_allclose(short.astype(np.float64), exact, rtol=2 * eps, atol=near)
