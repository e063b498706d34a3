"""Rows of subscripts and masks."""

import numpy as np

from . import Draw, Op, classes, flags, given, real, refusal, sample

ALL = slice(None)
BACKWARDS = slice(None, None, -1)
ROWS = np.array([2, 0, 2])
FIRST = np.array([0, 1])
GRID = np.array([[0, 1], [1, 1], [0, 0]])
MASK = np.array([True, False, True])
PLANE = np.array([[True, False, True], [False, True, True]])
NOWHERE = np.zeros(0, np.int64)


def getitem_of_torch(torch):
    """PyTorch's x[key] for a key of minigrad's: negative steps are turned round first, lists are arrays."""

    def tensor(part):
        array = np.asarray(part)
        return torch.as_tensor(array if array.size else array.astype(np.bool_ if array.dtype == bool else np.int64))

    def call(x, key):
        parts = list(key) if isinstance(key, tuple) else [key]
        parts = [
            tensor(part) if isinstance(part, list | tuple | range) or isinstance(part, np.ndarray | np.bool_) else part
            for part in parts
        ]
        widths = [_width(torch, part) for part in parts]
        axis = 0
        for i, (part, width) in enumerate(zip(parts, widths, strict=True)):
            if isinstance(part, slice) and (part.step or 1) < 0:
                x, parts[i] = _turned(x, axis, part)
            axis += x.ndim - sum(widths) if part is Ellipsis else width
        return x[tuple(parts)]

    return call


def _width(torch, part):
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.ndim if isinstance(part, torch.Tensor) and part.dtype == torch.bool else 1


def _turned(x, axis, part):
    """x backwards along an axis, and the slice with a positive step that picks the same of it."""
    n = x.shape[axis]
    places = range(*part.indices(n))
    if not len(places):
        return x, slice(0, 0)
    return x.flip(axis), slice(n - 1 - places[0], n - places[-1], -places.step)


def _keys(x, *keys):
    return [sample(x, key) for key in keys]


OPS = [
    Op(
        "getitem",
        (
            *_keys(real(4, 5), 1, -1, ALL, slice(1, 3), slice(-3, None, 2), slice(3, 1), slice(2, 99), ..., None, ()),
            *_keys(
                real(4, 5),
                (slice(1, 3), slice(None, None, 2)),
                (ALL, BACKWARDS),
                (slice(3, None, -2), slice(-1, 0, -1)),
                (slice(0, 3, -1), 2),
                (None, 2, slice(0, 0)),
                (2, 3),
                (np.int64(2), np.array(-1)),
                (slice(np.int64(1), np.array(3)), ALL),
                (..., None, 0, None),
                (ALL, ALL, ...),
            ),
            *_keys(real(2, 3, 4), (..., 1), (1, ..., BACKWARDS), (ALL, None, 1), (0, 0, 0)),
            # index arrays
            *_keys(real(3, 5), ROWS, (ROWS,), [2, 0, 2], [-1, -3], range(2), GRID, [[0, 1], [2, 2]], NOWHERE, []),
            sample(real(3, 5), classes(3, 4)),
            sample(real(3, 5), Draw((2, 2), "given", False, values=((0, -1), (2, 2)))),
            sample(real(5), given(1, 1, -5)),
            *_keys(
                real(3, 5),
                (ALL, ROWS),
                (..., GRID),
                (ROWS, np.array([0, 1, 0])),
                (ROWS, np.array([[0], [4]])),
                (np.array([[-1]]), slice(1, 4)),
                (None, ROWS),
                (ROWS, None),
                (ROWS.astype(np.int32), 1),
                (1, [0, -1]),
                (NOWHERE, NOWHERE),
                ((0, 2), BACKWARDS),
            ),
            *_keys(
                real(2, 3, 4),
                (0, ALL, FIRST),
                (FIRST, ALL, FIRST),
                (FIRST, FIRST),
                (ALL, FIRST, FIRST),
                (ALL, FIRST, None, FIRST),
                (FIRST, None, FIRST),
                (FIRST, 0, FIRST),
                (FIRST, ALL, 2),
                (GRID, ..., FIRST),
                (BACKWARDS, FIRST, slice(None, None, -2)),
                (FIRST, GRID, -1),
            ),
            sample(real(2, 3, 4, 2), (0, FIRST, ALL, FIRST)),
            sample(real(2, 3, 4, 2), (FIRST, 1, ALL, [[1], [0]])),
            # masks
            *_keys(real(3, 5), MASK, (MASK,), [True, False, True], (MASK, 1), (MASK, ALL, None), ~MASK & MASK),
            *_keys(real(2, 3, 4), PLANE, (PLANE, slice(1, 3)), (PLANE, 0), (ALL, MASK), (MASK[:2], ALL, [3])),
            *_keys(real(2, 3, 4), (FIRST, MASK[[0, 2, 0]][:3] & MASK), (..., np.array([False, True, True, False]))),
            sample(real(4, 5), flags(4, 5)),
            sample(real(4, 5), flags(4)),
            sample(real(3), flags(3)),
            *_keys(real(2, 3), True, False, (True, ALL), (ALL, True), (0, ALL, True), (True, FIRST), (ALL, False)),
            *_keys(real(), True, False, None, (), ..., np.True_, (None, True)),
            *_keys(real(0, 3), ALL, NOWHERE, (ALL, [0, 0]), np.zeros((0, 3), bool), (ALL, BACKWARDS)),
            *_keys(real(1), 0, [0, 0, -1], [True]),
        ),
        (
            refusal(IndexError, "getitem: index 2 is out of bounds", real(2, 3), 2),
            refusal(IndexError, "getitem: key has too many subscripts", real(2, 3), (0, 0, 0)),
            refusal(IndexError, "too many subscripts", real(2, 3), (ALL, None, ALL, ALL)),
            refusal(IndexError, "too many subscripts", real(2, 3), (ROWS, ROWS, ROWS)),
            refusal(IndexError, "too many subscripts", real(2, 3), np.zeros((2, 3, 1), bool)),
            refusal(IndexError, "one Ellipsis", real(2, 3), (..., ...)),
            refusal(IndexError, "too many subscripts", real(), 0),
            refusal(IndexError, "getitem: ", real(2, 3), (None,) * 70),
            refusal(IndexError, "too many subscripts", real(), ALL),
            refusal(IndexError, "getitem: the indices run from 3 to 3, wanted -3 to 2", real(3), (np.array([3]),)),
            refusal(IndexError, "getitem: the indices run from -4 to 0", real(3), [0, -4]),
            refusal(IndexError, "getitem: the indices run from 0 to 0", real(0, 3), [0]),
            refusal(IndexError, "getitem: key holds 'a', wanted integers", real(3), "a"),
            refusal(IndexError, "getitem: key holds 0.5", real(3), 0.5),
            refusal(IndexError, "getitem: key holds [None]", real(3), [None]),
            refusal(IndexError, "getitem: key holds [slice", real(3), [slice(1)]),
            refusal(IndexError, "getitem: key holds [[0], [0, 1]]", real(3), [[0], [0, 1]]),
            refusal(IndexError, "getitem: key holds elements float", real(3), [0.5]),
            refusal(IndexError, "getitem: key holds elements float64", real(3), real(3)),
            refusal(IndexError, "getitem: key holds elements uint8", real(3), np.ones(3, np.uint8)),
            refusal(IndexError, "getitem: slice step cannot be zero", real(3), slice(None, None, 0)),
            refusal(TypeError, "getitem: slice indices must be integers", real(3), slice(0.5, None)),
            refusal(ValueError, "wanted an integer of 64 bits", real(3), 10**30),
            refusal(IndexError, "getitem: a mask has shape (2,), the dimensions it stands for (3,)", real(3), MASK[:2]),
            refusal(IndexError, "getitem: a mask has shape (3, 2)", real(2, 3), PLANE.T),
            refusal(IndexError, "getitem: index arrays have shapes [(3,), (2,)]", real(3, 5), (ROWS, FIRST)),
            refusal(IndexError, "getitem: index arrays have shapes [(2,), (3,)]", real(3, 5), (MASK, ROWS)),
            refusal(IndexError, "which do not broadcast", real(3, 5), (False, ROWS)),
        ),
        torch=getitem_of_torch,
        linear=(0,),
        views=True,
    ),
    Op(
        "masked_select",
        (
            sample(real(3, 4), flags(3, 4)),
            sample(real(3, 4), flags(4)),
            sample(real(3, 4), mask=flags(3, 1)),
            sample(real(4), flags(3, 1)),
            sample(real(), flags(4)),
            sample(real(), flags()),
            sample(real(0, 3), flags(3)),
            sample(real(1), flags(5)),
        ),
        (
            refusal(ValueError, "masked_select: shapes (3, 4) and (2,) do not broadcast", real(3, 4), flags(2)),
            refusal(TypeError, "masked_select: mask has elements int64, wanted bools", real(3), classes(2, 3)),
            refusal(TypeError, "masked_select: mask is a ndarray, wanted a Tensor", real(3), MASK),
        ),
        linear=(0,),
    ),
]
