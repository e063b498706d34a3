"""What the rungs of the matrix product cost, against the formulas of their docstrings.

The instructions of their loops stand in the manifest of the kernels.
"""

from functools import partial

import pytest

from minigrad_kernels.matmul import cuda

from .cases.matmul import row
from .rungs import TYPES, number, recorded
from .test_matmul_cuda import KK, KN, MN

LAYOUTS = {"kk": KK, "kn": KN, "mn": MN}
TILES = {  # rung, kind -> (rows, columns and steps of a tile; barriers for each of them; layouts)
    ("tiled", "float32"): ((32, 32, 32), 2, ["kk", "mn"]),
    ("register_64x64", "float32"): ((64, 64, 16), 2, ["kn"]),
    ("register", "float32"): ((128, 128, 8), 2, ["kk", "mn"]),
    ("buffered", "float32"): ((128, 128, 8), 1, ["kk", "kn", "mn"]),
    ("tensor", "float16"): ((64, 64, 32), 2, ["kn"]),
    ("async", "float16"): ((128, 128, 32), 1, ["kk", "kn", "mn"]),
    ("async", "tf32"): ((128, 128, 16), 1, ["kk", "kn", "mn"]),
}


def costs(rung, kind, m, n, k, layouts=KN):
    """The counts of the only launch of a product."""
    ((_, found),) = recorded(partial(cuda.forward, rung=rung), kind, row(m, k, n, layouts=layouts))
    return found


@pytest.mark.deep
@pytest.mark.parametrize("rung, kind", TILES)
def test_tiles_cost_what_their_docstrings_say(rung, kind):
    """Each tile of a row of tiles reads a once, each of a column b, in whole sectors; out is written once. Shared
    memory is read without conflicts, and no product is made twice."""
    (rows, columns, steps), barriers, layouts = TILES[rung, kind]
    m, n, k, size = 2 * rows, columns, 2 * steps if rung in ("tiled", "tensor") else 5 * steps, TYPES[kind].itemsize
    for layout in layouts:
        found = costs(rung, kind, m, n, k, LAYOUTS[layout])
        assert (found.bytes_loaded["a"], found.bytes_loaded["b"]) == (size * m * k, 2 * size * k * n), layout
        assert found.bytes_stored == {"out": size * m * n}
        assert found.global_load_sectors == found.global_load_sectors_ideal, layout
        assert found.global_store_sectors == found.global_store_sectors_ideal, layout
        if rung != "tensor":  # which writes its tiles one element at a time
            assert 0 < found.shared_wavefronts <= 1.05 * found.shared_wavefronts_ideal, layout
        assert found.barriers == 2 * barriers * (k // steps)
        if kind == "float32":
            assert number(found, "fma.f32") == m * n * k // 32
        else:
            assert number(found, "mma.sync") == m // 16 * (n // 8) * (k * size // 32)


def test_each_rung_of_the_ladder_costs_less_than_the_one_below():
    rungs = [costs(name, "float32", 128, 128, 32) for name in ("plain", "tiled", "register", "buffered")]
    instructions = [sum(found.instructions.values()) for found in rungs]
    sectors = [found.global_sectors for found in rungs]
    assert instructions == sorted(instructions, reverse=True) and sectors[0] > sectors[1] > sectors[2] == sectors[3]
    assert rungs[0].bytes_loaded == dict.fromkeys("ab", 4 * 128 * 128 * 32)
    *_, scalar, vector = rungs
    for space in ("ld.global", "ld.shared"):
        assert 4 * number(vector, space) == number(scalar, space) > 0
    assert 4 * number(vector, "st.global.v4") == number(scalar, "st.global")


def test_slices_travel_through_the_workspace_once():
    m, n, k = 20, 12, 1000
    (_, tiles), (_, add) = recorded(partial(cuda.forward, rung="split"), "float32", row(m, k, n))
    size = 4 * -(-k // 80) * m * n  # slices of 80 steps each: 1000 / (1000 // 64), rounded up to a multiple of 16
    assert tiles.bytes_loaded == {"a": 4 * m * k, "b": 4 * k * n} and tiles.bytes_stored == {"out": size}
    assert add.bytes_loaded == {"partial": size} and add.bytes_stored == {"out": 4 * m * n}
