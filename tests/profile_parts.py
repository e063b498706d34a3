"""What the tests of profiles share."""

import json

import numpy as np

from minigrad import Tensor, fusion, nn, optim
from minigrad.core import tape
from minigrad.core.primitive import Primitive
from minigrad.core.tape import Node
from minigrad_kernels.toolchain import cpu, cuda, team

__all__ = ["BEFORE", "batch", "check", "places", "rows"]


def batch(size=4, side=28):
    """(images, labels)"""
    rng = np.random.default_rng(0)
    return Tensor(rng.standard_normal((size, 1, side, side), dtype=np.float32)), Tensor(np.arange(size) % 10)


def rows(profile, by="op"):
    """{name: Row}"""
    return {row.name: row for row in profile.rows(by)}


def places():
    """All that a profile replaces."""
    owners = {Primitive: "now", Node: "gradients free", nn.Module: "_called", optim.Optimizer: "step"}
    owners |= {tape: "_walk", fusion: "_waits extended", fusion.Call: "result"}
    owners |= {cpu.Kernel: "__call__", cuda.Kernel: "__call__", team.shared: "on alone"}
    return [owner.__dict__[name] for owner, names in owners.items() for name in names.split()]


BEFORE = places()

REQUIRED = {"X": {"name", "cat", "ts", "dur", "pid", "tid"}, "C": {"name", "ts", "pid", "args"}, "M": {"name", "args"}}


def check(path):
    """The events of a trace, which are as viewers want them."""
    trace = json.loads(path.read_text())
    events = trace["traceEvents"]
    for event in events:
        assert REQUIRED[event["ph"]] <= event.keys()
        assert event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0
    times = [event["ts"] for event in events if "ts" in event]
    assert times == sorted(times)
    for lane in {event["tid"] for event in events if event["ph"] == "X"}:
        _check_nesting([event for event in events if event["ph"] == "X" and event["tid"] == lane])
    return events


def _check_nesting(events):
    """Each lies within the one before it that has not ended, or begins after its end."""
    stack = []
    for event in events:
        begin, end = event["ts"], event["ts"] + event["dur"]
        while stack and stack[-1] <= begin + 1e-6:
            stack.pop()
        assert not stack or end <= stack[-1] + 1e-3, event
        stack.append(end)
