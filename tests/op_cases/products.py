"""Rows of matrix products."""

from . import Op, classes, real, refusal, sample

OPS = [
    Op(
        "matmul",
        (
            sample(real(3, 4), real(4, 5)),
            sample(real(4), real(4)),
            sample(real(3, 4), real(4)),
            sample(real(4), real(4, 5)),
            sample(real(2, 3, 4), real(4, 5)),
            sample(real(2, 1, 3, 4), real(5, 4, 2)),
            sample(real(7, 1, 4), real(4, 1)),
            sample(real(0, 4), real(4, 5)),
            sample(real(3, 0), real(0, 5)),
            sample(real(17, 65), real(65, 33)),
        ),
        (
            refusal(ValueError, "matmul: ", real(3, 4), real(3, 4)),
            refusal(ValueError, "matmul: x has no dimensions", real(), real(3)),
            refusal(TypeError, "matmul: y is a float", real(3), 2.0),
            refusal(ValueError, "do not broadcast", real(2, 3, 4), real(3, 4, 5)),
        ),
        torch=lambda torch: torch.matmul,
        linear=(0, 1),
    ),
    Op(
        "linear",
        (
            sample(real(3, 4), real(5, 4), real(5)),
            sample(real(3, 4), real(5, 4)),
            sample(real(4), real(5, 4), real(5)),
            sample(real(2, 3, 4), real(5, 4), real(5)),
            sample(real(0, 4), real(5, 4), real(5)),
            sample(real(2, 3, 0), real(5, 0), real(5)),
            sample(real(2, 0, 4), real(5, 4), real(5)),
            sample(real(2, 3, 4), real(0, 4), real(0)),
            sample(real(19, 70), real(13, 70), real(13)),
        ),
        (
            refusal(ValueError, "linear: input has shape", real(3, 4), real(4, 5)),
            refusal(ValueError, "linear: bias has shape", real(3, 4), real(5, 4), real(4)),
            refusal(TypeError, "linear: input has elements int64", classes(3, 2, 4), real(5, 4)),
            refusal(TypeError, "linear: weight has elements int64", classes(3, 2, 4), classes(3, 5, 4)),
        ),
        linear=(0, 1),
    ),
]
