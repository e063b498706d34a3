"""Tables and totals of a profile."""

from dataclasses import dataclass

from minigrad_kernels.errors import ShapeError

from ..units import in_bytes
from .spans import BACKWARD, FORWARD, KERNEL, MODULE, OUTSIDE, PASS, UPDATE, union

__all__ = ["Row", "rows", "table", "totals"]


@dataclass
class Row:
    """A line of a table: seconds and bytes, summed over the calls; see Profile.table.

    type        of a layer, the name of its class
    with_       layers whose operations were fused into those of this one
    forward, backward   seconds of `self`, of a layer, before and during backward
    parameters  bytes of a layer's own parameters
    """

    name: str
    type: str = ""
    with_: tuple = ()
    calls: int = 0
    total: float = 0.0
    self: float = 0.0
    share: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    kernels: float = 0.0
    device: float = 0.0
    bytes: int = 0
    memory: int = 0
    parameters: int = 0


SORTS = {
    "time": lambda row: -row.self,
    "calls": lambda row: -row.calls,
    "device": lambda row: -row.device,
    "bytes": lambda row: -row.bytes,
    "memory": lambda row: -row.memory,
    "name": lambda row: row.name,
    "order": lambda row: 0,
}
OPERATIONS = (FORWARD, BACKWARD, PASS, UPDATE)


def rows(recorder, by, sort):
    """The Rows of a table, sorted."""
    makers = {"op": _by_op, "layer": _by_layer, "kernel": _by_kernel}
    for name, value, known in (("by", by, makers), ("sort", sort, SORTS)):
        if value not in known:
            raise ShapeError(f"table: {name} is {value!r}, want one of {', '.join(known)}")
    found = makers[by](recorder)
    for row in found:
        row.share = row.self / (recorder.wall - recorder.looking)
    return sorted(found, key=SORTS[sort])


def _add(row, span):
    """Add what a call cost by itself."""
    row.self += span.own
    row.kernels += span.kernels
    row.device += span.device_seconds
    row.bytes += span.nbytes
    row.memory += span.kept


def _by_op(recorder):
    found = {}
    for span in recorder.spans:
        if span.kind in OPERATIONS:
            row = found.setdefault(span.name, Row(span.name))
            row.calls += 1
            if not (span.parent and _inside(span.parent, span.name)):
                row.total += span.seconds
            _add(row, span)
    return list(found.values())


def _inside(span, name):
    """Whether a call is or lies within one of an operation of this name."""
    while span is not None and span.name != name:
        span = span.parent
    return span is not None


def _by_layer(recorder):
    layers = recorder.layers
    found = {name: Row(name, kind, parameters=layers.parameters[name]) for name, kind in layers.types.items()}
    for span in recorder.spans:
        if span.kind not in (*OPERATIONS, MODULE):
            continue
        name = span.layer if span.layer != OUTSIDE else _outside(span)
        row = found.setdefault(name, Row(name))
        row.calls += span.kind == MODULE
        row.with_ = (*row.with_, *(layer for layer in span.joined if layer not in row.with_))
        if span.within(BACKWARD):
            row.backward += span.own
        else:
            row.forward += span.own
        _add(row, span)
    for row in found.values():
        row.total = row.self + sum(one.self for one in found.values() if layers.holds(row.name, one.name))
    return [row for row in found.values() if row.calls or row.self]


def _outside(span):
    """The row of what no Module asked for: losses and other operations each by their name."""
    while span.parent is not None and span.parent.kind in (FORWARD, BACKWARD, UPDATE):
        span = span.parent
    return f"({span.name.removesuffix('.backward')})"


def _by_kernel(recorder):
    found = {}
    for span in recorder.spans:
        if span.kind == KERNEL:
            row = found.setdefault(span.name, Row(span.name))
            row.calls += 1
            row.total += span.seconds
            row.self += span.seconds
            row.kernels += span.seconds
    return list(found.values())


def totals(recorder):
    """{name: seconds}; see Profile.totals."""
    host = [(span.begin, span.end) for span in recorder.spans if span.kind in (*OPERATIONS, KERNEL)]
    device = [span.device for span in recorder.spans if span.device]
    length = lambda intervals: sum(end - begin for begin, end in union(intervals))
    return {
        "wall": recorder.wall,
        "host": length(host),
        "kernels": sum(span.seconds for span in recorder.spans if span.kind == KERNEL),
        "device": length(device),
        "overlap": max(0.0, length(host) + length(device) - length(host + device)),
        "profiling": recorder.looking,
    }


# ---- text ------------------------------------------------------------------------------------------------------------


def table(recorder, by, sort):
    """The Rows as aligned columns."""
    found = rows(recorder, by, sort)
    devices = any(row.device for row in found)
    columns = [(by, lambda row: row.name + "".join(f" +{layer}" for layer in row.with_))]
    if by == "layer":
        columns.append(("type", lambda row: row.type))
    columns.append(("calls", lambda row: f"{row.calls or ''}"))
    columns.append(("total, ms", lambda row: _ms(row.total)))
    if by == "layer":
        columns += [("forward, ms", lambda row: _ms(row.forward)), ("backward, ms", lambda row: _ms(row.backward))]
    columns += [("self, ms", lambda row: _ms(row.self)), ("share", lambda row: f"{100 * row.share:.1f} %")]
    if by != "kernel":
        columns.append(("kernels, ms", lambda row: _ms(row.kernels)))
        columns += [("device, ms", lambda row: _ms(row.device))] * devices
        columns += [("bytes", lambda row: _bytes(row.bytes)), ("memory", lambda row: _bytes(row.memory))]
    if by == "layer":
        columns.append(("parameters", lambda row: _bytes(row.parameters)))
    lines = [[title for title, _ in columns], *([value(row) for _, value in columns] for row in found)]
    left = 2 if by == "layer" else 1
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    pad = lambda i, cell: cell.ljust(widths[i]) if i < left else cell.rjust(widths[i])
    text = ["  ".join(pad(i, cell) for i, cell in enumerate(line)).rstrip() for line in lines]
    return "\n".join([text[0], "-" * max(map(len, text)), *text[1:]])


def _ms(seconds):
    return f"{1e3 * seconds:.3f}"


def _bytes(count):
    return in_bytes(count) if count else ""
