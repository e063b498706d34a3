"""Spans: what a profile is made of, one for each call that it saw."""

from dataclasses import dataclass
from typing import Any

__all__ = ["OPERATIONS", "OUTSIDE", "Span"]

OPERATIONS = ("forward", "backward", "pass", "update")  # the kinds that compute, apart from kernels
OUTSIDE = ""  # the layer of what no Module asked for


@dataclass(slots=True, eq=False)
class Span:
    """One call.

    name, kind      what was called. The kind is "forward" for a primitive that is applied, or one of those of
                    toolchain/watch.py
    layer           the dotted name of the Module to which it belongs; OUTSIDE where there is none
    parent          the Span inside which it was called, or None
    begin, end      seconds by the host's clock since the profile began
    device          (begin, end) of what it gave the GPU to do, seconds on the same scale; None where there was none
    lane            the stream in which that ran, such as "cuda:0"
    inner, kernels  seconds of the host in calls inside it; in compiled kernels (their launches, on a GPU)
    inner_device    seconds of the device in calls inside it
    nbytes          bytes of the results, or of the gradients
    kept            bytes that the tape began to keep for backward because of it
    marks           of the profile alone, until it has ended: (place, mark at the begin, mark at the end)
    """

    name: str
    kind: str
    layer: str
    parent: "Span | None"
    begin: float = 0.0
    end: float = 0.0
    device: tuple | None = None
    lane: str | None = None
    inner: float = 0.0
    kernels: float = 0.0
    inner_device: float = 0.0
    nbytes: int = 0
    kept: int = 0
    marks: Any = None

    @property
    def seconds(self):
        """Of the host, from begin to end."""
        return self.end - self.begin

    @property
    def own(self):
        """Seconds of the host less those of the calls inside it; kernels are its own."""
        return max(self.seconds - self.inner, 0.0)

    @property
    def device_seconds(self):
        """Of the device, less those of the calls inside it."""
        return max(self.device[1] - self.device[0] - self.inner_device, 0.0) if self.device else 0.0

    def around(self):
        """The Spans inside which it was called, from the innermost on."""
        span = self.parent
        while span is not None:
            yield span
            span = span.parent

    def within(self, *kinds):
        """Whether it is, or was called inside, a Span of one of these kinds."""
        return self.kind in kinds or any(span.kind in kinds for span in self.around())
