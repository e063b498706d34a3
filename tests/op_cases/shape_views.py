"""Rows of the ops that look at the same elements in another shape or order."""

import numpy as np

from . import Op, real, refusal, sample


def method(name):
    """PyTorch's method of this name, as a function."""
    return lambda torch: lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


OPS = [
    Op(
        "reshape",
        (
            sample(real(2, 3, 4), (6, 4)),
            sample(real(2, 3, 4), (4, -1)),
            sample(real(2, 3, 4), shape=[-1]),
            sample(real(2, 3, 4), -1),
            sample(real(1), ()),
            sample(real(), (1, -1, 1)),
            sample(real(0, 3), (3, 0)),
            sample(real(0, 3), (-1,)),
            sample(real(2, 3), (2, 3)),
            sample(real(2, 3, 4, 5), (2, -1)),
            sample(real(4, 6), (2, 2, 1, 3, 2)),
        ),
        (
            refusal(ValueError, "does not hold the 6 elements", real(2, 3), 4),
            refusal(ValueError, "does not hold", real(2, 3), (-1, -1)),
            refusal(ValueError, "does not hold", real(2, 3), (4, -1)),
            refusal(ValueError, "does not hold", real(2, 3), (-2, 3)),
            refusal(ValueError, "does not hold the 0 elements", real(0, 3), (-1, 0)),
            refusal(ValueError, "does not hold", real(2, 3), ()),
            refusal(TypeError, "reshape: shape is 2.0, wanted an integer", real(2, 3), (2.0, 3)),
            refusal(TypeError, "reshape: shape is '6', wanted an integer", real(2, 3), "6"),
            refusal(TypeError, "reshape: shape is True, wanted an integer", real(1), (True,)),
        ),
        torch=method("reshape"),
        linear=(0,),
        views=True,
    ),
    Op(
        "view",
        (
            sample(real(6), (2, 3)),
            sample(real(4, 6), (2, 2, -1, 2)),
            sample(real(1, 3, 1), size=(3,)),
            sample(real(3), (1, 3, 1)),
            sample(real(), (1, 1)),
            sample(real(1, 1), ()),
            sample(real(0, 3), (5, 0, 2)),
            sample(real(2, 3), (2, 3)),
            sample(real(7), -1),
        ),
        (
            refusal(ValueError, "view: size is (4,), which does not hold the 6 elements", real(2, 3), 4),
            refusal(ValueError, "does not hold", real(2, 3), (4, -1)),
            refusal(ValueError, "does not hold", real(0, 3), (-1, 0)),
            refusal(ValueError, "does not hold", real(2, 3), (-1, -1)),
            refusal(TypeError, "view: size is 'float32', wanted an integer", real(2, 3), "float32"),
            refusal(TypeError, "wanted an integer", real(2, 3), np.float32),
        ),
        torch=method("view"),
        linear=(0,),
        views=True,
    ),
    Op(
        "flatten",
        (
            sample(real(2, 3, 4, 5)),
            sample(real(2, 3, 4, 5), 1),
            sample(real(2, 3, 4, 5), start_dim=-3, end_dim=-2),
            sample(real(2, 3), 1, 1),
            sample(real()),
            sample(real(), -1, 0),
            sample(real(0, 3), 0),
            sample(real(2, 0, 3), 1),
            sample(real(1, 1, 1)),
        ),
        (
            refusal(IndexError, "flatten: dim is 3", real(2, 3), 3),
            refusal(IndexError, "flatten: dim is 1", real(), 0, 1),
            refusal(ValueError, "comes after", real(2, 3, 4), 2, 1),
            refusal(TypeError, "wanted an integer", real(2, 3), 0.0),
        ),
        torch=method("flatten"),
        linear=(0,),
        views=True,
    ),
    Op(
        "unflatten",
        (
            sample(real(2, 6), 1, (2, 3)),
            sample(real(2, 6), -1, (-1, 2)),
            sample(real(6, 2), dim=0, sizes=[3, 1, 2]),
            sample(real(2, 6), 1, (6,)),
            sample(real(2, 6), 1, (-1,)),
            sample(real(2, 0), 1, (-1, 2)),
            sample(real(2, 0), 1, (0, 7)),
            sample(real(1, 3), 0, (1, 1)),
        ),
        (
            refusal(
                ValueError, "unflatten: sizes is (2, 4), which does not hold the 6 elements", real(2, 6), 1, (2, 4)
            ),
            refusal(ValueError, "does not hold", real(2, 6), 1, (-1, -1)),
            refusal(ValueError, "does not hold", real(2, 6), 1, (-2, 3)),
            refusal(ValueError, "does not hold", real(2, 0), 1, (-1, 0)),
            refusal(IndexError, "unflatten: dim is 2", real(2, 6), 2, (2, 3)),
            refusal(TypeError, "wanted an integer", real(2, 6), 1, (2.0, 3)),
        ),
        torch=method("unflatten"),
        linear=(0,),
        views=True,
    ),
    Op(
        "squeeze",
        (
            sample(real(1, 3, 1)),
            sample(real(1, 3, 1), 0),
            sample(real(1, 3, 1), 1),
            sample(real(1, 3, 1), dim=(0, 2)),
            sample(real(1, 3, 1), [-1, 1]),
            sample(real(1, 3, 1), ()),
            sample(real(), 0),
            sample(real()),
            sample(real(1, 0, 1)),
            sample(real(2, 3)),
        ),
        (
            refusal(IndexError, "squeeze: dim is 3", real(1, 3), 3),
            refusal(IndexError, "squeeze: dim is 1", real(), 1),
            refusal(ValueError, "names a dimension twice", real(1, 3), (0, -2)),
            refusal(TypeError, "wanted an integer", real(1, 3), 0.0),
        ),
        torch=method("squeeze"),
        linear=(0,),
        views=True,
    ),
    Op(
        "unsqueeze",
        (
            sample(real(2, 3), 0),
            sample(real(2, 3), -1),
            sample(real(2, 3), 1),
            sample(real(2, 3), dim=2),
            sample(real(2, 3), -3),
            sample(real(), 0),
            sample(real(), -1),
            sample(real(0, 3), 1),
        ),
        (
            refusal(IndexError, "unsqueeze: dim is 3", real(2, 3), 3),
            refusal(IndexError, "unsqueeze: dim is -4", real(2, 3), -4),
            refusal(TypeError, "wanted an integer", real(2, 3), None),
        ),
        torch=method("unsqueeze"),
        linear=(0,),
        views=True,
    ),
    Op(
        "permute",
        (
            sample(real(2, 3, 4), (2, 0, 1)),
            sample(real(2, 3, 4), (0, -1, 1)),
            sample(real(2, 3, 4, 5), dims=[0, 2, 3, 1]),
            sample(real(2, 3, 4), (0, 1, 2)),
            sample(real(0, 2), (1, 0)),
            sample(real(1, 1), (1, 0)),
            sample(real(3), (0,)),
            sample(real(), ()),
        ),
        (
            refusal(ValueError, "names a dimension twice", real(2, 3), (0, 0)),
            refusal(ValueError, "name 1 dimensions", real(2, 3), (1,)),
            refusal(ValueError, "name 1 dimensions", real(), (0,)),
            refusal(IndexError, "dim is 2", real(2, 3), (0, 2)),
            refusal(TypeError, "permute: dims is 1.0", real(2, 3), (0, 1.0)),
        ),
        torch=method("permute"),
        linear=(0,),
        views=True,
    ),
    Op(
        "transpose",
        (
            sample(real(2, 3, 4), 0, 2),
            sample(real(2, 3, 4), -1, -2),
            sample(real(2, 3), dim0=1, dim1=0),
            sample(real(2, 3), 1, 1),
            sample(real(), 0, -1),
            sample(real(4), 0, 0),
            sample(real(0, 3), 0, 1),
            sample(real(1, 3), 0, 1),
        ),
        (
            refusal(IndexError, "transpose: dim is 2", real(2, 3), 0, 2),
            refusal(IndexError, "transpose: dim is 1", real(), 0, 1),
            refusal(TypeError, "wanted an integer", real(2, 3), 0, (1,)),
        ),
        torch=method("transpose"),
        linear=(0,),
        views=True,
    ),
    Op(
        "movedim",
        (
            sample(real(2, 3, 4), 0, 2),
            sample(real(2, 3, 4), source=-1, destination=0),
            sample(real(2, 3, 4, 5), (0, 1), (-1, -2)),
            sample(real(2, 3, 4), [0, 2], [1, 0]),
            sample(real(2, 3, 4, 5), (3, 0, 1), (0, 2, 3)),
            sample(real(2, 3, 4), (), ()),
            sample(real(), 0, 0),
            sample(real(0, 3), 1, 0),
        ),
        (
            refusal(ValueError, "movedim: source is (0, 1), destination (1,)", real(2, 3, 4), (0, 1), (1,)),
            refusal(ValueError, "names a dimension twice", real(2, 3, 4), (0, 0), (1, 2)),
            refusal(ValueError, "names a dimension twice", real(2, 3, 4), (0, 1), (2, -1)),
            refusal(IndexError, "movedim: dim is 3", real(2, 3, 4), 3, 0),
            refusal(TypeError, "movedim: destination is 'a'", real(2, 3, 4), 0, "a"),
        ),
        torch=method("movedim"),
        linear=(0,),
        views=True,
    ),
    *(
        Op(
            name,
            (
                sample(real(3, 1), (3, 4)),
                sample(real(3, 1), size=(2, -1, 5)),
                sample(real(), (2, 3)),
                sample(real(), ()),
                sample(real(1), (0,)),
                sample(real(0, 1), (0, 3)),
                sample(real(1, 3), [6, 3]),
                sample(real(2, 3), (-1, -1)),
                sample(real(1, 2, 1), (4, 3, 2, 2)),
            ),
            (
                refusal(ValueError, "expand: input has shape (3, 2), which does not broadcast", real(3, 2), (3, 4)),
                refusal(ValueError, "does not broadcast to (2,)", real(3, 2), (2,)),
                refusal(ValueError, "does not broadcast to (-1, 3)", real(3), (-1, 3)),
                refusal(ValueError, "does not broadcast to (-2,)", real(1), (-2,)),
                refusal(TypeError, "expand: size is 3.0, wanted an integer", real(1), 3.0),
            ),
            torch=method(name),
            linear=(0,),
            views=True,
        )
        for name in ("expand", "broadcast_to")
    ),
    *(
        Op(
            name,
            tuple(sample(real(*s)) for s in ((2, 3), (2, 3, 4, 5), (), (0, 3), (1,), (1, 4, 1), (3, 1), (2, 1, 3, 2))),
            (
                refusal(TypeError, f"{name}: input is a ndarray, wanted a Tensor; wrap it", np.ones(3)),
                refusal(TypeError, f"{name}: input is a float", 1.0),
                refusal(TypeError, f"{name}: input is a list", [1.0]),
            ),
            torch=method(name),
            linear=(0,),
        )
        for name in ("clone", "contiguous")
    ),
]
