"""Are the gradients right? Comparison with finite differences.

For a direction u and a cotangent v, the derivative of <v, f(x + t u)> at t = 0 is <J^T v, u>, where J^T v is what
backward computes. The left side is taken by central differences,

    (f(x + e u) - f(x - e u)) / (2 e) = f' + O(e^2 f''') + O(eps f / e)

which float64 and e = 1e-6 bring to about ten digits.

Source  Baydin and others 2018, "Automatic differentiation in machine learning: a survey", section 2.1
"""

import numpy as np

from minigrad_kernels.errors import KindError, StateError

from .. import device
from .modes import enable_grad, no_grad
from .tape import grad
from .tensor import Tensor

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(StateError):
    """A gradient that differs from the finite difference."""


def _listed(op, inputs):
    """A Tensor, or Tensors and other arguments, as a list."""
    if not isinstance(inputs, Tensor | list | tuple):
        raise KindError(f"{op}: inputs is a {type(inputs).__name__}, wanted a Tensor or a list of arguments")
    return [inputs] if isinstance(inputs, Tensor) else list(inputs)


def _outputs(function, inputs):
    """The floating outputs of a function, as a list."""
    result = function(*inputs)
    results = result if isinstance(result, tuple | list) else [result]
    for one in results:
        if not isinstance(one, Tensor):
            raise StateError(f"gradcheck: the function returned a {type(one).__name__}, wanted Tensors")
    floating = [one for one in results if device.is_floating(one.dtype)]
    if not floating:
        raise StateError("gradcheck: the function returned no floating Tensor, so there is nothing to check")
    return floating


def _moved(inputs, index, step):
    """The inputs as constants, one of them moved by a step."""
    return [
        Tensor(device.move(device.host(x.array) + step, x.device) if i == index else x.array)
        if isinstance(x, Tensor)
        else x
        for i, x in enumerate(inputs)
    ]


def _inner(first, second):
    return sum(float((a * b).sum()) for a, b in zip(first, second, strict=True))


def gradcheck(function, inputs, eps=1e-6, atol=1e-5, rtol=1e-3, directions=2, seed=0):
    """Compare the gradients of function(*inputs) with central differences along random directions.

    inputs      Tensors and other arguments, or a single Tensor; those Tensors that require gradients are checked and
                must be float64
    atol, rtol  |difference| <= atol + rtol |finite difference|
    Returns True
    Errors  GradcheckError, a RuntimeError, with both numbers; TypeError for inputs that are not float64; RuntimeError
            if no input requires a gradient, or if the function returns something else than Tensors or no floating one
    """
    inputs, random = _listed("gradcheck", inputs), np.random.default_rng(seed)
    checked = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise StateError("gradcheck: none of the inputs requires a gradient")
    for i in checked:
        if inputs[i].dtype != np.float64:
            raise KindError(f"gradcheck: inputs[{i}] has elements {inputs[i].dtype}, wanted float64")
    for _ in range(directions):
        outputs = _outputs(function, inputs)
        cotangents = [random.standard_normal(one.shape) for one in outputs]
        live = [
            (one, Tensor(device.move(v, one.device)))
            for one, v in zip(outputs, cotangents, strict=True)
            if one.requires_grad
        ]
        sources = [inputs[i] for i in checked]
        found = grad([one for one, _ in live], sources, [v for _, v in live], allow_unused=True) if live else ()
        for i, gradient in zip(checked, found or [None] * len(checked), strict=True):
            direction = random.standard_normal(inputs[i].shape)
            with no_grad():
                ahead, behind = (
                    [device.host(one.array) for one in _outputs(function, _moved(inputs, i, sign * eps * direction))]
                    for sign in (1, -1)
                )
            numeric = (_inner(ahead, cotangents) - _inner(behind, cotangents)) / (2 * eps)
            analytic = 0.0 if gradient is None else _inner([device.host(gradient.array)], [direction])
            if not abs(analytic - numeric) <= atol + rtol * abs(numeric):
                raise GradcheckError(
                    f"gradcheck: inputs[{i}] (shape {inputs[i].shape}): the gradient gives {analytic:.12g} along a "
                    f"direction, finite differences give {numeric:.12g}"
                )
    return True


def gradgradcheck(function, inputs, eps=1e-6, atol=1e-5, rtol=1e-3, directions=2, seed=0):
    """gradcheck of the gradients themselves: the second derivatives of function(*inputs).

    Errors  as gradcheck
    """
    inputs, random = _listed("gradgradcheck", inputs), np.random.default_rng(seed)
    checked = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    with no_grad():
        shapes = [(one.shape, one.device) for one in _outputs(function, inputs)]
    cotangents = [Tensor(device.move(random.standard_normal(s), place), requires_grad=True) for s, place in shapes]

    def gradients(*values):
        values, weights = list(values[: len(inputs)]), values[len(inputs) :]
        values = [
            x.detach().requires_grad_() if i in checked and not x.requires_grad else x for i, x in enumerate(values)
        ]
        live = [(one, v) for one, v in zip(_outputs(function, values), weights, strict=True) if one.requires_grad]
        sources = [values[i] for i in checked]
        found = grad([one for one, _ in live], sources, [v for _, v in live], create_graph=True, allow_unused=True)
        return [one for one in found if one is not None]

    def recorded(*values):
        with enable_grad():
            return gradients(*values)

    return gradcheck(recorded, [*inputs, *cotangents], eps, atol, rtol, directions, seed)
