"""New Tensors.

Types   dtype an element type or its name; where it is None: float32, or the type of the numbers given (bool, int64 or
        float32), or that of the Tensor whose shape is taken. device the name of a device
Errors  ValueError for sizes below 0 and values out of range, TypeError for what is no size, number or element type
"""

import math

import numpy as np
from ml_dtypes import finfo

from minigrad_kernels.errors import ExchangeError, KindError, ShapeError, StateError

from .. import device as devices
from .check import float_of, integer_of, number_of, shape_of, source_of
from .tensor import Tensor, tensor_of

__all__ = [
    "DoubleTensor",
    "FloatTensor",
    "Generator",
    "LongTensor",
    "arange",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "from_dlpack",
    "from_numpy",
    "linspace",
    "multinomial",
    "normal",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
    "tensor",
    "zeros",
    "zeros_like",
]

CUDA = 2  # DLPack's number for it, kDLCUDA


def _made(array, device, requires_grad):
    return Tensor(devices.move(array, device), requires_grad)


def _floating(dtype):
    return devices.element_type("float32" if dtype is None else dtype)


@devices.naming("tensor")
def tensor(data, dtype=None, device="cpu", requires_grad=False):
    """A Tensor with a copy of data: numbers, nested lists, or an array."""
    array = data.array if isinstance(data, Tensor) else devices.asarray(data, dtype)
    array = devices.cast(array, array.dtype if dtype is None else dtype)
    return _made(array, device, requires_grad)


def from_numpy(ndarray):
    """A Tensor on the memory of a NumPy array."""
    if not isinstance(ndarray, np.ndarray):
        raise KindError(f"from_numpy: got a {type(ndarray).__name__}, wanted a NumPy array")
    return Tensor(ndarray)


def from_dlpack(source):
    """A Tensor on the memory of an array of another library (DLPack), without a copy: what one writes the other sees.

    The memory lives as long as either. Strides stay as they are, and what is read-only there is read-only here.
    Errors  TypeError for what is no such array or has elements of a type that is not known here; BufferError, also a
            RuntimeError, if the library does not share it, as PyTorch where it requires a gradient
    Source  "Python Specification for DLPack"
    """
    kind = type(source).__name__
    try:
        on_gpu = source.__dlpack_device__()[0] == CUDA
        array = (devices.place("cuda").module if on_gpu else np).from_dlpack(source)
    except StateError:
        raise
    except BufferError as error:
        raise ExchangeError(f"from_dlpack: the {kind} does not share its memory: {error}") from error
    except (AttributeError, TypeError, RuntimeError) as error:  # the last of an element type that NumPy has not
        wanted = "an array of a library with DLPack, of elements that NumPy has"
        raise KindError(f"from_dlpack: source is a {kind}, wanted {wanted} ({error})") from error
    return Tensor(array)


# ---- one value -------------------------------------------------------------------------------------------------------


def full(shape, fill_value, dtype=None, device="cpu", requires_grad=False):
    """A Tensor filled with one value."""
    return _full("full", (shape,), fill_value, dtype, device, requires_grad)


def _full(op, shape, value, dtype, device, requires_grad):
    number = number_of(op, "fill_value", value)
    kind = "bool" if isinstance(value, bool) else "int64" if isinstance(number, int) else "float32"
    dtype = devices.element_type(kind if dtype is None else dtype)
    shape, place = shape_of(op, "shape", shape), devices.place(device)
    with devices.naming(op):
        return Tensor(devices.full(shape, number, dtype, like=place), requires_grad)


def zeros(*shape, dtype=None, device="cpu", requires_grad=False):
    """A Tensor of zeros."""
    return _full("zeros", shape, 0.0, dtype, device, requires_grad)


def ones(*shape, dtype=None, device="cpu", requires_grad=False):
    """A Tensor of ones."""
    return _full("ones", shape, 1.0, dtype, device, requires_grad)


@devices.naming("empty")
def empty(*shape, dtype=None, device="cpu", requires_grad=False):
    """A Tensor whose elements are whatever the memory held."""
    shape = shape_of("empty", "shape", shape)
    return Tensor(devices.empty(shape, _floating(dtype), like=devices.place(device)), requires_grad)


@devices.naming("eye")
def eye(n, m=None, dtype=None, device="cpu", requires_grad=False):
    """Ones on the diagonal of n rows and m columns (n where m is None), zeros beside it."""
    shape = shape_of("eye", "n, m", (n, n if m is None else m))
    devices.check_room(shape, "float64")
    return _made(devices.cast(np.eye(*shape), _floating(dtype)), device, requires_grad)


# ---- the shape of another --------------------------------------------------------------------------------------------


def _like(name, make, shape="the shape and, where nothing else is asked, "):
    """The function that makes a Tensor in the type and on the device of another, and in its shape if that is named."""

    def like(input, *values, dtype=None, device=None, requires_grad=False, **options):
        tensor_of(name, "input", input)
        dtype, device = input.dtype if dtype is None else dtype, input.device if device is None else device
        values = (input.shape, *values) if shape else values
        return make(*values, dtype=dtype, device=device, requires_grad=requires_grad, **options)

    like.__name__ = like.__qualname__ = name
    like.__doc__ = f"{make.__name__} in {shape}the type and on the device of input."
    return like


# ---- ranges ----------------------------------------------------------------------------------------------------------


@devices.naming("arange")
def arange(start, end=None, step=1, dtype=None, device="cpu", requires_grad=False):
    """Numbers from start (from 0 if it stands alone) up to end, end not included, step apart.

    Types   int64 if all three are whole numbers, else float32, where dtype is None
    """
    named = {"start": 0 if end is None else start, "end": start if end is None else end, "step": step}
    start, end, step = (number_of("arange", name, value) for name, value in named.items())
    if not all(map(math.isfinite, (start, end, step))) or not step:
        raise ShapeError(f"arange: start, end, step are {start}, {end}, {step}; wanted finite ones and a step not 0")
    whole = all(isinstance(value, int) for value in (start, end, step))
    dtype = devices.element_type(("int64" if whole else "float32") if dtype is None else dtype)
    count = max(0, -int((start - end) // step))
    devices.check_room((count,), "int64")
    return _made(devices.cast(np.arange(count) * step + start, dtype), device, requires_grad)


@devices.naming("linspace")
def linspace(start, end, steps, dtype=None, device="cpu", requires_grad=False):
    """steps numbers from start to end, both included, equally far apart."""
    start, end = float_of("linspace", "start", start), float_of("linspace", "end", end)
    (count,) = shape_of("linspace", "steps", (steps,), 1)
    devices.check_room((count,), "float64")
    with np.errstate(all="ignore"):  # from or to infinity
        values = np.linspace(start, end, count)
    return _made(devices.cast(values, _floating(dtype)), device, requires_grad)


# ---- random numbers --------------------------------------------------------------------------------------------------


def rand(*shape, dtype=None, device="cpu", requires_grad=False, generator=None):
    """Numbers drawn evenly from [0, 1)."""
    values = _drawn("rand", "random", shape, dtype, generator)
    if values.dtype.itemsize < 4:
        values[values == 1] = 1 - float(finfo(values.dtype).eps) / 2  # to which the last numbers below 1 are rounded up
    return _made(values, device, requires_grad)


def randn(*shape, dtype=None, device="cpu", requires_grad=False, generator=None):
    """Numbers drawn from the normal distribution with mean 0 and variance 1."""
    return _made(_drawn("randn", "standard_normal", shape, dtype, generator), device, requires_grad)


@devices.naming("randint")
def randint(low, high=None, size=None, dtype="int64", device="cpu", requires_grad=False, generator=None):
    """Whole numbers drawn evenly from low (from 0 in the form randint(high, size)) up to high, high not included."""
    if size is None or high is None:
        low, high, size = 0, low, high if size is None else size
    low, high = integer_of("randint", "low", low), integer_of("randint", "high", high)
    if low >= high:
        raise ShapeError(f"randint: low is {low} and high {high}, wanted low < high")
    source, shape = source_of("randint", generator), shape_of("randint", "size", (size,))
    devices.check_room(shape, "int64")
    return _made(devices.cast(source.integers(low, high, shape), dtype), device, requires_grad)


@devices.naming("randperm")
def randperm(n, dtype="int64", device="cpu", requires_grad=False, generator=None):
    """The numbers from 0 to n - 1 in random order."""
    (count,) = shape_of("randperm", "n", (n,), 1)
    source = source_of("randperm", generator)
    devices.check_room((count,), "int64")
    return _made(devices.cast(source.permutation(count), dtype), device, requires_grad)


def normal(mean=0.0, std=1.0, size=None, *, dtype=None, device=None, requires_grad=False, generator=None):
    """Numbers drawn from normal distributions, of a shape or as many as mean or std, a Tensor, has elements."""
    given = [value for value in (mean, std) if isinstance(value, Tensor)]
    if size is None and not given:
        raise KindError("normal: size is missing, wanted a shape where mean and std are numbers")
    shape = (given[0] if len(given) == 1 else given[0] + given[1]).shape if size is None else size
    device = (given[0].device if given else "cpu") if device is None else device
    drawn = randn(shape, dtype=dtype, device=device, generator=generator)
    return Tensor((mean + std * drawn).array, requires_grad)


@devices.naming("multinomial")
def multinomial(input, num_samples, replacement=False, *, generator=None):
    """Indices drawn with probabilities in proportion to each row of input, a vector or a matrix.

    Shapes  input (..., K), out (..., num_samples) int64
    Errors  ValueError for weights that are negative, not finite, or too few to draw from without replacement
    """
    count = integer_of("multinomial", "num_samples", num_samples, 1)
    weights = devices.host(tensor_of("multinomial", "input", input).array).astype(np.float64)
    rows = weights.reshape(-1, weights.shape[-1]) if weights.ndim in (1, 2) else weights
    if rows.ndim != 2 or not (np.isfinite(rows) & (rows >= 0)).all() or not (rows > 0).any(axis=1).all():
        raise ShapeError("multinomial: wanted rows of finite weights of at least 0, not all 0, in 1 or 2 dimensions")
    if not replacement and (most := int((rows > 0).sum(axis=1).min())) < count:
        raise ShapeError(f"multinomial: num_samples is {count}, but a row has {most} weights above 0")
    source = source_of("multinomial", generator)
    found = np.stack([source.choice(len(row), count, replacement, row / row.sum()) for row in rows])
    return _made(found.reshape(*input.shape[:-1], count), input.device, False)


def _typed(name, dtype):
    """PyTorch's function of long ago: a Tensor of numbers, or of a shape whose elements are undefined."""

    def make(*data):
        numbers = len(data) == 1 and not isinstance(data[0], int)
        return tensor(data[0], dtype) if numbers else empty(*data, dtype=dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__, make.dtype = f"A Tensor of {dtype} from numbers, or of this shape.", dtype
    return make


TYPED = {"FloatTensor": "float32", "DoubleTensor": "float64", "LongTensor": "int64"}
FloatTensor, DoubleTensor, LongTensor = (_typed(*item) for item in TYPED.items())


def Generator(device="cpu"):
    """A source of random numbers of one's own, for `generator=`; seed it by manual_seed(n), which returns it."""
    return devices.Generator()


def _drawn(op, method, shape, dtype, generator):
    """Numbers from a method of the generator; a type that it does not know is drawn as float32 and rounded."""
    shape, dtype = shape_of(op, "shape", shape), _floating(dtype)
    if not devices.is_floating(dtype):
        raise KindError(f"{op}: dtype is {dtype}, wanted a floating one")
    drawn = dtype if dtype.itemsize >= 4 else devices.default_dtype
    draw = getattr(source_of(op, generator), method)
    with devices.naming(op):
        devices.check_room(shape, drawn)
        values = draw(shape, drawn)
    return values if drawn == dtype else devices.cast(values, dtype)


zeros_like, ones_like, full_like = _like("zeros_like", zeros), _like("ones_like", ones), _like("full_like", full)
empty_like, rand_like, randn_like = _like("empty_like", empty), _like("rand_like", rand), _like("randn_like", randn)
NEW = {f"new_{make.__name__}": _like(f"new_{make.__name__}", make, "") for make in (empty, full, ones, tensor, zeros)}
