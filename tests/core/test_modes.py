"""Modes as with blocks and decorators: of one thread and one task; one object serves any number of blocks."""

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, autocast, detect_anomaly, deterministic, nn, no_grad, tf32, winograd
from minigrad.anomaly import is_anomaly_enabled
from minigrad.core.modes import is_deterministic, is_grad_enabled
from minigrad.device.random import Generator, drawing_from
from minigrad.nn import functional as F
from minigrad.ops.autocast import autocast_dtype
from minigrad_kernels.conv2d.winograd_mode import mode as winograd_mode
from minigrad_kernels.toolchain.modes import tf32_mode

MODES = {  # the block, what tells the mode, its value inside
    "no_grad": (no_grad, is_grad_enabled, False),
    "autocast": (partial(autocast, "bfloat16"), autocast_dtype, "bfloat16"),
    "tf32": (tf32, tf32_mode, True),
    "winograd": (partial(winograd, "always"), winograd_mode, "always"),
    "not deterministic": (partial(deterministic, False), is_deterministic, False),
    "anomaly": (detect_anomaly, is_anomaly_enabled, True),
}


@pytest.mark.parametrize("block, told, inside", MODES.values(), ids=MODES)
def test_a_block_serves_again_inside_itself_and_in_several_threads(block, told, inside):
    before, one = told(), block()
    assert before != inside
    for _ in range(2):
        with one:
            with one:
                assert told() == inside
            assert told() == inside
        assert told() == before
    with pytest.raises(KeyError), one:
        raise KeyError

    @one
    def recursive(depth):
        assert told() == inside
        return depth and recursive(depth - 1)

    def other():
        seen.append(told())
        with one:
            seen.append(told())
            entered.set()
            left.wait(60)
            seen.append(told())

    seen, entered, left = [], threading.Event(), threading.Event()
    assert recursive(3) == 0 and told() == before
    with one:
        thread = threading.Thread(target=other)
        thread.start()
        assert entered.wait(60)
    assert told() == before
    left.set()
    thread.join(60)
    assert seen == [before, inside, inside]


# ---- several at once -------------------------------------------------------------------------------------------------


def modes_of_now():
    return tuple(told() for _, told, _ in MODES.values())


def training(setting, seed):
    """Steps within a mode, as a generator that stops wherever others may go on; its last value says all it found."""
    with drawing_from(Generator(seed)):
        model = nn.Sequential(
            *(nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3)),
            *(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 16, 5)),
        )
        found, before = [], modes_of_now()
        yield
        with setting():
            inside = modes_of_now()
            for _ in range(2):
                x = minigrad.randn(4, 2, 8, 8)
                yield
                loss = F.cross_entropy(model(x), Tensor(np.arange(4)))
                yield
                if is_grad_enabled():
                    loss.backward()
                    found += [parameter.grad.numpy().tobytes() for parameter in model.parameters()]
                found.append(loss.item())
                yield
                assert modes_of_now() == inside
        assert modes_of_now() == before
        yield inside, found


JOBS = [partial(training, block, seed) for seed, (block, _, _) in enumerate(MODES.values())]


def in_threads():
    begin = threading.Barrier(len(JOBS))

    def run(job):
        begin.wait(60)
        return [*job()][-1]

    with ThreadPoolExecutor(len(JOBS)) as pool:
        return list(pool.map(run, JOBS))


async def in_tasks():
    async def run(job):
        for value in job():
            found = value
            await asyncio.sleep(0)
        return found

    return await asyncio.gather(*map(run, JOBS))


@pytest.fixture
def often():
    """Threads change places every 10 microseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_modes_of_others_change_nothing(often):
    """Threads and tasks at once, each in another mode, compute what each does alone."""
    alone = [[*job()][-1] for job in JOBS]
    assert len({found[0] for found in alone}) == len(MODES)
    assert in_threads() == alone and asyncio.run(in_tasks()) == alone


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
