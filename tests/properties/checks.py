"""The check of one drawn call: value, gradient, types, inputs unchanged, and the same words for what is refused."""

from dataclasses import replace

import numpy as np
from hypothesis import note

import minigrad
from minigrad import Tensor, device, ops
from minigrad.core.errors import KindError, MinigradError, ShapeError, StateError, SubscriptError
from minigrad.core.tape import grad

from .draws import FLOATS, Draws, Value, laid

__all__ = ["check"]

DOCUMENTED = ShapeError, KindError, SubscriptError, StateError
STEP = 1e-6
STRANGE = (None, "b", -1, 0, 7, 10**30, 1.5, float("nan"), (), (0, 0), (9,), (1, -1), [[1], [2, 3]], object())
EPS = {name: float(np.finfo(dtype).eps) for name, dtype in FLOATS.items() if name != "bfloat16"} | {"bfloat16": 2.0**-7}


def check(rule, draw):
    """Draw a call and check it; AssertionError, or another error than a documented one, says what is wrong."""
    draws = Draws(draw)
    drawn, kind = rule.draw(draws), draws.choice(*rule.floats)
    if draws.chance(12):
        return _strange(rule, draws, drawn, kind)
    repeated = []

    def place(value):
        """The array of a Value in the type of the call, somewhere in memory."""
        array = value.array.astype(FLOATS[kind]) if value.floating else value.array
        layout = draws.choice(*rule.layouts)
        if layout == "repeated" and value.array.ndim:
            repeated.append(value)
        return laid(array, "plain" if layout == "swapped bytes" and kind == "bfloat16" else layout)

    placed = _mapped((drawn.args, drawn.kwargs), lambda value: replace(value, array=place(value)))
    note(f"{rule.name} in {kind}: {_mapped(placed, _said)}")
    args, kwargs = _mapped(placed, lambda value: Tensor(value.array, requires_grad=value.floating and value.grad))
    exact_args, exact_kwargs = _mapped(placed, lambda value: _exact(value.array, rule.out == "float"))
    leaves, places = _leaves((args, kwargs)), _leaves((exact_args, exact_kwargs))
    before = [np.array(x.array) for x in leaves]
    minigrad.manual_seed(0)
    results = _listed(getattr(ops, rule.name)(*args, **kwargs))
    with np.errstate(all="ignore"):
        wanted = _listed(rule.reference(*exact_args, **exact_kwargs))
    _compare(rule, kind, drawn, results, wanted, leaves)
    if drawn.smooth and (rule.repeats or not repeated):
        _gradients(rule, kind, (exact_args, exact_kwargs), results, leaves, places)
    for x, old in zip(leaves, before, strict=True):
        assert np.array(x.array).tobytes() == old.tobytes(), "an input was changed"


def _compare(rule, kind, drawn, results, wanted, leaves):
    assert len(results) == len(wanted), f"{len(results)} results, wanted {len(wanted)}"
    for x, right in zip(results, wanted, strict=True):
        right = np.asarray(right)
        assert x.shape == right.shape, f"shape {x.shape}, wanted {right.shape}"
        if right.dtype.kind == "f" and device.is_floating(x.dtype):
            assert str(x.dtype) == _type_of(rule, kind, leaves), f"elements {x.dtype}"
            half = device.is_half(x.dtype)  # worked out in float32 and rounded once
            _close(x.array, right, EPS[str(x.dtype)], min(rule.bound, 2) if half else rule.bound)
        else:
            if rule.out in ("same", "float", "sum"):
                whole = leaves[0].dtype if rule.out == "same" else np.int64
                assert x.dtype in (whole, np.int64, np.bool_), f"elements {x.dtype}"
            else:
                assert x.dtype == rule.out, f"elements {x.dtype}, wanted {rule.out}"
            np.testing.assert_array_equal(x.array, right)


def _type_of(rule, kind, leaves):
    """The name of the type of a floating result."""
    return kind if any(device.is_floating(x.dtype) for x in leaves) else "float32"


def _close(found, right, eps, bound):
    """The largest error is so many roundings of the largest element; NaN and infinities stand where they should."""
    found = np.asarray(found, np.float64)
    finite = np.isfinite(right)
    scale = max(1.0, np.abs(right[finite]).max(initial=0))
    np.testing.assert_allclose(found, right, rtol=0, atol=bound * eps * scale)


def _gradients(rule, kind, exact, results, leaves, places):
    """Along one direction in all inputs at once, beside central differences of the reference in float64."""
    live = [i for i, x in enumerate(results) if x.requires_grad]
    moved = [i for i, x in enumerate(leaves) if x.requires_grad]
    if not live:
        return
    rng = np.random.default_rng(1)
    weights = {i: rng.standard_normal(results[i].shape) for i in live}
    steps = {i: rng.standard_normal(leaves[i].shape) for i in moved}
    typed = [Tensor(weights[i].astype(results[i].dtype)) for i in live]
    found = grad([results[i] for i in live], [leaves[i] for i in moved], typed, allow_unused=True)
    analytic = size = 0.0
    for i, gradient in zip(moved, found, strict=True):
        if gradient is not None:
            assert gradient.shape == leaves[i].shape and gradient.dtype == leaves[i].dtype
            products = np.asarray(gradient.array, np.float64) * steps[i]
            analytic, size = analytic + products.sum(), size + np.abs(products).sum()

    def at(sign):
        queue = [place + sign * STEP * steps[i] if i in steps else place for i, place in enumerate(places)]
        args, kwargs = _refilled(exact, queue)
        with np.errstate(all="ignore"):
            outputs = _listed(rule.reference(*args, **kwargs))
        return sum(float((np.asarray(outputs[i]) * weights[i]).sum()) for i in live)

    numeric = (at(1) - at(-1)) / (2 * STEP)
    allowed = 1e-6 * (1 + size + abs(numeric)) + 2 * rule.bound * EPS[kind] * (1 + size)
    assert abs(analytic - numeric) <= allowed, f"the gradient gives {analytic}, differences give {numeric}"


def _strange(rule, draws, drawn, kind):
    """One argument is replaced by something else: a result, or a documented error in the words of the op."""
    args = [*drawn.args, *drawn.kwargs.values()]
    at = draws.integer(0, len(args) - 1)
    args[at] = draws.choice(
        *STRANGE,
        draws.real(draws.shape()),
        draws.whole(draws.shape(), -2, 9),
        draws.flags(draws.shape()),
    )
    note(f"{rule.name} in {kind}: {_mapped(args, _said)}")
    args = _mapped(args, lambda value: Tensor(value.array.astype(FLOATS[kind]) if value.floating else value.array))
    names, count = list(drawn.kwargs), len(drawn.args)
    try:
        with np.errstate(all="ignore"):
            out = getattr(ops, rule.name)(*args[:count], **dict(zip(names, args[count:], strict=True)))
    except MinigradError as error:
        assert isinstance(error, DOCUMENTED) and ": " in str(error), repr(error)
    else:
        assert all(isinstance(x, Tensor) for x in _listed(out))


# ---- nested arguments ------------------------------------------------------------------------------------------------


def _mapped(value, function):
    """The arguments with a function applied to each Value."""
    if isinstance(value, Value):
        return function(value)
    if isinstance(value, list | tuple):
        return type(value)(_mapped(one, function) for one in value)
    if isinstance(value, dict):
        return {key: _mapped(one, function) for key, one in value.items()}
    return value


def _leaves(value):
    """The Tensors, or arrays, in arguments."""
    if isinstance(value, Tensor | np.ndarray):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for one in value for leaf in _leaves(one)] if isinstance(value, list | tuple) else []


def _refilled(value, queue):
    """The arguments with the next of the queue in place of each array."""
    if isinstance(value, np.ndarray):
        return queue.pop(0)
    if isinstance(value, list | tuple):
        return type(value)(_refilled(one, queue) for one in value)
    if isinstance(value, dict):
        return {key: _refilled(one, queue) for key, one in value.items()}
    return value


def _exact(array, widened):
    """As the reference takes it: native, floating elements in float64, others too if they are widened."""
    wide = widened or device.is_floating(array.dtype)
    return np.array(array, np.float64 if wide else array.dtype.newbyteorder("="))


def _listed(result):
    return list(result) if isinstance(result, tuple | list) else [result]


def _said(value):
    array = value.array
    return f"{array.dtype}{list(array.shape)} strides {array.strides}"
