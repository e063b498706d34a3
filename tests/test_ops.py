"""Every op on every row of its table: gradients, types, layouts, and what must stay as it was."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, device, gradcheck, gradgradcheck, ops
from minigrad.core.errors import MinigradError
from minigrad.core.modes import no_grad
from minigrad.core.tape import grad
from tests.op_cases import Draw, all_ops

OPS = all_ops()
ROWS = [pytest.param(op, sample, id=f"{op.name}{sample}") for op in OPS for sample in op.samples]


def wrap(array, wants_gradient):
    return Tensor(array, requires_grad=wants_gradient)


def tensors(*values):
    """All Tensors in nested arguments."""
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += tensors(*value)
        elif isinstance(value, dict):
            found += tensors(*value.values())
    return found


def results(op, args, kwargs):
    """The Tensors that an op returns; random ops start from one seed."""
    minigrad.manual_seed(0)
    out = getattr(ops, op.name)(*args, **kwargs)
    return list(out) if isinstance(out, tuple) else [out]


def floating(tensors):
    return [x for x in tensors if device.is_floating(x.dtype)]


def as_function(op, sample):
    """The sample's op as a function of its Tensors alone, and these Tensors."""
    drawn = sample.draw(wrap)
    sources = tensors(*drawn)

    def function(*values):
        queue = list(values)

        def replaced(value):
            if isinstance(value, Tensor):
                return queue.pop(0)
            return [replaced(one) for one in value] if isinstance(value, list) else value

        args = [replaced(value) for value in drawn[0]]
        return results(op, args, {key: replaced(value) for key, value in drawn[1].items()})

    return function, sources


@pytest.mark.parametrize("op, sample", ROWS)
def test_row(op, sample):
    """All checks of a row; the function that fails names what does not hold."""
    types_are_kept_and_inputs_unchanged(op, sample)
    memory_is_shared_only_by_views(op, sample)
    no_grad_records_nothing(op, sample)
    if not sample.random:
        layout_of_inputs_does_not_matter(op, sample)
    if op.differentiable:
        fast_gradients_equal_the_definition(op, sample)
        if sample.smooth:
            gradcheck(*as_function(op, sample))
            gradgradcheck(*as_function(op, sample))
    for position in op.linear:
        if isinstance(sample.args[position], Draw | list):
            adjoint_identity(op, sample, position)


def fast_gradients_equal_the_definition(op, sample):
    """Where an op has fast gradients, create_graph switches between them and the rules."""
    found = []
    for create_graph in (False, True):
        args, kwargs = sample.draw(wrap)
        sources = [x for x in tensors(args, kwargs) if x.requires_grad]
        outputs = [x for x in floating(results(op, args, kwargs)) if x.requires_grad]
        weights = [Tensor(np.random.default_rng(1).standard_normal(x.shape)) for x in outputs]
        found.append(grad(outputs, sources, weights, create_graph=create_graph, allow_unused=True))
    for fast, defined in zip(*found, strict=True):
        assert (fast is None) == (defined is None)
        if fast is not None:
            np.testing.assert_allclose(fast.array, defined.array, rtol=1e-12, atol=1e-12)


def types_are_kept_and_inputs_unchanged(op, sample):
    for dtype in (np.float32, np.float64):
        args, kwargs = sample.draw(wrap, dtype)
        sources = tensors(args, kwargs)
        before = [x.array.copy() for x in sources]
        for x in sources:
            x.array.flags.writeable = False
        out = results(op, args, kwargs)
        if op.differentiable and floating(sources) and op.name != "to" and "dtype" not in sample.kwargs:
            assert all(x.dtype == dtype for x in out if x.dtype.kind == "f")
        for x in out:
            assert type(x.array) is np.ndarray
            if x.requires_grad:
                x.backward(Tensor(np.ones(x.shape, x.dtype)), retain_graph=True)
        for x, old in zip(sources, before, strict=True):
            np.testing.assert_array_equal(x.array, old)
            assert x.grad is None or (x.grad.dtype == x.dtype and x.grad.shape == x.shape)


def memory_is_shared_only_by_views(op, sample):
    args, kwargs = sample.draw(wrap)
    for x in results(op, args, kwargs):
        for source in tensors(args, kwargs):
            if x is not source and np.shares_memory(x.array, source.array):
                assert op.views and x.version is source.version


def strided(array):
    """The same elements with gaps, backwards along the last axis, and with the axes the other way round in memory."""
    if not array.ndim:
        return array
    wide = np.zeros([2 * n for n in reversed(array.shape)], array.dtype).T
    view = wide[(*(slice(None, None, 2) for _ in array.shape[1:]), slice(None, None, -2))]
    view[...] = array
    return view


def layout_of_inputs_does_not_matter(op, sample):
    found = []
    for layout in (lambda array: array, strided):
        args, kwargs = sample.draw(lambda array, wants: Tensor(layout(array), requires_grad=wants))  # noqa: B023
        sources = [x for x in tensors(args, kwargs) if x.requires_grad]
        out = results(op, args, kwargs)
        live = [x for x in out if x.requires_grad]
        weights = [Tensor(np.random.default_rng(1).standard_normal(x.shape)) for x in live]
        gradients = grad(live, sources, weights, allow_unused=True) if live else []
        found.append([*out, *(g for g in gradients if g is not None)])
    for plain, other in zip(*found, strict=True):
        np.testing.assert_allclose(plain.array, other.array, rtol=1e-12, atol=1e-12)


def no_grad_records_nothing(op, sample):
    args, kwargs = sample.draw(wrap)
    with no_grad():
        out = results(op, args, kwargs)
    assert all(x.node is None for x in out if not any(x is source for source in tensors(args, kwargs)))


def adjoint_identity(op, sample, position):
    """<A x, y> = <x, A^T y>, where A x = f(x) - f(0) for an op f that is linear in an argument but for a constant."""
    args, kwargs = sample.draw(wrap)
    sources = tensors(args[position])
    (out,) = results(op, args, kwargs)
    y = np.random.default_rng(2).standard_normal(out.shape)
    adjoints = grad(out, sources, Tensor(y))
    zeros = [Tensor(np.zeros(x.shape)) for x in sources]
    args[position] = zeros if isinstance(args[position], list) else zeros[0]
    (constant,) = results(op, args, kwargs)
    left = ((out.array - constant.array) * y).sum()
    right = sum((x.array * adjoint.array).sum() for x, adjoint in zip(sources, adjoints, strict=True))
    np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-11)


ARGUMENTS = [
    (op, position) for op in OPS for position, value in enumerate(op.samples[0].args) if isinstance(value, Draw)
]


@pytest.mark.parametrize("op, position", [pytest.param(*row, id=f"{row[0]}-{row[1]}") for row in ARGUMENTS])
def test_what_is_no_tensor_is_refused(op, position):
    for wrong in ("text", object()):
        args, kwargs = op.samples[0].draw(wrap)
        args[position] = wrong
        with pytest.raises(MinigradError, match=f"^{op.name}: ") as caught:
            results(op, args, kwargs)
        assert isinstance(caught.value, TypeError)


TWICE = ["add", "sub", "mul", "div", "maximum", "minimum", "pow", "matmul"]


@pytest.mark.parametrize("name", TWICE)
def test_same_tensor_twice(name):
    """x op x: arguments are told apart by position, not by identity."""
    x = Tensor(np.random.default_rng(0).random((3, 3)) + 0.5, requires_grad=True)
    function = lambda x: getattr(ops, name)(x, x)
    if name not in ("maximum", "minimum"):
        gradcheck(function, [x])
        gradgradcheck(function, [x])
    y = Tensor(x.array.copy(), requires_grad=True)
    twice = grad(ops.sum(function(x)), x)[0]
    apart = grad(ops.sum(getattr(ops, name)(x, y)), [x, y])
    np.testing.assert_allclose(twice.array, apart[0].array + apart[1].array, rtol=1e-12)


def test_every_public_op_has_its_row():
    rows, named = {op.name for op in OPS}, set(ops.__all__)
    assert not named - rows, f"ops without a row in tests/op_cases: {named - rows}"
    assert not rows - named, f"rows of ops that no __all__ names: {rows - named}"


def test_enough_is_refused():
    missing = [op.name for op in OPS if not op.refusals and op.name not in ("isnan", "isfinite", "logical_not")]
    assert not missing, missing
