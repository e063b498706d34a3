"""Modes of the engine, as context variables: threads and asynchronous tasks do not disturb one another."""

import contextlib

from minigrad_kernels.toolchain.modes import Mode

from .check import flag_of

__all__ = [
    "Mode",
    "determinism",
    "deterministic",
    "enable_grad",
    "is_deterministic",
    "is_grad_enabled",
    "no_grad",
    "recording",
    "repeating",
    "set_grad_enabled",
]


recording = Mode("recording", True)
determinism = Mode("determinism", True)


def no_grad():
    """Nothing inside is recorded: results do not require gradients. A with block or a decorator."""
    return recording.setting(False)


def enable_grad():
    """Record again inside no_grad. A with block or a decorator."""
    return recording.setting(True)


class set_grad_enabled(contextlib.ContextDecorator):
    """Record, or not, from this call on; as a with block or a decorator, until its end."""

    def __init__(self, mode):
        mode, self.before = flag_of("set_grad_enabled", "mode", mode), recording.get()
        recording.variable.set(mode)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        recording.variable.set(self.before)


def is_grad_enabled():
    """Whether operations are being recorded."""
    return recording.get()


def deterministic(mode=True):
    """Whether equal inputs give equal bits even where another order of a sum would be faster, as between ranks.

    On by default. A with block or a decorator. False permits sums over GPUs in whatever order NCCL likes, and nothing
    else: all that one process computes has one order of its sums in either mode.
    """
    return determinism.setting(flag_of("deterministic", "mode", mode))


def is_deterministic():
    """Whether the mode `deterministic` is on."""
    return determinism.get()


repeating = Mode("repeating", False)  # whether a function of recompute runs again: it is to leave no trace
