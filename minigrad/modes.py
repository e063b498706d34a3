"""Modes of the engine, as context variables: threads and asynchronous tasks do not disturb one another."""

import contextlib
import contextvars

from minigrad_kernels.conv2d.winograd_mode import winograd

__all__ = [
    "Mode",
    "determinism",
    "deterministic",
    "enable_grad",
    "is_deterministic",
    "is_grad_enabled",
    "no_grad",
    "recording",
    "winograd",
]


class Mode:
    """A value that holds inside a with block, or inside a function decorated with what `setting` returns."""

    def __init__(self, name, default):
        self.variable = contextvars.ContextVar(name, default=default)
        self.get = self.variable.get

    @contextlib.contextmanager
    def setting(self, value):
        token = self.variable.set(value)
        try:
            yield
        finally:
            self.variable.reset(token)


recording = Mode("recording", True)
determinism = Mode("determinism", True)


def no_grad():
    """Nothing inside is recorded: results do not require gradients. A with block or a decorator."""
    return recording.setting(False)


def enable_grad():
    """Record again inside no_grad. A with block or a decorator."""
    return recording.setting(True)


def is_grad_enabled():
    """Whether operations are being recorded."""
    return recording.get()


def deterministic(mode=True):
    """Whether equal inputs give equal bits even where another order of a sum would be faster, as between ranks.

    On by default. A with block or a decorator.
    """
    return determinism.setting(bool(mode))


def is_deterministic():
    """Whether the mode `deterministic` is on."""
    return determinism.get()
