"""What is refused where Tensors are made: sizes, types, devices, data, and initialisers of parameters."""

from functools import partial

import numpy as np

import minigrad
from minigrad import Tensor, nn
from tests.refusals import described

X = Tensor(np.ones((2, 3), np.float32))
WHOLE = Tensor(np.ones((2, 3), np.int64))
NAN, INF = float("nan"), float("inf")


def row(name, error, pattern, *args, **options):
    function = getattr(minigrad, name, None) or getattr(nn.init, name)
    return f"{name}: {described(*args, **options)}", partial(function, *args, **options), error, pattern


MAKERS = {
    "zeros": (2,), "ones": (2,), "empty": (2,), "full": ((2,), 1), "rand": (2,), "randn": (2,), "eye": (2,),
    "arange": (2,), "linspace": (0, 1, 3), "randint": (0, 3, (2,)), "randperm": (3,), "zeros_like": (X,),
    "ones_like": (X,), "empty_like": (X,), "full_like": (X, 1), "rand_like": (X,), "randn_like": (X,), "tensor": ([1],),
}  # fmt: skip


def options():
    """What all refuse."""
    for name, args in MAKERS.items():
        yield row(name, TypeError, "dtype: got 'floaty', wanted an element type such as", *args, dtype="floaty")
        yield row(name, TypeError, "element type is complex64, wanted bool, integer or", *args, dtype="complex64")
        yield row(name, TypeError, "device is 'gpu', wanted 'cpu', 'cuda'", *args, device="gpu")
        yield row(name, TypeError, "requires_grad is 'yes', wanted True or False", *args, requires_grad="yes")
        if name not in ("rand", "randn", "rand_like", "randn_like"):
            yield row(name, TypeError, "requires_grad wants floating", *args, dtype="int64", requires_grad=True)
        else:
            yield row(name, TypeError, "dtype is int64, wanted a floating one", *args, dtype="int64")
            yield row(name, TypeError, "generator is a int, wanted a Generator", *args, generator=3)
    for name in ("zeros", "ones", "empty", "rand", "randn"):
        yield row(name, ValueError, rf"{name}: shape is \(2, -1\), wanted sizes that are not negative", 2, -1)
        yield row(name, TypeError, f"{name}: shape is 1.5, wanted an integer", 1.5)
        yield row(name, TypeError, f"{name}: shape is True, wanted an integer", True)
        yield row(name, TypeError, f"{name}: shape is None, wanted an integer", None)
        yield row(name, ValueError, f"{name}: shape is .*64 bits", 10**30)
    for name in ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like"):
        more = (1,) if name == "full_like" else ()
        yield row(name, TypeError, f"{name}: input is a ndarray, wanted a Tensor; wrap it", np.ones(2), *more)
        yield row(name, TypeError, f"{name}: input is a tuple, wanted a Tensor", (2, 3), *more)


def values():
    yield row("zeros", TypeError, "zeros: shape is 'a', wanted an integer", "a")
    yield row("ones", TypeError, "ones: shape is None, wanted an integer", (2, None))
    yield row("full", TypeError, "full: fill_value is 'a', wanted a number", 2, "a")
    yield row("full", ValueError, "full: value is 300, which does not fit in uint8", 2, 300, "uint8")
    yield row("full", TypeError, "full: fill_value is 'one', wanted a number", (2,), "one")
    yield row("full", ValueError, "full: value is -1, which does not fit in uint8", (2,), -1, "uint8")
    yield row("full", ValueError, "full: value is nan, which does not fit in int64", (2,), NAN, "int64")
    yield row("full", ValueError, r"full: shape is \(-2,\)", -2, 1)
    yield row("full_like", TypeError, "full: fill_value is 'NoneType', wanted a number", X, None)
    yield row("eye", ValueError, r"eye: n, m is \(2, -1\)", 2, -1)
    yield row("eye", TypeError, "eye: n, m is 2.0, wanted an integer", 2.0)
    yield row(
        "arange", ValueError, "arange: start, end, step are 0, 5, 0; wanted finite ones and a step not 0", 0, 5, 0
    )
    yield row("arange", ValueError, "arange: .*wanted finite ones", NAN)
    yield row("arange", ValueError, "arange: .*wanted finite ones", 0, INF)
    yield row("arange", TypeError, "arange: end is 'a', wanted a number", "a")
    yield row("linspace", TypeError, "linspace: end is '1', wanted a number", 0, "1", 5)
    yield row("linspace", ValueError, "linspace: steps is .-5,., wanted 1 sizes", 0, 1, -5)
    yield row("linspace", TypeError, "linspace: steps is 2.5, wanted an integer", 0, 1, 2.5)
    yield row("randint", ValueError, "randint: low is 3 and high 3, wanted low < high", 3, 3, (2,))
    yield row("randint", TypeError, "randint: high is 0.5, wanted an integer", 0.5, (2,))
    yield row("randint", ValueError, "randint: size is .-1,.", 0, 3, -1)
    yield row("randint", TypeError, "randint: generator is a str", 0, 3, 2, generator="a")
    yield row("randperm", ValueError, "randperm: n is .-1,.", -1)
    yield row("randperm", TypeError, "randperm: n is None, wanted an integer", None)
    yield row("randperm", TypeError, "randperm: generator is a int", 3, generator=1)
    yield row("from_dlpack", TypeError, "from_dlpack: source is a int, wanted an array of a library", 5)
    yield row("from_dlpack", BufferError, "from_dlpack: the ndarray does not share its memory", np.array(["a"]))
    yield row("manual_seed", TypeError, "manual_seed: seed is 'a', wanted an integer", "a")
    yield row("manual_seed", TypeError, "manual_seed: seed is 1.9", 1.9)
    yield row("manual_seed", ValueError, "manual_seed: seed is -1, wanted an integer from 0", -1)
    yield row("manual_seed", ValueError, "manual_seed: seed is 9223372036854775808", 1 << 63)


DATA = {
    "a masked array": (np.ma.masked_array([1.0, 2.0], [True, False]), "data is a masked array.*data.filled"),
    "objects": (np.array([1, None]), "element type is object, wanted bool"),
    "text": (np.array(["1"]), "element type is <U1, wanted bool"),
    "bytes": (np.array([b"1"]), r"element type is \|S1, wanted bool"),
    "fields": (np.zeros(2, [("a", "f4")]), r"element type is \[\('a', '<f4'\)\], wanted bool"),
    "dates": (np.array(["2020-01-01"], "datetime64[D]"), r"element type is datetime64\[D\]"),
    "complex numbers": (np.ones(2, complex), "element type is complex128, wanted bool"),
    "a complex number": (1j, "element type is complex128, wanted bool"),
    "ragged rows": ([[1], [1, 2]], "data is a ragged list, wanted rows of one length"),
    "words": ([1.0, "a"], "element type is <U"),
    "None": (None, "data is or holds None of type NoneType, wanted numbers of 64 bits or nested lists"),
    "a list with None": ([1.0, None], "data is or holds None of type NoneType"),
    "a large integer": ([1, 10**30], "data is or holds 10{30} of type int, wanted numbers of 64 bits"),
    "a dictionary": ({"a": 1}, "data is or holds {'a': 1} of type dict"),
    "a set": ({1}, "data is or holds .1. of type set"),
    "a function": (len, "data is or holds <built-in function len> of type builtin"),
}
if np.dtype(np.longdouble).itemsize > 8:
    DATA["long doubles"] = np.ones(2, np.longdouble), "element type is float|element type is longdouble"


def data():
    """What does not become a Tensor, in each of the ways by which it might."""
    for what, (value, pattern) in DATA.items():
        yield f"Tensor: {what}", partial(Tensor, value), TypeError, pattern
        yield f"tensor: {what}", partial(minigrad.tensor, value), TypeError, pattern
        yield f"tensor: {what} with a type", partial(minigrad.tensor, value, dtype="float32"), TypeError, pattern
        yield f"Parameter: {what}", partial(nn.Parameter, value), TypeError, pattern
        if isinstance(value, np.ndarray):
            leaf = Tensor(np.ones(2, np.float32), requires_grad=True)
            yield f"Tensor.data: {what}", partial(setattr, leaf, "data", value), TypeError, pattern
    leaf = Tensor(np.ones(2, np.float32), requires_grad=True)
    again = "data is a Tensor already; use it as it is"
    yield "Tensor: a Tensor", partial(Tensor, X), TypeError, again
    yield "Tensor: sizes", partial(Tensor, 2, 3), TypeError, "requires_grad is 3.*minigrad.empty"
    yield "Tensor: integers with a gradient", partial(Tensor, [1, 2], True), TypeError, "wants floating elements"
    yield (
        "Tensor.data: a list",
        partial(setattr, leaf, "data", [1.0]),
        TypeError,
        "data: got a list, wanted a Tensor or an array",
    )
    whole = "data: elements are int64, but self requires a gradient: wanted floating"
    yield "Tensor.data: integers", partial(setattr, leaf, "data", np.ones(2, int)), TypeError, whole


FILLED = [name for name in nn.init.__all__ if name != "calculate_gain"]


def initialisers():
    inner = (2 * Tensor(np.ones((2, 2), np.float32), requires_grad=True),)
    for name in FILLED:
        more = (1,) if name == "constant_" else ()
        array = np.ones((2, 2))
        yield row(name, TypeError, f"{name}: (tensor|input) is a ndarray, wanted a Tensor; wrap it", array, *more)
        yield row(name, TypeError, f"{name}: (tensor|input) is a NoneType, wanted a Tensor", None, *more)
        yield row(name, RuntimeError, "made by mul|was made by mul", *inner, *more)
        if name not in ("constant_", "ones_", "zeros_"):
            yield row(name, TypeError, f"{name}: generator is a int, wanted a Generator", X, generator=3)
    for name in ("orthogonal_", "kaiming_normal_", "kaiming_uniform_", "xavier_normal_", "xavier_uniform_"):
        yield row(name, ValueError, rf"{name}: tensor has shape \(3,\), wanted", Tensor(np.ones(3)))
    for name in ("orthogonal_", "xavier_normal_", "xavier_uniform_"):
        yield row(name, TypeError, f"{name}: gain is 'relu', wanted a number", X, gain="relu")
    for name in ("kaiming_normal_", "kaiming_uniform_"):
        yield row(name, ValueError, f"{name}: mode is 'fan', wanted 'fan_in' or 'fan_out'", X, mode="fan")
        yield row(name, ValueError, "nonlinearity is 'gelu', wanted 'tanh' or", X, nonlinearity="gelu")
        yield row(name, TypeError, "param is '1', wanted a number", X, a="1")
    yield row("calculate_gain", ValueError, "calculate_gain: nonlinearity is None, wanted 'tanh' or", None)
    yield row("calculate_gain", TypeError, "calculate_gain: param is 'a', wanted a number", "leaky_relu", "a")
    yield row("uniform_", ValueError, "uniform_: a is 2.0 and b 1.0, wanted a <= b", X, 2, 1)
    yield row("uniform_", ValueError, "uniform_: a is nan", X, NAN)
    yield row("uniform_", TypeError, "uniform_: b is 'a', wanted a number", X, 0, "a")
    yield row("normal_", ValueError, "normal_: std is -1.0, wanted at least 0", X, 0, -1)
    yield row("normal_", TypeError, "normal_: mean is 'NoneType', wanted a number", X, None)
    yield row("trunc_normal_", ValueError, "trunc_normal_: std is 0.0.*wanted std > 0 and a <= b", X, std=0)
    yield row("trunc_normal_", ValueError, "trunc_normal_: .*too far from the range", X, a=50, b=60)
    yield row("constant_", ValueError, "constant_: val is 1.*, which does not fit in int64", WHOLE, 10**30)
    yield row("constant_", TypeError, "constant_: val is 'a', wanted a number", X, "a")


REFUSALS = [*options(), *values(), *data(), *initialisers()]
