"""Every error of the project is a MinigradError and also the built-in error that users expect.

A message says: op, argument, what it got, what it wants, and where it helps what to do.
"""


class MinigradError(Exception):
    """Base of all errors raised on purpose by minigrad."""


class ShapeError(MinigradError, ValueError):
    """A shape, size or value out of range."""


class KindError(MinigradError, TypeError):
    """A wrong kind of argument or element type."""


class SubscriptError(MinigradError, IndexError):
    """A subscript outside an array."""


class MissingError(MinigradError, KeyError):
    """A name under which there is nothing."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


class StateError(MinigradError, RuntimeError):
    """A call that the current state does not allow."""


class ExchangeError(StateError, BufferError):
    """Memory that cannot be shared with another library."""


class OutOfMemory(MinigradError, MemoryError):
    """A device whose memory does not suffice."""
