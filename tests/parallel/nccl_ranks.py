"""Ranks of threads whose arrays on GPUs of the stand-in go by NCCL, as those of processes do."""

import os
import threading

import numpy as np
import pytest

from minigrad import deterministic, device
from minigrad.parallel import nccl_watch
from minigrad.parallel.communicator import Communicator
from minigrad.parallel.local import LocalTransport
from tests.stand_in_gpus import gpus
from tests.standin.nccl import state

__all__ = ["calls", "ended", "machine", "names", "own_gpu", "world_of_one"]


@pytest.fixture
def machine(monkeypatch):
    """Four GPUs; ranks that are threads use NCCL as processes do, and no thread looks on after the test."""
    watches = []

    class Watch(nccl_watch.Watch):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            watches.append(self)

    monkeypatch.setattr(LocalTransport, "backend", "nccl")
    with gpus(4) as found:
        from minigrad.parallel import nccl

        monkeypatch.setattr(nccl, "Watch", Watch)
        yield found
        for watch in watches:
            watch.close()
            if watch._thread is not None:
                watch._thread.join(10)
                assert not watch._thread.is_alive()


@pytest.fixture
def ended(monkeypatch):
    """Set where the process would end; its `codes` are those that it would end with."""
    ended = threading.Event()
    ended.codes = []
    monkeypatch.setattr(os, "_exit", lambda code: (ended.codes.append(code), ended.set()))
    return ended


def own_gpu(world):
    return lambda x: device.move(x, f"cuda:{world.rank}")


def world_of_one(timeout=60.0, gpu=0):
    """A world whose group of GPUs is connected, and the array that it summed."""
    world = Communicator(LocalTransport(), timeout=timeout)
    x = device.move(np.ones(3, np.float32), f"cuda:{gpu}")
    with deterministic(False):
        world.all_reduce(x)
    return world, x


def calls(machine, rank=0):
    """What a rank asked of NCCL."""
    return [call for call in state(machine).calls if call.rank == rank]


def names(machine, rank=0):
    return [call.name for call in calls(machine, rank)]
