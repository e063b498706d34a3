"""Rows of the ops that repeat, turn and mask what is there."""

from . import Op, real, refusal, sample
from .shape_views import method

TRIANGLES = (
    sample(real(3, 4)),
    sample(real(4, 3), 1),
    sample(real(3, 4), diagonal=-1),
    sample(real(2, 3, 3), -2),
    sample(real(2, 2, 2, 3), 1),
    sample(real(3, 4), 10**12),
    sample(real(3, 4), -(10**12)),
    sample(real(0, 3)),
    sample(real(1, 1)),
)

OPS = [
    Op(
        "t",
        (
            sample(real(3, 4)),
            sample(real(1, 3)),
            sample(real(0, 3)),
            sample(real(2, 0)),
            sample(real(1, 1)),
            sample(real(5)),
            sample(real(0)),
            sample(real()),
            sample(real(4, 3)),
        ),
        (
            refusal(ValueError, "t: input has shape (2, 3, 4), wanted at most 2 dimensions; use tr", real(2, 3, 4)),
            refusal(ValueError, "t: input has shape (1, 1, 1, 1)", real(1, 1, 1, 1)),
            refusal(TypeError, "t: input is a float, wanted a Tensor", 1.5),
        ),
        linear=(0,),
        views=True,
    ),
    Op(
        "tile",
        (
            sample(real(2, 3), (2, 2)),
            sample(real(2, 3), (3,)),
            sample(real(2), dims=(2, 1, 3)),
            sample(real(2, 3), ()),
            sample(real(2, 3), [1, 1]),
            sample(real(), (2, 2)),
            sample(real(), ()),
            sample(real(2), (0, 2)),
            sample(real(0, 3), (2, 2)),
        ),
        (
            refusal(ValueError, "tile: dims is (-1,), wanted sizes that are not negative", real(2), (-1,)),
            refusal(TypeError, "tile: dims is 2.0", real(2), (2.0,)),
            refusal(TypeError, "tile: dims is None", real(2), None),
        ),
        linear=(0,),
    ),
    Op(
        "repeat",
        (
            sample(real(2, 3), (2, 2)),
            sample(real(2, 3), [2, 1, 3]),
            sample(real(2), repeats=(2, 1, 3)),
            sample(real(2, 3), (1, 1)),
            sample(real(1), (4,)),
            sample(real(), (3,)),
            sample(real(), ()),
            sample(real(2), (2, 0)),
            sample(real(0, 3), (2, 2)),
        ),
        (
            refusal(ValueError, "repeat: repeats is (3,), wanted at least 2 numbers", real(2, 2), (3,)),
            refusal(ValueError, "wanted at least 1 numbers", real(2), ()),
            refusal(ValueError, "wanted sizes that are not negative", real(2), (-1,)),
            refusal(TypeError, "repeat: repeats is 1.5", real(2), (1.5,)),
        ),
        torch=method("repeat"),
        linear=(0,),
    ),
    Op(
        "flip",
        (
            sample(real(2, 3), (0,)),
            sample(real(2, 3), (-1, 0)),
            sample(real(2, 3, 4), dims=[1]),
            sample(real(2, 3), ()),
            sample(real(), ()),
            sample(real(), (0,)),
            sample(real(0, 3), (0, 1)),
            sample(real(1, 3), (0,)),
        ),
        (
            refusal(ValueError, "flip: dim is (0, -2), which names a dimension twice", real(2, 3), (0, -2)),
            refusal(IndexError, "flip: dim is 2", real(2, 3), (2,)),
            refusal(TypeError, "flip: dims is 0.0", real(2, 3), (0.0,)),
        ),
        linear=(0,),
        views=True,
    ),
    Op(
        "roll",
        (
            sample(real(4), 1),
            sample(real(3, 4), 5),
            sample(real(3, 4), (1, -2), (0, 1)),
            sample(real(3, 4), shifts=[10**12], dims=-1),
            sample(real(3, 4), (1, 1), (1, 1)),
            sample(real(3, 4), -3, 1),
            sample(real(), 1),
            sample(real(0, 2), 1, 0),
            sample(real(4), (1,), ()),
        ),
        (
            refusal(ValueError, "roll: shifts is (1, 1), dims None", real(4), (1, 1)),
            refusal(ValueError, "roll: shifts is (1, 1), dims (0,)", real(4), (1, 1), (0,)),
            refusal(ValueError, "roll: shifts is ()", real(4), ()),
            refusal(IndexError, "roll: dim is 1", real(4), 1, 1),
            refusal(TypeError, "roll: shifts is 1.5", real(4), 1.5),
        ),
        linear=(0,),
    ),
    *(
        Op(
            name,
            TRIANGLES,
            (
                refusal(ValueError, f"{name}: input has shape (3,), wanted matrices", real(3)),
                refusal(ValueError, f"{name}: input has shape ()", real()),
                refusal(TypeError, f"{name}: diagonal is 1.0", real(3, 3), 1.0),
                refusal(TypeError, f"{name}: diagonal is None", real(3, 3), None),
            ),
            linear=(0,),
        )
        for name in ("tril", "triu")
    ),
    Op(
        "diagonal",
        (
            sample(real(3, 4)),
            sample(real(4, 3)),
            sample(real(3, 4), 1),
            sample(real(3, 4), -2),
            sample(real(3, 4), 9),
            sample(real(3, 4), -9),
            sample(real(2, 3, 4), 0, 2, 0),
            sample(real(2, 3, 4), offset=1, dim1=-1, dim2=1),
            sample(real(2, 3, 4, 4), -1, 2, 3),
            sample(real(0, 3)),
            sample(real(2, 0)),
            sample(real(1, 1)),
        ),
        (
            refusal(IndexError, "diagonal: dim is 1", real(3)),
            refusal(IndexError, "diagonal: dim is 2", real(2, 3), 0, 0, 2),
            refusal(TypeError, "diagonal: offset is 0.5", real(2, 3), 0.5),
        ),
        linear=(0,),
        views=True,
    ),
]
