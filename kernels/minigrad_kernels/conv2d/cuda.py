"""Convolution and its gradients on CUDA: the calls. cuda_plan.py says which rung of the ladder runs."""

from ..layout import CHANNELS_LAST, FILTER
from ..matmul import cuda as matmul
from ..matmul.cuda_split import in_slices
from ..toolchain.cuda.memory import aligned
from .cuda_plan import fits, plan_of


def suits(direction, x, w, g, settings):
    """Whether tensor cores take such arrays of 16 bits, which must begin where they can load."""
    return fits(direction, x.shape, w.shape, *settings) and aligned(x, w, g)


def forward(x, w, bias, relu, stride, padding, dilation, groups, out, workspace, residual=None, rung=None):
    """Convolution; see the launcher. rung: a name from RUNGS; None: the one that suits the shape.

    Errors  ValueError for a rung that does not exist or does not fit, or for sizes that are not 32-bit
    """
    _run("forward", x, w, bias, relu, (stride, padding, dilation, groups), out, workspace, rung, residual)


def input_grad(g, w, stride, padding, dilation, groups, dx, workspace, rung=None):
    """Gradient with respect to x; see the launcher. rung and errors as for forward."""
    _run("input_grad", g, w, None, False, (stride, padding, dilation, groups), dx, workspace, rung)


def weight_grad(g, x, stride, padding, dilation, groups, dw, workspace, rung=None):
    """Gradient with respect to w; see the launcher. rung and errors as for forward."""
    if x.size and g.size:
        _run("weight_grad", g, x, None, False, (stride, padding, dilation, groups), dw, workspace, rung)
    else:
        dw.fill(0)


def _run(*call):
    for kernel, *given in starts(*call):
        kernel(*given)


def starts(direction, first, second, bias, relu, settings, result, workspace, rung=None, residual=None):
    """(kernel, grid, block, arguments, dynamic shared memory) of each launch of a direction, in order."""
    if not result.size:
        return
    x, w, out = {
        "forward": (first, second, result),
        "input_grad": (result, second, first),
        "weight_grad": (second, result, first),
    }[direction]
    kind, at_multiple = matmul.kind_of(first.dtype), aligned(first, second, result)
    plan = plan_of(direction, x.shape, w.shape, out.shape[2:], settings, kind, at_multiple, rung)
    if direction == "weight_grad":
        first, second = second, first
    if plan.name == "product":
        to = _filter(result) if direction == "weight_grad" else _rows(result)
        operands = _matrices(direction, first, second)
        yield from matmul.starts(*operands, bias, relu, to, workspace, residual=_rows(residual))
    elif plan.name in ("plain", "tiled") and direction != "weight_grad":  # which see arrays with shapes
        yield plan.kernel, plan.grid, plan.block, plan.arguments(first, second, bias, residual, result, bool(relu)), 0
    else:
        arguments = lambda *end: plan.arguments(first, second, *end)
        columns = plan.work.result[2], plan.work.groups
        yield from in_slices(plan, arguments, first, bias, relu, residual, result, workspace, *columns)


def _matrices(direction, first, second):
    """The operands of a convolution by filters of one pixel, as a product of matrices."""
    if direction == "weight_grad":
        return _rows(first).T, _rows(second)
    return _rows(first), _filter(second) if direction == "forward" else _filter(second).T


def _rows(images):
    """Images as the rows of a matrix, pixel by pixel, as they lie in memory."""
    return None if images is None else images.transpose(CHANNELS_LAST).reshape(-1, images.shape[1])


def _filter(w):
    """Filters of one pixel as a matrix, a row for each channel that is read."""
    return w.transpose(FILTER).reshape(w.shape[1], w.shape[0])
