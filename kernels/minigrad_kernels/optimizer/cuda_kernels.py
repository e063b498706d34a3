"""The kernels of the family on CUDA: the walk of an update over all parameters, sums of squares, clipping, scaling.

`addresses` holds where the arrays of one kind lie, a row each: the parameters first, then their gradients and states.
`chunks` has a row for each chunk: its array, its first element there, and how many it has. Each block owns one chunk,
of at most CHUNK elements, and thread i of it the elements i, i + 256, ... .
"""

import math

from ..toolchain.cuda import cuda, device, each_float, f64, kernel, offset, pointer_at
from .rules import MAXIMIZE, ROOM, RULES
from .rules import ten as ten_of

CHUNK = 1024  # elements: four for each thread, so that small networks fill a GPU, too
THREADS = 256  # of a block
SGD, ADAM, RMSPROP = range(3)  # what kernels know rules by, in the order of RULES; the last one is Adagrad
(sgd, sgd_numbers), (adam, adam_numbers), (rmsprop, rmsprop_numbers), (adagrad, adagrad_numbers) = (
    (device(formula), device(numbers)) for formula, numbers in RULES.values()
)
ten = device(ten_of)


@device
def part(addresses, kind, chunks, like):
    """Where the chunk of this block begins in the array of that kind."""
    t, start = chunks[cuda.blockIdx.x, 0], chunks[cuda.blockIdx.x, 1]
    return offset(pointer_at(addresses[kind, t], like), start)


@device
def block_sum(sums, value):
    """The sum of the values of all threads of a block, pairwise, for its thread 0."""
    i, half = cuda.threadIdx.x, THREADS // 2
    sums[i] = value
    while half:
        cuda.syncthreads()
        if i < half:
            sums[i] += sums[i + half]
        half //= 2
    return sums[0]


# ---- updates ---------------------------------------------------------------------------------------------------------


@kernel("f64[:] hyper, f64[:] scale, f64[:] found_inf, f32[:] single, f64[:] double, i32 rule", threads=1)
def coefficients(hyper, scale, found_inf, single, double, rule):
    """What an update multiplies with, for both types, and behind that whether to skip it. Else the step is counted."""
    sign = -scale[0] if hyper[MAXIMIZE] else scale[0]
    if rule == SGD:
        c = sgd_numbers(hyper, sign)
    elif rule == ADAM:
        c = adam_numbers(hyper, sign)
    elif rule == RMSPROP:
        c = rmsprop_numbers(hyper, sign)
    else:
        c = adagrad_numbers(hyper, sign)
    for k in range(ROOM):
        single[k], double[k] = c[k], c[k]
    single[ROOM] = double[ROOM] = found_inf[0] != 0
    if found_inf[0] == 0:
        hyper[hyper.size - 1] = 0 if rule == SGD else hyper[hyper.size - 1] + 1


@each_float("u64[:,:] addresses, i32[:,:] chunks, _* numbers, i32 present, i32 rule", threads=THREADS)
def update(addresses, chunks, numbers, present, rule):
    """The parameter and each state are read and written once, the gradient is read once.

    Bit k of `present` is set where state k is there; one that is not there is neither read nor written.
    """
    p, g = part(addresses, 0, chunks, numbers), part(addresses, 1, chunks, numbers)
    first, second = part(addresses, 2, chunks, numbers), part(addresses, 3, chunks, numbers)
    third, c, zero = part(addresses, 4, chunks, numbers), ten(numbers), type(p[0])(0)
    count = 0 if numbers[ROOM] else chunks[cuda.blockIdx.x, 2]
    for k in range(cuda.threadIdx.x, count, THREADS):
        before, d = p[k], g[k]
        x = first[k] if present & 1 else zero
        y = second[k] if present & 2 else zero
        z = third[k] if present & 4 else zero
        if rule == SGD:
            p[k], x, y, z = sgd(before, d, x, y, z, present, c)
        elif rule == ADAM:
            p[k], x, y, z = adam(before, d, x, y, z, present, c)
        elif rule == RMSPROP:
            p[k], x, y, z = rmsprop(before, d, x, y, z, present, c)
        else:
            p[k], x, y, z = adagrad(before, d, x, y, z, present, c)
        if present & 1:
            first[k] = x
        if present & 2:
            second[k] = y
        if present & 4:
            third[k] = z


# ---- norms and scaling -----------------------------------------------------------------------------------------------
# Each thread adds up to four squares, in the type of the arrays: in float32 a square above 3.4e38 is inf. All further
# sums are float64 and pairwise: their order follows from the sizes alone.


@each_float("u64[:,:] addresses, i32[:,:] chunks, f64[:] partial, _* like", threads=THREADS)
def squares(addresses, chunks, partial, like):
    """A block writes one sum. `like` says of which type the arrays are; it points to nothing."""
    a = part(addresses, 0, chunks, like)
    total = type(a[0])(0)
    for k in range(cuda.threadIdx.x, chunks[cuda.blockIdx.x, 2], THREADS):
        total += a[k] * a[k]
    total = block_sum(cuda.shared.array(THREADS, f64), total)
    if cuda.threadIdx.x == 0:
        partial[cuda.blockIdx.x] = total


@kernel("f64[:] partial, i32[:] starts, f64[:] out", threads=THREADS)
def sums(partial, starts, out):
    """Each block owns one array, whose chunks are those from starts[t] up to starts[t + 1]."""
    t, total = cuda.blockIdx.x, 0.0
    for k in range(starts[t] + cuda.threadIdx.x, starts[t + 1], THREADS):
        total += partial[k]
    total = block_sum(cuda.shared.array(THREADS, f64), total)
    if cuda.threadIdx.x == 0:
        out[t] = total


@each_float("f64[:] squares, _[:] norm, f64[:] factor, f64[:] inverse, f64[:] found_inf, f64 most", threads=THREADS)
def clip(squares, norm, factor, inverse, found_inf, most):
    """One block, which adds the squares and whose thread 0 writes the results. NaN stays NaN.

    inverse, found_inf: without elements where they are not there
    """
    total = 0.0
    for k in range(cuda.threadIdx.x, squares.size, THREADS):
        total += squares[k]
    total = math.sqrt(block_sum(cuda.shared.array(THREADS, f64), total))
    if cuda.threadIdx.x == 0:
        unscaled = inverse[0] if inverse.size else 1.0
        total *= unscaled
        share = most / (total + 1e-6)
        norm[0], factor[0] = total, unscaled if share >= 1.0 else share * unscaled
        if found_inf.size and not total < math.inf:
            found_inf[0] = 1.0


@each_float("u64[:,:] addresses, i32[:,:] chunks, _* like, f64[:] factor", threads=THREADS)
def scale(addresses, chunks, like, factor):
    """A factor of 1 touches nothing. `like` says of which type the arrays are; it points to nothing."""
    a = part(addresses, 0, chunks, like)
    share = type(a[0])(factor[0])
    count = 0 if factor[0] == 1 else chunks[cuda.blockIdx.x, 2]
    for k in range(cuda.threadIdx.x, count, THREADS):
        a[k] *= share
