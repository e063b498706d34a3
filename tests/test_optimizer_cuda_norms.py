"""Sums of squares, clipping factors and scaling as CUDA kernels; what the launchers of the family refuse there."""

import re

import numpy as np
import pytest

from minigrad_kernels import interpreter, optimizer
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.optimizer import SGD, Adam, Plan, cuda, reference
from minigrad_kernels.optimizer.cuda_kernels import CHUNK

from .kernel_runs import DEVICE, moved, on_host
from .test_kernels_optimizer import hyper
from .test_optimizer_cuda import SHAPES, TOGETHER, each_type, upload
from .test_optimizer_cuda_steps import on_the_interpreter


def norms(arrays):
    """The sums of squares, in a workspace of just the size."""
    arrays, plan = [moved(array, DEVICE) for array in arrays], Plan()
    out = moved(np.full(len(arrays), np.nan), DEVICE)
    space = moved(np.full(optimizer.workspace(arrays), 255, np.uint8), DEVICE)
    optimizer.squared_norms(arrays, out, space, plan)
    return on_host(out)


@each_type
def test_squared_norms_are_exact_on_small_integers(dtype):
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-3, 4, shape).astype(dtype) for shape in [*SHAPES, (300 * 7,), (3 * CHUNK + 1,)]]
    np.testing.assert_array_equal(norms(arrays), [reference.squared_norm(a) for a in arrays])


@each_type
def test_squared_norms_of_long_arrays_lose_little(dtype):
    """Each square passes through 2 + 4 + 8 additions within a chunk and its own rounding, then the sum is float64."""
    arrays = [np.random.default_rng(2).standard_normal(n).astype(dtype) for n in (70_001, 5)]
    wanted = np.array([reference.squared_norm(a) for a in arrays])
    assert (np.abs(norms(arrays) - wanted) <= 25 * np.finfo(dtype).eps * wanted).all()


def test_squared_norms_have_the_same_bits_wherever_the_array_lies():
    values = np.random.default_rng(3).standard_normal(5003).astype(np.float32)
    whole = np.zeros(5007, np.float32)
    found = set()
    for shift in range(4):
        view = whole[shift : shift + 5003]
        view[...] = values
        found.add(norms([view])[0])
    assert len(found) == 1


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_shows_in_the_sum(value):
    arrays = [np.ones(9, np.float32), np.ones(CHUNK + 5, np.float32), np.ones(9, np.float32)]
    arrays[1][CHUNK + 2] = value
    out = norms(arrays)
    assert out[0] == out[2] == 9 and not np.isfinite(out[1])


def test_arrays_without_elements_have_no_norm():
    np.testing.assert_array_equal(norms([np.empty(0, np.float32)] * 2), [0, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "squares", [[9.0, 16.0], [0.25], [np.inf], [np.nan, 1.0], [1.0] * 700], ids=lambda s: str(s[:2])
)
def test_clip_factor(dtype, squares):
    norm, factor = moved(np.full((), 7, dtype), DEVICE), moved(np.full(1, 7.0), DEVICE)
    optimizer.clip_factor(moved(np.array(squares), DEVICE), 2.0, norm, factor)
    wanted = reference.clip_factor(squares, 2.0)
    np.testing.assert_allclose(on_host(norm), wanted[0], rtol=np.finfo(dtype).eps)
    np.testing.assert_allclose(on_host(factor), [wanted[1]], rtol=4e-16)


@each_type
@pytest.mark.parametrize("as_array", [False, True])
def test_scale_rounds_once(dtype, as_array):
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]
    there = [moved(array, DEVICE) for array in arrays]
    optimizer.scale(there, moved(np.array([0.3]), DEVICE) if as_array else 0.3)
    for was, now in zip(arrays, there, strict=True):
        np.testing.assert_array_equal(on_host(now), was * dtype(0.3))


@on_the_interpreter
def test_scaling_by_one_touches_nothing():
    array = interpreter.array(np.array([np.nan, 1, 2, 3, 4], np.float32))
    with interpreter.recording() as launches:
        optimizer.scale([array], 1.0)
    ((_, report),) = launches
    assert not report.counts.bytes_stored and "f32" not in "".join(report.counts.bytes_loaded)


@on_the_interpreter
def test_norms_and_scale_share_tables_and_launches(monkeypatch):
    sent, real = [], cuda.upload
    monkeypatch.setattr(cuda, "upload", lambda array, like: sent.append(array) or real(array, like))
    arrays, plan = [interpreter.array(np.ones(n, np.float32)) for n in (5, 4096, 9000)], Plan()
    out, factor = interpreter.empty(3, np.float64), interpreter.empty(1, np.float64)
    space = interpreter.empty(optimizer.workspace(arrays), np.uint8)
    with interpreter.recording() as launches:
        for _ in range(2):
            optimizer.squared_norms(arrays, out, space, plan)
            optimizer.clip_factor(out, 1.0, interpreter.empty(()), factor)
            optimizer.scale(arrays, factor, plan)
    names = ["squares_f32", "sums", "clip_f32", "scale_f32"]
    assert [name.removeprefix("optimizer_") for name, _ in launches] == 2 * names
    assert len(sent) == 2  # tables, at the first call


# ---- refusals --------------------------------------------------------------------------------------------------------


def plain(count=1):
    return upload([[np.ones(3, "f4")] * count])[0]


def looked_at(dtype="f4"):
    """A plan of Adam for one parameter."""
    plan, lists = Plan(), upload([[np.ones(4, dtype)] for _ in range(4)])
    optimizer.adam(*lists, None, TOGETHER, plan)
    return plan


KIND = type(plain()[0]).__module__
REFUSED = {
    "gradient": (
        lambda: optimizer.adam(plain(), [np.ones(3, "f4")], plain(), plain(), None, TOGETHER),
        KindError,
        f"adam: gradients[0] is numpy.ndarray, parameters[0] is {KIND}",
    ),
    "one of two": (
        lambda: optimizer.adam([*plain(), np.ones(3, "f4")], plain(2), plain(2), plain(2), None, TOGETHER),
        KindError,
        f"adam: parameters[1] is numpy.ndarray, parameters[0] is {KIND}",
    ),
    "state": (
        lambda: optimizer.sgd(plain(), plain(), [np.ones(3, "f4")], hyper(SGD)),
        KindError,
        f"sgd: momentum_buffers[0] is numpy.ndarray, parameters[0] is {KIND}",
    ),
    "hyper": (
        lambda: optimizer.adam(plain(), plain(), plain(), plain(), None, moved(TOGETHER, DEVICE)),
        KindError,
        f"adam: hyper is {KIND}",
    ),
    "out": (
        lambda: optimizer.squared_norms(plain(), np.empty(1), np.empty(99, np.uint8)),
        KindError,
        f"squared_norms: out is numpy.ndarray, arrays[0] is {KIND}",
    ),
    "factor": (
        lambda: optimizer.scale(plain(), np.ones(1)),
        KindError,
        f"scale: factor is numpy.ndarray, arrays[0] is {KIND}",
    ),
    "norm": (
        lambda: optimizer.clip_factor(moved(np.ones(1), DEVICE), 1.0, np.empty(()), np.empty(1)),
        KindError,
        f"clip_factor: norm is numpy.ndarray, squares is {KIND}",
    ),
    "too large": (
        lambda: cuda.tables([(0,)], [1 << 31], plain()[0]),
        ShapeError,
        "optimizer: an array has 2147483648 elements, wants less than",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    call, error, words = REFUSED[name]
    with pytest.raises(error, match="^" + re.escape(words)):
        call()


def test_a_plan_serves_another_rule_with_settings_of_its_own():
    plan, lists = looked_at(), upload([[np.ones(4, "f4")] for _ in range(3)])
    optimizer.sgd(*lists, hyper(SGD, RATE=1, MOMENTUM=0.5), plan)
    assert on_host(lists[0][0])[0] == -0.5 and len(hyper(Adam)) != len(hyper(SGD))
