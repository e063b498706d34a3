"""Modes as with blocks and decorators: of one thread and one task; one object serves any number of blocks."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from minigrad import autocast, detect_anomaly, deterministic, no_grad, tf32, winograd
from minigrad.anomaly import is_anomaly_enabled
from minigrad.core.modes import is_deterministic, is_grad_enabled
from minigrad.ops.autocast import autocast_dtype
from minigrad_kernels.toolchain.modes import tf32_mode, winograd_mode

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

    with ThreadPoolExecutor(1) as pool:
        assert recursive(3) == 0 and told() == before
        with one:
            assert pool.submit(told).result() == before and pool.submit(recursive, 1).result() == 0
        assert pool.submit(told).result() == told() == before


def modes_of_now():
    return tuple(told() for _, told, _ in MODES.values())


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
