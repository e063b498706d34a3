"""Adam as a CUDA kernel, interpreted: against its reference and the CPU's kernel, over lists of parameters."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from minigrad_kernels import interpreter, optimizer
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.optimizer import SGD, Adagrad, Adam, RMSprop, cuda, reference
from minigrad_kernels.optimizer.cuda_adam import CHUNK
from minigrad_kernels.toolchain.cuda import memory

from .kernel_runs import moved, on_host
from .test_kernels_optimizer import CANARY, EDGE, RULES, arguments, copies, hyper, within_rounding

SHAPES = [(), (0,), (5,), (3, 4), (CHUNK - 1,), (CHUNK,), (CHUNK + 1,), (3, 4, 2, 5), (2, 3, 4, 5)]
ADAM = [rule for rule in RULES if rule[0] == "adam"]
each_rule = pytest.mark.parametrize("rule", ADAM, ids=lambda rule: f"{rule[1][2]}-{rule[2].tolist()}")
each_rung = pytest.mark.parametrize(
    "dtype, rung", [(np.float32, "plain"), (np.float32, "vector"), (np.float64, "plain")], ids=["f4", "f4v", "f8"]
)
TOGETHER = hyper(Adam, RATE=0.01, BETA1=0.9, BETA2=0.999, EPS=1e-8, STEP=3)


def upload(lists):
    return [None if arrays is None else [moved(array, "interpreter") for array in arrays] for arrays in lists]


def download(lists):
    return [None if arrays is None else [on_host(array) for array in arrays] for arrays in lists]


def step(lists, settings, rung):
    """One step by a rung of the kernel."""
    present = [arrays for arrays in lists if arrays is not None]
    cuda.adam(*cuda.tables(present)[:2], lists[4] is not None, settings, lists[0][0], rung)


def intact(array):
    whole = array
    while whole.base is not None:
        whole = whole.base
    whole = whole.reshape(-1).view(array.dtype)
    return (whole[:EDGE] == CANARY).all() and (whole[-EDGE:] == CANARY).all()


@each_rung
@each_rule
def test_rule_within_rounding_of_its_reference(rule, dtype, rung):
    before = arguments(rule, dtype, SHAPES)
    lists = upload(before)
    step(lists, rule[2], rung)
    within_rounding(rule, before, download(lists))
    assert all(intact(array) for arrays in lists if arrays for array in arrays)


@each_rung
def test_the_bits_of_the_cpu_where_products_are_exact(dtype, rung):
    """Then it does not matter whether they are rounded before they are added; roots and quotients are rounded alike."""
    rng = np.random.default_rng(3)
    lists = [[rng.integers(1, 9, size).astype(dtype) for size in (3, 70, 1030)] for _ in range(5)]
    settings = hyper(Adam, RATE=1, BETA1=0.5, BETA2=0.75, EPS=0, STEP=5000, WEIGHT_DECAY=2)
    there = upload(lists)
    step(there, settings, rung)
    optimizer.adam(*lists, settings)
    for mine, theirs in zip(lists, download(there), strict=True):
        for one, two in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, two)


@each_rung
@each_rule
def test_within_two_roundings_of_the_cpu(rule, dtype, rung):
    lists = arguments(rule, dtype, [(40,), (333,)])
    there = upload(lists)
    step(there, rule[2], rung)
    optimizer.adam(*lists, rule[2])
    for mine, theirs in zip(lists, download(there), strict=True):
        for one, two in zip(mine or (), theirs or (), strict=True):
            assert (np.abs(one - two) <= 2 * np.finfo(dtype).eps * np.abs(one)).all()


@pytest.mark.parametrize("spoilt", [1, 2, 3, 4])
def test_nan_reaches_every_state_behind_it(spoilt):
    """As in the reference, on both devices: the greatest square so far stays NaN, too."""
    lists = [[np.ones(6, np.float32)] for _ in range(5)]
    lists[spoilt][0][1] = np.nan
    p, *states = reference.adam(*(arrays[0] for arrays in lists), TOGETHER)
    there, host = upload(lists), copies(lists)
    optimizer.adam(*there, TOGETHER)
    optimizer.adam(*host, TOGETHER)
    for updated in (download(there), host):
        for want, (got,) in zip((p, *states), (updated[0], *updated[2:]), strict=True):
            np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


@pytest.mark.parametrize("rung", ["plain", "vector"])
def test_an_infinite_parameter_meets_no_weight_decay_of_0(rung):
    lists = [[np.ones(6, np.float32)] for _ in range(4)]
    lists[0][0][:2] = np.inf, -np.inf
    there = upload([*lists, None])
    step(there, TOGETHER, rung)
    p, _, m, v = (arrays[0] for arrays in download(there[:4]))
    assert p[0] == np.inf and p[1] == -np.inf
    assert np.isfinite(m).all() and np.isfinite(v).all() and np.isfinite(p[2:]).all()


@pytest.fixture
def launches():
    with interpreter.recording() as found:
        yield found


def many(count=12):
    rng = np.random.default_rng(4)
    shapes = [(k % 5 + 1, 8) for k in range(count)]
    return [[interpreter.array(rng.uniform(1, 2, shape).astype("f4")) for shape in shapes] for _ in range(4)]


def test_all_parameters_go_in_one_launch(launches):
    optimizer.adam(*many(), None, TOGETHER)
    assert [name for name, _ in launches] == ["optimizer_adam_vector"]


def test_a_step_of_training_sends_the_coefficients_alone(monkeypatch):
    sent, upload = [], cuda.upload

    def recorded(array, like):
        sent.append(array)
        return upload(array, like)

    monkeypatch.setattr(cuda, "upload", recorded)
    one, other = many(), many()
    for lists in (one, other, one, other, one):
        optimizer.adam(*lists, None, TOGETHER)
    sizes = [array.size for array in sent]
    tables = [4 * 12, 3 * 12]  # of addresses, of chunks
    assert sizes == [*tables, 9, *tables, 9, 9, 9, 9]


def test_tables_that_nobody_asked_for_lately_are_dropped():
    for _ in range(2 * cuda.KEPT):
        optimizer.adam(*many(1), None, TOGETHER)
    assert len(cuda._kept) == cuda.KEPT


@pytest.mark.parametrize("shifted", range(5))
def test_a_chunk_off_the_grid_goes_one_at_a_time(shifted, launches):
    """One of its arrays begins 4 bytes late; the result has the same bits."""
    rng, results = np.random.default_rng(9), []
    values = rng.uniform(1, 2, (5, 64)).astype("f4")
    for late in (False, True):
        arrays = [interpreter.array(np.zeros(65, "f4"))[late and k == shifted :][:64] for k in range(5)]
        for array, value in zip(arrays, values, strict=True):
            array[...] = value
        optimizer.adam(*([array] for array in arrays), TOGETHER)
        results.append([on_host(array) for array in arrays])
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)
    wide = [sum(n for name, n in report.counts.instructions.items() if ".v4.f32" in name) for _, report in launches]
    assert wide == [9, 0]  # five loads and four stores of one warp


def test_addresses_of_all_kinds_of_arrays():
    host = np.ones(8, np.float32)
    there, gpu = interpreter.array(host), SimpleNamespace(data=SimpleNamespace(ptr=0x7F0000000010))
    assert memory.address(host[1:]) == host.ctypes.data + 4
    assert memory.address(there[1:]) == interpreter.address(there) + 4
    assert memory.address(gpu) == 0x7F0000000010
    assert memory.aligned(there, gpu, there[4:]) and not memory.aligned(there, there[1:])


def test_parameters_without_elements_are_no_work(launches):
    empty = [[interpreter.array(np.empty(0, "f4"))] for _ in range(4)]
    optimizer.adam(*empty, None, TOGETHER)
    assert not launches


def plain(count=1):
    return [interpreter.array(np.ones(3, "f4")) for _ in range(count)]


REFUSED = {
    "sgd": (
        lambda: optimizer.sgd(plain(), plain(), None, hyper(SGD)),
        KindError,
        "optimizer.sgd: got minigrad_kernels",
    ),
    "rmsprop": (
        lambda: optimizer.rmsprop(plain(), plain(), plain(), None, None, hyper(RMSprop)),
        KindError,
        "optimizer.rmsprop: got minigrad_kernels.interpreter.array.Array, wants numpy.ndarray",
    ),
    "adagrad": (
        lambda: optimizer.adagrad(plain(), plain(), plain(), hyper(Adagrad)),
        KindError,
        "optimizer.adagrad: got",
    ),
    "norms": (lambda: optimizer.squared_norms(plain(), np.empty(1)), KindError, "optimizer.squared_norms: got"),
    "scale": (lambda: optimizer.scale(plain(), 2.0), KindError, "optimizer.scale: got"),
    "gradient": (
        lambda: optimizer.adam(plain(), [np.ones(3, "f4")], plain(), plain(), None, TOGETHER),
        KindError,
        "adam: gradients[0] is numpy.ndarray, parameters[0] is minigrad_kernels.interpreter.array.Array",
    ),
    "one of two": (
        lambda: optimizer.adam([*plain(), np.ones(3, "f4")], plain(2), plain(2), plain(2), None, TOGETHER),
        KindError,
        "adam: parameters[1] is numpy.ndarray, parameters[0] is minigrad_kernels",
    ),
    "hyper": (
        lambda: optimizer.adam(plain(), plain(), plain(), plain(), None, interpreter.array(TOGETHER)),
        KindError,
        "adam: hyper is minigrad_kernels.interpreter.array.Array, wants numpy.ndarray",
    ),
    "no such rung": (
        lambda: step([*many(), None], TOGETHER, "tiled"),
        ShapeError,
        "adam: rung is 'tiled', wants one of plain, vector",
    ),
    "vector of float64": (
        lambda: step([[interpreter.array(np.ones(4))]] * 4 + [None], TOGETHER, "vector"),
        ShapeError,
        "adam: the rung vector wants float32",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    call, error, words = REFUSED[name]
    with pytest.raises(error, match="^" + re.escape(words)):
        call()
