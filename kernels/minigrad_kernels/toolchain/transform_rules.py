"""The matrices of Winograd's F(m x m, r x r), m + r = 7, as rules that take and give lists of vectors.

See transform.py. The points of interpolation are 0, 1, -1, 2, -2 and infinity: six frequencies along an axis, whatever
m and r. Row k of P_n holds the powers 0 to n - 1 of point k; that of infinity is 1 at the last. The rows of a matrix
are written out as sums in a fixed order that share their common parts.

Math    input_rule   B^T = 4  0 -5  0  1  0        gradient_rule  P_m
                           0 -4 -4  1  1  0        output_rule    P_m^T
                           0  4 -4 -1  1  0        filter_rule    G = D P_r
                           0 -2 -1  2  1  0        taps_rule      G^T
                           0  2 -1 -2  1  0
                           0  4  0 -5  0  1        D = diag(1/4, -1/6, -1/6, 1/24, 1/24, 1)

        P_3 = 1  0  0        P_4 = 1  0  0  0
              1  1  1              1  1  1  1
              1 -1  1              1 -1  1 -1
              1  2  4              1  2  4  8
              1 -2  4              1 -2  4 -8
              0  0  1              0  0  0  1
Source  A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", 2016, section 4
"""

from llvmlite import ir

__all__ = ["Arithmetic", "filter_rule", "gradient_rule", "input_rule", "output_rule", "taps_rule"]


class Arithmetic:
    """Sums of vectors; a product in a sum may be fused with it."""

    def __init__(self, emit):
        self.emit, self.builder = emit, emit.builder

    def add(self, a, b):
        return self.builder.fadd(a, b, flags=("contract",))

    def sub(self, a, b):
        return self.builder.fsub(a, b, flags=("contract",))

    def scale(self, factor, a):
        if factor == 1:
            return a
        factors = ir.Constant(a.type, [float(factor)] * self.emit.lanes)
        return self.builder.fmul(a, factors, flags=("contract",))


def input_rule(o, d):
    even, odd = o.sub(d[4], o.scale(4, d[2])), o.sub(d[3], o.scale(4, d[1]))
    even_2, odd_2 = o.sub(d[4], d[2]), o.scale(2, o.sub(d[3], d[1]))
    first = o.add(o.sub(d[4], o.scale(5, d[2])), o.scale(4, d[0]))
    last = o.add(o.sub(d[5], o.scale(5, d[3])), o.scale(4, d[1]))
    return [first, o.add(even, odd), o.sub(even, odd), o.add(even_2, odd_2), o.sub(even_2, odd_2), last]


def _powers(o, values):
    """P_n of n values: at 0, the even and odd parts of the sums at 1 and at 2, and at infinity."""
    parts = []
    for first in (0, 1):
        for base in (1, 4):
            total = values[first]
            for power, value in enumerate(values[first + 2 :: 2], 1):
                total = o.add(total, o.scale(base**power, value))
            parts.append(total)
    even, even_2, odd, odd_2 = parts
    return values[0], even, odd, even_2, o.scale(2, odd_2), values[-1]


def gradient_rule(o, y):
    first, even, odd, even_2, odd_2, last = _powers(o, y)
    return [first, o.add(even, odd), o.sub(even, odd), o.add(even_2, odd_2), o.sub(even_2, odd_2), last]


def filter_rule(o, w):
    first, even, odd, even_2, odd_2, last = _powers(o, w)
    return [
        o.scale(1 / 4, first),
        o.scale(-1 / 6, o.add(even, odd)),
        o.scale(-1 / 6, o.sub(even, odd)),
        o.scale(1 / 24, o.add(even_2, odd_2)),
        o.scale(1 / 24, o.sub(even_2, odd_2)),
        last,
    ]


def output_rule(o, m, size):
    """The first `size` powers."""
    parts = (o.add(m[1], m[2]), o.add(m[3], m[4])), (o.sub(m[1], m[2]), o.sub(m[3], m[4]))
    results = []
    for power in range(size):
        near, far = parts[power % 2]
        start = o.add(m[0], near) if power == 0 else near
        total = o.add(start, o.scale(2**power, far))
        results.append(o.add(total, m[5]) if power == size - 1 else total)
    return results


def taps_rule(o, u, size):
    """The first `size` powers. Factors of 1/3 come last: sums of integers that are divisible by 3 come out exact."""
    parts = (o.add(u[1], u[2]), o.add(u[3], u[4])), (o.sub(u[1], u[2]), o.sub(u[3], u[4]))
    results = []
    for power in range(size):
        common = min(2**power, 4)
        near, far = parts[power % 2]
        total = o.sub(o.scale(2**power // common, far), o.scale(4 // common, near))
        if power == 0:
            total = o.add(total, o.scale(6, u[0]))
        if power == size - 1:
            total = o.add(total, o.scale(24 // common, u[5]))
        results.append(o.scale(common / 24, total))
    return results
