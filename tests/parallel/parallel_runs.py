"""Ranks as threads for the tests, with a limit: what hangs fails, and shows where each thread stands."""

import contextvars
import faulthandler
import threading
from concurrent.futures import Future, wait

import numpy as np

from minigrad.parallel import run_local
from minigrad_kernels.toolchain import set_threads, threads

__all__ = ["bits", "on_ranks", "outcomes"]

LIMIT = 40.0  # seconds for a whole run
TIMEOUT = 20.0  # seconds for a collective


def on_ranks(function, size, *arguments, timeout=TIMEOUT):
    """What function(world, *arguments) returns on each rank; its kernels run in one thread, as ranks are threads."""
    found, before = Future(), threads()

    def run():
        try:
            found.set_result(run_local(function, size, *arguments, timeout=timeout))
        except BaseException as error:
            found.set_exception(error)

    set_threads(1)
    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
    try:
        if wait([found], LIMIT).not_done:
            faulthandler.dump_traceback()
        return found.result(0)
    finally:
        set_threads(before)


def outcomes(function, size, *arguments, timeout=TIMEOUT):
    """What it returns, or the exception that it raises, on each rank, where an exception does not end the world."""

    def caught(world):
        try:
            return function(world, *arguments)
        except Exception as error:
            return error

    return on_ranks(caught, size, timeout=timeout)


def bits(model, optimizer=None):
    """All parameters and buffers of a model, and the state of its optimiser, as bytes by name."""
    found = {name: np.ascontiguousarray(tensor.numpy()).tobytes() for name, tensor in model.state_dict().items()}
    for index, entries in ({} if optimizer is None else optimizer.state_dict()["state"]).items():
        found |= {f"{index} {name}": np.asarray(value).tobytes() for name, value in entries.items()}
    return found
