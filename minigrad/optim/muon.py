"""Muon: momentum made orthogonal, for the matrices of a network."""

import math

from minigrad_kernels import optimizer as kernels
from minigrad_kernels.errors import KindError, ShapeError

from .. import device, ops
from ..core.check import integer_of, one_of
from ..core.modes import no_grad
from ..core.tensor import Tensor
from .rules import Rule, members

__all__ = ["Muon", "orthogonalized"]

COEFFICIENTS = (3.4445, -4.775, 2.0315)  # of the fifth degree: the steepest at 0 that keeps singular values near 1


class Muon(Rule):
    """Steps whose singular values are all about 1, so that no direction of a layer is learnt faster than the others.

    Math    b = momentum b + (1 - momentum) g;  d = (1 - momentum) g + momentum b with nesterov, else b
            o = orthogonalized(d), a filter O, I, H, W seen as a matrix O, I H W
            p = p - lr weight_decay p - lr sqrt(max(1, rows / columns)) o
    params          matrices and filters of the layers within. What has fewer dimensions is refused: train it, the first
                    layer of embeddings and the last layer by another optimiser, AdamW say, side by side
    momentum        what the step keeps of those before
    nesterov        look ahead: the gradient enters the step at once and by way of the momentum
    ns_coefficients, eps, ns_steps  of orthogonalized
    adjust_lr_fn    'match_rms_adamw': p = p - lr weight_decay p - 0.2 lr sqrt(max(rows, columns)) o, whose steps are as
                    large as those of AdamW; None or 'original': as above
    Source  Jordan and others 2024, "Muon: an optimizer for hidden layers in neural networks"; Liu and others 2025,
            "Muon is scalable for LLM training", for adjust_lr_fn; names and defaults of torch.optim.Muon. That one
            computes o in bfloat16, this one in the type of the parameters, at least float32
    """

    hyper, kept = members(kernels.SGD), {"momentum_buffer": True}
    fixed = ("momentum", "nesterov", "ns_coefficients", "eps", "ns_steps", "adjust_lr_fn")

    def __init__(
        self,
        params,
        lr=1e-3,
        weight_decay=0.1,
        momentum=0.95,
        nesterov=True,
        ns_coefficients=COEFFICIENTS,
        eps=1e-7,
        ns_steps=5,
        adjust_lr_fn=None,
    ):
        defaults = dict(lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, eps=eps)
        how = dict(ns_coefficients=ns_coefficients, ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn)
        super().__init__(params, defaults | how, {})

    def check(self, options):
        super().check(options)
        integer_of("Muon", "ns_steps", options["ns_steps"], 0)
        one_of("Muon", "adjust_lr_fn", options["adjust_lr_fn"] or "original", ("original", "match_rms_adamw"))
        coefficients = options["ns_coefficients"]
        if not isinstance(coefficients, tuple) or len(coefficients) != 3:
            raise KindError(f"Muon: ns_coefficients is {coefficients!r}, wanted three numbers")

    def check_parameter(self, where, parameter):
        super().check_parameter(where, parameter)
        if parameter.ndim < 2:
            raise ShapeError(
                f"{where} has shape {parameter.shape}, wanted a whole matrix or filter; give the others to AdamW"
            )

    def options(self, group, age):
        off = dict.fromkeys(("momentum", "dampening", "nesterov", "maximize", "first"), 0)
        return {**group, **off, "rate": group["lr"]}

    def recount(self, parameter, count):
        """No steps are counted."""

    @no_grad()
    def update(self, group, age, parameters, plan, scale=None, found_inf=None):
        hyper, (arrays, gradients) = self.numbers(group, age), self.written(parameters)
        buffers = self.arrays("momentum_buffer", parameters)
        steps = [self._step(group, *pair, scale, found_inf) for pair in zip(gradients, buffers, strict=True)]
        kernels.sgd(arrays, steps, None, hyper, plan, found_inf=found_inf)  # p - lr (o + weight_decay p)

    def _step(self, group, gradient, buffer, scale, found_inf):
        """What the parameter goes along, an array; the buffer is moved on, unless the step is to be skipped."""
        momentum, g, b = group["momentum"], Tensor(gradient), Tensor(buffer)
        if scale is not None:
            g = g * Tensor(scale).to(g.dtype)
        moved = b + (1 - momentum) * (g - b)
        if found_inf is not None:
            moved = ops.where(Tensor(found_inf) == 0, moved, b)
        device.assign(buffer, moved.array)
        d = (g + momentum * (moved - g) if group["nesterov"] else moved).reshape(len(gradient), -1)
        rows, columns = d.shape
        factor = math.sqrt(max(1, rows / columns))
        if group["adjust_lr_fn"] == "match_rms_adamw":
            factor = 0.2 * math.sqrt(max(rows, columns))
        o = orthogonalized(d, group["ns_coefficients"], group["eps"], group["ns_steps"])
        return (factor * o).reshape(g.shape).to(g.dtype).array


def orthogonalized(matrix, coefficients=COEFFICIENTS, eps=1e-7, steps=5):
    """The matrix U V^T nearly, of matrix = U S V^T: singular values are brought near 1, to about 0.7 to 1.2.

    Math    x = matrix / max(|matrix|, eps), transposed if it has more rows than columns
            steps times: a, b, c = coefficients;  A = x x^T;  x = a x + (b A + c A A) x
    Source  Jordan and others 2024: the iteration of Newton and Schulz, in the fifth degree
    """
    a, b, c = coefficients
    rows, columns = matrix.shape
    x = matrix.float() if device.is_half(matrix.dtype) else matrix
    x = x.T if rows > columns else x
    x = x / ops.sqrt((x * x).sum()).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if rows > columns else x
