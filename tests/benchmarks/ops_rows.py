"""The rows of ops.py: what is measured, on which shapes."""

from typing import NamedTuple

IMAGES, WIDE, SQUARE, PAIRS = (64, 64, 32, 32), (64, 32, 26, 26), (1024, 1024), (64, 1000)


class Row(NamedTuple):
    """function(engine, *Tensors) on float32 Tensors of these shapes, then integers from 0 to high - 1 of a shape."""

    function: object
    shapes: tuple
    classes: tuple | None = None
    high: int = 10
    positive: bool = False
    fixed: tuple = ()  # positions of Tensors that need no gradient


def op(name, *args, **options):
    """A function of the library, called with Tensors and what is given here."""
    return lambda engine, *tensors: getattr(engine.library, name)(*tensors, *args, **options)


def F(name, *args, **options):
    """A function of nn.functional."""
    return lambda engine, *tensors: getattr(engine.nn.functional, name)(*tensors, *args, **options)


def halves(engine, x):
    one, two = engine.library.split(x, 32, 1)
    return one * two


def conv2d(shape, outs, taps=3, **options):
    return Row(F("conv2d", **options), (shape, (outs, shape[1], taps, taps), (outs,)))


def norm(name, *args, **options):
    """A function of nn.functional that takes a weight and a bias behind other arguments."""
    return lambda engine, x, w, b: getattr(engine.nn.functional, name)(x, *args, weight=w, bias=b, **options)


ROWS = {f"{name} {IMAGES}": Row(op(name), (IMAGES, IMAGES)) for name in ("add", "sub", "mul", "div", "maximum")}
ROWS |= {
    f"add a channel {IMAGES}": Row(op("add"), (IMAGES, (1, 64, 1, 1))),
    f"mul by a number {IMAGES}": Row(lambda _, x: x * 0.5, (IMAGES,)),
    f"x + x + x {IMAGES}": Row(lambda _, x: x + x + x, (IMAGES,)),
}
ROWS |= {f"{name} {WIDE}": Row(op(name), (WIDE,)) for name in ("exp", "tanh", "sigmoid", "abs", "square", "erf")}
ROWS |= {f"{name} {WIDE}": Row(op(name), (WIDE,), positive=True) for name in ("log", "sqrt", "rsqrt", "log1p")}
ROWS |= {
    f"pow 3 {WIDE}": Row(lambda _, x: x**3, (WIDE,)),
    f"pow 1.7 {WIDE}": Row(lambda _, x: x**1.7, (WIDE,), positive=True),
    f"where {WIDE}": Row(lambda engine, x, y: engine.library.where(x > 0, x, y), (WIDE, WIDE)),
    f"clamp {WIDE}": Row(op("clamp", -0.5, 0.5), (WIDE,)),
}
ACTIVATIONS = "relu", "leaky_relu", "gelu", "silu", "elu", "softplus", "logsigmoid", "relu6"
ROWS |= {f"{name} {WIDE}": Row(F(name), (WIDE,)) for name in ACTIVATIONS}
ROWS |= {f"gelu tanh {WIDE}": Row(F("gelu", approximate="tanh"), (WIDE,))}
ROWS |= {f"dropout {shape}": Row(F("dropout", 0.25), (shape,)) for shape in (WIDE, (64, 9216))}

ROWS |= {  # reductions
    f"sum {IMAGES}": Row(op("sum"), (IMAGES,)),
    f"mean {IMAGES}": Row(op("mean"), (IMAGES,)),
    f"sum of channels {IMAGES}": Row(op("sum", (0, 2, 3)), (IMAGES,)),
    f"mean of pixels {IMAGES}": Row(op("mean", (2, 3)), (IMAGES,)),
}
OVER = [(name, dim) for name in ("sum", "mean", "amax") for dim in (0, 1)]
OVER += [("var", 1), ("cumsum", 1), ("logsumexp", 1)]
ROWS |= {f"{name} over {dim} {SQUARE}": Row(op(name, dim), (SQUARE,)) for name, dim in OVER}
ROWS |= {
    f"max over 1 {SQUARE}": Row(lambda engine, x: engine.library.max(x, 1)[0], (SQUARE,)),
    f"argmax over 1 {SQUARE}": Row(op("argmax", 1), (SQUARE,), fixed=(0,)),
}

BINARY = "binary_cross_entropy_with_logits", "mse_loss", "l1_loss", "smooth_l1_loss"
ROWS |= {f"{name} {s}": Row(F(name, 1), (s,)) for name in ("softmax", "log_softmax") for s in ((64, 10), PAIRS)}
ROWS |= {
    "cross_entropy (64, 10)": Row(F("cross_entropy"), ((64, 10),), (64,)),
    f"cross_entropy {PAIRS}": Row(F("cross_entropy"), (PAIRS,), (64,)),
    "cross_entropy (8, 21, 64, 64)": Row(F("cross_entropy"), ((8, 21, 64, 64),), (8, 64, 64)),
    f"nll_loss {PAIRS}": Row(F("nll_loss"), (PAIRS,), (64,)),
    **{f"{name} {PAIRS}": Row(F(name), (PAIRS, PAIRS), positive=True, fixed=(1,)) for name in BINARY},
    f"kl_div {PAIRS}": Row(F("kl_div", reduction="sum"), (PAIRS, PAIRS), positive=True, fixed=(1,)),
}

TABLE = (10000, 64)
ROWS |= {  # shapes
    f"embedding {TABLE} of 4096": Row(
        lambda engine, w, i: engine.nn.functional.embedding(i, w), (TABLE,), (4096,), 10000
    ),
    f"index rows {TABLE} of 4096": Row(lambda _, w, i: w[i], (TABLE,), (4096,), 10000),
    f"gather {SQUARE} of (1024, 64)": Row(lambda engine, x, i: x.gather(1, i), (SQUARE,), (1024, 64), 1024),
    f"cat {WIDE}": Row(lambda engine, x, y: engine.library.cat((x, y), 1), (WIDE, WIDE)),
    f"stack {WIDE}": Row(lambda engine, x, y: engine.library.stack((x, y)), (WIDE, WIDE)),
    f"split and mul {IMAGES}": Row(halves, (IMAGES,)),
    f"transpose and copy {SQUARE}": Row(lambda _, x: x.transpose(0, 1).contiguous(), (SQUARE,)),
    f"flatten {WIDE}": Row(op("flatten", 1), (WIDE,)),
    f"slice {WIDE}": Row(lambda _, x: x[:, :, 1:-1, 1:-1] * 2.0, (WIDE,)),
    f"pad {WIDE}": Row(F("pad", (1, 1, 1, 1)), (WIDE,)),
    f"topk 5 {PAIRS}": Row(lambda engine, x: engine.library.topk(x, 5)[0], (PAIRS,)),
    f"sort {PAIRS}": Row(lambda engine, x: engine.library.sort(x)[0], (PAIRS,)),
}

ROWS |= {  # layers
    "conv2d 1->32 (64, 1, 28, 28)": conv2d((64, 1, 28, 28), 32)._replace(fixed=(0,)),
    "conv2d 32->64 (64, 32, 13, 13)": conv2d((64, 32, 13, 13), 64),
    f"conv2d 64->64 padded {IMAGES}": conv2d(IMAGES, 64, padding=1),
    f"conv2d 64->128 stride 2 {IMAGES}": conv2d(IMAGES, 128, padding=1, stride=2),
    f"max_pool2d {WIDE}": Row(F("max_pool2d", 2), (WIDE,)),
    f"avg_pool2d {WIDE}": Row(F("avg_pool2d", 2), (WIDE,)),
    f"batch_norm {IMAGES}": Row(norm("batch_norm", None, None, training=True), (IMAGES, (64,), (64,))),
    "layer_norm (4096, 512)": Row(norm("layer_norm", (512,)), ((4096, 512), (512,), (512,))),
    f"group_norm {IMAGES}": Row(norm("group_norm", 8), (IMAGES, (64,), (64,))),
    f"instance_norm {IMAGES}": Row(norm("instance_norm"), (IMAGES, (64,), (64,))),
    "linear 9216->128 (64, 9216)": Row(F("linear"), ((64, 9216), (128, 9216), (128,))),
    "linear 64->10 (64, 64)": Row(F("linear"), ((64, 64), (10, 64), (10,))),
    "matmul (512, 512)": Row(op("matmul"), ((512, 512), (512, 512))),
    "matmul (64, 128, 64)": Row(op("matmul"), ((64, 128, 64), (64, 64, 128))),
}

# Steps of optimisers on parameters of these sizes: name -> (class, options, sizes, the norm to clip to).
SMALL, LARGE = (1 << 10,) * 60, (1179648, 128, 1280, 10)
RESNET = (1728, *(36864,) * 4, 73728, *(147456,) * 3, 294912, *(589824,) * 3, 1179648, *(2359296,) * 3, *(512,) * 40)
MOMENTUM = {"lr": 0.01, "momentum": 0.9}
STEPS = {
    "SGD, 60 small": ("SGD", MOMENTUM, SMALL, None),
    "Adam, 60 small": ("Adam", {}, SMALL, None),
    "Adam, 1.2 million": ("Adam", {}, LARGE, None),
    "AdamW, 1.2 million": ("AdamW", {}, LARGE, None),
    "RMSprop, 1.2 million": ("RMSprop", {"lr": 1e-3}, LARGE, None),
    "SGD, 11 million": ("SGD", MOMENTUM, RESNET, None),
    "Adam, 11 million": ("Adam", {}, RESNET, None),
    "clip + SGD, 11 million": ("SGD", MOMENTUM, RESNET, 1.0),
}
