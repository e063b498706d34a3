"""Winograd's transforms F(4 x 4, 3 x 3): a small square of vectors in, one of another size out.

All are two-sided: with L one of the matrices below, result = L square L^T, for a vector of neighbouring channels
at a time.

Math    spread_input     V = B^T x B    6x6 pixels to 6x6 frequencies
        spread_filter    U = G w G^T    3x3 taps to 6x6 frequencies
        gather_output    y = A^T M A    6x6 frequencies, M = sum of V U over channels, to 4x4 pixels
        spread_gradient  M = A g A^T    4x4 pixels to 6x6 frequencies
        gather_filter    w = G^T U G    6x6 frequencies, U = sum of V M over tiles, to 3x3 taps

The points of interpolation are 0, 1, -1, 2, -2 and infinity: six frequencies along an axis. Row k of P_n holds the
powers 0 to n - 1 of point k; that of infinity is 1 at the last. The rows of a matrix are written out as sums in a fixed
order that share their common parts.

        input_rule   B^T = 4  0 -5  0  1  0        gradient_rule  P_4
                           0 -4 -4  1  1  0        output_rule    P_4^T
                           0  4 -4 -1  1  0        filter_rule    G = D P_3
                           0 -2 -1  2  1  0        taps_rule      G^T
                           0  2 -1 -2  1  0
                           0  4  0 -5  0  1        D = diag(1/4, -1/6, -1/6, 1/24, 1/24, 1)

        P_3 = 1  0  0        P_4 = 1  0  0  0
              1  1  1              1  1  1  1
              1 -1  1              1 -1  1 -1
              1  2  4              1  2  4  8
              1 -2  4              1 -2  4 -8
              0  0  1              0  0  0  1

Arrays are one-dimensional float32; `at`, steps and counts are in elements. Of a window (r0, r1, c0, c1) the places with
r0 <= row < r1 and c0 <= column < c1 are read, others are 0; or written, others go to a spare place of one vector.
`count` is how many channels are left, at least 1: lanes past it are read as 0 and not written, except that frequencies
are always written as whole vectors.
Source  A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", 2016, section 4
"""

from llvmlite import ir

from ..toolchain.emit import INT, emitted

FREQUENCIES, SIDE, TAPS = 6, 4, 3  # along one axis: pixels that a tile is made from, its own, and taps


# ---- matrices: rules that take and give lists of vectors -------------------------------------------------------------


def input_rule(d):
    even, odd = d[4] - 4 * d[2], d[3] - 4 * d[1]
    even_2, odd_2 = d[4] - d[2], 2 * (d[3] - d[1])
    first = (d[4] - 5 * d[2]) + 4 * d[0]
    last = (d[5] - 5 * d[3]) + 4 * d[1]
    return [first, even + odd, even - odd, even_2 + odd_2, even_2 - odd_2, last]


def gradient_rule(values):
    """P_n of three or four values: at 0, sums and differences of the even and odd parts at 1 and at 2, at infinity."""
    even, even_2, odd, odd_2 = values[0] + values[2], values[0] + 4 * values[2], values[1], values[1]
    if len(values) > TAPS:
        odd, odd_2 = odd + values[3], odd_2 + 4 * values[3]
    odd_2 = 2 * odd_2
    return [values[0], even + odd, even - odd, even_2 + odd_2, even_2 - odd_2, values[-1]]


def filter_rule(w):
    *scaled, last = gradient_rule(w)
    return [*(value * by for value, by in zip(scaled, (1 / 4, -1 / 6, -1 / 6, 1 / 24, 1 / 24), strict=True)), last]


def output_rule(m):
    near, far, odd_near, odd_far = m[1] + m[2], m[3] + m[4], m[1] - m[2], m[3] - m[4]
    return [(m[0] + near) + far, odd_near + 2 * odd_far, near + 4 * far, (odd_near + 8 * odd_far) + m[5]]


def taps_rule(u):
    """Factors of 1/3 come last: sums of integers that are divisible by 3 come out exact."""
    near, far, odd_near, odd_far = u[1] + u[2], u[3] + u[4], u[1] - u[2], u[3] - u[4]
    first, last = (far - 4 * near) + 6 * u[0], (far - near) + 6 * u[5]
    return [first * (1 / 24), (odd_far - 2 * odd_near) * (1 / 12), last * (1 / 6)]


# ---- squares of vectors ----------------------------------------------------------------------------------------------


class _Square:
    """Where a square of vectors lies: addresses, of which those outside a window are replaced by a spare one."""

    def __init__(self, emit, base, steps, window=None, spare=None):
        self.base, self.window, self.spare = base, window, spare
        self.steps = [step * emit.size for step in steps]

    def address(self, row, column):
        address = self.base + (self.steps[0] * row + self.steps[1] * column)
        if self.window is None:
            return address
        top, bottom, left, right = self.window
        inside = (top <= row) & (bottom > row) & ((left <= column) & (right > column))
        return address.where(inside, self.spare)


def _transformed(rule, size, load, store):
    """store(row, column, vector) for the whole result; load(row, column) for a source of that size."""
    columns = [rule([load(row, column) for row in range(size)]) for column in range(size)]
    for row in range(len(columns[0])):
        for column, vector in enumerate(rule([line[row] for line in columns])):
            store(row, column, vector)


def _frequencies(emit, array, at, step):
    return _Square(emit, array.at(at), (step * FREQUENCIES, step))


def _spread(emit, rule, size, source, at, steps, window, count, target, target_at, step):
    """Reads a square of pixels or taps of that size and writes frequencies."""
    pixels = _Square(emit, source.at(at), steps, window, emit.zeros())
    result = _frequencies(emit, target, target_at, step)

    def body(mask):
        load = lambda row, column: emit.load(pixels.address(row, column), mask)
        _transformed(rule, size, load, lambda row, column, vector: emit.store(vector, result.address(row, column)))

    emit.under_mask(count, body)


@emitted(contract=True)
def spread_input(emit, x, at, down, right, window, count, v, v_at, step):
    """Frequencies of 6x6 pixels."""
    _spread(emit, input_rule, FREQUENCIES, x, at, (down, right), window, count, v, v_at, step)


@emitted(contract=True)
def spread_gradient(emit, g, at, down, right, window, count, m, m_at, step):
    """Frequencies of a tile of an output gradient."""
    _spread(emit, gradient_rule, SIDE, g, at, (down, right), window, count, m, m_at, step)


@emitted(contract=True)
def spread_filter(emit, w, at, down, right, count, u, u_at, step):
    """Frequencies of taps."""
    _spread(emit, filter_rule, TAPS, w, at, (down, right), None, count, u, u_at, step)


def _gathered(emit, rule, source, target, count, ahead, finish):
    """Code from frequencies to a square, whose vectors finish(vector, mask) gives; fetches what lies so far ahead.

    Gives 1 if all vectors were finite before that, else 0.
    """
    zero = emit.filled(0)
    watched = emit.variable(zero)  # zero times infinity or NaN is NaN, and stays NaN in a sum

    def body(mask):
        def store(row, column, vector):
            watched.set(watched.get() + vector * zero)
            vector, address = finish(vector, mask), target.address(row, column)
            emit.fetch(address + ahead * emit.size, True)
            emit.store(vector, address, mask)

        _transformed(rule, FREQUENCIES, lambda row, column: emit.load(source.address(row, column)), store)

    emit.under_mask(count, body)
    spoilt = emit.builder.bitcast(watched.get().is_nan().value, ir.IntType(emit.lanes))
    return emit.value(emit.builder.zext(emit.value(spoilt).equals(0).value, INT))


@emitted(contract=True, result=lambda m, m_at, *_: m_at)
def gather_output(emit, m, m_at, step, bias, bias_at, relu, y, at, down, right, window, count, spare, spare_at, ahead):
    """A tile of frequencies, plus a bias unless that is of size 0, with relu the positive part.

    What lies so many elements ahead is fetched: a store that misses all caches holds up those after it. Returns 1 if
    all sums were finite before relu.
    """
    pixels = _Square(emit, y.at(at), (down, right), window, spare.at(spare_at))
    start = emit.zeros().where(bias.count.equals(0), bias.at(bias_at))

    def finish(vector, mask):
        # A vector of a bias may end behind the array; without one the zeros are long enough.
        vector = vector + emit.load(start, mask)
        positive = emit.filled(0).where(vector <= 0, vector)  # NaN stays
        return vector.where(relu.equals(0), positive)

    return _gathered(emit, output_rule, _frequencies(emit, m, m_at, step), pixels, count, ahead, finish)


@emitted(contract=True, result=lambda u, u_at, *_: u_at)
def gather_filter(emit, u, u_at, step, w, at, down, right, count, ahead):
    """Taps of frequencies; what lies so many elements ahead is fetched. Returns 1 if all are finite."""
    source, target = _frequencies(emit, u, u_at, step), _Square(emit, w.at(at), (down, right))
    return _gathered(emit, taps_rule, source, target, count, ahead, lambda vector, mask: vector)
