"""The matrices of Winograd's F(4x4,3x3), as rules that take and give lists of vectors; see transform.py.

The rows of a matrix are written out as sums in a fixed order that share their common parts.

Math    input_rule     B^T = 4  0 -5  0  1  0        output_rule    A^T = 1  1  1  1  1  0
                             0 -4 -4  1  1  0                             0  1 -1  2 -2  0
                             0  4 -4 -1  1  0                             0  1  1  4  4  0
                             0 -2 -1  2  1  0                             0  1 -1  8 -8  1
                             0  2 -1 -2  1  0        gradient_rule  A
                             0  4  0 -5  0  1        taps_rule      G^T

        filter_rule      G =  1/4     0    0
                             -1/6  -1/6 -1/6
                             -1/6   1/6 -1/6
                             1/24  1/12  1/6
                             1/24 -1/12  1/6
                                0     0    1
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
        factors = ir.Constant(a.type, [float(factor)] * self.emit.lanes)
        return self.builder.fmul(a, factors, flags=("contract",))


def input_rule(o, d):
    even, odd = o.sub(d[4], o.scale(4, d[2])), o.sub(d[3], o.scale(4, d[1]))
    even_2, odd_2 = o.sub(d[4], d[2]), o.scale(2, o.sub(d[3], d[1]))
    first = o.add(o.sub(d[4], o.scale(5, d[2])), o.scale(4, d[0]))
    last = o.add(o.sub(d[5], o.scale(5, d[3])), o.scale(4, d[1]))
    return [first, o.add(even, odd), o.sub(even, odd), o.add(even_2, odd_2), o.sub(even_2, odd_2), last]


def output_rule(o, m):
    even, odd = o.add(m[1], m[2]), o.sub(m[1], m[2])
    even_2, odd_2 = o.add(m[3], m[4]), o.sub(m[3], m[4])
    return [
        o.add(o.add(m[0], even), even_2),
        o.add(odd, o.scale(2, odd_2)),
        o.add(even, o.scale(4, even_2)),
        o.add(o.add(odd, o.scale(8, odd_2)), m[5]),
    ]


def gradient_rule(o, y):
    even, odd = o.add(y[0], y[2]), o.add(y[1], y[3])
    even_2, odd_2 = o.add(y[0], o.scale(4, y[2])), o.scale(2, o.add(y[1], o.scale(4, y[3])))
    return [y[0], o.add(even, odd), o.sub(even, odd), o.add(even_2, odd_2), o.sub(even_2, odd_2), y[3]]


def filter_rule(o, w):
    even, even_2, twice = o.add(w[0], w[2]), o.add(w[0], o.scale(4, w[2])), o.scale(2, w[1])
    return [
        o.scale(1 / 4, w[0]),
        o.scale(-1 / 6, o.add(even, w[1])),
        o.scale(-1 / 6, o.sub(even, w[1])),
        o.scale(1 / 24, o.add(even_2, twice)),
        o.scale(1 / 24, o.sub(even_2, twice)),
        w[2],
    ]


def taps_rule(o, u):
    """Factors of 1/3 come last, so that sums of integers that are divisible by 3 come out exact."""
    even, odd = o.add(u[1], u[2]), o.sub(u[2], u[1])
    even_2, odd_2 = o.add(u[3], u[4]), o.sub(u[3], u[4])
    return [
        o.scale(1 / 24, o.add(o.sub(even_2, o.scale(4, even)), o.scale(6, u[0]))),
        o.scale(1 / 12, o.add(o.scale(2, odd), odd_2)),
        o.scale(1 / 6, o.add(o.sub(even_2, even), o.scale(6, u[5]))),
    ]
