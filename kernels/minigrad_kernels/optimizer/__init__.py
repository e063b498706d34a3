"""Update rules of optimisers, in place, over all parameters in one call.

Arguments are lists with one array per parameter. The arrays of one parameter (itself, its gradient, its state) have
one shape and lie in memory alike without gaps; all arrays of a call have one element type. `hyper` is a float64
array whose elements SGD, Adam, RMSprop and Adagrad of rules.py name. A weight decay of 0 is left out, so
that an infinite parameter stays infinite: 0 * inf would be NaN.

Each rule takes two float64 arrays (1,) where its parameters are, which the host never reads on a device: `scale`, which
multiplies each gradient before anything else, as clipping and the scale of a loss want it, and `found_inf`: where it is
not 0, nothing is changed and the step is not counted.

Grads   none: updates are not differentiated
Types   float16, bfloat16, float32 and float64; coefficients are computed in float64
Errors  ValueError for a shape or layout, TypeError for an element type; nothing is changed then
"""

import numpy as np

from ..errors import KindError, ShapeError
from ..layout import CHANNELS_LAST, FILTER, is_dense
from ..toolchain import alias, implementation
from ..toolchain.arguments import check_array, check_floats, check_one_kind, check_output, workspace_of
from ..toolchain.widening import widened
from .plan import Plan
from .rules import SGD, Adagrad, Adam, RMSprop

__all__ = [
    "SGD", "Adagrad", "Adam", "Plan", "RMSprop", "adagrad", "adam", "clip_factor", "rmsprop",
    "scale", "sgd", "squared_norms", "workspace",
]  # fmt: skip

PIECE = 1 << 10  # elements; a device sums no fewer at a time
ALIGNMENT = 8  # bytes
DOUBLE = np.dtype(np.float64)
SHAPES = {names: (len(names),) for names in (SGD, Adam, RMSprop, Adagrad)}  # of hyper


def _is_dense(array):
    """Whether the elements lie without gaps, in whatever order of axes."""
    if array.flags.c_contiguous or (array.ndim == 4 and (is_dense(array, CHANNELS_LAST) or is_dense(array, FILTER))):
        return True
    return is_dense(array, tuple(sorted(range(array.ndim), key=lambda axis: -array.strides[axis])))


def _alike(a, b):
    """Whether two arrays of one shape lie alike; the strides of axes of size 1 say nothing."""
    if a.strides == b.strides or not a.size:
        return True
    return all(s == t for s, t, n in zip(a.strides, b.strides, a.shape, strict=True) if n > 1)


def _check_list(op, name, arrays, parameters, check):
    if len(arrays) != len(parameters):
        raise ShapeError(f"{op}: {name} has {len(arrays)} arrays for {len(parameters)} parameters")
    for k, (array, parameter) in enumerate(zip(arrays, parameters, strict=True)):
        check(op, f"{name}[{k}]", array, parameter.shape, parameter.dtype)
        if not _alike(array, parameter):
            raise ShapeError(
                f"{op}: {name}[{k}] (shape {array.shape}) has strides {array.strides}, "
                f"wants those of its parameter, {parameter.strides}"
            )


def _check_first(op, name, arrays, check):
    for k, array in enumerate(arrays):
        check_floats(op, f"{name}[{k}]", array)
        check(op, f"{name}[{k}]", array, None, arrays[0].dtype)
        if not _is_dense(array):
            raise ShapeError(f"{op}: {name}[{k}] (shape {array.shape}) has gaps, strides {array.strides}")


def _look(op, plan, lists, check=check_output):
    """Check the arrays of a call that a plan does not follow, and give it tables of them.

    lists: those of the parameters first, then of the gradients; None for a state that is not there
    """
    first, parameters = next(iter(lists.items()))
    if "gradients" in lists and plan.laid is not None:
        lists["gradients"] = plan.laid(lists["gradients"], parameters)
    like = parameters[0]
    for name, arrays in lists.items():
        if arrays is None and name != "gradients":
            continue
        if name == first:
            _check_first(op, name, arrays, check)
        else:
            _check_list(op, name, arrays or (), parameters, check_array if name == "gradients" else check_output)
        if {*map(type, arrays)} != {type(like)}:
            check_one_kind(op, {f"{first}[0]": like} | {f"{name}[{k}]": a for k, a in enumerate(arrays)})
    plan.remember(lists, *(implementation(__name__, function, like) for function in ("addresses", "tables")))


def _hyper(op, hyper, names):
    """hyper for the kernels. It is always NumPy's: what a device holds of it is the plan's."""
    if type(hyper) is np.ndarray and hyper.dtype is DOUBLE and hyper.shape == SHAPES[names] and hyper.flags.carray:
        return hyper
    check_array(op, "hyper", hyper, SHAPES[names], np.float64)
    if type(hyper) is not np.ndarray:
        kind = type(hyper)
        raise KindError(f"{op}: hyper is {kind.__module__}.{kind.__qualname__}, wants numpy.ndarray")
    return alias(np.ascontiguousarray(hyper))


def _update(op, names, hyper, plan, lists, scale, found_inf):
    hyper, parameters = _hyper(op, hyper, names), lists["parameters"]
    if scale is not None or found_inf is not None:
        for name, number in (("scale", scale), ("found_inf", found_inf)):
            if number is not None:
                check_array(op, name, number, (1,), np.float64)
                check_one_kind(op, {"parameters[0]": parameters[0] if parameters else number, name: number})
    if not parameters:
        for name, arrays in lists.items():
            _check_list(op, name, arrays or (), parameters, check_array)
        return
    plan = plan or Plan()
    if not plan.follows(lists):  # seldom
        _look(op, plan, lists)
    implementation(__name__, op, parameters[0])(plan, hyper, scale, found_inf)


@widened("*gradients", updated="*parameters *momentum_buffers")
def sgd(parameters, gradients, momentum_buffers, hyper, plan=None, scale=None, found_inf=None):
    """Gradient descent, with momentum where momentum_buffers is not None.

    Math    d = g + weight_decay * p;  b = momentum * b + (1 - dampening) * d, b = d if FIRST
            p -= rate * b, or rate * (d + momentum * b) if NESTEROV; g is negated if MAXIMIZE
    Shapes  lists of arrays; hyper (7,), see rules.SGD
    Source  Sutskever et al. 2013, in the form of torch.optim.SGD
    """
    lists = {"parameters": parameters, "gradients": gradients, "momentum_buffers": momentum_buffers}
    _update("sgd", SGD, hyper, plan, lists, scale, found_inf)


@widened("*gradients", updated="*parameters *exp_avg *exp_avg_sq *max_exp_avg_sq")
def adam(parameters, gradients, exp_avg, exp_avg_sq, max_exp_avg_sq, hyper, plan=None, scale=None, found_inf=None):
    """Adam; AdamW if DECOUPLED; AMSGrad where max_exp_avg_sq is not None.

    Math    g += weight_decay * p, or if DECOUPLED p *= 1 - rate * weight_decay; g is negated if MAXIMIZE
            m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g**2;  u = v, or max(u, v)
            p -= rate / (1 - beta1**step) * m / (sqrt(u) / sqrt(1 - beta2**step) + eps)
    Shapes  lists of arrays; hyper (8,), see rules.Adam
    Source  Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2; Reddi et al. 2018
    """
    lists = {"parameters": parameters, "gradients": gradients, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
    lists["max_exp_avg_sq"] = max_exp_avg_sq
    _update("adam", Adam, hyper, plan, lists, scale, found_inf)


@widened("*gradients", updated="*parameters *square_avg *grad_avg *momentum_buffers")
def rmsprop(
    parameters, gradients, square_avg, grad_avg, momentum_buffers, hyper, plan=None, scale=None, found_inf=None
):
    """RMSprop; centred where grad_avg is not None; with momentum where momentum_buffers is not None.

    Math    g += weight_decay * p;  v = alpha * v + (1 - alpha) * g**2;  a = alpha * a + (1 - alpha) * g
            d = g / (sqrt(v - a**2) + eps), a = 0 if not centred;  b = momentum * b + d;  p -= rate * b
            g is negated first if MAXIMIZE; without momentum p -= rate * d
    Shapes  lists of arrays; hyper (7,), see rules.RMSprop
    Source  Hinton 2012, lecture 6e; Graves 2013, equations 38-45 (centred), in the form of torch.optim.RMSprop
    """
    lists = {"parameters": parameters, "gradients": gradients, "square_avg": square_avg, "grad_avg": grad_avg}
    lists["momentum_buffers"] = momentum_buffers
    _update("rmsprop", RMSprop, hyper, plan, lists, scale, found_inf)


@widened("*gradients", updated="*parameters *sums")
def adagrad(parameters, gradients, sums, hyper, plan=None, scale=None, found_inf=None):
    """Steps divided by the root of the sum of all squared gradients so far.

    Math    g += weight_decay * p;  s += g**2;  p -= rate / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps)
            g is negated first if MAXIMIZE
    Shapes  lists of arrays; hyper (6,), see rules.Adagrad
    Source  Duchi, Hazan and Singer 2011, figure 1 with diagonal matrices, in the form of torch.optim.Adagrad
    """
    lists = {"parameters": parameters, "gradients": gradients, "sums": sums}
    _update("adagrad", Adagrad, hyper, plan, lists, scale, found_inf)


def workspace(arrays):
    """The bytes that squared_norms wants for these arrays."""
    return 8 * sum(-(-array.size // PIECE) for array in arrays) + ALIGNMENT - 1


_bytes = workspace  # where an argument has that name


@widened("*arrays")
def squared_norms(arrays, out, workspace, plan=None):
    """The sum of the squares of each array. On a device no result waits for the host.

    Math    out[t] = sum arrays[t]**2. A CPU squares in float64, a GPU in the type of the arrays: in float32 that is
            inf above 3.4e38
    Shapes  arrays: a list; out (len(arrays),) of float64; workspace: workspace(arrays) bytes, or a
            function (bytes, arrays[0]) that gives them
    """
    check_output("squared_norms", "out", out, (len(arrays),), np.float64)
    if not arrays:
        return
    plan = plan or Plan()
    if not plan.follows({"arrays": arrays}):
        _look("squared_norms", plan, {"arrays": arrays}, check_array)
    check_one_kind("squared_norms", {"arrays[0]": arrays[0], "out": out})
    if not out.flags.c_contiguous:
        raise ShapeError(f"squared_norms: out has strides {out.strides}, wants C order")
    memory = workspace_of("squared_norms", workspace, _bytes(arrays), "optimizer.workspace", arrays[0])
    implementation(__name__, "squared_norms", arrays[0])(plan, out, memory)


@widened(outputs="norm")
def clip_factor(squares, max_norm, norm, factor, inverse=None, found_inf=None):
    """The norm of all arrays from the sums of squares of each, and what brings it down to max_norm.

    Math    norm = inverse * sqrt(sum squares);  factor = inverse * min(1, max_norm / (norm + 1e-6)), NaN where norm is
            found_inf = 1 where the norm is infinite or NaN, else as it was
    Shapes  squares (n,), factor (1,) of float64; norm () of any floating type
            inverse, of the scale of a loss, and found_inf (1,) of float64, or None
    """
    op = "clip_factor"
    check_array(op, "squares", squares, squares.shape[:1], np.float64)
    check_floats(op, "norm", norm)
    check_output(op, "norm", norm, (), norm.dtype)
    check_output(op, "factor", factor, (1,), np.float64)
    if inverse is not None:
        check_array(op, "inverse", inverse, (1,), np.float64)
    if found_inf is not None:
        check_output(op, "found_inf", found_inf, (1,), np.float64)
    numbers = {"norm": norm, "factor": factor, "inverse": inverse, "found_inf": found_inf}
    check_one_kind(op, {"squares": squares, **numbers})
    if not squares.flags.c_contiguous:
        raise ShapeError(f"{op}: squares has strides {squares.strides}, wants C order")
    implementation(__name__, op, squares)(squares, float(max_norm), norm, factor, inverse, found_inf)


@widened(updated="*arrays")
def scale(arrays, factor, plan=None):
    """Multiply all arrays by a number, in place.

    Math    arrays[t] *= factor, rounded to the type of the arrays
    Shapes  arrays: a list; factor: a number, or a float64 array (1,) where the arrays are, which the host never reads
            on a device
    """
    if not arrays:
        return
    plan = plan or Plan()
    if not plan.follows({"arrays": arrays}):
        _look("scale", plan, {"arrays": arrays}, check_array)
    for k, array in enumerate(arrays):
        check_output("scale", f"arrays[{k}]", array, None, arrays[0].dtype)
    if hasattr(factor, "dtype") and getattr(factor, "shape", ()):
        check_array("scale", "factor", factor, (1,), np.float64)
        check_one_kind("scale", {"arrays[0]": arrays[0], "factor": factor})
    else:
        factor = float(factor)
    implementation(__name__, "scale", arrays[0])(plan, factor)
