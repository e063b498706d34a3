"""Convolution and its gradients on CUDA: the calls. cuda_plan.py says which rung of the ladder runs."""

import numpy as np

from ..layout import CHANNELS_LAST, FILTER
from ..matmul import cuda as matmul
from ..matmul.cuda_split import end_of, in_slices, partial_bytes
from ..matmul.plan import most_slices
from ..toolchain.cuda.memory import aligned
from ..toolchain.cuda.tuning import chosen
from .cuda_plan import RUNGS, fits, plan_of
from .geometry import output_shape

__all__ = ["RUNGS", "aligned", "equals", "fits", "forward", "input_grad", "ready", "starts", "weight_grad", "workspace"]


def workspace(direction, x_shape, w_shape, stride, padding, dilation, groups, itemsize):
    """Bytes of workspace for a direction: sums of slices; see the launcher."""
    settings = stride, padding, dilation, groups
    if direction != "weight_grad" and not min(x_shape):
        return 0
    out_size = output_shape(x_shape, w_shape, None, *settings)[2:]
    kind = matmul.kind_of(np.dtype(f"f{itemsize}"))
    places = (True, False) if kind == "tf32" else (True,)  # where not all begin at multiples, other rungs run
    found = [plan_of(direction, x_shape, w_shape, out_size, settings, kind, fit) for fit in places]
    slices = max(plan.slices for plan in found)
    if any(plan.name == "product" for plan in found):
        sizes = x_shape[0] * out_size[0] * out_size[1], *w_shape[:2]
        slices = max(slices, most_slices(*(sizes[::-1] if direction == "weight_grad" else sizes)))
    return partial_bytes(found[0].size, slices)


def ready(direction, x_shape, w_shape, settings, itemsize):
    """What a launcher runs with the arrays of a call, whose sizes each launch looks at by itself."""
    if direction == "forward":
        return lambda x, w, bias, relu, residual, *rest: forward(x, w, bias, relu, *settings, *rest, residual=residual)
    start = {"input_grad": input_grad, "weight_grad": weight_grad}[direction]
    return lambda source, other, *rest: start(source, other, *settings, *rest)


def forward(x, w, bias, relu, stride, padding, dilation, groups, out, workspace, rung=None, *, residual=None):
    """Convolution; see the launcher. rung: a name from RUNGS; None: the fastest of those with the bits of the best.

    Errors  ValueError for a rung that does not exist or does not fit, or for sizes that are not 32-bit
    """
    settings = stride, padding, dilation, groups
    _run("forward", x, w, bias, relu, settings, out, workspace, rung, residual)


def input_grad(g, w, stride, padding, dilation, groups, dx, workspace, rung=None):
    """Gradient with respect to x; see the launcher. rung and errors as for forward."""
    _run("input_grad", g, w, None, False, (stride, padding, dilation, groups), dx, workspace, rung)


def weight_grad(g, x, stride, padding, dilation, groups, dw, workspace, rung=None):
    """Gradient with respect to w; see the launcher. rung and errors as for forward."""
    if x.size and g.size:
        _run("weight_grad", g, x, None, False, (stride, padding, dilation, groups), dw, workspace, rung)
    else:
        dw.fill(0)


def _run(direction, first, second, bias, relu, settings, result, workspace, rung, residual=None):
    """Start all launches of a direction, by the rung that was found to be the fastest where none is asked for."""

    def start(name):
        for kernel, *given in starts(direction, first, second, bias, relu, settings, result, workspace, name, residual):
            kernel(*given)

    if not result.size:
        return
    call = _call(direction, first, second, settings, result)
    if plan_of(*call, rung).name == "product":  # which has candidates of its own
        matmul.forward(*_matrices(direction, first, second, bias, relu, result), workspace, residual=_rows(residual))
    else:
        start(rung or chosen("conv2d", call, lambda: equals(*call), start, first))


def _call(direction, first, second, settings, result):
    """What tells one call from another."""
    x, w, out = {
        "forward": (first, second, result),
        "input_grad": (result, second, first),
        "weight_grad": (second, result, first),
    }[direction]
    kind, at_multiple = matmul.kind_of(first.dtype), aligned(first, second, result)
    return direction, x.shape, w.shape, out.shape[2:], settings, kind, at_multiple


def _matrices(direction, first, second, bias, relu, result):
    """A convolution by filters of one pixel as a matrix product: what `forward` of matmul gets before the workspace."""
    if direction == "weight_grad":
        return _rows(second).T, _rows(first), None, False, _filter(result)
    return _rows(first), _filter(second) if direction == "forward" else _filter(second).T, bias, relu, _rows(result)


def _rows(images):
    """Images as the rows of a matrix, pixel by pixel, as they lie in memory."""
    return None if images is None else images.transpose(CHANNELS_LAST).reshape(-1, images.shape[1])


def _filter(w):
    """Filters of one pixel as a matrix, a row for each channel that is read."""
    return w.transpose(FILTER).reshape(w.shape[1], w.shape[0])


def equals(*call):
    """{name: Kernel} of the rungs that give the bits of the best one."""
    return {name: plan_of(*call, name).kernel for name in plan_of(*call).equals}


def starts(direction, first, second, bias, relu, settings, result, workspace, rung=None, residual=None):
    """(kernel, grid, block, arguments, dynamic shared memory) of each launch of a direction, in order."""
    plan = plan_of(*_call(direction, first, second, settings, result), rung)
    if direction == "weight_grad":
        first, second = second, first
    elif plan.name in ("plain", "tiled"):  # a kernel of arrays with shapes
        yield plan.kernel, plan.grid, plan.block, plan.arguments(first, second, bias, residual, result, bool(relu)), 0
        return
    end = end_of(bias, relu, residual, result, first, plan.channels, plan.groups)
    yield from in_slices(
        plan.kernel, plan.grid, plan.block, lambda *end: plan.arguments(first, second, *end), plan.shared,
        end, first, plan.size, plan.slices, workspace,
    )  # fmt: skip
