"""Update rules of optimisers, in place, over all parameters in one call.

Arguments are lists with one array per parameter. The arrays of one parameter (itself, its gradient, its state) have
one shape and lie in memory alike without gaps; all arrays of a call have one element type. `hyper` is a float64
array whose elements hyper.SGD, hyper.Adam, hyper.RMSprop and hyper.Adagrad name. A weight decay of 0 is left out, so
that an infinite parameter stays infinite: 0 * inf would be NaN.

Grads   none: updates are not differentiated
Types   float32 and float64; coefficients are computed in float64
Errors  ValueError for a shape or layout, TypeError for an element type; nothing is changed then
"""

import numpy as np

from ..errors import KindError, ShapeError
from ..layout import CHANNELS_LAST, FILTER, is_dense
from ..toolchain import alias, implementation
from ..toolchain.arguments import check_array, check_floats, check_one_kind, check_output
from . import cpu
from .hyper import SGD, Adagrad, Adam, RMSprop

__all__ = ["SGD", "Adagrad", "Adam", "RMSprop", "adagrad", "adam", "rmsprop", "scale", "sgd", "squared_norms"]

SMALL = 1 << 14  # elements; below it a second thread costs more than it brings


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


def _tables(op, parameters, gradients=None, name="parameters", written=True, **states):
    """(addresses, sizes, like) for the kernels. Lists that are None are left out."""
    for k, parameter in enumerate(parameters):
        check_floats(op, f"{name}[{k}]", parameter)
        (check_output if written else check_array)(op, f"{name}[{k}]", parameter, None, parameters[0].dtype)
        if not _is_dense(parameter):
            raise ShapeError(f"{op}: {name}[{k}] (shape {parameter.shape}) has gaps, strides {parameter.strides}")
    lists = {name: parameters}
    if gradients is not None:
        _check_list(op, "gradients", gradients, parameters, check_array)
        lists["gradients"] = gradients
    for state, arrays in states.items():
        if arrays is not None:
            _check_list(op, state, arrays, parameters, check_output)
            lists[state] = arrays
    if len({type(array) for arrays in lists.values() for array in arrays}) > 1:
        check_one_kind(op, {f"{n}[{k}]": array for n, arrays in lists.items() for k, array in enumerate(arrays)})
    return _kernel("tables", parameters)(list(lists.values()))


def _kernel(name, arrays):
    """The function for arrays of that kind; without any, that of the CPU, which then has nothing to do."""
    return implementation(__name__, name, arrays[0]) if arrays else getattr(cpu, name)


def _hyper(op, hyper, names):
    """hyper for the kernels. It is always NumPy's: coefficients are computed on the host."""
    check_array(op, "hyper", hyper, (len(names),), np.float64)
    if type(hyper) is not np.ndarray:
        kind = type(hyper)
        raise KindError(f"{op}: hyper is {kind.__module__}.{kind.__qualname__}, wants numpy.ndarray")
    return alias(np.ascontiguousarray(hyper))


def _run(kernel, addresses, sizes, *arguments):
    # Kernels of CUDA have one version.
    (getattr(kernel, "alone", kernel) if sizes.sum() < SMALL else kernel)(addresses, sizes, *arguments)


def sgd(parameters, gradients, momentum_buffers, hyper):
    """Gradient descent, with momentum where momentum_buffers is not None.

    Math    d = g + weight_decay * p;  b = momentum * b + (1 - dampening) * d, b = d if FIRST
            p -= rate * b, or rate * (d + momentum * b) if NESTEROV; g is negated if MAXIMIZE
    Shapes  lists of arrays; hyper (7,), see hyper.SGD
    Source  Sutskever et al. 2013, in the form of torch.optim.SGD
    """
    kernel, hyper = _kernel("sgd", parameters), _hyper("sgd", hyper, SGD)
    addresses, sizes, like = _tables("sgd", parameters, gradients, momentum_buffers=momentum_buffers)
    _run(kernel, addresses, sizes, momentum_buffers is not None, hyper, like)


def adam(parameters, gradients, exp_avg, exp_avg_sq, max_exp_avg_sq, hyper):
    """Adam; AdamW if DECOUPLED; AMSGrad where max_exp_avg_sq is not None.

    Math    g += weight_decay * p, or if DECOUPLED p *= 1 - rate * weight_decay; g is negated if MAXIMIZE
            m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g**2;  u = v, or max(u, v)
            p -= rate / (1 - beta1**step) * m / (sqrt(u) / sqrt(1 - beta2**step) + eps)
    Shapes  lists of arrays; hyper (8,), see hyper.Adam
    Source  Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2; Reddi et al. 2018
    """
    kernel, hyper = _kernel("adam", parameters), _hyper("adam", hyper, Adam)
    states = dict(exp_avg=exp_avg, exp_avg_sq=exp_avg_sq, max_exp_avg_sq=max_exp_avg_sq)
    addresses, sizes, like = _tables("adam", parameters, gradients, **states)
    _run(kernel, addresses, sizes, max_exp_avg_sq is not None, hyper, like)


def rmsprop(parameters, gradients, square_avg, grad_avg, momentum_buffers, hyper):
    """RMSprop; centred where grad_avg is not None; with momentum where momentum_buffers is not None.

    Math    g += weight_decay * p;  v = alpha * v + (1 - alpha) * g**2;  a = alpha * a + (1 - alpha) * g
            d = g / (sqrt(v - a**2) + eps), a = 0 if not centred;  b = momentum * b + d;  p -= rate * b
            g is negated first if MAXIMIZE; without momentum p -= rate * d
    Shapes  lists of arrays; hyper (6,), see hyper.RMSprop
    Source  Hinton 2012, lecture 6e; Graves 2013, equations 38-45 (centred), in the form of torch.optim.RMSprop
    """
    kernel, hyper = _kernel("rmsprop", parameters), _hyper("rmsprop", hyper, RMSprop)
    states = dict(square_avg=square_avg, grad_avg=grad_avg, momentum_buffers=momentum_buffers)
    addresses, sizes, like = _tables("rmsprop", parameters, gradients, **states)
    _run(kernel, addresses, sizes, grad_avg is not None, momentum_buffers is not None, hyper, like)


def adagrad(parameters, gradients, sums, hyper):
    """Steps divided by the root of the sum of all squared gradients so far.

    Math    g += weight_decay * p;  s += g**2;  p -= rate / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps)
            g is negated first if MAXIMIZE
    Shapes  lists of arrays; hyper (6,), see hyper.Adagrad
    Source  Duchi, Hazan and Singer 2011, figure 1 with diagonal matrices, in the form of torch.optim.Adagrad
    """
    kernel, hyper = _kernel("adagrad", parameters), _hyper("adagrad", hyper, Adagrad)
    addresses, sizes, like = _tables("adagrad", parameters, gradients, sums=sums)
    _run(kernel, addresses, sizes, hyper, like)


def squared_norms(arrays, out):
    """The sum of the squares of each array, in float64, whatever the type of the arrays.

    Math    out[t] = sum arrays[t]**2
    Shapes  arrays: a list; out (len(arrays),) of float64
    """
    kernel = _kernel("squared_norms", arrays)
    check_output("squared_norms", "out", out, (len(arrays),), np.float64)
    addresses, sizes, like = _tables("squared_norms", arrays, name="arrays", written=False)
    partial = np.empty(cpu.chunks.py_func(sizes))  # a few bytes for each chunk of elements
    kernel(addresses, sizes, out, partial, like)


def scale(arrays, factor):
    """Multiply all arrays by a number, in place.

    Math    arrays[t] *= factor, rounded to the type of the arrays
    Shapes  arrays: a list
    """
    kernel = _kernel("scale", arrays)
    addresses, sizes, like = _tables("scale", arrays, name="arrays")
    _run(kernel, addresses, sizes, float(factor), like)
