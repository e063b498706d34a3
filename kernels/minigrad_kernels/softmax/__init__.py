"""Softmax and cross entropy over the last axis of (rows, classes) matrices in C order.

On the CPU a target out of range is an error before anything is written. On a GPU nobody looks at targets before the
launch: the row of such a target becomes NaN in losses and gradients, and the kernel writes into `wrong`, an int64
array of one element that lies on the device or in memory of the host that it can write, which row it was. The caller
sets it to NO_WRONG_LABEL, and calls raise_wrong when the device is done; of several rows, also of several launches,
the smallest stays. Where wrong is None nothing is written.

Types   float32 and float64; matrices also float16 and bfloat16, beside which all else is float32; target int64
Errors  ValueError for a shape, a layout or a target out of range, TypeError for an element type
Source  Bridle 1990 (softmax); Blanchard, Higham, Higham 2021 (the shifted forms)
"""

import numpy as np

from ..errors import ShapeError
from ..launcher import SUMS, flag, launcher, reads, updates, whole, writes
from ..toolchain import implementation

__all__ = ["cross_entropy", "cross_entropy_grad", "cross_entropy_total", "softmax", "softmax_grad"]

NO_WRONG_LABEL = -1  # what `wrong` holds before a kernel reports
MATRIX = "rows classes+"
LABELS, IGNORED = (reads("target", "rows", "int64"), updates("wrong?", "1", "int64")), whole()


@launcher(reads("x", MATRIX), writes("out", MATRIX), logs=flag)
def softmax(x, logs, out):
    """Exponentials scaled so that they sum to 1 in each row; with logs, their logarithms.

    Math    out = exp(x) / sum exp(x) over each row; with logs out = x - log sum exp(x)
    Grads   dx = softmax_grad(g, out, logs)
    Shapes  x and out (rows, classes); logs a bool
    """


@launcher(reads("g out", MATRIX), writes("dx", MATRIX), logs=flag)
def softmax_grad(g, out, logs, dx):
    """The gradient of softmax for x, from its result.

    Math    dx = out * (g - sum(g * out) over each row); with logs dx = g - exp(out) * sum(g)
    Grads   linear in g; without logs self-adjoint: dg = softmax_grad(v, out, False)
    Shapes  g, out and dx (rows, classes); logs a bool
    """


def wrong_label(word):
    """(row, label) of the report that the only element of `wrong` holds, None if there was none.

    A label that 32 bits do not hold is shown as the nearest number that they do.
    """
    if word == NO_WRONG_LABEL:
        return None
    label = word & 0xFFFFFFFF
    return word >> 32, label - (label >> 31 << 32)


def raise_wrong(word):
    """Raise the label out of range that a kernel wrote into the only element of a NumPy array, and clear it.

    A kernel that meets such a label makes its row NaN and writes row and label into `wrong`. That is looked at the next
    time that the host waits for the device, or reads an array there; device and process stay as usable as before.

    Errors  ValueError with the row and the label
    """
    found = wrong_label(int(word[0]))
    if found is not None:
        word[0] = NO_WRONG_LABEL
        row, label = found
        wrong = f"target[{row}] = {label} is not the number of a class; its loss and gradient are NaN"
        raise ShapeError(f"cross_entropy: {wrong} (found when the device was waited for)")


def _loss(op, name, x, at):
    """What runs a loss whose target and ignore_index are arguments `at` and `at` + 1.

    On a CPU the kernel looks at targets before it writes, and says whether all is well. Looking into a GPU's memory
    would wait for all that it was told to do: there it reports into `wrong`.
    """
    kernel, classes = implementation(__name__, name, x), x.shape[1]

    def run(*given):
        if not kernel(*given):
            target, ignore_index = given[at : at + 2]
            n = int((((target < 0) | (target >= classes)) & (target != ignore_index)).argmax())
            raise ShapeError(f"{op}: target[{n}] = {target[n]}, but there are {classes} classes (0..{classes - 1})")

    return run if type(x) is np.ndarray else kernel


@launcher(reads("x", MATRIX), writes("losses logsumexp", "rows", SUMS), *LABELS, ignore_index=IGNORED)
def cross_entropy(x, target, ignore_index, losses, logsumexp, wrong=None):
    """The loss of each row of logits, not yet averaged.

    Math    logsumexp[n] = log sum exp(x[n]);  losses[n] = logsumexp[n] - x[n, target[n]], 0 where target[n] is
            ignore_index
    Grads   dx = cross_entropy_grad(g, x, target, ignore_index, logsumexp)
    Shapes  x (rows, classes); target, losses, logsumexp (rows,); wrong (1,) or None
    """
    return _loss("cross_entropy", "cross_entropy", x, 1)


@launcher(
    reads("x", MATRIX),
    writes("dx", MATRIX),
    reads("g", "rows | ", SUMS),
    reads("logsumexp", "rows", SUMS),
    reads("divisor?", "", SUMS),
    *LABELS,
    ignore_index=IGNORED,
)
def cross_entropy_grad(g, x, target, ignore_index, logsumexp, divisor, dx, wrong=None):
    """The gradient of the losses for x, or of their sum or mean.

    Math    dx[n] = g[n] / divisor * (exp(x[n] - logsumexp[n]) - one_hot(target[n])), 0 where target[n] is ignore_index;
            g[n] is g where there is one for all rows, divisor is 1 where it is None
    Grads   linear in g
    Shapes  x and dx (rows, classes); g (rows,) or (); target, logsumexp (rows,); divisor () or None;
            wrong (1,) or None
    """
    return _loss("cross_entropy_grad", "cross_entropy_grad", x, 2)


@launcher(
    reads("x", MATRIX),
    writes("out divisor", "", SUMS),
    writes("logsumexp", "rows", SUMS),
    *LABELS,
    op="cross_entropy",
    ignore_index=IGNORED,
    mean=flag,
)
def cross_entropy_total(x, target, ignore_index, mean, out, divisor, logsumexp, workspace, wrong=None):
    """The losses of all rows that count, those whose target is not ignore_index: their sum, or their mean.

    Math    logsumexp[n] = log sum exp(x[n]);  divisor = how many rows count if mean, else 1
            out = sum of (logsumexp[n] - x[n, target[n]]) / divisor over the rows that count; the mean of none is NaN
    Grads   dx = cross_entropy_grad(g, x, target, ignore_index, logsumexp, divisor)
    Shapes  x (rows, classes); out, divisor (); target, logsumexp (rows,); wrong (1,) or None
    """
    return _loss("cross_entropy", "cross_entropy_total", x, 1)
