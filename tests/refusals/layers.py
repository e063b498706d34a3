"""What layers refuse: options when they are made, and inputs that do not fit."""

from functools import partial

import numpy as np

from minigrad import Tensor, nn
from tests.refusals import described


def x(*shape, dtype=np.float32):
    return Tensor(np.ones(shape, dtype))


def made(name, error, pattern, *args, **options):
    """A row of a layer that cannot be made: with these arguments, one of which is wrong."""
    return (
        f"{name}: {described(*args, **options)}",
        partial(getattr(nn, name), *args, **options),
        error,
        f"^{name}: {pattern}",
    )


def given(layer, error, pattern, *inputs):
    """A row of a layer that does not take these inputs."""
    return f"{type(layer).__name__}: {described(*inputs)} for {layer}", partial(layer, *inputs), error, pattern


def unlike_flags(name, flags, *args, **options):
    for flag in flags.split():
        for wrong in ("yes", 2, None):
            yield made(name, TypeError, f"{flag} is {wrong!r}, wanted True or False", *args, **options, **{flag: wrong})


def unlike_numbers(name, options, *args):
    for option in options.split():
        yield made(name, TypeError, f"{option} is '1', wanted a number|{option} is '1'", *args, **{option: "1"})


def convolutions():
    for name, dims in (("Conv1d", 1), ("Conv2d", 2), ("ConvTranspose1d", 1), ("ConvTranspose2d", 2)):
        image = (2, 4, 6, 6)[: 2 + dims]
        for option in ("in_channels", "out_channels"):
            sizes = {"in_channels": 4, "out_channels": 4, "kernel_size": 3}
            yield made(name, ValueError, f"{option} is 0, wanted at least 1", **{**sizes, option: 0})
            yield made(name, TypeError, f"{option} is 1.5, wanted an integer", **{**sizes, option: 1.5})
            yield made(name, TypeError, f"{option} is True, wanted an integer", **{**sizes, option: True})
        for option in ("kernel_size", "stride", "dilation"):
            some = dict(kernel_size=3) if option != "kernel_size" else {}
            yield made(name, ValueError, f"{option} is 0, wanted at least 1", 4, 4, **some, **{option: 0})
            yield made(name, TypeError, rf"{option} is \(1, 1, 1\), wanted", 4, 4, **some, **{option: (1, 1, 1)})
            yield made(name, TypeError, f"{option} is None", 4, 4, **some, **{option: None})
        yield made(name, ValueError, "padding is -1", 4, 4, 3, padding=-1)
        yield made(name, ValueError, ".*groups", 4, 4, 3, groups=3)
        yield made(name, ValueError, "groups is 0, wanted at least 1", 4, 4, 3, groups=0)
        if name.startswith("Conv") and "T" not in name:
            yield made(name, ValueError, "padding_mode is 'mirror', wanted 'zeros'", 4, 4, 3, padding_mode="mirror")
        yield made(name, TypeError, "dtype is int64, wanted a floating one", 4, 4, 3, dtype="int64")
        yield from unlike_flags(name, "bias", 4, 4, 3)
        layer = getattr(nn, name)(4, 4, 3)
        op = {"Conv1d": "conv1d", "Conv2d": "conv2d"}.get(name, f"conv_transpose{dims}d")
        yield given(layer, ValueError, f"{op}: input has 3 channels", x(2, 3, *image[2:]))
        yield given(layer, ValueError, f"{op}: input has shape", x(4))
        yield given(layer, TypeError, f"{op}: input has elements uint8.*convert with", x(*image, dtype=np.uint8))
        yield given(layer, TypeError, f"{op}: .*float64.*wanted one type", x(*image, dtype=np.float64))
        yield given(layer, TypeError, f"{op}: input is a ndarray, wanted a Tensor; wrap it", np.ones(image))
        yield given(layer, TypeError, f"{op}: input is a NoneType, wanted a Tensor", None)
    yield made("Conv2d", ValueError, "padding is 'Same'", 4, 4, 3, padding="Same")
    yield given(nn.Conv2d(4, 4, 3, padding=7, padding_mode="reflect"), ValueError, "pad: .*'reflect'", x(1, 4, 4, 4))


def matrices():
    for option in ("in_features", "out_features"):
        sizes = {"in_features": 4, "out_features": 4}
        yield made("Linear", ValueError, f"{option} is -1", **{**sizes, option: -1})
        yield made("Linear", TypeError, f"{option} is '4', wanted an integer", **{**sizes, option: "4"})
        yield made("Linear", TypeError, f"{option} is False, wanted an integer", **{**sizes, option: False})
    yield from unlike_flags("Linear", "bias", 4, 4)
    yield made("Linear", TypeError, "dtype is bool, wanted a floating one", 4, 4, dtype="bool")
    linear = nn.Linear(4, 3)
    yield given(linear, ValueError, r"linear: input has 5 features \(shape \(2, 5\)\), weight expects 4", x(2, 5))
    yield given(linear, ValueError, "linear: input", x())
    yield given(linear, TypeError, "linear: .*uint8.*as by input.to", x(2, 4, dtype=np.uint8))
    yield given(linear, TypeError, "linear: .*float64.*as by input.to", x(2, 4, dtype=np.float64))
    yield given(linear, TypeError, "linear: input is a list, wanted a Tensor", [1.0, 2.0])
    for option in ("num_embeddings", "embedding_dim"):
        sizes = {"num_embeddings": 4, "embedding_dim": 4}
        yield made("Embedding", ValueError, f"{option} is -1, wanted at least 0", **{**sizes, option: -1})
        yield made("Embedding", TypeError, f"{option} is 2.0, wanted an integer", **{**sizes, option: 2.0})
    yield made("Embedding", ValueError, "padding_idx is 4", 4, 2, padding_idx=4)
    yield made("Embedding", TypeError, "padding_idx is 'a'", 4, 2, padding_idx="a")
    table = nn.Embedding(4, 2)
    yield given(table, IndexError, "embedding: the indices run from 4 to 4, wanted 0 to 3", Tensor(np.array([4])))
    yield given(table, IndexError, "embedding: the indices run from -1", Tensor(np.array([0, -1])))
    yield given(table, TypeError, "embedding: the indices have elements float32, wanted integers", x(2))
    yield given(table, TypeError, "embedding: input is a list", [1, 2])


def pools():
    for name, dims in (("MaxPool1d", 1), ("MaxPool2d", 2), ("AvgPool1d", 1), ("AvgPool2d", 2)):
        image = (2, 3, 6, 6)[: 2 + dims]
        op = name.replace("Pool", "_pool").lower()
        for error, pattern, options in (
            (ValueError, "kernel_size is 0, wanted at least 1", {"kernel_size": 0}),
            (TypeError, "kernel_size is 2.0", {"kernel_size": 2.0}),
            (TypeError, "kernel_size is True", {"kernel_size": True}),
            (TypeError, r"kernel_size is \(2, 2, 2\)", {"kernel_size": (2, 2, 2)}),
            (ValueError, "stride is 0, wanted at least 1", {"stride": 0}),
            (ValueError, "padding is -1, wanted at least 0", {"padding": -1}),
            (ValueError, "padding is 2 .*half of kernel_size 2", {"padding": 2}),
        ):
            yield given(getattr(nn, name)(**{"kernel_size": 2, **options}), error, f"{op}: {pattern}", x(*image))
        yield from unlike_flags(name, "ceil_mode", 2)
        layer = getattr(nn, name)(3)
        yield given(layer, ValueError, f"{op}: .*too small", x(1, 3, *(2,) * dims))
        yield given(layer, ValueError, f"{op}: input has shape", x(3))
        yield given(layer, TypeError, f"{op}: input is a str", "image")
        yield given(layer, TypeError, f"{op}: .*int64", x(*image, dtype=np.int64))
    for layer, image in ((nn.MaxPool1d(2, dilation=0), x(3, 6)), (nn.MaxPool2d(2, dilation=0), x(3, 6, 6))):
        yield given(layer, ValueError, "max_pool.d: dilation is 0, wanted at least 1", image)
    small = "adaptive_avg_pool2d: output_size is -1, wanted at least 0"
    yield given(nn.AdaptiveAvgPool2d(-1), ValueError, small, x(2, 3, 6, 6))
    yield given(nn.AdaptiveAvgPool2d(2), ValueError, "adaptive_avg_pool2d: input has shape", x(3, 3))


REFUSALS = [*convolutions(), *matrices(), *pools()]
