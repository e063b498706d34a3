"""Every op on every row of its table beside PyTorch's function of the same name: values, types, gradients."""

import numpy as np
import pytest

from tests.ops.test_ops import FIRST, gradients, leaves, results, tensors, weights, wrap
from tests.oracles.beside_torch import close, numbers, torch

F = torch.nn.functional


def _parts(key):
    return key if isinstance(key, tuple) else (key,)


def _comparable(sample):
    """PyTorch draws other numbers, and its slices do not go backwards."""
    slices = [part for key in sample.args for part in _parts(key) if isinstance(part, slice)]
    return not sample.random and all((part.step or 1) > 0 for part in slices)


ROWS = [row for row in FIRST if _comparable(row.values[1])]
TYPES = ("float64", "float32", "int64", "bool")


def wrap_torch(array, wants_gradient):
    return torch.tensor(array, requires_grad=wants_gradient)


# ---- where PyTorch's function is called in another way ---------------------------------------------------------------


def getitem(x, key):
    """Lists and arrays are Tensors of int64 or of bools."""
    parts = [torch.as_tensor(np.asarray(p)) if isinstance(p, list | np.ndarray) else p for p in _parts(key)]
    whole = lambda part: isinstance(part, torch.Tensor) and part.dtype != torch.bool
    return x[tuple(part.long() if whole(part) else part for part in parts)]


def group_norm(x, groups, weight=None, bias=None, eps=1e-5):
    """PyTorch's stumbles over a bias without a weight."""
    return F.group_norm(x, groups, torch.ones_like(bias) if weight is None and bias is not None else weight, bias, eps)


def extreme(name):
    """PyTorch takes no numbers."""
    return lambda x, y: getattr(torch, name)(x, torch.as_tensor(y, dtype=getattr(y, "dtype", x.dtype)))


EXCEPTIONS = {
    "getitem": getitem,
    "group_norm": group_norm,
    "conv2d_input_grad": lambda g, weight, shape, **options: torch.nn.grad.conv2d_input(shape, weight, g, **options),
    "conv2d_weight_grad": lambda g, x, shape, **options: torch.nn.grad.conv2d_weight(x, shape, g, **options),
    "maximum": extreme("maximum"),
    "minimum": extreme("minimum"),
}


def theirs_of(op, args, kwargs):
    """The Tensors that PyTorch's function returns."""
    homes = (F, torch, torch.Tensor)
    function = EXCEPTIONS.get(op.name) or next(getattr(one, op.name) for one in homes if hasattr(one, op.name))
    typed = lambda value: getattr(torch, value) if isinstance(value, str) and value in TYPES else value
    if isinstance(args[0], int | float) and op.name != "einsum":  # the first is a Tensor there
        args = [torch.tensor(args[0]), *args[1:]]
    options = {key: typed(value) for key, value in kwargs.items() if key != "inplace"}
    return leaves(torch.Tensor, [function(*map(typed, args), **options)])


# ---- the comparison --------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("op, sample", ROWS)
def test_like_pytorch(op, sample):
    drawn = sample.draw(wrap_torch)
    args, kwargs = sample.draw(wrap)
    ours, theirs = results(op, args, kwargs), theirs_of(op, *drawn)
    for x, t in zip(ours, theirs, strict=True):
        close(x, t, what="value")
        assert (str(x.dtype), x.requires_grad) == (str(t.dtype).removeprefix("torch."), t.requires_grad)
    live = [(x, t) for x, t in zip(ours, theirs, strict=True) if x.requires_grad]
    if live:
        found = gradients(ours, [x for x in tensors(args, kwargs) if x.requires_grad])
        given = [torch.tensor(weight.array) for weight in weights([x for x, _ in live])]
        sources = [t for t in leaves(torch.Tensor, *drawn) if t.requires_grad]
        wanted = torch.autograd.grad([t for _, t in live], sources, given, allow_unused=True)
        for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
            if a is None or b is None:  # PyTorch gives zeros where a rule of ours has nothing to say, and the reverse
                assert a is b or not numbers(a if b is None else b).any()
            else:
                close(a, b, what=f"gradient {i}")
