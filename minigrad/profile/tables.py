"""Spans, one for each call that a profile saw, and the tables that are made of them."""

from dataclasses import dataclass, fields
from typing import Any

from ..core.check import one_of
from ..units import in_bytes

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


@dataclass
class Row:
    """A line of a table: seconds (float) and bytes (int), summed over the calls; see Profile.table.

    type                of a layer, the name of its class
    operations          of a layer, the names of those that ran for it before backward
    forward, backward   seconds of `self`, of a layer, before and during backward
    """

    name: str
    type: str = ""
    operations: tuple = ()
    calls: int = 0
    total: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    self: float = 0.0
    share: float = 0.0
    kernels: float = 0.0
    device: float = 0.0
    bytes: int = 0
    memory: int = 0


KINDS = {"op": OPERATIONS, "layer": (*OPERATIONS, "module"), "kernel": ("kernel",)}


def rows(spans, layers, whole, by):
    """The Rows of a table: layers in their order, others by their time; shares are of `whole` seconds.

    What no layer asked for, such as losses, stands beside the layers by the name of the operation.
    """
    layered, found = one_of("table", "by", by, KINDS) == "layer", {}
    if layered:
        found = {name: Row(name, kind) for name, kind in layers.types.items()}
    for span in spans:
        if span.kind not in KINDS[by]:
            continue
        name = (span.layer or f"({span.name.removesuffix('.backward')})") if layered else span.name
        row = found.setdefault(name, Row(name))
        row.self += span.own
        row.share = row.self / whole
        row.kernels += span.kernels
        row.device += span.device_seconds
        row.bytes += span.nbytes
        row.memory += span.kept
        row.calls += not layered or span.kind == "module"
        if not layered:
            row.total += span.seconds if all(outer.name != name for outer in span.around()) else 0
        elif span.within("backward"):
            row.backward += span.own
        else:
            row.forward += span.own
            if span.kind == "forward" and span.name not in row.operations:
                row.operations += (span.name,)
    found = [row for row in found.values() if row.calls or row.self]
    return found if layered else sorted(found, key=lambda row: -row.self)


TEXTS = {
    str: str,
    tuple: ", ".join,
    float: lambda seconds: f"{1e3 * seconds:.3f}" if seconds else "",
    int: lambda count: in_bytes(count) if count else "",
    "calls": lambda count: str(count or ""),
    "share": lambda share: f"{100 * share:.1f} %",
}


def cells(found, by):
    """(Rows as text, of which the first is the head, without columns that are empty; how many columns are words)."""
    columns, words = [], 0
    for field in fields(Row):
        name, kind = field.name, field.type
        title = by if name == "name" else f"{name}, ms" if kind is float and name not in TEXTS else name
        text_of = TEXTS.get(name) or TEXTS[kind]
        column = [text_of(getattr(row, name)) for row in found]
        if any(column) or name == "name":
            columns.append([title, *column])
            words += kind in (str, tuple)
    return list(zip(*columns, strict=True)), words
