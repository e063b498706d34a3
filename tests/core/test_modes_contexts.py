"""Modes hold for one thread and one task: eight of them at once, each in another mode, compute what each does alone."""

import asyncio
import contextlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, autocast, detect_anomaly, deterministic, nn, no_grad, optim, recompute, tf32, winograd
from minigrad.anomaly import is_anomaly_enabled
from minigrad.device.random import Generator, drawing_from
from minigrad.graph import capture
from minigrad.nn import functional as F
from minigrad.ops.autocast import autocast_dtype
from minigrad_kernels.conv2d.winograd_mode import mode as winograd_mode
from minigrad_kernels.toolchain.modes import capturing, tf32_mode
from tests.device.stand_in_gpus import gpus

STEPS = 2


def modes_of_now():
    grads = minigrad.is_grad_enabled(), minigrad.is_deterministic(), autocast_dtype()
    return *grads, tf32_mode(), winograd_mode(), is_anomaly_enabled(), capturing.get()


def network():
    return nn.Sequential(
        *(nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 16, 5)),
    )


def small():
    """For GPUs of the stand-in, which take their time."""
    return nn.Sequential(nn.Flatten(), nn.Linear(128, 6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 5))


def bytes_of(tensors):
    return [None if tensor is None else np.array(tensor.detach().cpu()).tobytes() for tensor in tensors]


def training(setting, seed, device="cpu", wrap=lambda model: model, backward=True):
    """Steps within a mode, as a generator that stops wherever others may go on; its last value says all it found."""
    with drawing_from(Generator(seed)):
        model = (network() if device == "cpu" else small()).to(device)
        optimizer = optim.SGD(model.parameters(), 0.05, momentum=0.9)
        apply, found, before = wrap(model), [], modes_of_now()
        yield
        with setting():
            inside = modes_of_now()
            for _ in range(STEPS):
                x = minigrad.randn(4, 2, 8, 8).to(device)
                yield
                scores = apply(x)
                yield
                assert modes_of_now() == inside and scores.requires_grad == backward
                loss = F.cross_entropy(scores, Tensor(np.arange(4) % 5).to(device))
                if backward:
                    optimizer.zero_grad()
                    loss.backward()
                    yield
                    optimizer.step()
                found += bytes_of([scores, *(parameter.grad for parameter in model.parameters())])
                yield
                assert modes_of_now() == inside
        assert modes_of_now() == before
        yield inside, found + bytes_of(model.state_dict().values())


def captured(seed, device):
    """Steps of which the last ones are replays of a graph."""
    with drawing_from(Generator(seed)):
        model = small().to(device)
        optimizer = optim.SGD(model.parameters(), 0.05)
        x = minigrad.randn(4, 2, 8, 8).to(device)

        @capture
        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(4):
            loss = step(x)
            yield
        assert step.graphs == 1
        yield modes_of_now(), bytes_of([loss, *model.parameters()])


def again(model):
    return lambda x: model[7:](recompute(model[:7], x))


JOBS = {
    "no mode": lambda: training(contextlib.nullcontext, 0),
    "no_grad": lambda: training(no_grad, 1, backward=False),
    "bfloat16": lambda: training(lambda: autocast("bfloat16"), 2),
    "float16": lambda: training(lambda: autocast("float16"), 3),
    "not deterministic": lambda: training(lambda: deterministic(False), 4),
    "tf32": lambda: training(tf32, 5),
    "winograd": lambda: training(lambda: winograd("always"), 6),
    "anomaly": lambda: training(detect_anomaly, 7),
    "recompute": lambda: training(contextlib.nullcontext, 8, wrap=again),
}
ON_GPUS = {
    "cuda:0": lambda: training(contextlib.nullcontext, 0, "cuda:0"),
    "cuda:0, tf32": lambda: training(tf32, 1, "cuda:0"),
    "cuda:0, bfloat16": lambda: training(lambda: autocast("bfloat16"), 2, "cuda:0"),
    "cuda:0, anomaly": lambda: training(detect_anomaly, 3, "cuda:0"),
    "cuda:0, no_grad": lambda: training(no_grad, 4, "cuda:0", backward=False),
    "the CPU": lambda: training(lambda: autocast("bfloat16"), 5),
    "the interpreter": lambda: training(contextlib.nullcontext, 6, "interpreter"),
    "cuda:1, captured": lambda: captured(7, "cuda:1"),
}


def last(steps):
    for value in steps:
        found = value
    return found


def in_threads(jobs):
    begin = threading.Barrier(len(jobs))

    def run(job):
        begin.wait(60)
        return last(job())

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(run, jobs))


def in_tasks(jobs):
    async def run(job):
        for value in job():
            found = value
            await asyncio.sleep(0)
        return found

    async def everything():
        return await asyncio.gather(*map(run, jobs))

    return asyncio.run(everything())


def in_threads_of_a_task(jobs):
    async def everything():
        return await asyncio.gather(*(asyncio.to_thread(last, job()) for job in jobs))

    return asyncio.run(everything())


@pytest.fixture
def often():
    """Threads change places every 10 microseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


WAYS = in_threads, in_tasks, in_threads_of_a_task


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_modes_of_others_change_nothing(often, way):
    jobs = list(JOBS.values())
    alone = [last(job()) for job in jobs]
    assert len({found[0] for found in alone}) == len(jobs) - 1  # but for recompute, which is no mode
    assert way(jobs) == alone


@pytest.mark.deep
def test_devices_of_others_change_nothing(often):
    jobs = list(ON_GPUS.values())
    with gpus(2):
        alone = [last(job()) for job in jobs]
        assert in_threads(jobs) == alone and in_tasks(jobs) == alone


def test_a_thread_begins_with_the_defaults_and_a_task_with_what_holds_where_it_was_made():
    defaults = modes_of_now()

    async def ask():
        return modes_of_now()

    async def asked():
        with no_grad(), tf32():
            task, inside = asyncio.create_task(ask()), modes_of_now()
        return inside, await task, modes_of_now()

    with deterministic(False), ThreadPoolExecutor(1) as pool:
        assert pool.submit(modes_of_now).result() == defaults
    inside, seen, after = asyncio.run(asked())
    assert seen == inside != after == defaults
