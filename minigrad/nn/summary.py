"""A table of the layers of a network, after a dry run."""

import html
import math
from dataclasses import dataclass

from minigrad_kernels.errors import KindError, ShapeError

from ..core import create
from ..core.check import shape_of
from ..core.modes import no_grad
from ..core.tensor import Tensor
from .conv import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d
from .linear import Linear
from .module import Module

__all__ = ["Summary", "summary"]


@dataclass(frozen=True)
class Row:
    """One call of a layer."""

    path: str
    kind: str
    shape: tuple | None  # of the output; None if the layer was not called or returned no Tensor
    parameters: int  # its own, counted at its first call
    macs: int  # multiply-adds
    nbytes: int  # of the output


@dataclass(frozen=True)
class Summary:
    """What a network is made of; print it.

    rows            a Row for each call of a layer, in the order of the calls, then layers not called
    parameters      of the whole network, shared ones once
    trainable       those that require a gradient
    macs, nbytes    multiply-adds of convolutions and linear layers, and bytes of all outputs, for this input
    """

    title: str
    input_shape: tuple
    rows: tuple
    parameters: int
    trainable: int
    macs: int
    nbytes: int

    def _table(self):
        yield ("layer", "type", "output shape", "parameters", "multiply-adds", "output bytes")
        for row in self.rows:
            shape = "-" if row.shape is None else str(row.shape)
            yield (row.path, row.kind, shape, f"{row.parameters:,}", f"{row.macs:,}", f"{row.nbytes:,}")
        yield ("total", "", "", f"{self.parameters:,}", f"{self.macs:,}", f"{self.nbytes:,}")

    def __str__(self):
        table = list(self._table())
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = []
        for cells in table:
            padded = [
                cell.ljust(width) if column < 3 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ]
            lines.append("  ".join(padded).rstrip())
        rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
        trainable = f"{self.trainable:,} of {self.parameters:,} parameters trainable"
        head = f"{self.title}, input {self.input_shape}, {trainable}"
        return "\n".join([head, rule, lines[0], rule, *lines[1:-1], rule, lines[-1]])

    def _repr_html_(self):
        head, *rows, total = (
            "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
            for tag, cells in zip(["th"] + ["td"] * (len(self.rows) + 1), self._table(), strict=True)
        )
        body = "".join(f"<tr>{row}</tr>" for row in (*rows, total))
        caption = html.escape(f"{self.title}, input {self.input_shape}")
        return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def summary(model, input_shape):
    """A table of the layers of a network: output shapes, parameters, multiply-adds and bytes.

    The network runs once, on zeros of the type of its parameters, without a tape and as in eval, and is then as
    before. Each call of a layer without parts, or with parameters of its own, gives a row.

    input_shape     with the batch: (1, 1, 28, 28)
    Errors          those of the layers, where the shape does not fit
    """
    if not isinstance(model, Module):
        raise KindError(f"summary: model is {model!r}, wanted a Module")
    shape = shape_of("summary", "input_shape", (input_shape,))
    floating = next(model.parameters(), None)
    x = create.zeros(shape, dtype="float32" if floating is None else floating.dtype)
    listed = [
        (path or type(model).__name__, module)
        for path, module in model.named_modules()
        if not module._modules or module._parameters
    ]
    rows, counted = [], set()
    try:
        _dry_run(model, x if floating is None else x.to(floating.device), listed, rows, counted)
    except ShapeError as error:
        hint = "; it has the batch too, as in (1, 1, 28, 28)"
        raise ShapeError(f"summary: input_shape {shape} does not fit{hint}: {error}") from error
    called = {row.path for row in rows}
    rows += [_row(path, module, (), None, counted) for path, module in listed if path not in called]
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return Summary(
        title=type(model).__name__,
        input_shape=shape,
        rows=tuple(rows),
        parameters=sum(size for size, _ in sizes),
        trainable=sum(size for size, trainable in sizes if trainable),
        macs=sum(row.macs for row in rows),
        nbytes=sum(row.nbytes for row in rows),
    )


def _dry_run(model, x, listed, rows, counted):
    training = [(module, module.training) for module in model.modules()]
    handles = []
    for path, module in listed:
        hook = lambda module, given, out, path=path: rows.append(_row(path, module, given, out, counted))
        handles.append(module.register_forward_hook(hook))
    try:
        with no_grad():
            model.eval()(x)
    finally:
        for handle in handles:
            handle.remove()
        for module, mode in training:
            module.training = mode


def _row(path, module, given, out, counted):
    own = [parameter for parameter in module.parameters(recurse=False) if parameter not in counted]
    counted.update(own)
    known = isinstance(out, Tensor)
    return Row(
        path=path,
        kind=type(module).__name__,
        shape=out.shape if known else None,
        parameters=sum(parameter.numel() for parameter in own),
        macs=_macs(module, given, out) if known else 0,
        nbytes=out.array.nbytes if known else 0,
    )


def _macs(module, given, out):
    """Each element of the output is a sum of so many products; of a transpose, each of the input goes into so many."""
    if isinstance(module, Linear):
        return out.numel() * module.in_features
    if isinstance(module, Conv1d | Conv2d):
        return out.numel() * math.prod(module.weight.shape[1:])
    if isinstance(module, ConvTranspose1d | ConvTranspose2d):
        return given[0].numel() * math.prod(module.weight.shape[1:])
    return 0
