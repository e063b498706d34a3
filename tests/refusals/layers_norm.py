"""What layers refuse that normalise, activate, drop, pad and reshape, and those that hold others."""

import numpy as np

from minigrad import nn
from tests.refusals.layers import given, made, unlike_flags, unlike_numbers, x

AXES = {"1d": (6,), "2d": (6, 6)}


def norms():
    for name in ("BatchNorm1d", "BatchNorm2d", "InstanceNorm1d", "InstanceNorm2d"):
        yield made(name, ValueError, "num_features is 0, wanted at least 1", num_features=0)
        yield made(name, TypeError, "num_features is 4.0, wanted an integer", num_features=4.0)
        yield made(name, ValueError, "eps is -1", 4, eps=-1)
        yield made(name, ValueError, "eps is nan", 4, eps=float("nan"))
        yield made(name, ValueError, "momentum is 2, wanted a number from 0 to 1", 4, momentum=2)
        yield from unlike_numbers(name, "eps momentum", 4)
        yield from unlike_flags(name, "affine bias track_running_stats", 4)
        layer = getattr(nn, name)(4, affine=True)
        yield given(layer, ValueError, f"{name}: input has shape .*wanted|instance_norm", x(4))
        yield given(layer, ValueError, "(running_mean|weight) has shape .4,., wanted .3,.", x(2, 3, *AXES[name[-2:]]))
        yield given(layer, TypeError, f"{name}: input is a ndarray, wanted a Tensor; wrap it", np.ones(4))
        yield given(layer, TypeError, "_norm: input has elements int64", x(2, 4, *AXES[name[-2:]], dtype=np.int64))
    several = "one element a channel has no variance"
    last = f"batch_norm: input has shape .*{several}; use larger batches, drop_last=True in the loader"
    yield given(nn.BatchNorm1d(4), ValueError, last, x(1, 4))
    yield given(nn.BatchNorm2d(4), ValueError, last, x(1, 4, 1, 1))
    yield given(nn.InstanceNorm1d(4), ValueError, f"instance_norm: .*{several}", x(2, 4, 1))
    yield given(nn.InstanceNorm2d(4), ValueError, f"instance_norm: .*{several}", x(2, 4, 1, 1))
    yield made("LayerNorm", ValueError, "normalized_shape is -1", normalized_shape=-1)
    yield made("LayerNorm", TypeError, "normalized_shape is '4'", normalized_shape="4")
    yield made("LayerNorm", ValueError, "eps is -0.1", 4, eps=-0.1)
    yield from unlike_flags("LayerNorm", "elementwise_affine bias", 4)
    yield given(nn.LayerNorm(4), ValueError, r"layer_norm: normalized_shape is \(4,\), wanted the last", x(2, 3))
    yield given(nn.LayerNorm((2, 4)), ValueError, "layer_norm: normalized_shape", x(4))
    yield made("GroupNorm", ValueError, "num_groups is 0, wanted at least 1", num_channels=4, num_groups=0)
    yield made("GroupNorm", ValueError, "num_channels is 4, wanted a multiple of num_groups=3", 3, num_channels=4)
    yield from unlike_flags("GroupNorm", "affine bias", 2, 4)
    yield given(nn.GroupNorm(2, 4), ValueError, "group_norm: ", x(2, 3, 5))
    yield given(nn.GroupNorm(2, 4), ValueError, "group_norm: ", x(4))


ACTIVATIONS = {
    "ReLU": "relu", "ReLU6": "relu6", "LeakyReLU": "leaky_relu", "ELU": "elu", "Hardtanh": "hardtanh", "SiLU": "silu",
    "GELU": "gelu", "Softplus": "softplus", "LogSigmoid": "logsigmoid", "Sigmoid": "sigmoid", "Tanh": "tanh",
}  # fmt: skip


def activations():
    for name, op in ACTIVATIONS.items():
        layer = getattr(nn, name)()
        yield given(layer, TypeError, f"{op}: .* a NoneType, wanted", None)
        yield given(layer, TypeError, f"{op}: .* a list, wanted", [1.0])
    yield from unlike_numbers("LeakyReLU", "negative_slope")
    yield from unlike_numbers("ELU", "alpha")
    yield from unlike_numbers("Softplus", "beta threshold")
    yield from unlike_numbers("Hardtanh", "min_val max_val")
    yield given(nn.Hardtanh(2, 1), ValueError, "hardtanh: min_val is 2.0 and max_val 1.0, wanted min_val <=", x(3))
    yield made("GELU", ValueError, "approximate is 'erf', wanted 'none' or 'tanh'", approximate="erf")
    for name, op in (("Softmax", "softmax"), ("LogSoftmax", "log_softmax")):
        yield made(name, TypeError, "dim is None, wanted an integer", dim=None)
        yield made(name, TypeError, "dim is True, wanted an integer", dim=True)
        yield given(getattr(nn, name)(2), IndexError, f"{op}: dim is 2, wanted -2 to 1", x(2, 3))
        yield given(getattr(nn, name)(1), TypeError, f"{op}: x has type int64", x(2, 3, dtype=np.int64))
    for name in ("Dropout", "Dropout1d", "Dropout2d"):
        yield made(name, ValueError, "p is 1.5, wanted a number from 0 to 1", p=1.5)
        yield made(name, ValueError, "p is nan, wanted", p=float("nan"))
        yield made(name, TypeError, "p is 'half', wanted a number", p="half")
        yield given(getattr(nn, name)(), TypeError, f"{name.lower()}: input is a list", [1.0])
    yield given(nn.Dropout2d(), ValueError, "dropout2d: input has shape", x(2, 3))


def shapes():
    for kind in ("Constant", "Zero", "Reflection", "Replication", "Circular"):
        for dims, sides in (("1d", 2), ("2d", 4)):
            name, more = f"{kind}Pad{dims}", {"value": 0.0} if kind == "Constant" else {}
            wrong = (1,) * (sides + 1)
            yield made(name, TypeError, f"padding is .*wanted an integer or {sides} of them", **more, padding=wrong)
            yield made(name, TypeError, "padding is 1.5, wanted an integer", **more, padding=1.5)
            yield made(name, TypeError, "padding is None, wanted an integer", **more, padding=None)
            layer = getattr(nn, name)(2, **more)
            yield given(layer, TypeError, "pad: input is a ndarray, wanted a Tensor; wrap it", np.ones((1, 1, 3, 3)))
            if kind in ("Reflection", "Circular"):
                far = getattr(nn, name)(5, **more)
                yield given(far, ValueError, "pad: pad .* wanted widths", x(1, 1, *AXES[dims])[..., :3])
    yield made("ConstantPad1d", TypeError, "value is 'a', wanted a number", 1, value="a")
    yield made("ConstantPad2d", TypeError, "value is 'NoneType', wanted a number", 1, value=None)
    yield made("Flatten", TypeError, "start_dim is 1.0, wanted an integer", start_dim=1.0)
    yield made("Flatten", TypeError, "end_dim is None, wanted an integer", end_dim=None)
    yield given(nn.Flatten(), IndexError, "flatten: ", x(4))
    yield given(nn.Flatten(2, 1), ValueError, "flatten: ", x(2, 3, 4))
    yield made("Unflatten", TypeError, "dim is 'a', wanted an integer", "a", (2, 2))
    yield given(nn.Unflatten(1, (2.0, 2)), TypeError, "unflatten: sizes is 2.0, wanted an integer", x(2, 4))
    yield given(nn.Unflatten(1, (2, 3)), ValueError, "unflatten: ", x(2, 5))
    image = x(1, 1, 4, 4)
    both = "interpolate: size is 2 and scale_factor 2.0, wanted one of them"
    yield given(nn.Upsample(), ValueError, "interpolate: size is None and scale_factor None, wanted one of them", image)
    yield given(nn.Upsample(2, 2), ValueError, both, image)
    yield given(nn.Upsample(scale_factor=2), ValueError, "interpolate: ", x(4))
    yield given(nn.Upsample(size=0), ValueError, "interpolate: ", image)
    yield given(nn.Upsample(2, mode="cubic"), ValueError, "interpolate: mode is 'cubic', wanted 'nearest' or", image)


REFUSALS = [*norms(), *activations(), *shapes()]
