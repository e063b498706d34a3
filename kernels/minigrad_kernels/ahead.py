"""What the companion of a training compiles: kernels that the rest of its first step will ask for.

The program compiles from the beginning of its step on, and the companion from the end back, so that they meet and
little is asked for twice. toolchain/companion.py says how it is started and what it is told.
"""

import contextlib
import gc
import os
import sys
import threading

import numpy as np

from .toolchain import claims, set_threads
from .toolchain.cache import cache_folder
from .toolchain.companion import TRAINING, another

__all__ = ["KERNELS", "main"]

IDLE = 5.0  # seconds without work after which the companion ends


# ---- what is compiled --------------------------------------------------------------------------------------------
# Launchers are called on tiny arrays, of the types that a training in float32 has.


def floats(*shape):
    return np.ones(shape, np.float32)


def images(n, c, h, w, dtype=np.float32):
    """An array (N, C, H, W) that lies channels last."""
    return np.zeros((n, h, w, c), dtype).transpose(0, 3, 1, 2)


def room(size):
    return np.zeros(size, np.uint8)


def sgd():
    from . import optimizer

    optimizer.sgd([floats(1)], [floats(1)], [floats(1)], np.ones(len(optimizer.SGD)))


def adam():
    from . import optimizer

    optimizer.adam([floats(1)], [floats(1)], [floats(1)], [floats(1)], None, np.full(len(optimizer.Adam), 0.5))


def rmsprop():
    from . import optimizer

    optimizer.rmsprop([floats(1)], [floats(1)], [floats(1)], None, None, np.ones(len(optimizer.RMSprop)))


def adagrad():
    from . import optimizer

    optimizer.adagrad([floats(1)], [floats(1)], [floats(1)], np.ones(len(optimizer.Adagrad)))


def winograd_weight_grad():
    from . import conv2d
    from .conv2d.winograd_mode import winograd

    # As many images as make two partial sums, so that what adds these is compiled too.
    x, w, g = images(9, 16, 4, 4), floats(3, 3, 16, 16).transpose(3, 2, 0, 1), images(9, 16, 4, 4)
    settings = (1, 1), (1, 1), (1, 1), 1
    with winograd("always"):
        space = room(conv2d.workspace("weight_grad", x.shape, w.shape, *settings, x.dtype))
        conv2d.weight_grad(g, x, *settings, w, space)


def batch_norm():
    from . import norm

    x, vector = images(2, 2, 1, 1), floats(2)
    space = room(norm.workspace("batch_statistics", x.shape))
    norm.batch_statistics(x, vector, vector.copy(), space, vector.copy(), vector.copy(), 0.5)
    norm.batch_normalize(x, vector, vector, vector, vector, 1.0, None, True, images(2, 2, 1, 1))


def batch_norm_grads():
    from . import norm

    x, vector = images(2, 2, 1, 1), floats(2)
    space = room(norm.workspace("batch_norm_grads", x.shape))
    outputs = images(2, 2, 1, 1), floats(2), floats(2), None
    norm.batch_norm_grads(x, x, vector, vector, vector, 1.0, x, *outputs, space)


def _layers():
    """x, weight and the statistics for layers of 2 elements."""
    return floats(1, 2), floats(2), (np.ones(1), np.ones(1))


def layer_norm():
    from . import sample_norm

    x, vector, statistics = _layers()
    sample_norm.layer_norm(x, vector, vector, 1.0, False, x.copy(), *statistics)


def layer_norm_grad():
    from . import sample_norm

    x, vector, statistics = _layers()
    space = room(sample_norm.workspace("layer_norm_grads", x.shape))
    outputs = x.copy(), vector.copy(), vector.copy()
    sample_norm.layer_norm_grads(x, x, *statistics, vector, 1.0, None, *outputs, space)


def _groups():
    """x, weight and the statistics for a group of 2 channels."""
    return images(1, 2, 1, 1), floats(2), (np.ones((1, 1)), np.ones((1, 1)))


def group_norm():
    from . import sample_norm

    x, vector, statistics = _groups()
    space = room(sample_norm.workspace("group_norm", x.shape))
    sample_norm.group_norm(x, vector, vector, 1.0, False, images(1, 2, 1, 1), *statistics, space)


def group_norm_grad():
    from . import sample_norm

    x, vector, statistics = _groups()
    space = room(sample_norm.workspace("group_norm_grads", x.shape))
    outputs = images(1, 2, 1, 1), vector.copy(), vector.copy()
    sample_norm.group_norm_grads(x, x, *statistics, vector, 1.0, None, *outputs, space)


def max_pool_grad():
    from . import pool2d

    sizes, g, dx = ((2, 2), (2, 2), (0, 0), (1, 1)), images(1, 4, 1, 1), images(1, 4, 2, 2)
    space = room(pool2d.workspace(g))
    pool2d.max_relu_input_grad(g, g, images(1, 4, 1, 1, np.uint8), *sizes, dx, floats(4), space)


def average_pool():
    from . import pool2d

    windows = pool2d.adaptive_windows(2, 1)
    pool2d.average_forward(images(1, 4, 2, 2), windows, windows, images(1, 4, 1, 1))


def average_pool_grad():
    from . import pool2d

    windows = pool2d.adaptive_windows(2, 1)
    pool2d.average_input_grad(images(1, 4, 1, 1), windows, windows, images(1, 4, 2, 2))


def wide_filters():
    """A filter turned for the gradient of its input, as with strides and many channels."""
    from . import transpose

    transpose.transpose(floats(1, 2, 2), floats(1, 2, 2))


def bias_grad():
    from . import bias

    bias.column_sums(floats(2, 2), floats(2), room(bias.workspace((2, 2))))


def bias_relu_grad():
    from . import bias

    bias.bias_relu_grad(floats(2, 2), floats(2, 2), floats(2, 2), floats(2), room(bias.workspace((2, 2))))


def dropout():
    from . import elementwise

    elementwise.dropout(floats(4), 0.5, 0, 0, floats(4))


def cross_entropy():
    from . import softmax

    x, target, space = floats(2, 2), np.zeros(2, np.int64), room(softmax.workspace(2))
    softmax.cross_entropy_total(x, target, -100, True, floats()[...], floats()[...], floats(2), space)


def cross_entropy_grad():
    from . import softmax

    x, target = floats(2, 2), np.zeros(2, np.int64)
    softmax.cross_entropy_total_grad(floats()[...], floats()[...], x, target, -100, floats(2), floats(2, 2))


# What tells that a kernel will be needed, names of layers and optimisers made or of kernels compiled by the program,
# and what compiles it. The loss comes first: all of it here, so that what its kernels share is compiled once. Then from
# the end of a step to its beginning.
KERNELS = (
    ((TRAINING,), cross_entropy),  # what most trainings end with
    ((TRAINING,), cross_entropy_grad),
    (("SGD",), sgd),
    (("Adam", "AdamW"), adam),
    (("RMSprop",), rmsprop),
    (("Adagrad",), adagrad),
    (("conv2d.winograd_kernels.correlate",), winograd_weight_grad),  # where one direction pays, others do
    (("MaxPool2d", "pool2d.cpu.max_forward"), max_pool_grad),
    (("BatchNorm1d", "BatchNorm2d", "norm.cpu.normalize"), batch_norm_grads),
    (("LayerNorm", "sample_norm.cpu_rows.normalize_rows"), layer_norm_grad),
    (("GroupNorm", "InstanceNorm2d", "sample_norm.cpu.normalize_images"), group_norm_grad),
    (("AdaptiveAvgPool2d",), wide_filters),  # what networks with residuals end with
    (("AvgPool2d", "AdaptiveAvgPool2d", "pool2d.cpu.average_forward"), average_pool_grad),
    (("Linear",), bias_grad),  # of the last layer
    ((another("Linear"),), bias_relu_grad),  # of a hidden one
    (("Dropout",), dropout),
    (("AvgPool2d", "AdaptiveAvgPool2d"), average_pool),
    (("LayerNorm",), layer_norm),
    (("GroupNorm", "InstanceNorm2d"), group_norm),
    (("BatchNorm1d", "BatchNorm2d"), batch_norm),
)


# ---- the process ---------------------------------------------------------------------------------------------------


class _Names:
    """What the program has told so far."""

    def __init__(self):
        self.known, self.changed = set(), threading.Condition()

    def listen(self):
        """Read standard input up to its end, which is that of the program, and end this process then."""
        rest = b""
        while content := os.read(0, 1 << 16):
            *lines, rest = (rest + content).split(b"\n")
            with self.changed:
                self.known.update(line.decode() for line in lines)
                self.changed.notify()
        os._exit(0)

    def next_of(self, rows):
        """The first row that something known asks for; None if for a while there is none."""

        def found():
            return next((row for row in rows if not self.known.isdisjoint(row[0])), None)

        with self.changed:
            return self.changed.wait_for(found, IDLE)


def main(folder):
    """Compile ahead for the program that has started this process with a pipe as standard input.

    folder: the program's folder for compiled kernels; one process at a time compiles ahead for it
    """
    if str(cache_folder()) != folder or not claims.held(os.path.join(folder, os.pardir, ".companion")):
        return
    names, rows = _Names(), list(KERNELS)
    threading.Thread(target=names.listen, daemon=True).start()
    set_threads(1)
    gc.disable()  # this process ends soon
    sys.modules["scipy"] = None  # type: ignore[assignment]  # whose BLAS Numba would look for
    claims.patient = False
    while (row := names.next_of(rows)) is not None:
        rows.remove(row)
        with contextlib.suppress(Exception):  # Busy, or what the program will say better itself
            row[1]()
