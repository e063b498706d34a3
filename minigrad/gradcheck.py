"""Are the gradients right? Comparison with finite differences.

For a direction u and a cotangent v, the derivative of <v, f(x + t u)> at t = 0 is <J^T v, u>, where J^T v is what
backward computes. The left side is taken by central differences,

    (f(x + e u) - f(x - e u)) / (2 e) = f' + O(e^2 f''') + O(eps f / e)

which float64 and e = 1e-6 bring to about ten digits.

Source  Baydin and others 2018, "Automatic differentiation in machine learning: a survey", section 2.1
"""

import numpy as np

from minigrad_kernels.errors import KindError, StateError

from . import device
from .core.modes import enable_grad, no_grad
from .core.tape import grad
from .core.tensor import Tensor

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(StateError):
    """A gradient that differs from the finite difference."""


def _listed(inputs):
    """A Tensor, or Tensors and other arguments, as a list; and the numbers of those that require gradients."""
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    return inputs, [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]


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


def _cotangents(outputs, random, requires_grad=False):
    """A Tensor of random numbers for each output."""
    return [Tensor(device.move(random.standard_normal(y.shape), y.device), requires_grad) for y in outputs]


def _gradients(outputs, cotangents, sources, create_graph=False):
    """The gradients of <cotangents, outputs> with respect to sources, None where there is none."""
    live = [(y, v) for y, v in zip(outputs, cotangents, strict=True) if y.requires_grad]
    return grad([y for y, _ in live], sources, [v for _, v in live], create_graph=create_graph, allow_unused=True)


def _inner(first, second):
    pairs = zip(first, second, strict=True)
    return sum(float((device.host(a.array) * device.host(b.array)).sum()) for a, b in pairs)


def _difference(function, inputs, index, step, cotangents):
    """The change of <cotangents, function(*inputs)> from one input minus a step to that input plus the step."""
    here, constants = inputs[index], [x.detach() if isinstance(x, Tensor) else x for x in inputs]
    values = []
    with no_grad():
        for moved in (device.host(here.array) + step, device.host(here.array) - step):
            constants[index] = Tensor(device.move(moved, here.device))
            values.append(_inner(_outputs(function, constants), cotangents))
    return values[0] - values[1]


def gradcheck(function, inputs, eps=1e-6, atol=1e-5, rtol=1e-3, directions=2, seed=0):
    """Compare the gradients of function(*inputs) with central differences along random directions.

    inputs      Tensors and other arguments, or a single Tensor; those Tensors that require gradients are checked and
                must be float64
    atol, rtol  |difference| <= atol + rtol |finite difference|
    Returns True
    Errors  GradcheckError, a RuntimeError, with both numbers; TypeError for inputs that are not float64; RuntimeError
            if no input requires a gradient, or if the function returns something else than Tensors or no floating one
    """
    (inputs, checked), random = _listed(inputs), np.random.default_rng(seed)
    if not checked:
        raise StateError("gradcheck: none of the inputs requires a gradient")
    for i in checked:
        if inputs[i].dtype != np.float64:
            raise KindError(f"gradcheck: inputs[{i}] has elements {inputs[i].dtype}, wanted float64")
    for _ in range(directions):
        outputs = _outputs(function, inputs)
        cotangents = _cotangents(outputs, random)
        found = _gradients(outputs, cotangents, [inputs[i] for i in checked])
        for i, gradient in zip(checked, found, strict=True):
            direction = random.standard_normal(inputs[i].shape)
            numeric = _difference(function, inputs, i, eps * direction, cotangents) / (2 * eps)
            analytic = 0.0 if gradient is None else _inner([gradient], [Tensor(direction)])
            if not abs(analytic - numeric) <= atol + rtol * abs(numeric):
                found = f"the gradient gives {analytic:.12g} along a direction, finite differences give {numeric:.12g}"
                raise GradcheckError(f"gradcheck: inputs[{i}] (shape {inputs[i].shape}): {found}")
    return True


def gradgradcheck(function, inputs, eps=1e-6, atol=1e-5, rtol=1e-3, directions=2, seed=0):
    """gradcheck of the gradients themselves: the second derivatives of function(*inputs).

    Errors  as gradcheck
    """
    (inputs, checked), random = _listed(inputs), np.random.default_rng(seed)
    with no_grad():
        cotangents = _cotangents(_outputs(function, inputs), random, requires_grad=True)

    @enable_grad()
    def gradients(*values):
        values, weights = list(values[: len(inputs)]), values[len(inputs) :]
        for i in checked:
            if not values[i].requires_grad:
                values[i] = values[i].detach().requires_grad_()
        found = _gradients(_outputs(function, values), weights, [values[i] for i in checked], create_graph=True)
        return [one for one in found if one is not None]

    return gradcheck(gradients, [*inputs, *cotangents], eps, atol, rtol, directions, seed)
