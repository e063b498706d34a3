"""A reader to be fuzzed."""

import zlib
from base64 import b85decode, b85encode
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Target", "from_row", "to_row"]


@dataclass(frozen=True)
class Target:
    """A reader, and what belongs to it.

    prepare     given an empty folder, it gives (seeds, read): valid inputs, and a function of bytes that reads them
    mutate      (bytes, random.Random, mutation of plain bytes) -> bytes; it knows the format
    errors      those that may leave read
    """

    name: str
    prepare: Callable
    mutate: Callable
    errors: tuple


def to_row(data):
    """An input as the tests keep it."""
    return b85encode(zlib.compress(data, 9)).decode()


def from_row(text):
    return zlib.decompress(b85decode(text))
