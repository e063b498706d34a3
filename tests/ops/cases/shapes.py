"""Rows of the ops that move elements without changing them: views, copies, joins, borders, subscripts, picks.

Where no function of NumPy is named, an op is defined as in PyTorch.
"""

from functools import partial

import numpy as np

from . import Draw, classes, flags, given, op, real, refusal, sample

# ---- views and copies ------------------------------------------------------------------------------------------------


def _moved(name, *rows, **options):
    """An op of one Tensor; a row is its shape with the other arguments, or a refusal."""
    rows = (sample(real(*row[0]), *row[1:]) if isinstance(row, tuple) else row for row in rows)
    return op(name, *rows, **options)


_view = partial(_moved, views=True)
HOLD = "which does not hold the 6 elements"
RESHAPED = ((2, 3, 4), (6, -1)), ((2, 3), [-1]), ((1,), ()), ((), (1, -1)), ((0, 3), (3, 0))
EXPANDED = ((3, 1), (2, -1, 5)), ((), (2, 3)), ((1, 2, 1), [4, 3, 2, 2]), ((0, 1), (0, 3))
TOO_FEW = refusal(ValueError, "expand: input has shape (3, 2), which does not broadcast", real(3, 2), (3, 4))
VIEWS = [
    *(
        _view(name, *RESHAPED, refusal(ValueError, HOLD, real(2, 3), 4), reference=np.reshape)
        for name in ("reshape", "view")
    ),
    _view("flatten", ((2, 3, 4, 5), 1, -2), ((2, 3, 4, 5),), ((),), ((2, 0, 3), 1)),
    _view(
        "unflatten",
        *(((6, 2), 0, (2, 3)), ((2, 6), -1, (-1, 2)), ((1, 3), 0, [1, 1])),
        refusal(ValueError, f"unflatten: sizes is (2, 4), {HOLD}", real(2, 6), 1, (2, 4)),
    ),
    _view("squeeze", ((1, 3, 1), 0), ((1, 3, 1),), ((1, 3, 1), 1), ((1, 3, 1), (0, -1)), ((), 0)),
    _view("unsqueeze", ((2, 3), 1), ((2, 3), -1), ((), 0), reference=np.expand_dims),
    _view(
        "permute",
        *(((2, 3, 4), (2, 0, 1)), ((2, 3, 4, 5), [0, -2, 3, 1]), ((), ())),
        refusal(ValueError, "names a dimension twice", real(2, 3), (0, 0)),
        refusal(ValueError, "name 1 dimensions", real(2, 3), (1,)),
        reference=np.transpose,
    ),
    _view("transpose", ((2, 3, 4), 0, 2), ((2, 3, 4), -1, -2), ((4,), 0, 0), reference=np.swapaxes),
    _view("t", ((3, 4),), ((5,),), ((),), refusal(ValueError, "t: input has shape (2, 3, 4), wanted", real(2, 3, 4))),
    _view(
        "movedim",
        *(((2, 3, 4, 5), (0, 1), (-1, -2)), ((2, 3, 4), 0, 2), ((2, 3, 4), [0, 2], [1, 0])),
        refusal(ValueError, "movedim: source is (0, 1), destination (1,)", real(2, 3, 4), (0, 1), (1,)),
    ),
    *(_view(name, *EXPANDED, TOO_FEW) for name in ("expand", "broadcast_to")),
    _view("contiguous", ((2, 3, 4, 5),), ((),), reference=np.copy),
    _view("flip", ((2, 3, 4), (-1, 0)), ((2, 3, 4), [1]), ((2, 3), ()), reference=np.flip),
    _view("diagonal", ((2, 3, 4, 4), -1, 2, 3), ((3, 4),), ((3, 4), 9), ((2, 3, 4), 0, 2, 0)),
    _view(
        "split",
        *(((2, 5), [1, 4], 1), ((5, 2), 2), ((2, 5), 7, -1), ((2, 5), [0, 2, 3], 1)),
        refusal(ValueError, "split: split_size_or_sections is 0, wanted", real(5), 0),
        refusal(ValueError, "wanted sizes that add up to 5", real(5), (2, 2)),
    ),
    _view("chunk", ((5, 2), 3), ((2, 6), 4, -1)),
    _view("unbind", ((2, 3, 4), -2), ((3,),)),
]

BORDERS = ((2, 3, 4), (1, 3, 2, 0)), ((2, 2, 3, 4), (1, 1, 1, 1))
TRIANGLES = ((2, 3, 3), -2), ((3, 4),), ((4, 3), 1), ((3, 4), 10**12)
COPIES = [
    _moved("clone", ((2, 3, 4, 5),), ((),), reference=np.copy),
    _moved("tile", ((2, 3), (2, 1, 3)), ((2, 3), (3,)), ((2, 3), ()), ((2,), (0, 2)), reference=np.tile),
    _moved(
        "repeat",
        *(((2, 3), [2, 1, 3]), ((), (3,)), ((2,), (2, 0))),
        refusal(ValueError, "repeat: repeats is (3,), wanted at least 2 numbers", real(2, 2), (3,)),
    ),
    _moved(
        "roll",
        *(((3, 4), (1, -2), (0, 1)), ((3, 4), 5), ((3, 4), -3, 1)),
        refusal(ValueError, "roll: shifts is (1, 1), dims (0,)", real(4), (1, 1), (0,)),
    ),
    *(
        _moved(name, *TRIANGLES, refusal(ValueError, f"{name}: input has shape (3,), wanted matrices", real(3)))
        for name in ("tril", "triu")
    ),
    op(
        "cat",
        sample([real(2, 3), real(2, 1), real(2, 2)], dim=1),
        sample([real(2, 3), real(0, 3)], 0),
        refusal(ValueError, "cat: tensors[1] has shape (2,), tensors[0] (2, 3)", [real(2, 3), real(2)]),
        refusal(TypeError, "at least one Tensor", []),
        refusal(ValueError, "wanted dimensions; use stack", [real()]),
        refusal(TypeError, "cat: no integer type holds both", [given(1), Draw((1,), grad=False, values=(2**63,))]),
    ),
    op(
        "stack",
        sample([real(2, 3)] * 3, dim=1),
        sample([real(), real()], dim=-1),
        refusal(ValueError, "stack: tensors have shapes", [real(2), real(3)]),
    ),
    op(
        "pad",
        sample(real(2, 3), (1, 0, 0, 2), value=1.5),
        sample(real(4, 5), [-1, 2, 1, -2]),
        sample(real(0, 3), (1, 1, 1, 0), value=None),
        *(sample(real(*s), p, mode=mode) for mode in ("reflect", "replicate", "circular") for s, p in BORDERS),
        *(sample(real(2, 3, 4), (-1, 2), mode) for mode in ("reflect", "replicate")),
        refusal(ValueError, "pad: pad has 4 widths, wanted a pair for each of at most 1", real(3), (1, 1, 1, 1)),
        refusal(ValueError, "pad: mode is 'other'", real(3), (1, 1), mode="other"),
        refusal(ValueError, "pad: pad is (1, 3) along dimension 1 of size 3", real(1, 3), (1, 3), "reflect"),
        refusal(ValueError, "wanted widths from 0 to 4 for mode 'circular'", real(1, 4), (5, 0), "circular"),
    ),
]

# ---- subscripts ------------------------------------------------------------------------------------------------------

ALL, BACKWARDS = slice(None), slice(None, None, -1)
ROWS, FIRST, NOWHERE = np.array([2, 0, 2]), np.array([0, 1]), np.zeros(0, np.int64)
GRID = np.array([[0, 1], [1, 1], [0, 0]])
MASK = np.array([True, False, True])
PLANE = np.array([[True, False, True], [False, True, True]])


def _keys(x, *keys):
    return [sample(x, key) for key in keys]


SUBSCRIPTS = [
    op(
        "getitem",
        *_keys(real(4, 5), (slice(1, 3), slice(None, None, 2)), -1, slice(3, 1), ..., None, ()),
        *_keys(real(4, 5), (slice(3, None, -2), slice(-1, 0, -1)), (..., None, 0, None), (2, 3)),
        *_keys(real(2, 3, 4), (..., 1), (1, ..., BACKWARDS)),
        *_keys(real(3, 5), ROWS, [-1, -3], GRID, NOWHERE, (ALL, ROWS), (ROWS, np.array([0, 1, 0])), (None, ROWS)),
        *_keys(real(3, 5), (np.array([[-1]]), slice(1, 4)), (ROWS.astype(np.int32), 1), (1, [0, -1])),
        sample(real(3, 5), classes(3, 4)),
        *_keys(real(2, 3, 4), (0, ALL, FIRST), (FIRST, ALL, FIRST), (ALL, FIRST, FIRST)),
        *_keys(real(2, 3, 4), (BACKWARDS, FIRST, slice(None, None, -2)), (FIRST, GRID, -1)),
        *_keys(real(3, 5), MASK, (MASK, 1), ~MASK & MASK),
        *_keys(real(2, 3, 4), (PLANE, slice(1, 3)), (ALL, MASK)),
        sample(real(4, 5), flags(4, 5)),
        *_keys(real(), True, None, ...),
        *_keys(real(0, 3), ALL, NOWHERE),
        refusal(IndexError, "getitem: index 2 is out of bounds", real(2, 3), 2),
        refusal(IndexError, "getitem: key has too many subscripts", real(2, 3), (0, 0, 0)),
        refusal(IndexError, "one Ellipsis", real(2, 3), (..., ...)),
        refusal(IndexError, "getitem: the indices run from 3 to 3, wanted -3 to 2", real(3), (np.array([3]),)),
        refusal(IndexError, "getitem: key holds 'a', wanted integers", real(3), "a"),
        refusal(IndexError, "getitem: key holds elements float64", real(3), real(3)),
        refusal(IndexError, "getitem: a mask has shape (2,), the dimensions it stands for (3,)", real(3), MASK[:2]),
        refusal(IndexError, "getitem: index arrays have shapes [(3,), (2,)]", real(3, 5), (ROWS, FIRST)),
        views=True,
    ),
    op(
        "masked_select",
        sample(real(3, 4), flags(3, 4)),
        sample(real(4), mask=flags(3, 1)),
        refusal(ValueError, "masked_select: shapes (3, 4) and (2,) do not broadcast", real(3, 4), flags(2)),
    ),
]

# ---- picks by index --------------------------------------------------------------------------------------------------


INDEX = Draw((3, 2), "given", False, values=((3, 0), (1, 2), (0, 1)))  # each place once: else the order would decide
MISFIT = refusal(ValueError, "index has shape (3, 2), src (3, 1)", real(3, 4), 1, classes(4, 3, 2), real(3, 1))
PICKS = [
    op(
        "gather",
        sample(real(3, 4), 1, classes(4, 3, 2)),
        sample(real(2, 3, 4), dim=-2, index=classes(3, 1, 5, 2)),
        refusal(ValueError, "gather: index has shape (4, 2), input (3, 4)", real(3, 4), 1, classes(4, 4, 2)),
        refusal(IndexError, "gather: the indices run from 4 to 4", real(4), 0, given(4, 4)),
        refusal(TypeError, "gather: the indices have elements float64, wanted integers", real(3, 4), 1, real(3, 1)),
    ),
    op(
        "scatter_add",
        sample(real(3, 4), 1, classes(4, 3, 2), real(3, 2)),
        sample(real(2, 3, 4), dim=-2, index=classes(3, 1, 5, 2), src=real(1, 5, 2)),
        MISFIT,
    ),
    op(
        "scatter",
        sample(real(3, 4), 1, INDEX, real(3, 2)),
        sample(real(3, 4), 1, classes(4, 3, 2), 2),
        sample(real(3, 4), dim=1, index=classes(4, 2, 2), value=2.5),
        MISFIT,
        refusal(TypeError, "scatter: src is None, value None; wanted one of them", real(3, 4), 1, INDEX),
    ),
    op(
        "index_select",
        sample(real(2, 3, 4), -2, classes(3, 2)),
        sample(real(0, 3), dim=1, index=given(2, 0, 2)),
        refusal(ValueError, "index_select: index has shape (1, 2), wanted a vector", real(3), 0, classes(3, 1, 2)),
        refusal(IndexError, "index_select: the indices run from 3 to 3", real(3), 0, given(3)),
    ),
    op(
        "one_hot",
        sample(classes(4, 2, 3), 5),
        sample(given(0, 2, 1)),
        sample(classes(3, 0), num_classes=3),
        refusal(IndexError, "one_hot: the indices run from 0 to 2, wanted 0 to 1", given(0, 2), 2),
        differentiable=False,
    ),
    op(
        "embedding",
        sample(classes(5, 2, 6), real(5, 3)),
        sample(classes(5), real(5, 3)),
        sample(given(0, 2, 2, 1), real(3, 2), padding_idx=-1, smooth=False),
        refusal(IndexError, "embedding: the indices run from 0 to 3, wanted 0 to 2", given(0, 3), real(3, 2)),
        refusal(ValueError, "embedding: padding_idx is 3, wanted -3 to 2", given(0), real(3, 2), 3),
    ),
    op(
        "nonzero",
        sample(flags(3, 4)),
        sample(classes(3, 5), as_tuple=True),
        *(sample(flags()), sample(given(0.0, -0.0, float("nan")))),
        differentiable=False,
    ),
]

OPS = [*VIEWS, *COPIES, *SUBSCRIPTS, *PICKS]
