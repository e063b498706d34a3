"""Rows of the products of vectors, and of addmm."""

import math

from . import Op, flags, real, refusal, sample
from .products import mixed, numbers

OPS = [
    Op(
        "mv",
        (
            sample(real(3, 4), real(4)),
            sample(real(1, 4), real(4)),
            sample(real(3, 1), real(1)),
            sample(real(0, 4), real(4)),
            sample(real(3, 0), real(0)),
            sample(real(1, 1), real(1)),
            sample(real(9, 33), real(33)),
            sample(real(33, 9), real(9)),
        ),
        (
            *mixed("mv", real(3, 4), real(4)),
            refusal(
                ValueError, "mv: input has shape (3, 4), vec has shape (3,); wanted (M, K) and (K)", real(3, 4), real(3)
            ),
            refusal(ValueError, "mv: ", real(4), real(4)),
            refusal(ValueError, "mv: ", real(3, 4), real(4, 1)),
        ),
        linear=(0, 1),
    ),
    Op(
        "dot",
        (
            sample(real(4), real(4)),
            sample(real(1), real(1)),
            sample(real(0), real(0)),
            sample(real(100), real(100)),
            sample(real(2), real(2)),
            sample(real(1000), real(1000)),
        ),
        (
            *mixed("dot", real(3), real(3)),
            refusal(
                ValueError, "dot: input has shape (3,), tensor has shape (2,); wanted (K) and (K)", real(3), real(2)
            ),
            refusal(ValueError, "dot: ", real(2, 3), real(2, 3)),
            refusal(ValueError, "dot: ", real(), real()),
            refusal(ValueError, "dot: ", real(3), real(1)),
        ),
        linear=(0, 1),
    ),
    Op(
        "dot",
        (sample(numbers(4), numbers(4)), sample(numbers(0), numbers(0))),
        (refusal(TypeError, "dot: tensor has elements float64", numbers(4), real(4)),),
        differentiable=False,
    ),
    Op(
        "outer",
        (
            sample(real(3), real(4)),
            sample(real(1), real(4)),
            sample(real(3), real(1)),
            sample(real(0), real(4)),
            sample(real(3), real(0)),
            sample(real(40), real(30)),
            sample(real(3), numbers(4)),
            sample(real(1), real(1)),
        ),
        (
            refusal(ValueError, "outer: input has shape (2, 3), wanted one dimension", real(2, 3), real(3)),
            refusal(ValueError, "outer: vec2 has shape (), wanted one dimension", real(3), real()),
            refusal(TypeError, "outer: vec2 is a float, wanted a Tensor", real(3), 2.0),
            refusal(TypeError, "outer: vec2 is a NoneType", real(3), None),
        ),
        linear=(0,),
    ),
    Op(
        "outer",
        (sample(numbers(3), numbers(4)), sample(flags(3), flags(4)), sample(flags(3), numbers(4))),
        (refusal(ValueError, "outer: input has shape ()", numbers(), numbers(4)),),
        differentiable=False,
    ),
    Op(
        "addmm",
        (
            sample(real(3, 5), real(3, 4), real(4, 5)),
            sample(real(5), real(3, 4), real(4, 5)),
            sample(real(3, 1), real(3, 4), real(4, 5), beta=2, alpha=-1.5),
            sample(real(), real(3, 4), real(4, 5), beta=0.5),
            sample(real(1, 5), real(3, 4), real(4, 5), alpha=0.25),
            sample(real(3, 5), real(3, 4), real(4, 5), beta=0),
            sample(real(5), real(3, 4), real(4, 5), beta=0, alpha=3),
            sample(real(3, 5), real(3, 4), real(4, 5), alpha=0),
            sample(real(3, 5), real(3, 0), real(0, 5), beta=2),
            sample(real(0, 5), real(0, 4), real(4, 5)),
            sample(real(3, 5), real(3, 4), real(4, 5), beta=True),
            sample(real(3, 5), real(3, 4), real(4, 5), beta=real(grad=False), alpha=numbers()),
        ),
        (
            refusal(
                ValueError,
                "addmm: input has shape (3,), which does not broadcast to (3, 5)",
                real(3),
                real(3, 4),
                real(4, 5),
            ),
            refusal(ValueError, "addmm: input has shape (1, 3, 5)", real(1, 3, 5), real(3, 4), real(4, 5)),
            refusal(ValueError, "addmm: input has shape (4, 5)", real(4, 5), real(3, 4), real(4, 5), beta=0),
            refusal(
                ValueError, "addmm: mat1 has shape (3, 4), mat2 has shape (3, 4)", real(3, 4), real(3, 4), real(3, 4)
            ),
            refusal(ValueError, "addmm: mat1 has shape (4,)", real(5), real(4), real(4, 5)),
            refusal(TypeError, "addmm: input has elements int64, mat1 float64", numbers(5), real(3, 4), real(4, 5)),
            refusal(TypeError, "addmm: mat2 has elements int64", real(5), real(3, 4), numbers(4, 5)),
            refusal(TypeError, "addmm: beta is 'x', wanted a number", real(5), real(3, 4), real(4, 5), beta="x"),
            refusal(TypeError, "addmm: beta is 'Tensor', wanted", real(5), real(3, 4), real(4, 5), beta=real()),
            refusal(
                TypeError, "addmm: alpha is 'Tensor', wanted a number", real(5), real(3, 4), real(4, 5), alpha=real()
            ),
            refusal(TypeError, "addmm: input is a float", 1.0, real(3, 4), real(4, 5)),
        ),
        linear=(0, 1, 2),
    ),
    Op(
        "addmm",
        (
            sample(numbers(3, 5), numbers(3, 4), numbers(4, 5), beta=2, alpha=3),
            sample(numbers(5), numbers(3, 4), numbers(4, 5), alpha=2.0),
            sample(numbers(5), numbers(3, 4), numbers(4, 5), beta=0),
        ),
        (
            refusal(
                TypeError,
                "addmm: beta is 0.5, wanted a whole number",
                numbers(5),
                numbers(3, 4),
                numbers(4, 5),
                beta=0.5,
            ),
            refusal(TypeError, "addmm: alpha is nan", numbers(5), numbers(3, 4), numbers(4, 5), alpha=math.nan),
        ),
        differentiable=False,
    ),
]
