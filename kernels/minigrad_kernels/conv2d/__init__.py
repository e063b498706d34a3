"""Convolution, its two gradients, and convolution with pooling behind it: the launchers.

The three are bilinear, and each one's gradients are the other two.

Letters: n image, c channel in, o channel out, h w input, i j output, p q filter tap, s stride, d dilation, G groups.
Math shared by all three: the tap (p, q) of output pixel (i, j) reads the input at h = i*s + p*d - padding, and w
likewise; outside the input it reads 0.

Shapes  x, dx (N, C, H, W), w, dw (O, C/G, P, Q), out, g (N, O, I, J); stride, padding, dilation: pairs of integers,
        vertical first. Images lie channels last in memory, filters (P, Q, C/G, O): see layout.py
Types   float16, bfloat16, float32 or float64, one for all arrays; beside the first two the output may be float32.
        Sums of 16 bits are float32. In the mode tf32, operands of float32 are rounded to TF32 first on a GPU
        whose tensor cores take the channels
Errors  ValueError for shapes, values or layouts that do not fit, TypeError for other types
"""

import functools

from ..launcher import EITHER, FILTER, flag, is_half, launcher, pair, reads, wants_shape, whole, writes
from ..pool2d import check_windows, max_forward
from ..toolchain import backend, elements, implementation, threads
from ..toolchain.modes import tf32_mode, winograd_mode
from .geometry import output_shape

IMAGES, RESULTS = "N C H W", "N O I J"
FILTERS = "O D P Q"  # D: channels of a group
WINDOWS = {"kernel_size": pair(1), "pool_stride": pair(1), "pool_padding": pair(0), "pool_dilation": pair(1)}
conv = functools.partial(
    launcher,
    view=None,
    under=(threads, winograd_mode, tf32_mode),
    stride=pair(1),
    padding=pair(0),
    dilation=pair(1),
    groups=whole(1),
)


def _native(direction, x, w, g, settings):
    """Whether a GPU's tensor cores take such arrays of 16 bits; others are widened."""
    return backend(x) == "cuda" and implementation(__name__, "suits", x)(direction, x, w, g, settings)


def _ready(direction, like, x_shape, w_shape, settings):
    """What runs calls of these shapes on the CPU; a GPU's function looks at them by itself."""
    if backend(like) == "cuda":
        return None
    return implementation(__name__, "ready", like)(direction, x_shape, w_shape, settings, like.itemsize)


@conv(
    reads("x", IMAGES),
    reads("w", FILTERS, order=FILTER),
    reads("bias?", "O"),
    writes("out", RESULTS, EITHER),
    reads("residual?", RESULTS),
    op="conv2d",
    native=lambda x, w, _bias, _relu, *rest: _native("forward", x, w, rest[4], rest[:4]),
    relu=flag,
)
def forward(x, w, bias, relu, stride, padding, dilation, groups, out, workspace, residual=None):
    """Cross-correlation of images with filters, as torch.nn.functional.conv2d; with relu, its positive part.

    NaN stays NaN.

    Math    out[n,o,i,j] = max(bias[o] + sum_{c,p,q} x[n,c,h,w] * w[o,c,p,q] + residual[n,o,i,j], 0), c over the
            channels of the group of o; without relu the sum itself
    Grads   dx = input_grad(g, w)      dw = weight_grad(g, x)      dbias = sum of g over n, i, j      dresidual = g;
            with relu, g is 0 where out is
    Shapes  bias None or (O,); residual None, or an array like out that shares no memory with it
    Source  V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", 2016, section 2
    """
    settings = stride, padding, dilation, groups
    wants_shape("conv2d", "out", out, output_shape(x.shape, w.shape, None, *settings))
    return _ready("forward", x, x.shape, w.shape, settings)


@conv(
    reads("x", IMAGES),
    reads("w", FILTERS, order=FILTER),
    reads("bias?", "O"),
    writes("out", RESULTS, EITHER),
    writes("positions", RESULTS, "uint8 int32"),
    op="conv2d forward_pooled",
    native=lambda *arguments: arguments[12].dtype == arguments[0].dtype,  # then maxima of rounded sums are wanted
    relu=flag,
    **WINDOWS,
)
def forward_pooled(
    x, w, bias, relu, stride, padding, dilation, groups, kernel_size, pool_stride, pool_padding, pool_dilation,
    out, positions, workspace,
):  # fmt: skip
    """forward, then pool2d.max_forward of what it gives, which is not kept. The bits are those of the two.

    Math    out[n,o,i,j] = max over the taps of a window of forward(x, w, bias, relu); positions: which tap
    Grads   those of forward, for pool2d.max_input_grad(g, None, positions)
    Shapes  out, positions: what max pooling with these sizes, pairs, gives for the output of the convolution, in
            floor mode or in ceil mode; both channels last
    Types   positions: pool2d.position_type(kernel_size)
    """
    settings, windows = (stride, padding, dilation, groups), (kernel_size, pool_stride, pool_padding, pool_dilation)
    shape = output_shape(x.shape, w.shape, None, *settings)
    check_windows("conv2d forward_pooled", shape, out, positions, *windows)
    together = None
    if not is_half(x.dtype) and backend(x) == "cpu":
        pooling = implementation(__name__, "pooling", x)
        together = pooling(x.shape, w.shape, settings, x.itemsize, windows, out.shape[2:])
    return together or _in_two_steps(shape, settings, windows)


def _in_two_steps(shape, settings, windows):
    """forward_pooled one after the other: of sums of 16 bits that round to equals, the first counts."""
    n, o, i, j = shape

    def run(x, w, bias, relu, *others):
        out, positions, workspace = others[-3:]
        convolved = elements(workspace, x, x.dtype, n, i, j, o).transpose(0, 3, 1, 2)
        forward(x, w, bias, relu, *settings, convolved, workspace)
        max_forward(convolved, *windows, out, positions)

    return run


def _gradient(direction, g, x, w, settings):
    """The plan for one of the gradients, of x or of w."""
    wants_shape(f"conv2d {direction}", "g", g, output_shape(x.shape, w.shape, None, *settings))
    return _ready(direction, g, x.shape, w.shape, settings)


@conv(
    reads("g", RESULTS),
    reads("w", FILTERS, order=FILTER),
    writes("dx", IMAGES, EITHER),
    op="conv2d input_grad",
    native=lambda g, w, *rest: _native("input_grad", rest[4], w, g, rest[:4]),
)
def input_grad(g, w, stride, padding, dilation, groups, dx, workspace):
    """Gradient of the convolution with respect to its input; also known as transposed convolution.

    Math    dx[n,c,h,w] = sum of g[n,o,i,j] * w[o,c,p,q] over all (o, p, q, i, j) that read (h, w)
    Grads   with respect to g: forward(gg, w)      with respect to w: weight_grad(g, gg)
    Source  V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", 2016, section 4
    """
    return _gradient("input_grad", g, dx, w, (stride, padding, dilation, groups))


@conv(
    reads("g", RESULTS),
    reads("x", IMAGES),
    writes("dw", FILTERS, EITHER, FILTER),
    op="conv2d weight_grad",
    native=lambda g, x, *rest: _native("weight_grad", x, rest[4], g, rest[:4]),
)
def weight_grad(g, x, stride, padding, dilation, groups, dw, workspace):
    """Gradient of the convolution with respect to its filters.

    Math    dw[o,c,p,q] = sum_{n,i,j} g[n,o,i,j] * x[n,c,h,w]
    Grads   with respect to g: forward(x, gg)      with respect to x: input_grad(g, gg)
    Source  V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", 2016, section 2
    """
    return _gradient("weight_grad", g, x, dw, (stride, padding, dilation, groups))
