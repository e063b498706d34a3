"""What the kernels of this family share: how tensors are cut into chunks, and words of the formulas.

`addresses` is (kinds, tensors) of u64: row 0 holds the address of each parameter, row 1 that of its gradient, the next
ones those of its state. `chunks` is (chunks, 3): the tensor of each chunk, its first element there, and how many it
has. Each block owns one chunk, of at most CHUNK elements.
"""

from ..toolchain.cuda import cuda, device, f32, f64, i32, i64, offset, pointer_at

__all__ = [
    "CHUNK", "DECAY", "SIGN", "SKIP", "THREADS", "begin", "between", "block_sum", "chunk_of_block",
    "decayed", "first_of", "power", "product", "put",
]  # fmt: skip

CHUNK = 1024  # elements: four for each thread, so that small networks fill a GPU, too
THREADS = 256  # of a block
SIGN, DECAY = range(2)  # the first coefficients of every rule; the sign is multiplied by the scale of the gradients
SKIP = 9  # the last one: whether to change nothing


@device
def chunk_of_block(chunks):
    """(tensor, first element, elements) of the chunk that this block owns."""
    at = i32(3 * cuda.blockIdx.x)
    return chunks[at], chunks[i32(at + 1)], chunks[i32(at + 2)]


@device
def first_of(addresses, tensors, kind, tensor, start, like):
    """Where a chunk begins in the array of that kind."""
    return offset(pointer_at(addresses[i32(kind * tensors + tensor)], like), start)


@device
def block_sum(sums, value):
    """The sum of the values of all threads of a block, pairwise, for its thread 0."""
    i = i32(cuda.threadIdx.x)
    sums[i] = value
    half = i32(THREADS // 2)
    while half:
        cuda.syncthreads()
        if i < half:
            sums[i] += sums[i32(i + half)]
        half = i32(half >> 1)
    return sums[0]


# ---- formulas ----------------------------------------------------------------------------------------------------


@device
def decayed(p, g, c):
    """The gradient with its sign, its scale and its weight decay. One of 0 is left out: 0 * inf would be NaN."""
    d = c[SIGN] * g
    if c[DECAY]:
        d += c[DECAY] * p
    return d


@device
def between(a, b, share):
    """a + share (b - a), from the nearer end as PyTorch does, so that a large difference does not swallow b."""
    one = type(a)(1)
    return a + share * (b - a) if abs(share) < type(a)(0.5) else b - (one - share) * (b - a)


# ---- coefficients ------------------------------------------------------------------------------------------------


@device
def product(a, b):
    """a * b rounded, never drawn into an addition."""
    return cuda.libdevice.dmul_rn(a, b)


@device
def _multiplied(a, a_rest, b, b_rest):
    """The product of two numbers that are each the sum of a float64 and a small rest."""
    high = product(a, b)
    low = cuda.fma(a, b, -high) + (a * b_rest + a_rest * b)
    total = high + low
    return total, low - (total - high)


@device
def power(base, exponent):
    """base to a whole power, at least 1, rounded as if once: 1 - power stays right where the power is nearly 1."""
    result, result_rest = f64(1), f64(0)
    square, square_rest = base, f64(0)
    n = i64(exponent)
    while n > 0:
        if n & 1:
            result, result_rest = _multiplied(result, result_rest, square, square_rest)
        square, square_rest = _multiplied(square, square_rest, square, square_rest)
        n >>= 1
    return result


@device
def put(single, double, place, value):
    """Write a coefficient for kernels of both types."""
    single[place], double[place] = f32(value), value


@device
def begin(single, double, maximize, scale, found_inf):
    """Write the first and the last coefficient; whether this step is one, and counts."""
    skip = found_inf[0] != 0.0
    put(single, double, SIGN, -scale[0] if maximize else scale[0])
    put(single, double, SKIP, 1.0 if skip else 0.0)
    return not skip
