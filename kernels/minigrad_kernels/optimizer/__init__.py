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

from ..errors import ShapeError
from ..launcher import FLOATS, check, launcher, number, reads, updates, writes
from ..layout import order_of
from ..toolchain import alias, backend, implementation
from .plan import Plan
from .rules import SGD, Adagrad, Adam, RMSprop

__all__ = [
    "SGD", "Adagrad", "Adam", "Plan", "RMSprop", "adagrad", "adam", "clip_factor", "rmsprop",
    "scale", "sgd", "squared_norms",
]  # fmt: skip

DOUBLE = (np.dtype(np.float64),)
HOST = np.empty(0)


def _check_lists(op, lists, writes):
    """Refuse arrays that are not as those of the first list, the parameters, or that have gaps."""
    first, parameters = next(iter(lists.items()))
    for like in parameters[:1]:
        backend(like)
    for name, arrays in lists.items():
        if arrays is None and name != "gradients":  # a state that is not there
            continue
        arrays = arrays or ()
        if len(arrays) != len(parameters):
            raise ShapeError(f"{op}: {name} has {len(arrays)} arrays for {len(parameters)} parameters")
        for k, (array, parameter) in enumerate(zip(arrays, parameters, strict=True)):
            own = name == first
            dtypes = FLOATS if own and not k else (parameters[0].dtype,)
            shape, order = (None, order_of) if own else (parameter.shape, order_of(parameter))
            check(op, f"{name}[{k}]", array, parameters[0], dtypes, shape, order, writes and name != "gradients")


def _planned(op, plan, lists, writes=True):
    """A plan that knows these lists, those of the parameters first; None for a state that is not there."""
    plan = plan or Plan()
    if plan.follows(lists):  # as nearly always
        return plan
    parameters = next(iter(lists.values()))
    if "gradients" in lists and plan.laid is not None:
        lists["gradients"] = plan.laid(lists["gradients"], parameters)
    _check_lists(op, lists, writes)
    plan.remember(lists, *(implementation(__name__, function, parameters[0]) for function in ("addresses", "tables")))
    return plan


def _update(op, names, hyper, plan, lists, scale, found_inf):
    parameters = lists["parameters"]
    check(op, "hyper", hyper, HOST, DOUBLE, (len(names),))  # always NumPy's: what a device holds of it is the plan's
    for name, array in (("scale", scale), ("found_inf", found_inf)):
        if array is not None:
            check(op, name, array, parameters[0] if parameters else array, DOUBLE, (1,))
    if not parameters:
        return _check_lists(op, lists, False)
    plan = _planned(op, plan, lists)
    return implementation(__name__, op, parameters[0])(plan, alias(hyper), scale, found_inf)


def _rule(*states):
    """A launcher of lists of arrays, one array a parameter."""
    return launcher(updates(" ".join(["*parameters", *states]), None), reads("*gradients", None))


@_rule("*momentum_buffers?")
def sgd(parameters, gradients, momentum_buffers, hyper, plan=None, scale=None, found_inf=None):
    """Gradient descent, with momentum where momentum_buffers is not None.

    Math    d = g + weight_decay * p;  b = momentum * b + (1 - dampening) * d, b = d if FIRST
            p -= rate * b, or rate * (d + momentum * b) if NESTEROV; g is negated if MAXIMIZE
    Shapes  lists of arrays; hyper (7,), see rules.SGD
    Source  Sutskever et al. 2013, in the form of torch.optim.SGD
    """
    lists = {"parameters": parameters, "gradients": gradients, "momentum_buffers": momentum_buffers}
    _update("sgd", SGD, hyper, plan, lists, scale, found_inf)


@_rule("*exp_avg", "*exp_avg_sq", "*max_exp_avg_sq?")
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


@_rule("*square_avg", "*grad_avg?", "*momentum_buffers?")
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


@_rule("*sums")
def adagrad(parameters, gradients, sums, hyper, plan=None, scale=None, found_inf=None):
    """Steps divided by the root of the sum of all squared gradients so far.

    Math    g += weight_decay * p;  s += g**2;  p -= rate / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps)
            g is negated first if MAXIMIZE
    Shapes  lists of arrays; hyper (6,), see rules.Adagrad
    Source  Duchi, Hazan and Singer 2011, figure 1 with diagonal matrices, in the form of torch.optim.Adagrad
    """
    lists = {"parameters": parameters, "gradients": gradients, "sums": sums}
    _update("adagrad", Adagrad, hyper, plan, lists, scale, found_inf)


@launcher(reads("*arrays", None))
def squared_norms(arrays, out, workspace, plan=None):
    """The sum of the squares of each array. On a device no result waits for the host.

    Math    out[t] = sum arrays[t]**2. A CPU squares in float64, a GPU in the type of the arrays: in float32 that is
            inf above 3.4e38
    Shapes  arrays: a list; out (len(arrays),) of float64
    """
    check("squared_norms", "out", out, arrays[0] if arrays else out, DOUBLE, (len(arrays),), writes=True)
    if arrays:
        plan = _planned("squared_norms", plan, {"arrays": arrays}, False)
        implementation(__name__, "squared_norms", arrays[0])(plan, out, workspace)


@launcher(
    reads("squares", "n", "float64"),
    writes("norm", ""),
    writes("factor", "1", "float64"),
    reads("inverse?", "1", "float64"),
    updates("found_inf?", "1", "float64"),
    max_norm=number,
)
def clip_factor(squares, max_norm, norm, factor, inverse=None, found_inf=None):
    """The norm of all arrays from the sums of squares of each, and what brings it down to max_norm.

    Math    norm = inverse * sqrt(sum squares);  factor = inverse * min(1, max_norm / (norm + 1e-6)), NaN where norm is
            found_inf = 1 where the norm is infinite or NaN, else as it was
    Shapes  squares (n,), factor (1,) of float64; norm () of any floating type
            inverse, of the scale of a loss, and found_inf (1,) of float64, or None
    """


@launcher(updates("*arrays", None))
def scale(arrays, factor, plan=None):
    """Multiply all arrays by a number, in place.

    Math    arrays[t] *= factor, rounded to the type of the arrays
    Shapes  arrays: a list; factor: a number, or a float64 array (1,) where the arrays are, which the host never reads
            on a device
    """
    if not arrays:
        return
    plan = _planned("scale", plan, {"arrays": arrays})
    if getattr(factor, "shape", ()):
        check("scale", "factor", factor, arrays[0], DOUBLE, (1,))
    else:
        factor = float(factor)
    implementation(__name__, "scale", arrays[0])(plan, factor)
