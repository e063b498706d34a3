"""Mode: a value that holds inside a with block, in a file of its own: it can be set before anything is compiled."""

import contextlib
import contextvars

__all__ = ["Block", "Mode"]


class Mode:
    """A value of a thread, or an asynchronous task: others are not disturbed.

    get()           the value of now
    variable        for those who set it and set it back by themselves
    """

    def __init__(self, name, default):
        self.variable = contextvars.ContextVar(name, default=default)
        self.get = self.variable.get
        self._outside: contextvars.ContextVar[tuple] = contextvars.ContextVar(f"{name}, outside", default=())

    def setting(self, value):
        """A with block in which the mode has this value, or a decorator."""
        return Block(self, value)

    def enter(self, value):
        """Have the mode this value, until leave()."""
        self._outside.set((self.get(), self._outside.get()))
        self.variable.set(value)

    def leave(self):
        """Go back to the value before the last enter() that was not left yet."""
        before, outside = self._outside.get()
        self._outside.set(outside)
        self.variable.set(before)


class Block(contextlib.ContextDecorator):
    """A with block that may be entered again, inside itself and in several threads too: it keeps nothing of its own."""

    def __init__(self, mode, value):
        self.mode, self.value = mode, value

    def __enter__(self):
        self.mode.enter(self.value)

    def __exit__(self, *error):
        self.mode.leave()
