"""The rows of ops.py: what is measured, on which shapes."""

from typing import NamedTuple

__all__ = ["ROWS", "STEPS", "Row"]

IMAGES, WIDE = (64, 64, 32, 32), (64, 32, 26, 26)


class Row(NamedTuple):
    """function(api, *Tensors) on float32 Tensors of these shapes; `classes` is the shape of integers 0..9 behind."""

    function: object
    shapes: tuple
    classes: tuple | None = None
    high: int = 10
    positive: bool = False
    fixed: tuple = ()  # positions of Tensors that need no gradient


def one_argument(names, shape, **options):
    return {
        f"{name} {shape}": Row(lambda a, x, name=name: getattr(a.F, name)(x), (shape,), **options) for name in names
    }


def elementwise_rows():
    def two(name):
        return lambda a, x, y: getattr(a.module, name)(x, y)

    def one(name):
        return lambda a, x: getattr(a.module, name)(x)

    return {
        **{f"{name} {IMAGES}": Row(two(name), (IMAGES, IMAGES)) for name in ("add", "sub", "mul", "div", "maximum")},
        f"add a channel {IMAGES}": Row(two("add"), (IMAGES, (1, 64, 1, 1))),
        f"mul by a number {IMAGES}": Row(lambda a, x: x * 0.5, (IMAGES,)),
        f"x + x + x {IMAGES}": Row(lambda a, x: x + x + x, (IMAGES,)),
        **{f"{name} {WIDE}": Row(one(name), (WIDE,)) for name in ("exp", "tanh", "sigmoid", "abs", "square", "erf")},
        **{f"{name} {WIDE}": Row(one(name), (WIDE,), positive=True) for name in ("log", "sqrt", "rsqrt", "log1p")},
        f"pow 3 {WIDE}": Row(lambda a, x: x**3, (WIDE,)),
        f"pow 1.7 {WIDE}": Row(lambda a, x: x**1.7, (WIDE,), positive=True),
        f"where {WIDE}": Row(lambda a, x, y: a.module.where(x > 0, x, y), (WIDE, WIDE)),
        f"clamp {WIDE}": Row(lambda a, x: a.module.clamp(x, -0.5, 0.5), (WIDE,)),
        **one_argument(("relu", "leaky_relu", "gelu", "silu", "elu", "softplus", "logsigmoid", "relu6"), WIDE),
        f"gelu tanh {WIDE}": Row(lambda a, x: a.F.gelu(x, approximate="tanh"), (WIDE,)),
        f"dropout {WIDE}": Row(lambda a, x: a.F.dropout(x, 0.25), (WIDE,)),
        "dropout (64, 9216)": Row(lambda a, x: a.F.dropout(x, 0.25), ((64, 9216),)),
    }


def reduction_rows():
    def over(name, dim):
        return lambda a, x: getattr(a.module, name)(x, dim)

    square = (1024, 1024)
    return {
        f"sum {IMAGES}": Row(lambda a, x: a.module.sum(x), (IMAGES,)),
        f"mean {IMAGES}": Row(lambda a, x: a.module.mean(x), (IMAGES,)),
        f"sum of channels {IMAGES}": Row(lambda a, x: a.module.sum(x, (0, 2, 3)), (IMAGES,)),
        f"mean of pixels {IMAGES}": Row(lambda a, x: a.module.mean(x, (2, 3)), (IMAGES,)),
        **{
            f"{name} over {dim} {square}": Row(over(name, dim), (square,)) for name in ("sum", "mean") for dim in (0, 1)
        },
        **{f"amax over {dim} {square}": Row(over("amax", dim), (square,)) for dim in (0, 1)},
        f"max over 1 {square}": Row(lambda a, x: a.module.max(x, 1)[0], (square,)),
        f"argmax over 1 {square}": Row(lambda a, x: a.module.argmax(x.detach(), 1), (square,), fixed=(0,)),
        f"var over 1 {square}": Row(over("var", 1), (square,)),
        f"cumsum over 1 {square}": Row(over("cumsum", 1), (square,)),
        f"logsumexp over 1 {square}": Row(over("logsumexp", 1), (square,)),
    }


def loss_rows():
    def loss(name):
        return lambda a, x, t: getattr(a.F, name)(x, t)

    pairs, binary = (64, 1000), ("binary_cross_entropy_with_logits", "mse_loss", "l1_loss", "smooth_l1_loss")
    return {
        **{f"softmax {s}": Row(lambda a, x: a.F.softmax(x, 1), (s,)) for s in ((64, 10), pairs)},
        **{f"log_softmax {s}": Row(lambda a, x: a.F.log_softmax(x, 1), (s,)) for s in ((64, 10), pairs)},
        "cross_entropy (64, 10)": Row(loss("cross_entropy"), ((64, 10),), (64,)),
        "cross_entropy (64, 1000)": Row(loss("cross_entropy"), (pairs,), (64,)),
        "cross_entropy (8, 21, 64, 64)": Row(loss("cross_entropy"), ((8, 21, 64, 64),), (8, 64, 64)),
        "nll_loss (64, 1000)": Row(loss("nll_loss"), (pairs,), (64,)),
        **{f"{name} {pairs}": Row(loss(name), (pairs, pairs), positive=True, fixed=(1,)) for name in binary},
        f"kl_div {pairs}": Row(lambda a, x, t: a.F.kl_div(x, t, reduction="sum"), (pairs, pairs), None, 10, True, (1,)),
    }


def shape_rows():
    def halves(a, x):
        one, two = a.module.split(x, 32, 1)
        return one * two

    table = (10000, 64)
    return {
        "embedding (10000, 64) of 4096": Row(lambda a, w, i: a.F.embedding(i, w), (table,), (4096,), 10000),
        "index rows (10000, 64) of 4096": Row(lambda a, w, i: w[i], (table,), (4096,), 10000),
        "gather (1024, 1024) of (1024, 64)": Row(
            lambda a, x, i: a.module.gather(x, 1, i), ((1024, 1024),), (1024, 64), 1024
        ),
        f"cat {WIDE}": Row(lambda a, x, y: a.module.cat((x, y), 1), (WIDE, WIDE)),
        f"stack {WIDE}": Row(lambda a, x, y: a.module.stack((x, y)), (WIDE, WIDE)),
        f"split and mul {IMAGES}": Row(halves, (IMAGES,)),
        "transpose and copy (1024, 1024)": Row(lambda a, x: x.transpose(0, 1).contiguous(), ((1024, 1024),)),
        f"flatten {WIDE}": Row(lambda a, x: a.module.flatten(x, 1), (WIDE,)),
        f"slice {WIDE}": Row(lambda a, x: x[:, :, 1:-1, 1:-1] * 2.0, (WIDE,)),
        f"pad {WIDE}": Row(lambda a, x: a.F.pad(x, (1, 1, 1, 1)), (WIDE,)),
        "topk 5 (64, 1000)": Row(lambda a, x: a.module.topk(x, 5)[0], ((64, 1000),)),
        "sort (64, 1000)": Row(lambda a, x: a.module.sort(x)[0], ((64, 1000),)),
    }


def layer_rows():
    def conv(**options):
        return lambda a, x, w, b: a.F.conv2d(x, w, b, **options)

    def norm(a, x, w, b):
        return a.F.batch_norm(x, None, None, w, b, training=True)

    def images(function, shape, outs, taps, **options):
        return Row(function(**options), (shape, (outs, shape[1], taps, taps), (outs,)))

    return {
        "conv2d 1->32 (64, 1, 28, 28)": Row(conv(), ((64, 1, 28, 28), (32, 1, 3, 3), (32,)), fixed=(0,)),
        "conv2d 32->64 (64, 32, 13, 13)": images(conv, (64, 32, 13, 13), 64, 3),
        "conv2d 64->64 padded (64, 64, 32, 32)": images(conv, IMAGES, 64, 3, padding=1),
        "conv2d 64->128 stride 2 (64, 64, 32, 32)": images(conv, IMAGES, 128, 3, padding=1, stride=2),
        f"max_pool2d {WIDE}": Row(lambda a, x: a.F.max_pool2d(x, 2), (WIDE,)),
        f"avg_pool2d {WIDE}": Row(lambda a, x: a.F.avg_pool2d(x, 2), (WIDE,)),
        f"batch_norm {IMAGES}": Row(norm, (IMAGES, (64,), (64,))),
        "layer_norm (4096, 512)": Row(
            lambda a, x, w, b: a.F.layer_norm(x, (512,), w, b), ((4096, 512), (512,), (512,))
        ),
        f"group_norm {IMAGES}": Row(lambda a, x, w, b: a.F.group_norm(x, 8, w, b), (IMAGES, (64,), (64,))),
        f"instance_norm {IMAGES}": Row(
            lambda a, x, w, b: a.F.instance_norm(x, weight=w, bias=b), (IMAGES, (64,), (64,))
        ),
        "linear 9216->128 (64, 9216)": Row(lambda a, x, w, b: a.F.linear(x, w, b), ((64, 9216), (128, 9216), (128,))),
        "linear 64->10 (64, 64)": Row(lambda a, x, w, b: a.F.linear(x, w, b), ((64, 64), (10, 64), (10,))),
        "matmul (512, 512)": Row(lambda a, x, y: a.module.matmul(x, y), ((512, 512), (512, 512))),
        "matmul (64, 128, 64)": Row(lambda a, x, y: a.module.matmul(x, y), ((64, 128, 64), (64, 64, 128))),
    }


ROWS = {**elementwise_rows(), **reduction_rows(), **loss_rows(), **shape_rows(), **layer_rows()}

# Steps of optimisers on parameters of these sizes: name -> (class, options, sizes, the norm to clip to).
SMALL, LARGE = (1 << 10,) * 60, (1179648, 128, 1280, 10)
RESNET = (1728, *(36864,) * 4, 73728, *(147456,) * 3, 294912, *(589824,) * 3, 1179648, *(2359296,) * 3, *(512,) * 40)
STEPS = {
    "SGD, 60 small": ("SGD", {"lr": 0.01, "momentum": 0.9}, SMALL, None),
    "Adam, 60 small": ("Adam", {"lr": 1e-3}, SMALL, None),
    "Adam, 1.2 million": ("Adam", {"lr": 1e-3}, LARGE, None),
    "AdamW, 1.2 million": ("AdamW", {"lr": 1e-3}, LARGE, None),
    "RMSprop, 1.2 million": ("RMSprop", {"lr": 1e-3}, LARGE, None),
    "SGD, 11 million": ("SGD", {"lr": 0.01, "momentum": 0.9}, RESNET, None),
    "Adam, 11 million": ("Adam", {"lr": 1e-3}, RESNET, None),
    "clip + SGD, 11 million": ("SGD", {"lr": 0.01, "momentum": 0.9}, RESNET, 1.0),
}
