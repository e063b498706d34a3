"""Every op on every row of its table, beside PyTorch: values and gradients."""

import numpy as np
import pytest

from minigrad import Tensor
from minigrad.core.tape import grad
from tests.op_cases import all_ops
from tests.test_ops import results, tensors, wrap

torch = pytest.importorskip("torch")

ROWS = [
    pytest.param(op, sample, id=f"{op.name}{sample}") for op in all_ops() for sample in op.samples if not sample.random
]
PRECISION = {np.float64: 1e-7, np.float32: 1e-5}


def wrap_torch(array, wants_gradient):
    return torch.tensor(array, requires_grad=wants_gradient)


def flat(values):
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += flat(value)
    return found


def close(ours, theirs, precision, what):
    ours, theirs = np.asarray(ours.detach() if isinstance(ours, Tensor) else ours), theirs.detach().numpy()
    assert ours.shape == theirs.shape, (what, ours.shape, theirs.shape)
    scale = max(1.0, float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0)) if theirs.dtype.kind == "f" else 1.0)
    np.testing.assert_allclose(ours, theirs, rtol=precision, atol=precision * scale, err_msg=what)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("op, sample", ROWS)
def test_like_pytorch(op, sample, dtype):
    args, kwargs = sample.draw(wrap, dtype)
    torch_args, torch_kwargs = sample.draw(wrap_torch, dtype)
    out = results(op, args, kwargs)
    theirs = flat([op.counterpart(torch)(*torch_args, **torch_kwargs)])
    assert len(out) == len(theirs)
    for x, t in zip(out, theirs, strict=True):
        close(x, t, PRECISION[dtype], "value")
    assert [str(x.dtype) for x in out] == [str(t.dtype).removeprefix("torch.") for t in theirs]
    live = [(x, t) for x, t in zip(out, theirs, strict=True) if x.requires_grad]
    assert [t.requires_grad for t in theirs] == [x.requires_grad for x in out]
    sources = [x for x in tensors(args, kwargs) if x.requires_grad]
    torch_sources = [t for t in flat([torch_args, list(torch_kwargs.values())]) if t.requires_grad]
    if not live:
        return
    weights = [np.random.default_rng(1).standard_normal(x.shape).astype(x.dtype) for x, _ in live]
    ours = grad([x for x, _ in live], sources, [Tensor(w) for w in weights], allow_unused=True)
    theirs = torch.autograd.grad(
        [t for _, t in live], torch_sources, [torch.tensor(w) for w in weights], allow_unused=True
    )
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if b is None or a is None:  # PyTorch gives zeros where a rule of ours has nothing to say, and the reverse
            present = a if b is None else b
            assert present is None or not np.asarray(present.detach()).any()
        else:
            close(a, b, PRECISION[dtype], f"gradient {i}")
