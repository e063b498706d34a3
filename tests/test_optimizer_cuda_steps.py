"""The numbers that change from step to step, on the device: coefficients, what a call sends, what it starts."""

import math

import numpy as np
import pytest

from minigrad_kernels import interpreter, optimizer
from minigrad_kernels.optimizer import SGD, Adagrad, Adam, Plan, RMSprop, cuda, cuda_update
from minigrad_kernels.optimizer.cuda_rules import RULES

from .kernel_runs import DEVICE, moved, on_host
from .test_kernels_optimizer import hyper
from .test_optimizer_cuda import FULL, TOGETHER, download, random, upload

on_the_interpreter = pytest.mark.skipif(DEVICE != "interpreter", reason="reads what the interpreter counts")


def coefficients(name, settings, scale=1.0, found_inf=0.0):
    there, numbers = moved(settings, DEVICE), [moved(np.full(1, number), DEVICE) for number in (scale, found_inf)]
    single, double = moved(np.zeros(10, np.float32), DEVICE), moved(np.zeros(10), DEVICE)
    cuda_update.coefficients((1,), (1,), (there, *numbers, single, double, RULES[name][0]))
    return on_host(single), on_host(double), on_host(there)


@pytest.mark.parametrize("step", [1, 2, 3, 10, 127, 1000, 12345, 10**6, 2**40])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.95), (0.99, 0.9999)])
def test_coefficients_of_adam_are_those_of_the_host(step, betas):
    """To the bit, after any number of steps: 1 - beta**step loses what the power has lost, many times over."""
    rate, decay, (beta1, beta2) = 0.003, 0.7, betas
    settings = hyper(Adam, RATE=rate, BETA1=beta1, BETA2=beta2, EPS=1e-8, WEIGHT_DECAY=decay, STEP=step, DECOUPLED=1)
    single, double, after = coefficients("adam", settings)
    correction = 1 / math.sqrt(1 - beta2**step)
    wanted = [1, 0, 1 - beta1, beta2, 1 - beta2, 1 - rate * decay, rate / (1 - beta1**step), correction, 1e-8, 0]
    np.testing.assert_array_equal(double, wanted)
    np.testing.assert_array_equal(single, np.array(wanted, np.float32))
    settings[Adam.STEP] += 1
    np.testing.assert_array_equal(after, settings)


def test_coefficients_of_the_others_are_those_of_the_host():
    settings = hyper(Adagrad, RATE=0.1, LR_DECAY=0.3, EPS=1e-10, WEIGHT_DECAY=0.1, STEP=8, MAXIMIZE=1)
    _, double, after = coefficients("adagrad", settings)
    np.testing.assert_array_equal(double, [-1, 0.1, 0.1 / (1 + 7 * 0.3), 1e-10, 0, 0, 0, 0, 0, 0])
    assert after[Adagrad.STEP] == 9
    settings = hyper(SGD, RATE=0.1, MOMENTUM=0.3, DAMPENING=0.2, WEIGHT_DECAY=0.1, NESTEROV=1, FIRST=1)
    _, double, after = coefficients("sgd", settings)
    np.testing.assert_array_equal(double, [1, 0.1, 0.1, 0.3, 0.8, 1, 1, 0, 0, 0])
    assert after[SGD.FIRST] == 0
    settings = hyper(RMSprop, RATE=0.1, ALPHA=0.3, EPS=1e-8, WEIGHT_DECAY=0.1, MOMENTUM=0.2)
    _, double, after = coefficients("rmsprop", settings)
    np.testing.assert_array_equal(double, [1, 0.1, 0.3, 0.7, 0.1, 1e-8, 0.2, 0, 0, 0])
    assert after[RMSprop.STEP] == settings[RMSprop.STEP] + 1


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
            assert len(sent) == 5
    assert len(sent) == 5
    settings = advanced(name, settings, 4)
    settings[0] = 0.01  # a schedule cuts the rate
    getattr(optimizer, name)(*lists, settings, plan)
    assert len(sent) == 6 and sent[-1][0] == 0.01
    getattr(optimizer, name)(*lists, advanced(name, settings), plan)
    assert len(sent) == 6


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
    assert len(sent) == 5 + 2


@pytest.mark.parametrize("name", FULL)
def test_repeating_both_launches_is_the_next_step(name, sent):
    """As a captured graph does: it sees the count of steps, and a rate that was sent since."""
    settings, plan = FULL[name][0], Plan()
    lists, host = upload(random(name, [(3,), (70,)])), random(name, [(3,), (70,)])
    steps = [advanced(name, settings, k) for k in range(4)]
    steps[3][0] = 0.01
    getattr(optimizer, name)(*lists, steps[0], plan)
    found, held, before = plan.tables, plan.settings, len(sent)
    rule, always, possible = RULES[name]
    arguments = found.addresses, found.chunks, held.single, found.tensors, (found.present | always) & possible, rule
    for last, numbers in zip(steps[:-1], steps[1:], strict=True):
        held.advance(last)
        held.send(numbers)
        cuda_update.coefficients((1,), (1,), (held.hyper, held.one, held.zero, held.single, held.double, rule))
        cuda_update.update[4]((found.blocks,), (256,), arguments)
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
        patch.setitem(cuda_update.update, 4, broken)
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
