"""What the host has no room for: refused before anything is made, by all that makes arrays."""

from functools import partial

import numpy as np

import minigrad
from minigrad import Tensor, nn
from minigrad.nn import functional as F
from tests.refusals import described

MILLION = 10**6
WORDS = r"the host is out of memory: wanted [\d,]+ bytes, but [\d,]+ are free; use a smaller shape or batch"
ROW, COLUMN, IMAGE = minigrad.zeros(MILLION, 1), minigrad.zeros(1, MILLION), minigrad.zeros(1, 1, 4, 4)
PIXEL = minigrad.zeros(1, 1, 1, 1)


def wide(*shape, dtype=np.float32):
    """A Tensor of this shape in the memory of one element."""
    return Tensor(np.broadcast_to(np.zeros((), dtype), shape))


SQUARE = wide(MILLION, MILLION)


def row(name, function, *args, words=WORDS, op=None, **options):
    """A row whose message begins with the name of the op, or with that of an op inside."""
    what = f"{name}: {described(*args, **options)}"
    return what, partial(function, *args, **options), MemoryError, f"^{name if op is None else op}: {words}"


def makers():
    for name in ("zeros", "ones", "empty", "rand", "randn"):
        make = getattr(minigrad, name)
        yield row(name, make, MILLION, MILLION)
        yield row(name, make, 2**40, 2**40)
    yield row("full", minigrad.full, (MILLION, MILLION), 1)
    yield row("eye", minigrad.eye, 10**7)
    yield row("arange", minigrad.arange, 10**13)
    yield row("arange", minigrad.arange, 0, 1, 1e-13)
    yield row("linspace", minigrad.linspace, 0, 1, 10**13)
    yield row("randint", minigrad.randint, 0, 2, (MILLION, MILLION))
    yield row("randperm", minigrad.randperm, 10**13)
    yield row("tensor", minigrad.tensor, SQUARE)
    yield row("Tensor", Tensor, np.broadcast_to(np.float16(0), SQUARE.shape), dtype="float32")


def ops():
    yield row("add", F.add, ROW, COLUMN)
    yield row("where", F.where, ROW > 0, ROW, COLUMN)
    yield row("relu", F.relu, SQUARE)
    yield row("clone", F.clone, SQUARE, op="copy")
    yield row("reshape", F.reshape, ROW.expand(MILLION, MILLION), -1)
    yield row("square", F.square, SQUARE, op="pow")
    yield row("matmul", F.matmul, ROW, COLUMN, op="product")
    yield row("einsum", F.einsum, "i,j->ij", ROW[:, 0], ROW[:, 0], op="product")
    yield row("cat", F.cat, [SQUARE, SQUARE])
    yield row("stack", F.stack, [SQUARE, SQUARE], op="cat")
    yield row("tile", F.tile, ROW, (1, MILLION))
    yield row("repeat", F.repeat, ROW, (2**40, 2**40), op="tile")
    yield row("one_hot", F.one_hot, wide(MILLION, dtype=np.int64), 10**7)
    yield row("pad", F.pad, IMAGE, (MILLION,) * 4)
    yield row("pad", F.pad, IMAGE, (2**62,) * 4)
    yield row("softmax", F.softmax, SQUARE, 1)
    yield row("dropout", F.dropout, SQUARE)
    yield row("layer_norm", F.layer_norm, SQUARE, (MILLION,), op="sample_norm")
    yield row("cross_entropy", F.cross_entropy, SQUARE, wide(MILLION, dtype=np.int64))
    yield row("conv2d", F.conv2d, IMAGE, PIXEL, padding=MILLION)
    yield row("conv2d", F.conv2d, IMAGE, PIXEL, padding=10**9)
    yield row("conv_transpose2d", F.conv_transpose2d, IMAGE, PIXEL, stride=MILLION, op="conv2d_input_grad")
    yield row("interpolate", F.interpolate, IMAGE, size=(MILLION, MILLION), op="average_over")
    yield row("interpolate", F.interpolate, IMAGE, scale_factor=1e6, op="average_over")
    yield row("adaptive_avg_pool2d", F.adaptive_avg_pool2d, IMAGE, MILLION, op="average_over")
    yield row("max_pool2d", F.max_pool2d, wide(1, 1, MILLION, MILLION), 2)
    yield row("to", SQUARE.double, op="cast")


def layers():
    for name, args in {
        "Linear": (MILLION, MILLION), "Conv2d": (MILLION, MILLION, 3), "Embedding": (10**9, 10**4),
        "BatchNorm1d": (10**13,), "LayerNorm": ((MILLION, MILLION),),
    }.items():  # fmt: skip
        yield row(name, getattr(nn, name), *args)


REFUSALS = [*makers(), *ops(), *layers()]
