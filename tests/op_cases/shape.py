"""Rows of the ops that rearrange elements."""

import numpy as np

from . import Op, classes, real, refusal, sample

ROWS = np.array([2, 0, 2])
MASK = np.array([True, False, True])


def _method(name):
    return lambda torch: lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


def _getitem(torch):
    def call(x, key):
        parts = key if isinstance(key, tuple) else (key,)
        flipped = [i for i, part in enumerate(parts) if isinstance(part, slice) and (part.step or 1) < 0]
        if flipped:  # torch has no negative steps
            return x[tuple(slice(None) if i in flipped else part for i, part in enumerate(parts))].flip(flipped)
        return x[tuple(torch.as_tensor(p) if isinstance(p, np.ndarray) else p for p in parts)]

    return call


OPS = [
    Op(
        "reshape",
        (
            sample(real(2, 3, 4), (6, 4)),
            sample(real(2, 3, 4), (4, -1)),
            sample(real(2, 3, 4), -1),
            sample(real(1), ()),
            sample(real(0, 3), (3, 0)),
            sample(real(2, 3, 4, 5), (2, -1)),
        ),
        (
            refusal(ValueError, "does not hold the 6 elements", real(2, 3), 4),
            refusal(ValueError, "does not hold", real(2, 3), (-1, -1)),
            refusal(ValueError, "does not hold", real(2, 3), (4, -1)),
            refusal(ValueError, "does not hold", real(2, 3), (-2, 3)),
            refusal(TypeError, "reshape: shape is 2.0, wanted an integer", real(2, 3), (2.0, 3)),
            refusal(TypeError, "reshape: shape is '6', wanted an integer", real(2, 3), "6"),
        ),
        torch=_method("reshape"),
        linear=(0,),
        views=True,
    ),
    Op(
        "flatten",
        (
            sample(real(2, 3, 4, 5)),
            sample(real(2, 3, 4, 5), 1),
            sample(real(2, 3, 4, 5), 1, 2),
            sample(real()),
            sample(real(0, 3), 0),
        ),
        (
            refusal(IndexError, "flatten: dim is 3", real(2, 3), 3),
            refusal(ValueError, "comes after", real(2, 3, 4), 2, 1),
        ),
        torch=_method("flatten"),
        linear=(0,),
        views=True,
    ),
    Op(
        "squeeze",
        (
            sample(real(1, 3, 1)),
            sample(real(1, 3, 1), 0),
            sample(real(1, 3, 1), 1),
            sample(real(1, 3, 1), (0, 2)),
        ),
        (refusal(IndexError, "squeeze: dim is 3", real(1, 3), 3),),
        torch=_method("squeeze"),
        linear=(0,),
        views=True,
    ),
    Op(
        "unsqueeze",
        (sample(real(2, 3), 0), sample(real(2, 3), -1), sample(real(2, 3), 1), sample(real(), 0)),
        (refusal(IndexError, "unsqueeze: dim is 3", real(2, 3), 3),),
        torch=_method("unsqueeze"),
        linear=(0,),
        views=True,
    ),
    Op(
        "permute",
        (
            sample(real(2, 3, 4), (2, 0, 1)),
            sample(real(2, 3, 4), (0, -1, 1)),
            sample(real(2, 3, 4, 5), (0, 2, 3, 1)),
            sample(real(0, 2), (1, 0)),
        ),
        (
            refusal(ValueError, "names a dimension twice", real(2, 3), (0, 0)),
            refusal(ValueError, "name 1 dimensions", real(2, 3), (1,)),
            refusal(IndexError, "dim is 2", real(2, 3), (0, 2)),
        ),
        torch=_method("permute"),
        linear=(0,),
        views=True,
    ),
    Op(
        "transpose",
        (
            sample(real(2, 3, 4), 0, 2),
            sample(real(2, 3, 4), -1, -2),
            sample(real(2, 3), 1, 1),
            sample(real(), 0, -1),
        ),
        (refusal(IndexError, "transpose: dim is 2", real(2, 3), 0, 2),),
        torch=_method("transpose"),
        linear=(0,),
        views=True,
    ),
    Op(
        "expand",
        (
            sample(real(3, 1), (3, 4)),
            sample(real(3, 1), (2, -1, 5)),
            sample(real(), (2, 3)),
            sample(real(1), (0,)),
            sample(real(1, 3), (6, 3)),
        ),
        (
            refusal(ValueError, "does not broadcast", real(3, 2), (3, 4)),
            refusal(ValueError, "does not broadcast", real(3, 2), (2,)),
            refusal(ValueError, "does not broadcast", real(3), (-1, 3)),
            refusal(TypeError, "expand: shape is 3.0, wanted an integer", real(1), 3.0),
        ),
        torch=_method("expand"),
        linear=(0,),
        views=True,
    ),
    Op(
        "cat",
        (
            sample([real(2, 3), real(4, 3)]),
            sample([real(2, 3), real(2, 1), real(2, 2)], dim=1),
            sample([real(2, 3, 4, 5), real(2, 1, 4, 5)], dim=-3),
            sample([real(2, 3), real(0, 3)], 0),
            sample([real(3)]),
        ),
        (
            refusal(ValueError, "cat: tensors[1] has shape", [real(2, 3), real(2, 4)]),
            refusal(ValueError, "cat: tensors[1] has shape", [real(2, 3), real(2)]),
            refusal(TypeError, "at least one Tensor", []),
            refusal(TypeError, "at least one Tensor", [1.0]),
            refusal(IndexError, "cat: dim is 2", [real(2, 3)], 2),
            refusal(TypeError, "at least one Tensor", 5),
            refusal(TypeError, "at least one Tensor", real(2)),
            refusal(TypeError, "cat: dim is 'a'", [real(2)], "a"),
            refusal(ValueError, "cat: tensors[0] has no dimensions", [real()]),
        ),
        torch=lambda torch: torch.cat,
        linear=(0,),
    ),
    Op(
        "stack",
        (sample([real(2, 3), real(2, 3)]), sample([real(2, 3)] * 3, dim=1), sample([real(), real()], dim=-1)),
        (
            refusal(ValueError, "stack: tensors have shapes", [real(2), real(3)]),
            refusal(IndexError, "stack: dim is 2", [real(2), real(2)], 2),
            refusal(TypeError, "stack: tensors is list", []),
            refusal(TypeError, "stack: tensors is list", [real(2), 1.0]),
        ),
        torch=lambda torch: torch.stack,
        linear=(0,),
    ),
    Op(
        "pad",
        (
            sample(real(2, 3), (1, 2)),
            sample(real(2, 3), (1, 0, 0, 2), value=1.5),
            sample(real(2, 3, 4, 5), (1, 1, 2, 0)),
            sample(real(4, 5), (-1, 2, 1, -2)),
            sample(real(3), (0, 0)),
            sample(real(3), (2, 1), value=None),
            sample(real(0, 3), (1, 1, 1, 0)),
        ),
        (
            refusal(ValueError, "pad: pad has 3 widths", real(2, 3), (1, 1, 1)),
            refusal(ValueError, "pad: pad has 4 widths", real(3), (1, 1, 1, 1)),
            refusal(ValueError, "pad: mode is 'other'", real(3), (1, 1), mode="other"),
            refusal(ValueError, "cuts more than there is", real(3), (-2, -2)),
            refusal(ValueError, "cuts more than there is", real(3), (-4, 5)),
            refusal(TypeError, "pad: pad is 1.0, wanted an integer", real(3), (1.0, 1)),
            refusal(TypeError, "pad: value is 'a', wanted a number", real(3), (1, 1), value="a"),
            refusal(TypeError, "pad: value is 'Tensor', wanted a number", real(3), (1, 1), value=real()),
            refusal(ValueError, "pad: value is 0.5, wanted a whole number", classes(5, 3), (1, 1), value=0.5),
        ),
        linear=(0,),
    ),
    Op(
        "getitem",
        (
            sample(real(4, 5), 1),
            sample(real(4, 5), -1),
            sample(real(4, 5), (slice(1, 3), slice(None, None, 2))),
            sample(real(4, 5), (slice(None), slice(None, None, -1))),
            sample(real(4, 5), (None, 2, slice(0, 0))),
            sample(real(2, 3, 4), (..., 1)),
            sample(real(3, 5), (ROWS,)),
            sample(real(3, 5), (slice(None), ROWS)),
            sample(real(3, 5), (ROWS, np.array([0, 1, 0]))),
            sample(real(3, 5), (MASK,)),
        ),
        (
            refusal(IndexError, "getitem: ", real(2, 3), 2),
            refusal(IndexError, "getitem: ", real(2, 3), (0, 0, 0)),
            refusal(IndexError, "getitem: ", real(3), (np.array([3]),)),
            refusal(IndexError, "getitem: ", real(3), "a"),
            refusal(IndexError, "getitem: slice step cannot be zero", real(3), slice(None, None, 0)),
            refusal(TypeError, "getitem: slice indices must be integers", real(3), slice(0.5, None)),
        ),
        torch=_getitem,
        linear=(0,),
        views=True,
    ),
    Op(
        "take_along_dim",
        (
            sample(real(3, 4), classes(4, 3, 2), 1),
            sample(real(3, 4), classes(3, 6, 4), dim=0),
            sample(real(2, 3, 4), classes(3, 2, 1, 4), -2),
        ),
        (
            refusal(TypeError, "wanted integers", real(3, 4), real(3, 1), 1),
            refusal(ValueError, "indices have shape", real(3, 4), classes(3, 2, 2), 1),
            refusal(IndexError, "indices run from", real(3, 2), np.array([[2], [0], [0]]), 1),
            refusal(ValueError, "take_along_dim: there are no dimensions", real(), classes(1), 0),
        ),
        torch=lambda torch: torch.take_along_dim,
        linear=(0,),
    ),
    Op(
        "put_along_dim",
        (
            sample(real(3, 2), classes(4, 3, 2), (3, 4), 1),
            sample(real(6, 4), classes(3, 6, 4), (3, 4), 0),
            sample(real(3, 2), classes(4, 3, 2), (3, 4), -1),
        ),
        (
            refusal(TypeError, "wanted integers", real(3, 2), real(3, 2), (3, 4), 1),
            refusal(IndexError, "put_along_dim: indices run from", real(3, 1), classes(1, 3, 1), (3, 0), 1),
            refusal(ValueError, "put_along_dim: indices have shape", real(3, 2), classes(2, 4, 2), (3, 4), 1),
            refusal(ValueError, "put_along_dim: indices have shape (3, 1), x", real(3, 2), classes(4, 3, 1), (3, 4), 1),
            refusal(TypeError, "put_along_dim: shape is 4.0", real(3, 2), classes(4, 3, 2), (3, 4.0), 1),
            refusal(ValueError, "put_along_dim: shape is (3, -4)", real(3, 2), classes(4, 3, 2), (3, -4), 1),
            refusal(IndexError, "put_along_dim: dim is 2", real(3, 2), classes(4, 3, 2), (3, 4), 2),
        ),
        torch=lambda torch: (
            lambda x, indices, shape, dim: torch.zeros(shape, dtype=x.dtype).scatter_add(dim, indices, x)
        ),
        linear=(0,),
    ),
]
