"""Tables of a profile."""

from dataclasses import dataclass, fields

from ..core.check import one_of
from ..units import in_bytes
from .spans import OPERATIONS

__all__ = ["Row", "rows", "table"]


@dataclass
class Row:
    """A line of a table: seconds (float) and bytes (int), summed over the calls; see Profile.table.

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
    forward: float = 0.0
    backward: float = 0.0
    self: float = 0.0
    share: float = 0.0
    kernels: float = 0.0
    device: float = 0.0
    bytes: int = 0
    memory: int = 0
    parameters: int = 0


KINDS = {"op": OPERATIONS, "layer": (*OPERATIONS, "module"), "kernel": ("kernel",)}


def rows(spans, layers, whole, by):
    """The Rows of a table: layers in their order, others by their time; shares are of `whole` seconds."""
    layered, found = one_of("table", "by", by, KINDS) == "layer", {}
    for name, kind in layers.types.items() if layered else ():
        found[name] = Row(name, kind, parameters=layers.parameters[name])
    for span in spans:
        if span.kind in KINDS[by]:
            name = (span.layer or _outside(span)) if layered else span.name
            row = found.setdefault(name, Row(name))
            row.self += span.own
            row.share = row.self / whole
            row.kernels += span.kernels
            row.device += span.device_seconds
            row.bytes += span.nbytes
            row.memory += span.kept
            if layered:
                row.calls += span.kind == "module"
                if span.within("backward"):
                    row.backward += span.own
                    continue
                row.forward += span.own
                if span.kind == "forward" and span.name not in row.operations:
                    row.operations += (span.name,)
            else:
                row.calls += 1
                row.total += span.seconds if all(outer.name != name for outer in span.around()) else 0
    found = [row for row in found.values() if row.calls or row.self]
    if not layered:
        return sorted(found, key=lambda row: -row.self)
    for row in found:
        row.total = row.self + sum(one.self for one in found if layers.holds(row.name, one.name))
    return found


def _outside(span):
    """The row of what no layer asked for: losses and other operations each by their name."""
    for outer in span.around():
        if outer.kind in ("forward", "backward", "update"):
            span = outer
    return f"({span.name.removesuffix('.backward')})"


TEXTS = {
    str: str,
    tuple: ", ".join,
    float: lambda seconds: f"{1e3 * seconds:.3f}" if seconds else "",
    int: lambda count: in_bytes(count) if count else "",
    "calls": lambda count: str(count or ""),
    "share": lambda share: f"{100 * share:.1f} %",
}


def table(found, by):
    """Rows as aligned columns of text, without those that are empty."""
    columns = []
    for field in fields(Row):
        name, kind = field.name, field.type
        title = by if name == "name" else f"{name}, ms" if kind is float and name not in TEXTS else name
        text_of, pad = TEXTS.get(name) or TEXTS[kind], str.ljust if kind in (str, tuple) else str.rjust
        cells = [title, *(text_of(getattr(row, name)) for row in found)]
        if any(cells[1:]):
            columns.append([pad(cell, max(map(len, cells))) for cell in cells])
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)] or [by]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
