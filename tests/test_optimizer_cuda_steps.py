"""The numbers that change from step to step, on the device: coefficients, what a call sends, what it starts."""

import math

import numpy as np
import pytest

from minigrad_kernels import interpreter, optimizer
from minigrad_kernels.optimizer import SGD, Adagrad, Adam, Plan, RMSprop, cuda, cuda_kernels
from minigrad_kernels.optimizer.rules import ROOM, RULES

from .kernel_runs import DEVICE, moved, on_host
from .test_kernels_optimizer import hyper
from .test_optimizer_cuda import FULL, TOGETHER, download, random, upload

on_the_interpreter = pytest.mark.skipif(DEVICE != "interpreter", reason="reads what the interpreter counts")


def coefficients(name, settings, scale=1.0, found_inf=0.0):
    there, numbers = moved(settings, DEVICE), [moved(np.full(1, number), DEVICE) for number in (scale, found_inf)]
    single, double = moved(np.zeros(ROOM + 1, np.float32), DEVICE), moved(np.zeros(ROOM + 1), DEVICE)
    cuda_kernels.coefficients((1,), (1,), (there, *numbers, single, double, list(RULES).index(name)))
    np.testing.assert_array_equal(on_host(single), on_host(double).astype(np.float32))
    return on_host(double), on_host(there)


@pytest.mark.parametrize("step", [1, 2, 1000, 10**6, 2**40])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.95), (0.99, 0.9999)])
def test_coefficients_of_adam_are_those_of_the_host(step, betas):
    """After any number of steps: 1 - beta**step loses what the power has lost, many times over."""
    rate, decay, (beta1, beta2) = 0.003, 0.7, betas
    settings = hyper(Adam, RATE=rate, BETA1=beta1, BETA2=beta2, EPS=1e-8, WEIGHT_DECAY=decay, STEP=step, DECOUPLED=1)
    found, after = coefficients("adam", settings)
    averages = beta1, 1 - beta1, beta2, 1 - beta2
    wanted = 1, 0, *averages, 1 - rate * decay, rate / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step), 1e-8, 0
    np.testing.assert_allclose(found, wanted, rtol=4e-12)
    settings[Adam.STEP] += 1
    np.testing.assert_array_equal(after, settings)


OTHERS = {
    "adagrad": (
        hyper(Adagrad, RATE=0.1, LR_DECAY=0.3, EPS=1e-10, WEIGHT_DECAY=0.1, STEP=8, MAXIMIZE=1),
        [-1, 0.1, 0.1 / (1 + 7 * 0.3), 1e-10],
        9,
    ),
    "sgd": (
        hyper(SGD, RATE=0.1, MOMENTUM=0.3, DAMPENING=0.2, WEIGHT_DECAY=0.1, NESTEROV=1, FIRST=1),
        [1, 0.1, 0.1, 0.3, 0.8, 1, 1],
        0,
    ),
    "rmsprop": (
        hyper(RMSprop, RATE=0.1, ALPHA=0.3, EPS=1e-8, WEIGHT_DECAY=0.1, MOMENTUM=0.2),
        [1, 0.1, 0.3, 0.7, 0.1, 1e-8, 0.2],
        1,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_coefficients_of_the_others_are_those_of_the_host(name):
    settings, wanted, counted = OTHERS[name]
    found, after = coefficients(name, settings)
    np.testing.assert_allclose(found[: len(wanted)], wanted, rtol=1e-15)
    assert not found[len(wanted) :].any() and after[-1] == counted


# ---- what a call sends and starts ------------------------------------------------------------------------------------


@pytest.fixture
def launches():
    with interpreter.recording() as found:
        yield found


@pytest.fixture
def sent(monkeypatch):
    """The arrays that were sent to the device, to new places and to old ones."""
    found, upload, write = [], cuda.upload, cuda.write
    monkeypatch.setattr(cuda, "upload", lambda array, like: found.append(array) or upload(array, like))
    monkeypatch.setattr(cuda, "write", lambda target, values: found.append(values) or write(target, values))
    return found


def advanced(name, settings, steps=1):
    settings = settings.copy()
    if name != "sgd":
        settings[-1] += steps
    return settings


@on_the_interpreter
@pytest.mark.parametrize("name", FULL)
def test_all_parameters_go_in_one_launch(name, launches):
    getattr(optimizer, name)(*upload(random(name, [(3,), (70,), (2, 8)] * 4)), FULL[name][0])
    assert [name for name, _ in launches] == ["optimizer_coefficients", "optimizer_update_f32"]


@pytest.mark.parametrize("name", FULL)
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


def test_the_first_step_of_momentum_is_counted_by_the_device(sent):
    plan, lists = Plan(), upload(random("sgd", [(3,)]))
    optimizer.sgd(*lists, hyper(SGD, RATE=1, MOMENTUM=0.5, FIRST=1), plan)
    before = len(sent)
    optimizer.sgd(*lists, hyper(SGD, RATE=1, MOMENTUM=0.5), plan)
    assert len(sent) == before


def test_gradients_that_move_between_few_places_are_sent_once(sent):
    plan, lists = Plan(), upload(random("adam", [(3,), (70,)]))
    others = [lists[0], [array.copy() for array in lists[1]], *lists[2:]]
    for k in range(6):
        optimizer.adam(*(lists, others)[k % 2], advanced("adam", TOGETHER, k), plan)
        if not k:
            before = len(sent)
    assert len(sent) == before + 2


@pytest.mark.parametrize("name", FULL)
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
    for mine, theirs in zip(host, download(lists), strict=True):
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
    for mine, theirs in zip(host, download(lists), strict=True):
        np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-6)


@on_the_interpreter
@pytest.mark.parametrize("name", FULL)
def test_parameters_without_elements_are_no_work(name, launches):
    getattr(optimizer, name)(*upload(random(name, [0, 0])), FULL[name][0])
    assert not launches
