"""Softmax and cross entropy over the last axis of (rows, classes) matrices in C order.

On the CPU a target out of range is an error before anything is written. On a GPU nobody looks at targets before the
launch: the row of such a target becomes NaN in losses and gradients, and the kernel writes into `wrong`, an int64
array of one element that lies on the device or in memory of the host that it can write, which row it was. The caller
sets it to NO_WRONG_LABEL, and asks wrong_label when the device is done; of several rows, also of several launches,
the smallest stays. Where wrong is None nothing is written.

Workspaces are bytes, or a function (bytes, array) that gives so many for calls with such arrays, as a pool does.

Types   float32 and float64; matrices also float16 and bfloat16, beside which all else is float32; target int64
Errors  ValueError for a shape, a layout or a target out of range, TypeError for an element type
Source  Bridle 1990 (softmax); Blanchard, Higham, Higham 2021 (the shifted forms)
"""

import numpy as np

from ..checked import Call, Checked, layouts
from ..errors import KindError, ShapeError
from ..toolchain import alias, implementation
from ..toolchain.arguments import check_array, check_floats, check_one_kind, check_output, workspace_of
from ..toolchain.widening import widened

__all__ = [
    "cross_entropy",
    "cross_entropy_grad",
    "cross_entropy_total",
    "cross_entropy_total_grad",
    "log_softmax",
    "log_softmax_grad",
    "softmax",
    "softmax_grad",
    "workspace",
]

NO_WRONG_LABEL = -1  # what `wrong` holds before a kernel reports
SMALL = 1 << 16  # elements; below it a second thread of a CPU costs more than it brings
ALIGNMENT = 16  # bytes


def workspace(rows):
    """The bytes that cross_entropy_total wants for so many rows: their losses."""
    return 8 * rows + ALIGNMENT - 1


_bytes = workspace  # where an argument has that name


def _check(op, inputs, outputs):
    """The views of inputs and outputs, dictionaries of matrices that are all alike."""
    name, first = next(iter(inputs.items()))
    check_floats(op, name, first)
    if first.ndim != 2 or first.shape[1] < 1:
        raise ShapeError(f"{op}: {name} has shape {first.shape}, wants (rows, classes) with at least one class")
    arrays = inputs | outputs
    for name, array in arrays.items():
        if type(array) is not type(first):
            check_one_kind(op, arrays)
        (check_output if name in outputs else check_array)(op, name, array, first.shape, first.dtype)
        if not array.flags.c_contiguous:
            raise ShapeError(f"{op}: {name} (shape {array.shape}) has strides {array.strides}, wants C order")
    return [alias(array) for array in arrays.values()]


def _by_rows(op, names, *arrays):
    """Run a kernel of matrices that are all alike, the last of which it writes."""
    shapes = layouts(op, *arrays)
    if shapes and arrays[-1].flags.writeable:
        run = _calls.found(shapes, ())
        if run is not None:
            run(*map(alias, arrays))
            return
    kernel = implementation(__name__, op, arrays[0])
    *inputs, output = zip(names.split(), arrays, strict=True)
    views = _check(op, dict(inputs), dict([output]))
    if shapes:
        _calls.keep(shapes, (), kernel)
    kernel(*views)


@widened("x", "out")
def softmax(x, out):
    """Math    out = exp(x) / sum exp(x) over each row
    Grads   dx = softmax_grad(g, out)
    Shapes  x and out (rows, classes)
    """
    _by_rows("softmax", "x out", x, out)


@widened("g out", "dx")
def softmax_grad(g, out, dx):
    """Math    dx = out * (g - sum(g * out) over each row)
    Grads   linear in g and self-adjoint: dg = softmax_grad(v, out)
    Shapes  g, out and dx (rows, classes)
    """
    _by_rows("softmax_grad", "g out dx", g, out, dx)


@widened("x", "out")
def log_softmax(x, out):
    """Math    out = x - log sum exp(x) over each row
    Grads   dx = log_softmax_grad(g, out)
    Shapes  x and out (rows, classes)
    """
    _by_rows("log_softmax", "x out", x, out)


@widened("g out", "dx")
def log_softmax_grad(g, out, dx):
    """Math    dx = g - exp(out) * sum(g) over each row
    Grads   linear in g
    Shapes  g, out and dx (rows, classes)
    """
    _by_rows("log_softmax_grad", "g out dx", g, out, dx)


def wrong_label(word):
    """(row, label) of the report that the only element of `wrong` holds, None if there was none.

    A label that 32 bits do not hold is shown as the nearest number that they do.
    """
    if word == NO_WRONG_LABEL:
        return None
    label = word & 0xFFFFFFFF
    return word >> 32, label - (label >> 31 << 32)


def _check_wrong(op, wrong, x):
    """What kernels get for `wrong`: None for those of the CPU, whose targets are looked at before."""
    if wrong is None:
        return None
    if type(wrong) is not type(x):
        check_one_kind(op, {"x": x, "wrong": wrong})
    check_output(op, "wrong", wrong, (1,), np.int64)
    return None if type(x) is np.ndarray else wrong


def _check_target(op, target, ignore_index, x):
    if type(target) is not type(x):
        check_one_kind(op, {"x": x, "target": target})
    check_array(op, "target", target, (x.shape[0],), np.int64)
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, int | np.integer):
        raise KindError(f"{op}: ignore_index is {type(ignore_index).__name__}, wants an integer")
    _check_range(op, target, ignore_index, x.shape[1])
    return alias(target if target.flags.c_contiguous else target.copy(order="C")), int(ignore_index)


def _check_range(op, target, ignore_index, classes):
    # Looking into a GPU's memory would wait for all that it was told to do. Without a sign a negative number is huge.
    if type(target) is np.ndarray and np.maximum.reduce(target.view(np.uint64), initial=0) >= classes:
        wrong = ((target < 0) | (target >= classes)) & (target != ignore_index)
        if wrong.any():
            n = int(wrong.argmax())
            raise ShapeError(f"{op}: target[{n}] = {target[n]}, but there are {classes} classes (0..{classes - 1})")


_calls = Checked()  # what runs NumPy's own arrays that have passed all checks but that of their targets: it looks


def _number(op, name, array, x, check):
    if type(array) is not type(x):
        check_one_kind(op, {"x": x, name: array})
    check(op, name, array, (), x.dtype)
    return alias(array)


def _vector(op, name, array, x, check):
    if type(array) is not type(x):
        check_one_kind(op, {"x": x, name: array})
    check(op, name, array, (x.shape[0],), x.dtype)
    if not array.flags.c_contiguous:
        raise ShapeError(f"{op}: {name} has strides {array.strides}, wants C order")
    return alias(array)


@widened("x")
def cross_entropy(x, target, ignore_index, losses, logsumexp, wrong=None):
    """The loss of each row of logits, not yet averaged.

    Math    logsumexp[n] = log sum exp(x[n]);  losses[n] = logsumexp[n] - x[n, target[n]], 0 where target[n] is
            ignore_index
    Grads   dx = cross_entropy_grad(g, x, target, ignore_index, logsumexp)
    Shapes  x (rows, classes); target, losses, logsumexp (rows,); wrong (1,) or None
    """
    op = "cross_entropy"
    kernel = implementation(__name__, op, x)
    wrong = _check_wrong(op, wrong, x)
    (view,) = _check(op, {"x": x}, {})
    outputs = [_vector(op, n, a, x, check_output) for n, a in (("losses", losses), ("logsumexp", logsumexp))]
    kernel(view, *_check_target(op, target, ignore_index, x), *outputs, wrong)


@widened("x", "dx")
def cross_entropy_grad(g, x, target, ignore_index, logsumexp, dx, wrong=None):
    """The gradient of the losses for x.

    Math    dx[n] = g[n] * (exp(x[n] - logsumexp[n]) - one_hot(target[n])), 0 where target[n] is ignore_index
    Grads   linear in g
    Shapes  x and dx (rows, classes); g, target, logsumexp (rows,); wrong (1,) or None
    """
    op = "cross_entropy_grad"
    kernel = implementation(__name__, op, x)
    wrong = _check_wrong(op, wrong, x)
    view, dx_view = _check(op, {"x": x}, {"dx": dx})
    weights = _vector(op, "g", g, x, check_array)
    target, ignore_index = _check_target(op, target, ignore_index, x)
    sums = _vector(op, "logsumexp", logsumexp, x, check_array)
    kernel(weights, view, target, ignore_index, sums, dx_view, wrong)


@widened("x")
def cross_entropy_total(x, target, ignore_index, mean, out, divisor, logsumexp, workspace, wrong=None):
    """The losses of all rows that count, those whose target is not ignore_index: their sum, or their mean.

    Math    logsumexp[n] = log sum exp(x[n]);  divisor = how many rows count if mean, else 1
            out = sum of (logsumexp[n] - x[n, target[n]]) / divisor over the rows that count; the mean of none is NaN
    Grads   dx = cross_entropy_total_grad(g, divisor, x, target, ignore_index, logsumexp)
    Shapes  x (rows, classes); out, divisor (); target, logsumexp (rows,); wrong (1,) or None;
            workspace: workspace(rows) bytes
    """
    op = "cross_entropy"  # as the loss is called
    shapes = layouts(op, x, target, out, divisor, logsumexp, wrong) if callable(workspace) else None
    if shapes and out.flags.writeable and divisor.flags.writeable and logsumexp.flags.writeable:
        call = _calls.found(shapes, (ignore_index, mean))
        if call is not None:
            memory = workspace(call.bytes, x)
            if call.run(alias(x), alias(target), ignore_index, mean, out, divisor, logsumexp, memory, None):
                return
    kernel = implementation(__name__, "cross_entropy_total", x)
    wrong = _check_wrong(op, wrong, x)
    (view,) = _check(op, {"x": x}, {})
    if type(mean) is not bool:
        raise KindError(f"{op}: mean is {type(mean).__name__}, wants a bool")
    outputs = [_number(op, n, a, x, check_output) for n, a in (("out", out), ("divisor", divisor))]
    outputs.append(_vector(op, "logsumexp", logsumexp, x, check_output))
    targets = _check_target(op, target, ignore_index, x)
    if shapes and target.flags.c_contiguous:
        _calls.keep(shapes, (ignore_index, mean), Call(_bytes(x.shape[0]), kernel))
    memory = workspace_of(op, workspace, _bytes(x.shape[0]), "softmax.workspace", x)
    kernel(view, *targets, mean, *outputs, memory, wrong)


@widened("x", "dx")
def cross_entropy_total_grad(g, divisor, x, target, ignore_index, logsumexp, dx, wrong=None):
    """The gradient of the sum or the mean of the losses for x.

    Math    dx[n] = g / divisor * (exp(x[n] - logsumexp[n]) - one_hot(target[n])), 0 where target[n] is ignore_index
    Grads   linear in g
    Shapes  g, divisor (); x and dx (rows, classes); target, logsumexp (rows,); wrong (1,) or None
    """
    op = "cross_entropy_total_grad"
    shapes = layouts(op, g, divisor, x, target, logsumexp, dx, wrong)
    if shapes and dx.flags.writeable:
        run = _calls.found(shapes, (ignore_index,))
        if run is not None:
            if run(alias(g), alias(divisor), alias(x), alias(target), ignore_index, alias(logsumexp), dx, None):
                return
    kernel = implementation(__name__, op, x)
    wrong = _check_wrong(op, wrong, x)
    view, dx_view = _check(op, {"x": x}, {"dx": dx})
    weights = [_number(op, n, a, x, check_array) for n, a in (("g", g), ("divisor", divisor))]
    target_view, ignore_index = _check_target(op, target, ignore_index, x)
    sums = _vector(op, "logsumexp", logsumexp, x, check_array)
    if shapes and target.flags.c_contiguous:
        _calls.keep(shapes, (ignore_index,), kernel)
    kernel(*weights, view, target_view, ignore_index, sums, dx_view, wrong)
