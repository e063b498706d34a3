"""Convolution, its two gradients, and convolution with pooling behind it: the launchers.

The three are bilinear, and each one's gradients are the other two.

Letters: n image, c channel in, o channel out, h w input, i j output, p q filter tap, s stride, d dilation, G groups.
Math shared by all three: the tap (p, q) of output pixel (i, j) reads the input at h = i*s + p*d - padding, and w
likewise; outside the input it reads 0.

Shapes  x, dx (N, C, H, W), w, dw (O, C/G, P, Q), out, g (N, O, I, J); stride, padding, dilation: pairs of integers,
        vertical first. Images lie channels last in memory, filters (P, Q, C/G, O): see layout.py
        workspace: bytes, at least workspace(...) of them, or a function (bytes, output) that gives them
Types   float16, bfloat16, float32 or float64, one for all arrays; beside the first two the output may be float32.
        Sums of 16 bits are float32. In the mode tf32, operands of float32 are rounded to TF32 first on a GPU
        whose tensor cores take the channels
Errors  ValueError for shapes, values, layouts or a workspace that do not fit, TypeError for other types
"""

import numpy as np

from ..checked import Call, Checked, layouts
from ..errors import KindError, MinigradError, ShapeError
from ..layout import CHANNELS_LAST, FILTER, is_dense
from ..pool2d import check_windows, max_forward, position_type
from ..toolchain import backend, implementation, threads
from ..toolchain.arguments import check_one_kind, check_output, workspace_of
from ..toolchain.modes import tf32_mode as tf32
from ..toolchain.widening import is_half, widened
from .geometry import as_tuple, output_shape
from .winograd_mode import mode as winograd

__all__ = ["forward", "forward_pooled", "input_grad", "output_shape", "weight_grad", "workspace"]

FLOATS = {np.dtype(np.float32), np.dtype(np.float64)}
HOST = np.empty(0, np.uint8)
SOURCE = "conv2d.workspace"
LAYOUTS = {
    CHANNELS_LAST: "channels last (memory order N, H, W, C)",
    FILTER: "filter layout (memory order P, Q, C, O)",
}


def _check(op, arrays, x_shape, w_shape, bias, settings):
    """Refuse what does not fit; arrays are (name, array, shape or None for the output's, layout).

    The last one is the output of the call.
    """
    first, like = arrays[0][:2]
    dtype, kinds, out = like.dtype, {type(entry[1]) for entry in arrays}, arrays[-1][1]
    if len(kinds) > 1 or (bias is not None and type(bias) is not type(like)):
        check_one_kind(op, {name: array for name, array, _, _ in arrays} | {"bias": bias})
    if dtype not in FLOATS and not is_half(dtype):
        raise KindError(f"{op}: {first} is {dtype}, wants float32 or float64")
    out_shape = output_shape(x_shape, w_shape, None if bias is None else bias.shape, *settings)
    for name, array, shape, layout in arrays:
        if array.dtype != dtype and not (array is out and is_half(dtype) and array.dtype == np.float32):
            raise KindError(f"{op}: {name} is {array.dtype}, {first} is {dtype}; wants one type")
        if array.shape != (shape or out_shape):
            raise ShapeError(f"{op}: {name} has shape {array.shape}, wants {shape or out_shape}")
        if not is_dense(array, layout) or not getattr(array.flags, "aligned", True):  # arrays of CuPy always are
            raise ShapeError(
                f"{op}: {name} has strides {array.strides} (shape {array.shape}), wants {LAYOUTS[layout]}; pass a copy"
            )
    name, array = arrays[-1][:2]  # the output
    if not getattr(array.flags, "writeable", True):  # arrays of CuPy always are
        raise ShapeError(f"{op}: {name} is read-only, wants an array to write to")


_calls = Checked()
_spaces = Checked()


def _conditions():
    """What the way that a call takes depends on beside its arguments."""
    return threads(), winograd(), tf32()


def _kept(shapes, given, out):
    """The call with these layouts and settings that was kept; None if it must be checked."""
    return _calls.found(shapes, given) if shapes and out.flags.writeable else None


def _settings(like, stride, padding, dilation, groups):
    """The settings as tuples, for an array of a kind that has kernels."""
    backend(like)
    return as_tuple(stride), as_tuple(padding), as_tuple(dilation), groups


def _keep(direction, like, x_shape, w_shape, settings, shapes, given, *pooled):
    """The call that has been checked, kept where its layouts are known."""
    itemsize = like.itemsize
    wanted = implementation(__name__, "workspace", like)(direction, x_shape, w_shape, *settings, itemsize)
    call = Call(
        wanted, implementation(__name__, "ready", like)(direction, x_shape, w_shape, settings, itemsize, *pooled)
    )
    return _calls.keep(shapes, given, call) if shapes else call


def workspace(direction, x_shape, w_shape, stride, padding, dilation, groups, dtype, like=None):
    """Bytes of workspace for one of the directions below, by its name, on the device of the array `like`.

    Without `like`, on the CPU. There it is for as many threads as now.
    """
    device, known = HOST if like is None else like, type(x_shape) is tuple is type(w_shape)
    settings = _settings(device, stride, padding, dilation, groups)
    shapes, given = (direction, x_shape, w_shape, dtype, type(like)), (*settings, *_conditions())
    if known and (found := _spaces.found(shapes, given)) is not None:
        return found
    output_shape(x_shape, w_shape, None, *settings)
    if is_half(np.dtype(dtype)) and not _on_cores(direction, device, x_shape, w_shape, settings):
        dtype = np.float32  # what 16 bits are widened to
    if np.dtype(dtype) not in FLOATS and not is_half(np.dtype(dtype)):
        raise KindError(f"conv2d: x is {np.dtype(dtype)}, wants float32 or float64")
    if direction == "forward_pooled" and backend(device) == "cuda":
        return 0
    wanted = implementation(__name__, "workspace", device)
    found = wanted(direction, tuple(x_shape), tuple(w_shape), *settings, np.dtype(dtype).itemsize)
    return _spaces.keep(shapes, given, found) if known else found


def _on_cores(direction, like, x_shape, w_shape, settings):
    """Whether arrays of 16 bits need not be widened: on a GPU, for shapes that suit its tensor cores."""
    if backend(like) != "cuda":
        return False
    try:
        output_shape(x_shape, w_shape, None, *settings)
    except MinigradError:
        return False  # the launcher says why
    return implementation(__name__, "fits", like)(direction, tuple(x_shape), tuple(w_shape), *settings)


def _native(direction, image, filters):
    """For `widened`: whether a call has kernels for 16 bits; image, filters: where x or dx, and w or dw stand."""

    def native(*arguments):
        settings = arguments[4:8] if direction == "forward" else arguments[2:6]
        (first, second), out = arguments[:2], arguments[8 if direction == "forward" else 6]
        shapes = arguments[image].shape, arguments[filters].shape
        if not _on_cores(direction, first, *shapes, _settings(first, *settings)):
            return False
        return implementation(__name__, "copied_at_once", first)(first, second, out)

    return native


def _check_relu_and_bias(op, x, relu, bias):
    if type(relu) is not bool:
        raise KindError(f"{op}: relu is {relu!r}, wants True or False")
    if bias is not None and (bias.dtype != x.dtype or not bias.flags.c_contiguous):
        raise KindError(f"{op}: bias is {bias.dtype} with strides {bias.strides}, wants {x.dtype} without gaps")


@widened("x w bias residual", either="out", native=_native("forward", 0, 1))
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
    shapes = layouts("forward", x, w, bias, out, residual)
    given = stride, padding, dilation, groups, relu, *_conditions()
    if (call := _kept(shapes, given, out)) is None or residual is out:
        settings = _settings(x, stride, padding, dilation, groups)
        arrays = [("x", x, x.shape, CHANNELS_LAST), ("w", w, w.shape, FILTER), ("out", out, None, CHANNELS_LAST)]
        if residual is not None:
            arrays.insert(2, ("residual", residual, None, CHANNELS_LAST))
            if residual is out:
                raise ShapeError("conv2d: residual is out, wants an array of its own; pass a copy")
        _check("conv2d", arrays, x.shape, w.shape, bias, settings)
        _check_relu_and_bias("conv2d", x, relu, bias)
        call = _keep("forward", x, x.shape, w.shape, settings, shapes, given)
    call.run(x, w, bias, relu, residual, out, workspace_of("conv2d", workspace, call.bytes, SOURCE, out))


def _rounded_maxima(*arguments):
    """For `widened`: whether forward_pooled is to give maxima of rounded sums, and not those of the sums themselves."""
    return arguments[12].dtype == arguments[0].dtype


@widened("x w bias", either="out", native=_rounded_maxima)
def forward_pooled(
    x, w, bias, relu, stride, padding, dilation, groups, kernel_size, pool_stride, pool_padding, pool_dilation,
    out, positions, workspace,
):  # fmt: skip
    """forward, then pool2d.max_forward of what it gives, which is not kept. The bits are those of the two.

    Math    out[n,o,i,j] = max over the taps of a window of forward(x, w, bias, relu); positions: which tap
    Grads   those of forward, for pool2d.max_input_grad(g, positions)
    Shapes  out, positions: what max pooling with these sizes, pairs, gives for the output of the convolution, in
            floor mode or in ceil mode; both channels last
    Types   positions: pool2d.position_type(kernel_size)
    """
    op, sizes = "conv2d forward_pooled", (kernel_size, pool_stride, pool_padding, pool_dilation)
    shapes = layouts(op, x, w, bias, out, positions)
    given = stride, padding, dilation, groups, *sizes, relu, *_conditions()
    if (call := _kept(shapes, given, out)) is None or not positions.flags.writeable:
        settings = _settings(x, stride, padding, dilation, groups)
        windows = _check_pooled(op, x, w, bias, relu, settings, sizes, out, positions)
        if is_half(x.dtype) or backend(x) == "cuda":
            _convolve_and_pool(x, w, bias, relu, settings, windows, out, positions)
            return
        call = _keep("forward_pooled", x, x.shape, w.shape, settings, shapes, given, windows, out.shape[2:])
    call.run(x, w, bias, relu, out, positions, workspace_of(op, workspace, call.bytes, SOURCE, out))


def _convolve_and_pool(x, w, bias, relu, settings, windows, out, positions):
    """forward_pooled where there is no kernel for it: of sums of 16 bits that round to equals, the first counts."""
    n, o, i, j = output_shape(x.shape, w.shape, None, *settings)
    convolved = np.empty_like(x, shape=(n, i, j, o), order="C").transpose(0, 3, 1, 2)
    forward(x, w, bias, relu, *settings, convolved, lambda size, like: np.empty_like(like, np.uint8, shape=(size,)))
    max_forward(convolved, *windows, out, positions)


def _check_pooled(op, x, w, bias, relu, settings, sizes, out, positions):
    """The sizes of the windows as pairs, after a look at everything but the workspace."""
    convolved = output_shape(x.shape, w.shape, None, *settings)
    arrays = [("x", x, x.shape, CHANNELS_LAST), ("w", w, w.shape, FILTER), ("out", out, out.shape, CHANNELS_LAST)]
    _check(op, arrays, x.shape, w.shape, bias, settings)
    _check_relu_and_bias(op, x, relu, bias)
    windows = check_windows(op, convolved, out.shape, *sizes)
    if type(positions) is not type(x):
        check_one_kind(op, {"x": x, "positions": positions})
    check_output(op, "positions", positions, out.shape, position_type(windows[0]))
    if not is_dense(positions, CHANNELS_LAST):
        raise ShapeError(f"{op}: positions has strides {positions.strides}, wants {LAYOUTS[CHANNELS_LAST]}")
    return windows


@widened("g w", either="dx", native=_native("input_grad", 6, 1))
def input_grad(g, w, stride, padding, dilation, groups, dx, workspace):
    """Gradient of the convolution with respect to its input; also known as transposed convolution.

    Math    dx[n,c,h,w] = sum of g[n,o,i,j] * w[o,c,p,q] over all (o, p, q, i, j) that read (h, w)
    Grads   with respect to g: forward(gg, w)      with respect to w: weight_grad(g, gg)
    Source  V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", 2016, section 4
    """
    op, given = "conv2d input_grad", (stride, padding, dilation, groups, *_conditions())
    shapes = layouts(op, g, w, dx)
    if (call := _kept(shapes, given, dx)) is None:
        settings = _settings(g, stride, padding, dilation, groups)
        arrays = [("g", g, None, CHANNELS_LAST), ("w", w, w.shape, FILTER), ("dx", dx, dx.shape, CHANNELS_LAST)]
        _check(op, arrays, dx.shape, w.shape, None, settings)
        call = _keep("input_grad", g, dx.shape, w.shape, settings, shapes, given)
    call.run(g, w, dx, workspace_of(op, workspace, call.bytes, SOURCE, dx))


@widened("g x", either="dw", native=_native("weight_grad", 1, 6))
def weight_grad(g, x, stride, padding, dilation, groups, dw, workspace):
    """Gradient of the convolution with respect to its filters.

    Math    dw[o,c,p,q] = sum_{n,i,j} g[n,o,i,j] * x[n,c,h,w]
    Grads   with respect to g: forward(x, gg)      with respect to x: input_grad(g, gg)
    Source  V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", 2016, section 2
    """
    op, given = "conv2d weight_grad", (stride, padding, dilation, groups, *_conditions())
    shapes = layouts(op, g, x, dw)
    if (call := _kept(shapes, given, dw)) is None:
        settings = _settings(g, stride, padding, dilation, groups)
        arrays = [("g", g, None, CHANNELS_LAST), ("x", x, x.shape, CHANNELS_LAST), ("dw", dw, dw.shape, FILTER)]
        _check(op, arrays, x.shape, dw.shape, None, settings)
        call = _keep("weight_grad", g, x.shape, dw.shape, settings, shapes, given)
    call.run(g, x, dw, workspace_of(op, workspace, call.bytes, SOURCE, dw))
