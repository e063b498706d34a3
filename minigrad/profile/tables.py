"""Tables of a profile."""

from dataclasses import dataclass

from minigrad_kernels.errors import ShapeError

from ..units import in_bytes
from .spans import OPERATIONS, OUTSIDE

__all__ = ["Row", "rows", "table"]


@dataclass
class Row:
    """A line of a table: seconds and bytes, summed over the calls; see Profile.table.

    type                of a layer, the name of its class
    operations          of a layer, the names of those that ran for it before backward
    forward, backward   seconds of `self`, of a layer, before and during backward
    parameters          bytes of a layer's own parameters
    """

    name: str
    type: str = ""
    operations: tuple = ()
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
TABLES = "op", "layer", "kernel"


def rows(spans, layers, whole, by, sort):
    """The Rows of a table, sorted; shares are of `whole` seconds."""
    for name, value, known in (("by", by, TABLES), ("sort", sort, SORTS)):
        if value not in known:
            raise ShapeError(f"table: {name} is {value!r}, want one of {', '.join(known)}")
    if by == "layer":
        found = _by_layer(spans, layers)
    else:
        found = _by_name([span for span in spans if span.kind in (OPERATIONS if by == "op" else ("kernel",))])
    for row in found:
        row.share = row.self / whole
    return sorted(found, key=SORTS[sort])


def _add(row, span):
    """Add what a call cost by itself."""
    row.self += span.own
    row.kernels += span.kernels
    row.device += span.device_seconds
    row.bytes += span.nbytes
    row.memory += span.kept


def _by_name(spans):
    found = {}
    for span in spans:
        row = found.setdefault(span.name, Row(span.name))
        row.calls += 1
        if all(outer.name != span.name for outer in span.around()):
            row.total += span.seconds
        _add(row, span)
    return list(found.values())


def _by_layer(spans, layers):
    found = {name: Row(name, kind, parameters=layers.parameters[name]) for name, kind in layers.types.items()}
    for span in spans:
        if span.kind not in (*OPERATIONS, "module"):
            continue
        name = _outside(span) if span.layer == OUTSIDE else span.layer
        row = found.setdefault(name, Row(name))
        _add(row, span)
        if span.kind == "module":
            row.calls += 1
        if span.within("backward"):
            row.backward += span.own
        else:
            row.forward += span.own
            if span.kind == "forward" and span.name not in row.operations:
                row.operations += (span.name,)
    for row in found.values():
        row.total = row.self + sum(one.self for one in found.values() if layers.holds(row.name, one.name))
    return [row for row in found.values() if row.calls or row.self]


def _outside(span):
    """The row of what no Module asked for: losses and other operations each by their name."""
    outermost = [one for one in (span, *span.around()) if one.kind in ("forward", "backward", "update")]
    return f"({(outermost or [span])[-1].name.removesuffix('.backward')})"


def table(found, by):
    """Rows as aligned columns of text."""
    columns = {by: lambda row: row.name}
    if by == "layer":
        columns |= {"type": lambda row: row.type, "operations": lambda row: ", ".join(row.operations)}
    left = len(columns)
    columns |= {"calls": lambda row: f"{row.calls or ''}", "total, ms": lambda row: _ms(row.total)}
    if by == "layer":
        columns |= {"forward, ms": lambda row: _ms(row.forward), "backward, ms": lambda row: _ms(row.backward)}
    columns |= {"self, ms": lambda row: _ms(row.self), "share": lambda row: f"{100 * row.share:.1f} %"}
    if by != "kernel":
        columns["kernels, ms"] = lambda row: _ms(row.kernels)
        if any(row.device for row in found):
            columns["device, ms"] = lambda row: _ms(row.device)
        columns |= {"bytes": lambda row: _bytes(row.bytes), "memory": lambda row: _bytes(row.memory)}
    if by == "layer":
        columns["parameters"] = lambda row: _bytes(row.parameters)
    lines = [list(columns), *([value(row) for value in columns.values()] for row in found)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    pad = lambda i, cell: cell.ljust(widths[i]) if i < left else cell.rjust(widths[i])
    text = ["  ".join(pad(i, cell) for i, cell in enumerate(line)).rstrip() for line in lines]
    return "\n".join([text[0], "-" * max(map(len, text)), *text[1:]])


def _ms(seconds):
    return f"{1e3 * seconds:.3f}"


def _bytes(count):
    return in_bytes(count) if count else ""
