"""Modes as with blocks and decorators: one object serves any number of blocks, as in PyTorch."""

import threading
from functools import partial

import pytest

import minigrad
from minigrad import nn
from minigrad.anomaly import is_anomaly_enabled
from minigrad.core.modes import is_deterministic, is_grad_enabled
from minigrad.ops.autocast import autocast_dtype
from minigrad_kernels.conv2d.winograd_mode import mode as winograd_mode
from minigrad_kernels.toolchain.modes import tf32_mode

MODES = {  # the block, what tells the mode, its value inside
    "no_grad": (minigrad.no_grad, is_grad_enabled, False),
    "autocast": (partial(minigrad.autocast, "bfloat16"), autocast_dtype, "bfloat16"),
    "tf32": (minigrad.tf32, tf32_mode, True),
    "winograd": (partial(minigrad.winograd, "always"), winograd_mode, "always"),
    "deterministic": (partial(minigrad.deterministic, False), is_deterministic, False),
    "detect_anomaly": (minigrad.detect_anomaly, is_anomaly_enabled, True),
}


@pytest.mark.parametrize("name", MODES)
def test_a_block_serves_again_and_inside_itself(name):
    block, told, inside = MODES[name]
    before = told()
    assert before != inside
    one = block()
    for _ in range(2):
        with one:
            with one:
                assert told() == inside
            assert told() == inside
        assert told() == before
    with pytest.raises(KeyError), one:
        raise KeyError
    assert told() == before

    @one
    def recursive(depth):
        assert told() == inside
        return depth and recursive(depth - 1)

    assert recursive(3) == 0 and told() == before


@pytest.mark.parametrize("name", MODES)
def test_threads_share_a_block(name):
    block, told, inside = MODES[name]
    before, one, found = told(), block(), []
    meet = threading.Barrier(2)

    def work(first):
        meet.wait()
        with one:
            meet.wait()
            if first:
                found.append(told() == inside)
                meet.wait()
        if not first:
            meet.wait()
        found.append(told() == before)

    threads = [threading.Thread(target=work, args=(first,)) for first in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [True] * 3 and told() == before


def test_generators_that_end_in_another_order_leave_the_mode_as_it_was():
    def inside():
        with minigrad.no_grad():
            yield

    outer, inner = inside(), inside()
    next(outer), next(inner)
    outer.close(), inner.close()
    assert is_grad_enabled()


def test_a_parameter_is_rounded_once_until_the_outermost_block_ends():
    layer, x, block = nn.Linear(4, 4), minigrad.ones(2, 4), minigrad.autocast("bfloat16")
    with block:
        region = minigrad.ops.autocast.region()
        layer(x)
        with block:
            layer(x)
        assert len(region.kept) == 2  # the weight and the bias
    assert not region.kept
    assert layer(x).dtype == "float32"


@pytest.mark.parametrize("call", [partial(minigrad.tf32, 1), partial(minigrad.winograd, "no")])
def test_a_wrong_mode_is_refused_where_it_is_given(call):
    with pytest.raises((TypeError, ValueError), match="mode is "):
        call()
