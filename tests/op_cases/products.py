"""Rows of the products of matrices, and what the rows of all products share."""

from . import Op, classes, flags, real, refusal, sample


def numbers(*shape):
    return classes(5, *shape)


def mixed(name, first, second):
    """What every product refuses: other types, and what is no Tensor."""
    return (
        refusal(TypeError, "has elements int64", first, numbers(*second.shape)),
        refusal(TypeError, "has elements bool, wanted numbers", flags(*first.shape), flags(*second.shape)),
        refusal(TypeError, f"{name}: ", first, 2.0),
        refusal(TypeError, f"{name}: ", first, None),
    )


MATMUL = (
    sample(real(3, 4), real(4, 5)),
    sample(real(4), real(4)),
    sample(real(3, 4), real(4)),
    sample(real(4), real(4, 5)),
    sample(real(2, 3, 4), real(4, 5)),
    sample(real(2, 3, 4), real(4)),
    sample(real(4), real(2, 3, 4, 5)),
    sample(real(3, 4), real(2, 4, 5)),
    sample(real(2, 3, 4), real(2, 4, 5)),
    sample(real(1, 3, 4), real(2, 4, 5)),
    sample(real(2, 1, 3, 4), real(5, 4, 2)),
    sample(real(2, 5, 3, 4), real(1, 1, 4, 2)),
    sample(real(2, 5, 3, 4), real(4, 2)),
    sample(real(7, 1, 4), real(4, 1)),
    sample(real(1), real(1)),
    sample(real(0, 4), real(4, 5)),
    sample(real(3, 0), real(0, 5)),
    sample(real(0), real(0)),
    sample(real(2, 0, 4), real(4, 5)),
    sample(real(0, 3, 4), real(4, 5)),
    sample(real(0, 3, 4), real(1, 4, 5)),
    sample(real(2, 3, 0), real(0)),
    sample(real(17, 65), real(65, 33)),
)

OPS = [
    Op(
        "matmul",
        MATMUL,
        (
            *mixed("matmul", real(3, 4), real(4, 5)),
            refusal(ValueError, "matmul: input has shape (3, 4), other (3, 4); wanted", real(3, 4), real(3, 4)),
            refusal(ValueError, "matmul: input has shape (4,), other (3,)", real(4), real(3)),
            refusal(ValueError, "matmul: input has shape (3, 4), other (3,)", real(3, 4), real(3)),
            refusal(ValueError, "matmul: input has no dimensions", real(), real(3)),
            refusal(ValueError, "matmul: other has no dimensions", real(3), real()),
            refusal(ValueError, "do not broadcast", real(2, 3, 4), real(3, 4, 5)),
            refusal(ValueError, "do not broadcast", real(5, 2, 3, 4), real(3, 4, 5)),
        ),
        torch=lambda torch: torch.matmul,
        linear=(0, 1),
    ),
    Op(
        "matmul",
        (
            sample(numbers(3, 4), numbers(4, 5)),
            sample(numbers(4), numbers(4)),
            sample(numbers(2, 1, 3, 4), numbers(5, 4, 2)),
            sample(numbers(2, 0), numbers(0, 3)),
        ),
        (refusal(TypeError, "matmul: other has elements bool", numbers(3), flags(3)),),
        torch=lambda torch: torch.matmul,
        differentiable=False,
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
            *mixed("linear", real(3, 4), real(5, 4)),
            refusal(ValueError, "linear: input has 4 features", real(3, 4), real(4, 5)),
            refusal(ValueError, "linear: input has shape ()", real(), real(4)),
            refusal(ValueError, "linear: input has shape (3, 4), weight (4,)", real(3, 4), real(4)),
            refusal(ValueError, "linear: bias has shape (1,), wanted (5,)", real(3, 4), real(5, 4), real(1)),
            refusal(ValueError, "linear: input has shape (3, 4), weight ()", real(3, 4), real()),
            refusal(ValueError, "linear: input has shape", real(3, 4), real(2, 5, 4)),
            refusal(ValueError, "linear: bias has shape (4,), wanted (5,)", real(3, 4), real(5, 4), real(4)),
            refusal(ValueError, "linear: bias has shape (1, 5)", real(3, 4), real(5, 4), real(1, 5)),
            refusal(TypeError, "linear: input has elements int64, wanted floating", numbers(3, 4), numbers(5, 4)),
            refusal(TypeError, "linear: weight has elements float64, input int64", numbers(2, 4), real(5, 4)),
            refusal(TypeError, "linear: bias has elements int64", real(2, 4), real(5, 4), numbers(5)),
            refusal(TypeError, "linear: bias is a float", real(2, 4), real(5, 4), 1.0),
        ),
        linear=(0, 1),
    ),
    Op(
        "mm",
        (
            sample(real(3, 4), real(4, 5)),
            sample(real(1, 4), real(4, 1)),
            sample(real(0, 4), real(4, 5)),
            sample(real(3, 0), real(0, 5)),
            sample(real(3, 4), real(4, 0)),
            sample(real(3, 1), real(1, 5)),
            sample(real(9, 33), real(33, 17)),
            sample(real(1, 1), real(1, 1)),
        ),
        (
            *mixed("mm", real(3, 4), real(4, 5)),
            refusal(
                ValueError,
                "mm: input has shape (3, 4), mat2 has shape (3, 4); wanted (M, K) and (K, N)",
                real(3, 4),
                real(3, 4),
            ),
            refusal(ValueError, "mm: input has shape (3, 4), mat2 has shape (4,)", real(3, 4), real(4)),
            refusal(ValueError, "mm: input has shape (2, 3, 4)", real(2, 3, 4), real(4, 5)),
            refusal(ValueError, "mm: ", real(), real(4, 5)),
        ),
        linear=(0, 1),
    ),
    Op(
        "bmm",
        (
            sample(real(2, 3, 4), real(2, 4, 5)),
            sample(real(1, 3, 4), real(1, 4, 1)),
            sample(real(0, 3, 4), real(0, 4, 5)),
            sample(real(2, 0, 4), real(2, 4, 5)),
            sample(real(2, 3, 0), real(2, 0, 5)),
            sample(real(2, 1, 1), real(2, 1, 5)),
            sample(real(3, 9, 33), real(3, 33, 17)),
            sample(real(2, 3, 4), real(2, 4, 0)),
        ),
        (
            *mixed("bmm", real(2, 3, 4), real(2, 4, 5)),
            refusal(ValueError, "wanted (B, M, K) and (B, K, N)", real(2, 3, 4), real(2, 3, 4)),
            refusal(
                ValueError, "bmm: input has shape (2, 3, 4), mat2 has shape (1, 4, 5)", real(2, 3, 4), real(1, 4, 5)
            ),
            refusal(ValueError, "bmm: ", real(2, 3, 4), real(4, 5)),
            refusal(ValueError, "bmm: ", real(3, 4), real(4, 5)),
        ),
        linear=(0, 1),
    ),
]
