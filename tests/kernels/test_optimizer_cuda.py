"""The optimizer family on CUDA: bits, the numbers that stay on the device, what a call sends and starts, refusals."""

import re
from itertools import product

import numpy as np
import pytest

from minigrad_kernels import interpreter, optimizer
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.optimizer import SGD, Adam, Plan, cuda, cuda_kernels, reference
from minigrad_kernels.optimizer.rules import RULES

from .kernel_runs import DEVICE, moved, on_host, same_bits
from .test_optimizer import FULL, back, each_type, hyper, norms, random, there

TOGETHER = hyper(Adam, RATE=0.01, BETA1=0.9, BETA2=0.999, EPS=1e-8, STEP=3)
on_the_interpreter = pytest.mark.skipif(DEVICE != "interpreter", reason="reads what the interpreter counts")
each_full_rule = pytest.mark.parametrize("name", FULL)


def upload(lists):
    return there(lists, DEVICE)


# ---- bits ------------------------------------------------------------------------------------------------------------


@each_type
def test_the_bits_of_the_cpu_where_products_are_exact(dtype):
    """Then it does not matter whether they are rounded before they are added; roots and quotients are rounded alike."""
    rng = np.random.default_rng(3)
    lists = [[rng.integers(1, 9, size).astype(dtype) for size in (3, 70, 1030)] for _ in range(5)]
    settings = hyper(Adam, RATE=1, BETA1=0.5, BETA2=0.75, EPS=0, STEP=5000, WEIGHT_DECAY=2)
    device = upload(lists)
    optimizer.adam(*device, settings)
    optimizer.adam(*lists, settings)
    same_bits(sum(lists, []), sum(back(device), []))


def test_a_chunk_may_begin_anywhere():
    """One of its arrays begins 4 bytes late; the result has the same bits."""
    values, results = random("adam", [64]), []
    for shifted in range(6):  # the last time none of them
        arrays = [moved(np.zeros(65, "f4"), DEVICE)[k == shifted :][:64] for k in range(5)]
        for array, (value,) in zip(arrays, values, strict=True):
            array[...] = moved(value, DEVICE)
        optimizer.adam(*([array] for array in arrays), TOGETHER)
        results.append([on_host(array) for array in arrays])
        same_bits(results[0], results[-1])


@each_type
def test_squared_norms_of_long_arrays_lose_little(dtype):
    """Each square passes through 2 + 4 + 8 additions within a chunk and its own rounding, then the sum is float64."""
    arrays = [np.random.default_rng(2).standard_normal(n).astype(dtype) for n in (70_001, 5)]
    wanted = np.array([reference.squared_norm(a) for a in arrays])
    assert (np.abs(norms(arrays, DEVICE) - wanted) <= 25 * np.finfo(dtype).eps * wanted).all()


def test_squared_norms_have_the_same_bits_wherever_the_array_lies():
    values = np.random.default_rng(3).standard_normal(5003).astype(np.float32)
    whole = np.zeros(5007, np.float32)
    found = set()
    for shift in range(4):
        view = whole[shift : shift + 5003]
        view[...] = values
        found.add(norms([view], DEVICE)[0])
    assert len(found) == 1


def test_adam_counts_many_steps():
    """1 - beta**step loses what the power has lost, many times over."""
    for step, betas in product((1, 2, 1000, 10**6, 2**40), ((0.9, 0.999), (0.0, 0.95), (0.99, 0.9999))):
        settings = hyper(Adam, RATE=0.003, BETA1=betas[0], BETA2=betas[1], EPS=1e-8, WEIGHT_DECAY=0.7, STEP=step)
        lists, plan = random("adam", [5], np.float64), Plan()
        wanted = reference.adam(*(arrays[0] for arrays in lists), settings)
        device = upload(lists)
        optimizer.adam(*device, settings, plan)
        np.testing.assert_allclose(on_host(device[0][0]), wanted[0], rtol=4e-12, atol=1e-14)
        assert on_host(plan.settings.hyper)[Adam.STEP] == step + 1


# ---- what a call sends and starts ------------------------------------------------------------------------------------


@pytest.fixture
def launches():
    with interpreter.recording() as found:
        yield found


def advanced(name, settings, steps=1):
    settings = settings.copy()
    if name != "sgd":
        settings[-1] += steps
    return settings


@on_the_interpreter
@each_full_rule
def test_all_parameters_go_in_one_launch(name, launches):
    getattr(optimizer, name)(*upload(random(name, [(3,), (70,), (2, 8)] * 4)), FULL[name][0])
    assert [name for name, _ in launches] == ["optimizer_coefficients", "optimizer_update_f32"]


@each_full_rule
def test_a_steady_step_sends_nothing(name, sent):
    settings, plan, lists = FULL[name][0], Plan(), upload(random(name, [(3,), (70,)]))
    for k in range(4):
        getattr(optimizer, name)(*lists, advanced(name, settings, k), plan)
        if not k:
            assert [array.size for array in sent][:2] == [2 * 3 + 3, 5 * 2]  # chunks and starts; addresses
            before = len(sent)
    assert len(sent) == before
    settings = advanced(name, settings, 4)
    settings[0] = 0.01  # a schedule cuts the rate
    getattr(optimizer, name)(*lists, settings, plan)
    assert len(sent) == before + 1 and sent[-1][0] == 0.01
    getattr(optimizer, name)(*lists, advanced(name, settings), plan)
    assert len(sent) == before + 1
    others = [lists[0], [array.copy() for array in lists[1]], *lists[2:]]
    for k in range(6):  # gradients that move between few places
        getattr(optimizer, name)(*(others, lists)[k % 2], advanced(name, settings, k + 2), plan)
    assert len(sent) == before + 3  # two tables


@each_full_rule
def test_repeating_both_launches_is_the_next_step(name, sent):
    """As a captured graph does: it sees the count of steps, and a rate that was sent since."""
    settings, plan = FULL[name][0], Plan()
    lists, host = upload(random(name, [(3,), (70,)])), random(name, [(3,), (70,)])
    steps = [advanced(name, settings, k) for k in range(4)]
    steps[3][0] = 0.01
    getattr(optimizer, name)(*lists, steps[0], plan)
    found, held, before = plan.tables, plan.settings, len(sent)
    rule, (single, double) = list(RULES).index(name), held.numbers.values()
    arguments = found.addresses, found.chunks, single, found.present, rule
    for last, numbers in zip(steps[:-1], steps[1:], strict=True):
        held.advance(last)
        held.send(numbers)
        cuda_kernels.coefficients((1,), (1,), (held.hyper, held.one, held.zero, single, double, rule))
        cuda_kernels.update[4]((len(found.chunks),), (256,), arguments)
    assert len(sent) == before + 1  # the last rate
    for numbers in steps:
        getattr(optimizer, name)(*host, numbers)
    for mine, theirs in zip(host, back(lists), strict=True):
        for one, two in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-6)  # parameters nearly cancel


def test_a_launch_that_fails_leaves_the_count_to_the_host(monkeypatch, sent):
    """The device may have counted a step that did not happen, so the next call sends its own numbers."""
    plan, lists, host = Plan(), upload(random("adam", [(3,)])), random("adam", [(3,)])
    optimizer.adam(*lists, TOGETHER, plan)

    def broken(*arguments):
        raise RuntimeError("no such luck")

    with monkeypatch.context() as patch:
        patch.setitem(cuda_kernels.update, 4, broken)
        with pytest.raises(RuntimeError, match="no such luck"):
            optimizer.adam(*lists, advanced("adam", TOGETHER), plan)
    optimizer.adam(*lists, advanced("adam", TOGETHER), plan)
    for numbers in (TOGETHER, advanced("adam", TOGETHER)):
        optimizer.adam(*host, numbers)
    for mine, theirs in zip(host, back(lists), strict=True):
        np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-6)


@on_the_interpreter
@each_full_rule
def test_parameters_without_elements_are_no_work(name, launches):
    getattr(optimizer, name)(*upload(random(name, [0, 0])), FULL[name][0])
    assert not launches


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


def test_arrays_of_the_host_and_too_large_ones_are_refused():
    (there,), host = upload([[np.ones(3, "f4")]]), [np.ones(3, "f4")]
    kind, two = type(there[0]).__module__, [2 * there] * 3
    for call, name in (
        (lambda: optimizer.adam(there, host, there, there, None, TOGETHER), "adam: gradients[0]"),
        (
            lambda: optimizer.adam([*there, *host], *two, None, TOGETHER),
            "adam: parameters[1]",
        ),
        (lambda: optimizer.sgd(there, there, host, hyper(SGD)), "sgd: momentum_buffers[0]"),
        (lambda: optimizer.squared_norms(there, np.empty(1), np.empty(99, np.uint8)), "squared_norms: out"),
        (lambda: optimizer.scale(there, np.ones(1)), "scale: factor"),
    ):
        with pytest.raises(KindError, match="^" + re.escape(f"{name} is numpy.ndarray, wants {kind}")):
            call()
    with pytest.raises(KindError, match="^adam: hyper is"):
        optimizer.adam(there, there, there, there, None, moved(TOGETHER, DEVICE))
    with pytest.raises(ShapeError, match="^optimizer: an array has 2147483648 elements, wants less than"):
        cuda.tables([(0,)], [1 << 31], there[0])


def test_a_plan_serves_another_rule_with_settings_of_its_own():
    plan = Plan()
    optimizer.adam(*upload([[np.ones(4, "f4")] for _ in range(4)]), None, TOGETHER, plan)
    lists = upload([[np.ones(4, "f4")] for _ in range(3)])
    optimizer.sgd(*lists, hyper(SGD, RATE=1, MOMENTUM=0.5), plan)
    assert on_host(lists[0][0])[0] == -0.5
