"""What kernels move and execute, counted by the interpreter: the numbers that their docstrings promise.

A row is a call and what each kernel that it starts costs. The instructions of inner loops stand in the manifest of the
kernels. The traffic of optimisers is in test_optimizer.py.
"""

from functools import partial
from importlib import import_module
from math import prod

import pytest

from minigrad_kernels import interpreter
from minigrad_kernels.bias.plan import LINES, cut
from minigrad_kernels.conv2d import cuda_register
from minigrad_kernels.toolchain.modes import tf32

from .cases import bias, norm, softmax
from .cases.conv2d import rows as convolution
from .cases.matmul import row as product
from .kernel_runs import make_inputs, run
from .rungs import DIRECTIONS, KK, KN, MN, TYPES


def recorded(case, kind="float32", rung=None):
    """[(name, counts)] of the kernels that a row launches on the interpreter; its results are not looked at."""
    function = partial(getattr(import_module(f"minigrad_kernels.{case.family}.cuda"), case.function), rung=rung)
    inputs = make_inputs(case, TYPES[kind], integers=True)
    with tf32(kind == "tf32"), interpreter.recording() as launches:
        run(case, TYPES[kind], inputs, "interpreter", function if rung else None)
    return [(name, report.counts) for name, report in launches]


def number(counts, begin):
    """How many instructions, of all warps, begin so."""
    return sum(count for opcode, count in counts.instructions.items() if opcode.startswith(begin))


def holds(counts, loaded, stored=None, whole="", executed=(), conflicts=1.05, barriers=None):
    """loaded, stored: bytes by array, of all that are stored; whole: arrays of which whole sectors move alone;
    executed: how many instructions begin so; conflicts: passes through shared memory, beside the fewest."""
    asked = counts.bytes_loaded + counts.bytes_stored
    moved = counts.sector_bytes_loaded + counts.sector_bytes_stored
    assert {name: counts.bytes_loaded[name] for name in loaded} == loaded
    assert stored is None or counts.bytes_stored == stored
    assert {name: moved[name] for name in whole.split()} == {name: asked[name] for name in whole.split()}
    assert {begin: number(counts, begin) for begin in executed} == dict(executed)
    assert counts.shared_wavefronts <= conflicts * counts.shared_wavefronts_ideal
    assert barriers is None or counts.barriers == barriers


# ---- kernels that wait for memory ------------------------------------------------------------------------------------


def of_columns(shape):
    """Each matrix is read and written once, a ReLU or a residual included; sums of parts are added by a second kernel.
    Threads keep to their columns, so they read a vector once for LINES lines."""
    size, columns, plan = 4 * prod(shape), shape[1], cut(*shape)
    parts, vector = 4 * plan.parts * columns, 4 * columns
    add = ("bias_add_f32", dict(loaded={"partial": parts}, stored={"out": vector}))
    grad, sums = bias.rows(shape)
    for case, loaded, stored in ((sums, {"g": size}, {}), (grad, {"g": size, "out": size}, {"dx": size})):
        first = dict(loaded=loaded, stored=stored | {"partial": parts}, whole="g out dx")
        yield case, [("bias_sums_vector", first), *([add] * (plan.parts > 1))]
    pivots = 3 * 4 * plan.fold * columns * plan.parts  # the first row, for each place of a line
    first = dict(loaded={"x": size + pivots}, stored={"sums": parts, "products": parts, "mean": vector})
    totals = dict(loaded={"sums": parts, "squares": parts}, stored={"mean": vector, "variance": vector})
    yield norm.statistics(shape), [("norm_sums_vector", first), ("norm_total_statistics_f32", totals)]
    of_lines = min(shape[0], plan.fold * -(-shape[0] // (plan.fold * LINES))) * vector
    vectors = dict.fromkeys(("mean", "variance", "weight", "bias"), of_lines)
    finish = dict(loaded={"x": size, "more": size} | vectors, stored={"out": size}, whole="x more out")
    yield norm.normalize(shape, residual="x", relu=True), [("norm_finish_vector", finish)]
    for out, masked in (("-", ""), ("x", ""), ("x", "x")):
        read = {"g": size, "x": size} | ({"out": size} if out == "x" else {})
        stored = {"sums": parts, "products": parts} | ({"masked": size} if masked else {})
        sums = dict(loaded=read, stored=stored, whole="g x out masked")
        totals = dict(loaded={"sums": parts, "products": parts}, stored={"dw": vector, "db": vector})
        passed = {"passed": size} if out == "x" and not masked else {}
        finish = dict(loaded={"more": size, "x": size} | passed, stored={"out": size}, whole="more x out")
        names = "norm_sums_vector", "norm_total_grads_f32", "norm_finish_vector"
        yield norm.grads(shape, out=out, dresidual=masked), list(zip(names, (sums, totals, finish), strict=True))


def of_rows():
    """As many passes as the formula has; lanes of a warp need no shared memory, and rows of few elements share one."""
    for (rows, columns), lanes in (((9, 12), 16), ((9, 128), 32), ((9, 4104), 256)):
        size, shift = 4 * rows * columns, 4 * rows * lanes
        one = dict(loaded={"x": 3 * size + shift}, stored={"out": size, "scale": 4 * rows})
        yield norm.standardize((rows, columns)), [("norm_standardize_warp_f32", one)]
        two = dict(loaded={"g": 2 * size, "out": 2 * size}, stored={"dx": size})
        yield norm.standardize_grad((rows, columns)), [("norm_standardize_grad_warp_f32", two)]
    for columns in (32, 1056, 4104):
        shape = 4, columns
        for way, kind in (("plain", "float64"), ("warp", "float32")):
            size = 4 * columns * TYPES[kind].itemsize
            alone = {"ld.shared": 0, "bar": 0} if way == "warp" and columns <= 4096 else {}
            for case, times in (
                (softmax.row("softmax", shape), {"x": 3}),
                (softmax.row("softmax", shape, True), {"x": 3}),
                (softmax.row("softmax_grad", shape), {"g": 2, "out": 2}),
                (softmax.row("softmax_grad", shape, True), {"g": 2, "out": 1}),
            ):
                kernel, result = ("grad", "dx") if "g" in times else ("forward", "out")
                loaded = {name: count * size for name, count in times.items()}
                one = dict(loaded=loaded, stored={result: size}, whole="x g " + result, executed=alone)
                yield case, [(f"softmax_{kernel}_{way}_f{kind[-2:]}", one)], None, kind
    size, labels = 4 * 9 * 1024, 6  # the logit of each target that is not ignored
    yield softmax.cross_entropy((9, 1024)), [("softmax_loss_warp_f32", dict(loaded={"x": 2 * size + 4 * labels}))]
    one = dict(loaded={"x": size}, stored={"dx": size})
    yield softmax.cross_entropy_grad((9, 1024)), [("softmax_loss_grad_f32", one)]
    for classes, lanes in ((10, 16), (3, 4), (1, 1)):
        one = dict(loaded={}, executed={"st.f32": 512 * lanes // 32})
        yield softmax.row("softmax", (512, classes)), [("softmax_forward_warp_f32", one)]


SHAPES = (1024, 16), (64, 256), (16, 3072), (768, 10)  # a line of many rows; of 4; of 3 tiles; of no multiple of 4
MEMORY = [*(row for shape in SHAPES for row in of_columns(shape)), *of_rows()]


def checked(case, wanted, rung=None, kind="float32"):
    found = recorded(case, kind, rung)
    assert len(found) == len(wanted) and all(
        name in (None, seen) for (seen, _), (name, _) in zip(found, wanted, strict=True)
    )
    for (_, counts), (_, costs) in zip(found, wanted, strict=True):
        holds(counts, **costs)


@pytest.mark.deep
@pytest.mark.parametrize("row", MEMORY, ids=lambda row: f"{row[0]} {row[-1] if row[2:] else ''}")
def test_matrices_move_as_often_as_the_docstrings_say(row):
    checked(*row)


# ---- products --------------------------------------------------------------------------------------------------------

TILES = {  # rung, kind -> (rows, columns and steps of a tile; barriers for each of them; layouts)
    ("tiled", "float32"): ((32, 32, 32), 2, [KK, MN]),
    ("register_64x64", "float32"): ((64, 64, 16), 2, [KN]),
    ("register", "float32"): ((128, 128, 8), 2, [KK, MN]),
    ("buffered", "float32"): ((128, 128, 8), 1, [KK, KN, MN]),
    ("tensor", "float16"): ((64, 64, 32), 2, [KN]),
    ("async", "float16"): ((128, 128, 32), 1, [KK, KN, MN]),
    ("async", "tf32"): ((128, 128, 16), 1, [KK, KN, MN]),
}


def of_products():
    """Each tile of a row of tiles reads a once, each of a column b; out is written once. Shared memory is read without
    conflicts, and no product is made twice. The tensor rung writes its tiles one element at a time."""
    for (rung, kind), ((rows, columns, steps), barriers, layouts) in TILES.items():
        m, n, k, size = 2 * rows, columns, 2 * steps if rung in ("tiled", "tensor") else 5 * steps, TYPES[kind].itemsize
        costs = dict(loaded={"a": size * m * k, "b": 2 * size * k * n}, stored={"out": size * m * n}, whole="a b out")
        mma = {"mma.sync": m // 16 * (n // 8) * (k * size // 32)}
        costs |= dict(barriers=2 * barriers * (k // steps), conflicts=99 if rung == "tensor" else 1.05)
        costs |= dict(executed={"fma.f32": m * n * k // 32} if kind == "float32" else mma)
        for layout in layouts:
            yield product(m, k, n, layouts=layout), [(None, costs)], rung, kind


SAME, TWO = dict(padding=(1, 1)), dict(stride=(2, 2), padding=(1, 1))


def of_convolutions():
    """Two tiles of pixels, one of columns: what is inside is read once for each tap. Tiles of weight gradients read g
    once for each tile of rows. Slices travel through the workspace once."""
    at = lambda direction, x, w, more: convolution(x, w, **more)[DIRECTIONS.index(direction)]
    h, w, reads = 8, 32, 16
    inside = (3 * h - 2) * (3 * w - 2)  # taps of all pixels that are not padding
    for rung, kind, columns, steps in (
        ("narrow", "float32", 16, 8), ("vector", "float32", 64, 8), ("tensor", "float16", 64, 32),
        ("tensor", "tf32", 64, 16),
    ):  # fmt: skip
        size, tiles = TYPES[kind].itemsize, -(-9 * reads // steps)
        loaded = {"source": size * reads * inside, "filters": 2 * size * 9 * reads * columns}
        costs = dict(loaded=loaded, stored={"result": size * columns * h * w}, conflicts=1.1)
        costs |= dict(whole="filters result" + " source" * (size == 4))
        if kind == "float32":
            costs |= dict(executed={"fma": h * w * columns * 9 * reads // 32}, barriers=2 * (tiles + 1))
        else:
            costs |= dict(executed={"mma": h * w // 16 * (columns // 8) * 2 * tiles})
        for direction in DIRECTIONS[:2]:
            c, o = (reads, columns) if direction == "forward" else (columns, reads)
            yield at(direction, (1, c, h, w), (o, c, 3, 3), SAME), [(None, costs)], rung, kind
    for rung, kind, x, w, tile in (
        ("vector", "float32", (2, 32, 12, 12), (64, 32, 3, 3), 96),
        ("narrow", "float32", (1, 32, 10, 10), (32, 32, 3, 3), 96),
        ("tensor", "float16", (1, 16, 12, 10), (64, 16, 3, 3), 128),
        ("tensor", "tf32", (1, 16, 12, 10), (64, 16, 3, 3), 128),
    ):
        size, pixels, rows = TYPES[kind].itemsize, x[0] * (x[2] - 2) * (x[3] - 2), 9 * x[1]
        costs = dict(loaded={"x": size * pixels * rows, "g": size * pixels * w[0] * -(-rows // tile)})
        fma = rung in ("vector", "narrow")
        costs |= dict(executed={"fma": pixels * rows * w[0] // 32}) if fma else {}
        yield at("weight_grad", x, w, {}), [(None, costs | dict(conflicts=1.1))], rung, kind
    for x, w, more in (((4, 1, 26, 26), (32, 1, 3, 3), 1), ((2, 3, 16, 16), (64, 3, 3, 3), 0)):
        once = 4 * x[0] * (x[2] - 2) * (x[3] - 2) * 9 * x[1] * w[0]  # threads own 9 rows and 4 columns
        yield (
            at("weight_grad", x, w, {}),
            [(None, dict(loaded={"x": once // 4}, conflicts=1.1))] + [(None, {"loaded": {}})] * more,
            "register",
        )


def of_lower_rungs():
    """A strided input gradient multiplies no tap that a pixel does not meet: its classes of 128 pixels meet 4, 2, 2 and
    1. An element serves 16 sums in tiled. 32 channels are 4 threads of register for each pixel, which read the same."""
    h, w, c, o = 8, 8, 5, 32
    inside = (3 * h - 2) * (3 * w - 2)
    costs = dict(loaded={}, executed={"fma": 128 * 64 * 9 * 8 // 32}, conflicts=99)
    yield convolution((1, 64, 16, 32), (8, 64, 3, 3), **TWO)[1], [(None, costs)], "register"
    costs = dict(loaded={"x": 4 * c * inside * (o // 16), "w": 4 * 9 * c * o * (h * w // 16)}, conflicts=99)
    costs |= dict(executed={"fma": h * w * o * 48 // 32})  # 45 steps fill three tiles
    yield convolution((1, c, h, w), (o, c, 3, 3), **SAME)[0], [(None, costs)], "tiled"
    c, blocks = 3, 4 * h * w // cuda_register.pixels_of(o)
    costs = dict(loaded={"source": 4 * c * inside * 4 * 4, "filters": blocks * 4 * 9 * c * o}, conflicts=1.1)
    costs |= dict(executed={"fma": 4 * h * w * o * 9 * c // 32})
    yield convolution((4, c, h, w), (o, c, 3, 3), **SAME)[0], [(None, costs)], "register"
    size = 4 * 16 * 64
    tiles = dict(loaded={"filters": 4 * 9 * 64 * 64}, stored={"result": 9 * size}, conflicts=99)
    add = (None, dict(loaded={"partial": 9 * size}, stored={"out": size}))
    yield convolution((1, 64, 4, 4), (64, 64, 3, 3), **SAME)[0], [(None, tiles), add], None
    m, n, k = 20, 12, 1000
    size = 4 * -(-k // 80) * m * n  # slices of 80 steps each: 1000 / (1000 // 64), rounded up to a multiple of 16
    tiles = dict(loaded={"a": 4 * m * k, "b": 4 * k * n}, stored={"out": size}, conflicts=99)
    add = (None, dict(loaded={"partial": size}, stored={"out": 4 * m * n}))
    yield product(m, k, n), [(None, tiles), add]


@pytest.mark.parametrize(
    "row",
    [*(pytest.param(row, marks=pytest.mark.deep) for row in (*of_products(), *of_convolutions())), *of_lower_rungs()],
    ids=lambda row: f"{row[0]} {'-'.join(map(str, row[2:]))}",
)
def test_tiles_cost_what_their_docstrings_say(row):
    checked(*row)


def test_each_rung_of_the_ladder_costs_less_than_the_one_below():
    rungs = [recorded(product(128, 32, 128), rung=rung)[0][1] for rung in ("plain", "tiled", "register", "buffered")]
    instructions = [sum(found.instructions.values()) for found in rungs]
    sectors = [found.global_sectors for found in rungs]
    assert instructions == sorted(instructions, reverse=True) and sectors[0] > sectors[1] > sectors[2] == sectors[3]
    assert rungs[0].bytes_loaded == dict.fromkeys("ab", 4 * 128 * 128 * 32)
    *_, scalar, vector = rungs
    for space in ("ld.global", "ld.shared"):
        assert 4 * number(vector, space) == number(scalar, space) > 0
    assert 4 * number(vector, "st.global.v4") == number(scalar, "st.global")
