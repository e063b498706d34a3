"""Matrix product: the launchers.

Letters: M rows of a and of out, K the length of a sum, N columns of b and of out.
"""

from functools import lru_cache

import numpy as np

from ..checked import Call, Checked, layouts
from ..errors import KindError, ShapeError
from ..toolchain import implementation, threads
from ..toolchain.arguments import check_one_kind, check_output, workspace_of
from ..toolchain.modes import tf32_mode as tf32
from ..toolchain.widening import is_half, on_cuda, widened

__all__ = ["forward", "output_shape", "workspace"]

SINGLE = np.dtype(np.float32)
FLOATS = {SINGLE, np.dtype(np.float64)}


def _broadcast(a_shape, b_shape):
    """The batch shape of two matrix stacks, by NumPy's rule."""
    if any(p != q and 1 not in (p, q) for p, q in zip(reversed(a_shape[:-2]), reversed(b_shape[:-2]), strict=False)):
        raise ShapeError(
            f"matmul: a has shape {a_shape}, b has shape {b_shape}: the leading axes {a_shape[:-2]} and "
            f"{b_shape[:-2]} do not broadcast; each pair of sizes must be equal, or one of them 1"
        )
    return np.broadcast_shapes(a_shape[:-2], b_shape[:-2])


@lru_cache(maxsize=1024)
def _output_shape(a_shape, b_shape):
    for name, shape in (("a", a_shape), ("b", b_shape)):
        if len(shape) < 2:
            raise ShapeError(f"matmul: {name} has shape {shape}, wants at least 2 axes: (..., rows, columns)")
    if a_shape[-1] != b_shape[-2]:
        raise ShapeError(
            f"matmul: a has {a_shape[-1]} columns (shape {a_shape}), b has {b_shape[-2]} rows (shape {b_shape}); "
            "they must be equal"
        )
    return (*_broadcast(a_shape, b_shape), a_shape[-2], b_shape[-1])


def output_shape(a_shape, b_shape):
    """Shape of a @ b, by NumPy's rules for at least two axes each.

    Shapes  a (..., M, K), b (..., K, N) give (..., M, N); leading axes broadcast
    Errors  ValueError if an operand has fewer than two axes, K differs, or leading axes do not broadcast
    """
    return _output_shape(tuple(a_shape), tuple(b_shape))


def workspace(a, b):
    """Bytes of workspace that `forward` wants for arrays of these shapes, strides and type; often 0."""
    return implementation(__name__, "workspace", a)(a, b)


@widened("a b bias residual", either="out", native=on_cuda)
def forward(a, b, bias, relu, out, workspace, residual=None):
    """Matrix product of two stacks of matrices, plus a bias on each row; with relu, the positive part. NaN stays NaN.

    Math    out[..., m, n] = max(bias[n] + sum_k a[..., m, k] b[..., k, n] + residual[..., m, n], 0), without relu the
            sum itself
    Grads   da = g b^T      db = a^T g      dbias = sum of g over all axes but the last      dresidual = g;
            with relu, g is 0 where out is
    Shapes  a (..., M, K) and b (..., K, N) with equal leading axes and any strides (also 0 or negative);
            bias None or (N,); out (..., M, N) in C order; residual None, or like out and not in its memory;
            workspace bytes, at least workspace(a, b), or a function (bytes, out) that gives them
    Types   float16, bfloat16, float32 or float64, one for all; beside the first two out may be float32; in the mode
            tf32, a GPU rounds operands of float32 to TF32 first
    Errors  ValueError for shapes that do not fit, a workspace too small or a read-only out, TypeError for other types
    """
    shapes, settings, call = layouts("forward", a, b, bias, out, residual), (threads(), tf32()), None
    if shapes and out.flags.writeable and residual is not out:
        call = _calls.found(shapes, settings)
    if call is None:
        _check(a, b, bias, out, residual)
        call = Call(*(implementation(__name__, function, out)(a, b) for function in ("workspace", "ready")))
        if shapes:
            _calls.keep(shapes, settings, call)
    call.run(a, b, bias, relu, residual, out, workspace_of("matmul", workspace, call.bytes, "matmul.workspace", out))


_calls = Checked()


def _check(a, b, bias, out, residual):
    """All that `forward` asks of its arguments but the workspace."""
    kind, dtype = type(out), out.dtype
    if any(type(array) is not kind for array in (a, b, bias, residual) if array is not None):
        check_one_kind("matmul", {"out": out, "a": a, "b": b, "bias": bias, "residual": residual})
    like = "a" if dtype == SINGLE and is_half(a.dtype) else "out"
    if like == "a":
        dtype = a.dtype
    elif dtype not in FLOATS and not is_half(dtype):
        raise KindError(f"matmul: out is {dtype}, wants float16, bfloat16, float32 or float64")
    for name, array in (("out", out), ("a", a), ("b", b), ("bias", bias), ("residual", residual)):
        if array is None:
            continue
        if array.dtype != dtype and array is not out:
            raise KindError(f"matmul: {name} is {array.dtype}, {like} is {dtype}; wants one type")
        if not getattr(array.flags, "aligned", True):  # arrays of CuPy always are
            raise ShapeError(f"matmul: {name} lies at an address that is no multiple of its element; pass a copy")
    if output_shape(a.shape, b.shape) != out.shape or a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(
            f"matmul: a {a.shape} and b {b.shape} do not give out {out.shape}; wants (..., M, K), (..., K, N) and "
            "(..., M, N) with equal leading axes"
        )
    if not out.flags.c_contiguous:
        raise ShapeError(f"matmul: out has strides {out.strides} (shape {out.shape}), wants C order")
    if residual is not None and (residual.shape != out.shape or not residual.flags.c_contiguous or residual is out):
        raise ShapeError(
            f"matmul: residual has shape {residual.shape} and strides {residual.strides}, wants an array of its own of "
            f"shape {out.shape} in C order"
        )
    if bias is not None and (bias.shape != out.shape[-1:] or not bias.flags.c_contiguous):
        raise ShapeError(f"matmul: bias has shape {bias.shape}, wants {out.shape[-1:]} without gaps")
    check_output("matmul", "out", out, None, None)
