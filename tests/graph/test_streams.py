"""Captured functions that are called on several streams: one launch follows the other, and so do the host's writes."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn, optim
from minigrad.graph import capture
from minigrad.nn import functional as F
from tests.device.stand_in_gpus import gpus


def trained(wrap, count):
    """The loss and the weights after steps on so many streams in turn; a rate and draws change in between."""
    import cupy

    minigrad.manual_seed(0)
    layer = nn.Linear(4, 2).to("cuda")
    optimizer = optim.Adam(layer.parameters(), lr=0.1)

    @wrap
    def step(x):
        optimizer.zero_grad()
        loss = F.dropout(layer(x), 0.5).sum()
        loss.backward()
        optimizer.step()
        return loss

    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(count)]
    x = Tensor(np.ones((3, 4), np.float32)).to("cuda")
    cupy.cuda.Device().synchronize()
    for number in range(8):
        if number == 5:
            optimizer.param_groups[0]["lr"] = 0.01
        if number == 6:
            F.dropout(minigrad.ones(3))
        with streams[max(number - 3, 0) % count]:
            loss = step(x)
    cupy.cuda.Device().synchronize()
    return loss.item(), [parameter.detach().numpy().tobytes() for parameter in layer.parameters()]


@pytest.mark.deep
def test_what_the_host_writes_before_a_replay_waits_for_the_launch_before():
    with gpus(1):
        assert trained(capture, 2) == trained(lambda step: step, 1)
