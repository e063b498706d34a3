"""The rungs of the matrix product on tensor cores: results at the edges of their tiles, choice, and refusals."""

import contextlib
import dataclasses
import re
from functools import partial
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import interpreter, matmul
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.matmul import cuda, plan
from minigrad_kernels.toolchain.modes import tf32
from tests.gpu.small import runs_on

from .cases import Output
from .cases.matmul import backwards, repeated, row, spread, transposed
from .kernel_runs import DEVICE, make_inputs, run, same_bits, to_tf32, wanted
from .test_matmul_cuda import inside_out, padded, started, unwritten, upside_down

TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "tf32": np.float32}
HALVES = "float16", "bfloat16"
each_type = pytest.mark.parametrize("kind", TYPES)
LAYOUTS = {"kk": (None, transposed), "kn": (None, None), "mn": (transposed, None)}


def mode(kind):
    return tf32() if kind == "tf32" else contextlib.nullcontext()


def forced(kind, name, case, inputs):
    """Outputs of one rung, which must be the one that runs."""
    with mode(kind):
        return run(case, TYPES[kind], inputs, DEVICE, partial(cuda.forward, rung=name))


def single(case):
    """The row with an output of float32."""
    return dataclasses.replace(case, outputs=(Output(case.outputs[0].shape, kind="float32"),))


def tensor_rows():
    steps = 32  # of k in a tile
    yield row(65, 2 * steps + 1, 63, bias=True, layouts=(None, transposed))
    yield row(64, steps - 1, 68, bias=True, relu=True, layouts=(transposed, None))
    yield row(13, 17, 19, layouts=(backwards, spread))
    yield row(5, 3, 7, (2, 3), layouts=(inside_out, None))
    yield row(12, 5, 12, (2,), layouts=(None, repeated))
    yield single(row(3, 0, 4, bias=True))
    yield single(row(1, 1, 1, bias=True))


def async_rows(kind, layout):
    """Whole tiles, less and more, along every axis; more tiles of k than there are stages; batches."""
    steps, chunk = (16, 4) if kind == "tf32" else (32, 8)
    layouts = LAYOUTS[layout]
    rows, columns = 128 + chunk, 128 - chunk
    yield row(rows, 5 * steps + chunk, columns, bias=True, relu=True, layouts=layouts)
    yield single(row(columns, steps, rows, bias=True, layouts=layouts))
    if layout != "mn":  # rows of a need not come in chunks
        yield row(5, 4 * steps, 16, bias=True, layouts=layouts)
    if layout == "kk":  # nor columns of b
        yield row(7, 2 * steps - chunk, 11, bias=True, layouts=layouts)
        yield single(row(9, 7 * steps, 10, layouts=layouts))
    else:
        yield row(16, chunk, 8, (2,), layouts=layouts)
    if layout == "kn":
        yield row(16, 3 * steps, 8, bias=True, layouts=(padded, upside_down))
        yield row(16, steps, 8, (2, 3), layouts=(inside_out, repeated))


def hopper_rows():
    """The same for tiles of 128 x 256 and 64 steps of k, by two groups of warps, where both lie along k."""
    layouts = LAYOUTS["kk"]
    yield row(136, 5 * 64 + 8, 248, bias=True, relu=True, layouts=layouts)
    yield single(row(120, 64, 264, bias=True, layouts=layouts))
    yield row(5, 4 * 64, 16, bias=True, layouts=layouts)
    yield row(65, 2 * 64 - 8, 11, bias=True, layouts=layouts)
    yield single(row(3, 0, 4, bias=True, layouts=layouts))
    yield row(72, 8, 8, (2,), layouts=layouts)
    yield row(16, 64, 8, (2, 3), layouts=(inside_out, transposed))


def split_rows(kind):
    chunk = 4 if kind == "tf32" else 8
    yield row(20, 1024 + chunk, 3, bias=True, layouts=(None, transposed))
    yield single(row(16, 1040, 8, (2,), bias=True, relu=True, layouts=(transposed, None)))
    if kind != "tf32":
        yield row(5, 777, 4, bias=True)


HOPPER = [("bfloat16", "tma")] * runs_on(DEVICE, "tma")
ROWS = [
    *((kind, "tensor", case) for kind in HALVES for case in tensor_rows()),
    *((kind, "async", case) for kind, layout in product(TYPES, LAYOUTS) for case in async_rows(kind, layout)),
    *((kind, "split", case) for kind in TYPES for case in split_rows(kind)),
    *((*rung, case) for rung in HOPPER for case in hopper_rows()),
]
each_row = pytest.mark.parametrize("kind, name, case", ROWS, ids=lambda value: str(value).removeprefix("matmul."))


@each_row
def test_rungs_are_exact_on_small_integers(kind, name, case):
    """But for the one rounding to the type of the result."""
    inputs = make_inputs(case, TYPES[kind], integers=True)
    results = forced(kind, name, case, inputs)
    same_bits(results, [want.astype(got.dtype) for got, want in zip(results, wanted(case, inputs), strict=True)])


def first_row(kind, name):
    return next(case for one, rung, case in ROWS if (one, rung) == (kind, name))


NAMES = ["tensor", "async", "split"]
each_rung = pytest.mark.parametrize(
    "kind, name", [rung for rung in product(TYPES, NAMES) if rung != ("tf32", "tensor")] + HOPPER
)


@each_rung
def test_rungs_round_as_they_should_the_same_twice_and_nan_passes(kind, name):
    """Operands of float32 are rounded once, sums as float32, results of 16 bits once. NaN reaches its row or column and
    passes ReLU."""
    case = first_row(kind, name)
    inputs = make_inputs(case, TYPES[kind])
    results = forced(kind, name, case, inputs)
    same_bits(results, forced(kind, name, case, inputs))
    if kind == "tf32":
        inputs = [*map(to_tf32, inputs[:2]), *inputs[2:]]
    (got,), (want,) = results, wanted(case, inputs)
    (size,) = wanted(case, [np.abs(x.astype(np.float64)) for x in inputs])
    bound = case.terms * np.finfo(np.float32).eps * size + ml_dtypes.finfo(got.dtype).eps / 2 * np.abs(want)
    assert got.dtype == TYPES[kind]
    assert (np.abs(got.astype(np.float64) - want) <= 1.001 * bound).all()
    case = dataclasses.replace(case, params={"relu": True})
    for position, place in ((0, (-1, 0)), (1, (-1, -1)), (2, (-1,))):
        inputs = make_inputs(case, TYPES[kind], integers=True)
        inputs[position][place] = np.nan
        (got,), (want,) = forced(kind, name, case, inputs), wanted(case, inputs)
        assert np.isnan(want).any() and not np.isnan(want).all()
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(got.dtype).astype(np.float64))


def test_batches_longer_than_a_grid(monkeypatch):
    """A grid ends at 65535 in z, here at 2."""
    monkeypatch.setattr(plan, "MOST", 2)
    for batch, layouts in (((5,), ()), ((3, 2), (inside_out, None))):
        for k in (8, 640):
            case = row(8, k, 8, batch, bias=True, layouts=layouts)
            inputs = make_inputs(case, np.float16, integers=True)
            same_bits(forced("float16", None, case, inputs), [x.astype(np.float16) for x in wanted(case, inputs)])


def test_what_is_too_large_for_float16_becomes_infinite():
    case = row(16, 16, 16)
    inputs = [np.full((16, 16), 100, np.float16), np.full((16, 16), 100, np.float16), None]
    assert np.isinf(forced("float16", None, case, inputs)[0]).all()
    assert (forced("float16", None, single(case), inputs)[0] == 160000).all()


# ---- choice ----------------------------------------------------------------------------------------------------------


CHOICE = {  # what networks multiply: (shape of a, its layout, shape of b, its layout) -> kernels
    "Linear": (((4096, 512), "N", (512, 1024), "T"), ["asynchronous_{}_kk"]),
    "Linear, input gradient": (((4096, 1024), "N", (1024, 512), "N"), ["asynchronous_{}_kn"]),
    "Linear, weight gradient": (((1024, 4096), "T", (4096, 512), "N"), ["asynchronous_{}_mn", "add"]),
    "1x1 convolution": (((8192, 64), "N", (64, 64), "N"), ["asynchronous_{}_kn"]),
    "its input gradient": (((8192, 64), "N", (64, 64), "T"), ["asynchronous_{}_kk"]),
    "its weight gradient": (((64, 8192), "T", (8192, 64), "N"), ["asynchronous_{}_mn", "add"]),
    "head": (((128, 512), "N", (512, 10), "T"), ["asynchronous_{}_kk"]),
    "head, weight gradient": (((10, 64), "T", (64, 512), "N"), ["tensor_{}"]),
    "head, input gradient": (((128, 10), "N", (10, 512), "N"), ["tensor_{}"]),
    "three channels": (((8192, 3), "N", (3, 64), "N"), ["tensor_{}"]),
    "both along the other axis": (((512, 512), "T", (512, 512), "T"), ["tensor_{}"]),
}


@each_type
@pytest.mark.parametrize("what", CHOICE)
def test_the_best_rung_is_chosen_by_shape(kind, what):
    (a_shape, a_layout, b_shape, b_layout), names = CHOICE[what]
    dtype, adds = TYPES[kind], "add" if kind == "tf32" else f"add_{kind}"
    with mode(kind):
        found = started(unwritten(a_shape, a_layout, dtype), unwritten(b_shape, b_layout, dtype))
    if names == ["tensor_{}"] and kind == "tf32":
        assert found[0].startswith("register")  # float32, where 16 bytes of TF32 do not travel at once
        return
    assert [adds if name.startswith("add") else name for name in found] == [
        adds if name == "add" else name.format(kind) for name in names
    ]


def test_the_mode_tf32_decides_for_float32_alone():
    a, b = unwritten((256, 256)), unwritten((256, 256))
    assert started(a, b) == ["register_64x64"]
    with tf32():
        assert started(a, b) == ["asynchronous_tf32_kn"]
        assert started(*(unwritten((256, 256), dtype=np.float64) for _ in "ab")) == ["plain_f64"]


def test_far_strides_and_odd_places_take_the_rung_that_loads_single_elements():
    a = np.lib.stride_tricks.as_strided(unwritten((1 << 25,), dtype=np.float16), (2, 2), (1 << 25, 2))
    assert started(a, unwritten((2, 8), dtype=np.float16)) == ["tensor_float16"]
    memory = unwritten((64 * 64 + 4,), dtype=np.float16)
    b = unwritten((64, 64), dtype=np.float16)
    assert started(memory[:-4].reshape(64, 64), b) == ["asynchronous_float16_kn"]
    assert started(memory[4:].reshape(64, 64), b) == ["tensor_float16"]


def test_the_rung_of_hopper_runs_where_asked_for_alone():
    a, b = (unwritten((512, 512), layout, ml_dtypes.bfloat16) for layout in "NT")
    assert started(a, b, "tma") == ["tma_bfloat16"]
    assert started(a, b) == ["asynchronous_bfloat16_kk"]
    with pytest.raises(ShapeError, match="^matmul: the rung tma wants both a and b to lie along K"):
        started(a, a, "tma")
    odd = unwritten((511, 511), dtype=ml_dtypes.bfloat16)
    with pytest.raises(ShapeError, match="^matmul: the rung tma wants a and b at addresses"):
        started(odd, odd, "tma")


@pytest.mark.parametrize("kinds, message", {
    ("e", "e", "d"): "matmul: out has type float64, wants float16 or float32",
    ("e", "f", "e"): "matmul: b has type float32, wants float16",
    ("e", "f", "f"): "matmul: b has type float32, wants float16",
    ("f", "f", "e"): "matmul: out has type float16, wants float32",
    ("H", "H", "H"): "matmul: a has type uint16, wants float32 or float64",
}.items())  # fmt: skip
def test_types_that_do_not_fit_are_refused(kinds, message):
    a, b, out = (interpreter.array(np.ones((2, 2), kind)) for kind in kinds)
    with pytest.raises(KindError, match="^" + re.escape(message)):
        matmul.forward(a, b, None, False, out, interpreter.empty((0,), np.uint8))


def test_the_launcher_runs_them():
    """With out in the type of the operands, or in float32."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (8, 8)) for _ in "ab")
    for kind, out_kind in (("f2", "f2"), ("f2", "f4"), (ml_dtypes.bfloat16, ml_dtypes.bfloat16)):
        out = interpreter.empty((8, 8), np.dtype(out_kind))
        with interpreter.recording() as launches:
            matmul.forward(*(interpreter.array(x.astype(kind)) for x in (a, b)), None, False, out, lambda n, like: None)
        assert [name for name, _ in launches] == [f"matmul_asynchronous_{np.dtype(kind).name}_kn"]
        np.testing.assert_array_equal(np.asarray(out), (a @ b).astype(out_kind))


def test_the_ladder_of_operands_is_that_of_their_type():
    for kind, dtype in TYPES.items():
        with mode(kind):
            names = NAMES[1:] if kind == "tf32" else NAMES + ["tma"] * (kind == "bfloat16")
            assert list(cuda.rungs_of(unwritten((1, 1), dtype=dtype))) == names
    assert cuda.rungs_of(unwritten((1, 1))) is cuda.RUNGS
