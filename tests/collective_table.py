"""The collectives as a table: every one in every order, operation, element type and wire, on arrays of any device."""

import itertools
from dataclasses import dataclass

import numpy as np

from minigrad import device

__all__ = ["ROWS", "Row", "check_row", "run_row", "terms"]

SIZES = (0, 1, 7, 3000, 20_001)  # of a part: fewer than ranks, ragged, and above what goes in one piece
TYPES = ("float32", "float64", "float16", "int32", "int64", "uint8", "bool")


@dataclass(frozen=True)
class Row:
    call: str
    dtype: str
    size: int
    op: str = "sum"
    order: str = "fixed"
    wire: str = ""

    @property
    def exact(self):
        """Whether the result has the same bits whoever adds."""
        return self.order == "fixed" or self.op in ("max", "min") or np.dtype(self.dtype).kind in "iub"

    @property
    def alike(self):
        """Whether all ranks get the same."""
        return self.call in ("all_reduce", "all_gather", "broadcast")

    def tolerance(self, ranks):
        """Of each of at most `ranks` roundings, of numbers below `ranks`; a wire rounds terms and total too."""
        epsilon = float(np.finfo(self.dtype).eps) + {"": 0, "float16": 2**-10, "bfloat16": 2**-7}[self.wire]
        return ranks * ranks * epsilon


def _sums():
    for call, dtype, op, order in itertools.product(
        ("all_reduce", "reduce_scatter"), TYPES, ("sum", "mean", "max", "min"), ("fixed", "native")
    ):
        if dtype == "bool" or op == "mean" and not dtype.startswith("float"):
            continue
        sizes = SIZES if dtype == "float32" else (7, 20_001)
        yield from (Row(call, dtype, size, op, order) for size in sizes)
    for call, op, wire, size in itertools.product(
        ("all_reduce", "reduce_scatter"), ("sum", "mean"), ("float16", "bfloat16"), SIZES
    ):
        yield Row(call, "float32", size, op, "fixed", wire)


ROWS = [
    *_sums(),
    *(
        Row(call, dtype, size)
        for call, dtype in itertools.product(("all_gather", "broadcast"), TYPES)
        for size in (SIZES if dtype == "float32" else (7, 20_001))
    ),
]


def terms(row, rank, size):
    """What a rank gives: fractions below 1, or small whole numbers."""
    count = size * row.size if row.call == "reduce_scatter" else row.size
    rng = np.random.default_rng([rank, count])
    if row.dtype == "bool":
        return rng.random(count) < 0.5
    numbers = rng.random(count) - 0.5 if row.dtype.startswith("float") else rng.integers(0, 9, count)
    return numbers.astype(row.dtype)


def run_row(world, row, to=lambda x: x):
    """What this rank gets, as an array of NumPy; `to` brings arrays to a device."""
    x = to(terms(row, world.rank, world.size))
    options = {"op": row.op, "order": row.order, "wire": row.wire or None, "label": "row"}
    empty = lambda count: to(np.zeros(count, row.dtype))
    if row.call == "all_reduce":
        out = world.all_reduce(x, **options)
    elif row.call == "reduce_scatter":
        out = world.reduce_scatter(empty(row.size), x, **options)
    elif row.call == "broadcast":
        out = world.broadcast(x, root=world.size - 1)
    else:
        out = world.all_gather(empty(x.size * world.size), x)
    return device.host(out)


def _right(row, rank, size):
    """What it should get, by NumPy in float64 or whole numbers."""
    given = np.array([terms(row, other, size) for other in range(size)])
    given = given.astype(float) if given.dtype.kind == "f" else given
    if row.call == "all_gather":
        return given.reshape(-1)
    if row.call == "broadcast":
        return given[-1]
    total = getattr(given, row.op)(axis=0, **({"dtype": given.dtype} if row.op == "sum" else {}))
    return total.reshape(size, -1)[rank] if row.call == "reduce_scatter" else total


def check_row(row, rank, size, found, threads):
    """Compare what a rank got with NumPy, and with the bits that ranks of threads get, where they are promised."""
    right = _right(row, rank, size)
    assert found.dtype == row.dtype and found.shape == right.shape, row
    close = right.dtype.kind == "f" and row.call in ("all_reduce", "reduce_scatter")
    off = row.tolerance(size) if close else 0
    assert (np.abs(found.astype(float) - right) <= off).all(), (row, found, right)
    assert not row.exact or found.tobytes() == threads.tobytes(), (row, found, threads)
