"""The walk of an update over all parameters, for every rule (cuda_rules.py).

The parameter and each state are read and written once, the gradient is read once. `present` has bit k set where state k
is there; one that is not there is neither read nor written.
"""

from ..toolchain.cuda import cuda, device, each_float, i32, kernel
from . import cuda_rules
from .cuda_parts import SKIP, THREADS, chunk_of_block, first_of

__all__ = ["COEFFICIENTS", "KINDS", "coefficients", "update"]

COEFFICIENTS = 10  # room for those of any rule, and SKIP
KINDS = 5  # of arrays: parameters, gradients, three states
SGD, ADAM, RMSPROP, ADAGRAD = (cuda_rules.RULES[name][0] for name in ("sgd", "adam", "rmsprop", "adagrad"))
sgd, adam, rmsprop, adagrad = cuda_rules.sgd, cuda_rules.adam, cuda_rules.rmsprop, cuda_rules.adagrad
sgd_coefficients, adam_coefficients = cuda_rules.sgd_coefficients, cuda_rules.adam_coefficients
rmsprop_coefficients, adagrad_coefficients = cuda_rules.rmsprop_coefficients, cuda_rules.adagrad_coefficients


@device
def nine(c):
    return c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8]


@device
def element(rule, p, g, first, second, third, k, present, c):
    """The update of element k."""
    before, gradient = p[k], g[k]
    a = b = d = type(before)(0)
    if present & 1:
        a = first[k]
    if present & 2:
        b = second[k]
    if present & 4:
        d = third[k]
    if rule == SGD:
        after, a, b, d = sgd(before, gradient, a, b, d, present, c)
    elif rule == ADAM:
        after, a, b, d = adam(before, gradient, a, b, d, present, c)
    elif rule == RMSPROP:
        after, a, b, d = rmsprop(before, gradient, a, b, d, present, c)
    else:
        after, a, b, d = adagrad(before, gradient, a, b, d, present, c)
    if present & 1:
        first[k] = a
    if present & 2:
        second[k] = b
    if present & 4:
        third[k] = d
    p[k] = after


@each_float("u64* addresses, i32* chunks, _* coefficients, i32 tensors, i32 present, i32 rule", threads=THREADS)
def update(addresses, chunks, coefficients, tensors, present, rule):
    """Thread i of a block owns the elements i, i + 256, ... of its chunk."""
    t, start, count = chunk_of_block(chunks)
    count, c = i32(0 if coefficients[SKIP] else count), nine(coefficients)
    p = first_of(addresses, tensors, 0, t, start, coefficients)
    g = first_of(addresses, tensors, 1, t, start, coefficients)
    first = first_of(addresses, tensors, 2, t, start, coefficients)
    second = first_of(addresses, tensors, 3, t, start, coefficients)
    third = first_of(addresses, tensors, 4, t, start, coefficients)
    for k in range(i32(cuda.threadIdx.x), count, THREADS):
        element(rule, p, g, first, second, third, k, present, c)


@kernel("f64* hyper, f64* scale, f64* found_inf, f32* single, f64* double, i32 rule", threads=1)
def coefficients(hyper, scale, found_inf, single, double, rule):
    """What the update multiplies with."""
    if rule == SGD:
        sgd_coefficients(hyper, scale, found_inf, single, double)
    elif rule == ADAM:
        adam_coefficients(hyper, scale, found_inf, single, double)
    elif rule == RMSPROP:
        rmsprop_coefficients(hyper, scale, found_inf, single, double)
    else:
        adagrad_coefficients(hyper, scale, found_inf, single, double)
