"""The collectives as a table: every one in both orders of a sum, by operation and element type, on any device."""

from dataclasses import dataclass
from itertools import product

import numpy as np

from minigrad import deterministic, device

__all__ = ["ROWS", "Row", "check_row", "run_row"]

SIZES = (0, 1, 7, 20_001)  # of a part: fewer than ranks, ragged, and above what goes in one piece
FLOATS = ("float32", "float64", "float16")
TYPES = (*FLOATS, "int32", "int64", "uint8", "bool")


@dataclass(frozen=True)
class Row:
    call: str
    dtype: str
    size: int
    op: str = "sum"
    deterministic: bool = True

    @property
    def exact(self):
        """Whether the result has the same bits whoever adds."""
        return self.deterministic or self.op in ("max", "min") or self.dtype not in FLOATS


ROWS = [
    Row(call, dtype, size, op, fixed)
    for call, dtype, size, op, fixed in product(
        ("all_reduce", "all_gather", "broadcast"), TYPES, SIZES, ("sum", "mean", "max", "min"), (True, False)
    )
    if (size > 1 or dtype == "float32")
    and (dtype != "bool" and (op != "mean" or dtype in FLOATS) if call == "all_reduce" else op == "sum" and fixed)
]


def terms(row, rank):
    """What a rank gives: fractions below 1, or small whole numbers."""
    rng = np.random.default_rng([rank, row.size])
    if row.dtype == "bool":
        return rng.random(row.size) < 0.5
    numbers = rng.random(row.size) - 0.5 if row.dtype in FLOATS else rng.integers(0, 9, row.size)
    return numbers.astype(row.dtype)


def run_row(world, row, to=lambda x: x):
    """What this rank gets, as an array of NumPy; `to` brings arrays to a device."""
    x = to(terms(row, world.rank))
    with deterministic(row.deterministic):
        if row.call == "all_reduce":
            out = world.all_reduce(x, row.op, label="row")
        elif row.call == "broadcast":
            out = world.broadcast(x, root=world.size - 1)
        else:
            out = world.all_gather(to(np.zeros(x.size * world.size, row.dtype)), x)
    return device.host(out)


def _right(row, size):
    """What it should get, by NumPy in float64 or whole numbers."""
    given = np.array([terms(row, rank) for rank in range(size)])
    given = given.astype(float) if row.dtype in FLOATS else given
    if row.call == "all_gather":
        return given.reshape(-1)
    if row.call == "broadcast":
        return given[-1]
    return getattr(given, row.op)(axis=0, **({"dtype": given.dtype} if row.op == "sum" else {}))


def check_row(row, size, found, threads):
    """Compare what a rank got with NumPy, and with the bits that ranks of threads get, where they are promised."""
    right = _right(row, size)
    assert found.dtype == row.dtype and found.shape == right.shape, row
    rounds = row.dtype in FLOATS and row.call == "all_reduce"
    off = size * size * float(np.finfo(row.dtype).eps) if rounds else 0  # each of `size` roundings, of numbers below it
    assert (np.abs(found.astype(float) - right) <= off).all(), (row, found, right)
    assert not row.exact or found.tobytes() == threads.tobytes(), (row, found, threads)
