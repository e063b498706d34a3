"""What the tests of profiles share."""

import json

import numpy as np

from minigrad import Tensor
from minigrad.core.interceptors import interceptors
from minigrad_kernels.toolchain.watch import watchers

__all__ = ["batch", "check", "nobody_looks", "rows"]


def batch(size=4, side=28):
    """(images, labels)"""
    rng = np.random.default_rng(0)
    return Tensor(rng.standard_normal((size, 1, side, side), dtype=np.float32)), Tensor(np.arange(size) % 10)


def rows(profile, by="op"):
    """{name: Row}"""
    return {row.name: row for row in profile.rows(by)}


def nobody_looks():
    """Whether no tool sees the ops of this thread or is told of other parts."""
    return interceptors() == watchers() == ()


REQUIRED = {"X": {"name", "cat", "ts", "dur", "pid", "tid"}, "C": {"name", "ts", "pid", "args"}, "M": {"name", "args"}}


def check(path):
    """The events of a trace, which are as viewers want them: in order, those of a lane nested or one after another."""
    events, ends = json.loads(path.read_text())["traceEvents"], {}
    for event in events:
        assert REQUIRED[event["ph"]] <= event.keys() and event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0
    times = [event["ts"] for event in events if "ts" in event]
    assert times == sorted(times)
    for event in events:
        if event["ph"] == "X":
            begin, stack = event["ts"], ends.setdefault(event["tid"], [])
            while stack and stack[-1] <= begin + 1e-6:
                stack.pop()
            assert not stack or begin + event["dur"] <= stack[-1] + 1e-3, event
            stack.append(begin + event["dur"])
    return events
