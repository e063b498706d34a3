"""The methods and operators of cupy.ndarray, and what NumPy's functions do when they meet one."""

import functools

import numpy as np

from . import creation
from .arrays import check, dtype_of, fresh, ndarray, plain, store, wrapped
from .functions import bound, derived, matmul
from .graphs import recorded
from .machine import written
from .names import known
from .ufuncs import SCALARS, UFUNCS

__all__: list[str] = []

MEMBERS = known()["cupy"]["ndarray"]["members"]
DERIVED = (
    "all any argmax argmin argpartition argsort choose clip compress conj cumprod cumsum diagonal dot max mean min "
    "nonzero prod ptp ravel repeat round searchsorted squeeze std sum swapaxes take trace var"
).split()


def _method(name):
    function = derived(name, getattr(np, name), "a, " + MEMBERS[name])

    def method(self, *arguments, **options):
        return function(self, *arguments, **options)

    return method


for name in DERIVED:
    setattr(ndarray, name, _method(name))


VIEWS = ("transpose", "view", "reduced_view")  # nothing is done on the device


def _own(function):
    """A method under CuPy's signature."""
    parameters = MEMBERS[function.__name__]

    def method(self, *arguments, **options):
        given = bound(function.__name__, parameters, arguments, options)
        return function(self, *given.args, **given.kwargs)

    method.__name__ = function.__name__
    setattr(ndarray, function.__name__, method if function.__name__ in VIEWS else recorded(method))
    return method


@_own
def astype(self, dtype, order="K", casting=None, subok=None, copy=True):
    if casting is not None:
        raise TypeError("casting is not supported yet")
    if subok is not None:
        raise TypeError("subok is not supported yet")
    dtype, flags = dtype_of(dtype), self._x.flags
    if not copy and dtype == self.dtype and {"C": flags.c_contiguous, "F": flags.f_contiguous}.get(order, True):
        return self
    check("astype", self)
    return fresh(self._x.astype(dtype), order)


@_own
def copy(self, order="C"):
    return creation.array(self, order=order)


@_own
def flatten(self, order="C"):
    check("flatten", self)
    return fresh(self._x.flatten(order))


@_own
def reshape(self, *shape, order="C", copy=None):
    shape = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
    try:
        found = self._x.reshape(tuple(shape), order=order.upper())
    except ValueError as error:
        raise ValueError(f"cannot reshape array of size {self.size} into shape {tuple(shape)}") from error
    if not np.may_share_memory(found, self._x) and self.size:
        check("reshape", self)
        return fresh(found)
    return wrapped(found, self)


@_own
def transpose(self, *axes):
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], tuple | list | np.ndarray)):
        axes = axes[0]
    return wrapped(self._x.transpose(None if axes is None or not len(axes) else tuple(axes)), self)


@_own
def view(self, dtype=None, type=None):
    if type is not None and type is not ndarray:
        raise NotImplementedError("stand-in: views of other classes")
    return wrapped(self._x.view() if dtype is None else self._x.view(dtype_of(dtype)), self)


def _contiguous_for(name, array, kind=None):
    check(name, array)
    if not array._x.flags.c_contiguous:
        raise NotImplementedError("Sorting non-contiguous array is not supported.")
    if kind not in (None, "stable"):
        raise ValueError("kind can only be None or 'stable'")


@_own
def sort(self, axis=-1, kind=None):
    _contiguous_for("sort", self, kind)
    store(self, np.sort(self._x, axis))


@_own
def partition(self, kth, axis=-1):
    _contiguous_for("partition", self)
    store(self, np.partition(self._x, kth, axis))


@_own
def put(self, indices, values, mode="wrap"):
    check("put", self, indices, values)
    np.put(self._x, plain(indices), plain(values), mode)
    written(self._x.reshape(-1), plain(indices) % self.size)


@_own
def reduced_view(self, dtype=None):
    return wrapped(self._x.reshape(-1), self) if self._x.flags.c_contiguous else self


def _scatter(name, function, kinds):
    def method(self, slices, value):
        check(name, self, value)
        if self.dtype.char not in kinds:
            raise TypeError(f"{name} does not support {self.dtype}")
        key = slices if isinstance(slices, tuple) else (slices,)
        function.at(self._x, tuple(plain(part) for part in key), np.asarray(plain(value)).astype(self.dtype))

    method.__name__ = "put"
    setattr(ndarray, name, recorded(method))


_scatter("scatter_add", np.add, "iILQefd")
_scatter("scatter_max", np.maximum, "iILQfd")
_scatter("scatter_min", np.minimum, "iILQfd")


def _property(function):
    setattr(ndarray, function.__name__, property(function))


@_property
def T(self):
    return self if self.ndim < 2 else wrapped(self._x.T, self)


@_property
def mT(self):
    if self.ndim < 2:
        raise ValueError("matrix transpose with ndim < 2 is undefined")
    return wrapped(self._x.mT, self)


@_property
def real(self):
    return wrapped(self._x.real, self) if self.dtype.kind == "c" else self


@_property
def imag(self):
    return wrapped(self._x.imag, self) if self.dtype.kind == "c" else creation.zeros(self.shape, self.dtype)


@_property
def flat(self):
    raise NotImplementedError("stand-in: flat")


# ---- operators -------------------------------------------------------------------------------------------------------

BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "left_shift", "rshift": "right_shift", "divmod": "divmod",
}  # fmt: skip
COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "ne": "not_equal"}


def _deferred(other):
    """Whether the other operand's own operator should be tried, as NumPy's protocol says."""
    if isinstance(other, ndarray | np.ndarray | SCALARS):
        return False
    return getattr(other, "__array_ufunc__", True) is None or not hasattr(other, "__array_ufunc__")


def _operators(name, function):
    def forward(self, other):
        return NotImplemented if _deferred(other) else function(self, other)

    def backward(self, other):
        return NotImplemented if _deferred(other) else function(other, self)

    def in_place(self, other):
        return function(self, other, self)

    setattr(ndarray, f"__{name}__", forward)
    setattr(ndarray, f"__r{name}__", backward)
    if name != "divmod":
        setattr(ndarray, f"__i{name}__", in_place)
    return forward


for name, ufunc in BINARY.items():
    _operators(name, UFUNCS[ufunc])
for name, ufunc in COMPARISONS.items():
    setattr(ndarray, f"__{name}__", functools.partialmethod(lambda x, f, y: f(x, y), UFUNCS[ufunc]))
for name, ufunc in {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}.items():
    setattr(ndarray, f"__{name}__", functools.partialmethod(lambda x, f: f(x), UFUNCS[ufunc]))


def _equal(self, other):
    if type(other).__eq__ is object.__eq__:  # None, Ellipsis and the like
        return creation.zeros(self.shape, bool)
    return UFUNCS["equal"](self, other)


def _matmul(self, other):
    return matmul(self, other)


def _copied(self, memo=None):
    with self.device:
        return creation.array(self)


ndarray.__eq__ = _equal
ndarray.__hash__ = None
ndarray.__matmul__ = _matmul
ndarray.__rmatmul__ = lambda self, other: matmul(other, self)
ndarray.__copy__ = ndarray.__deepcopy__ = _copied
ndarray.conjugate = ndarray.conj


# ---- NumPy's protocols -----------------------------------------------------------------------------------------------


def _array_ufunc(self, ufunc, method, *inputs, **options):
    if "out" in options:
        if len(options["out"]) != 1:
            raise ValueError("The 'out' parameter must have exactly one array value")
        options["out"] = options["out"][0]
    function = matmul if ufunc is np.matmul else UFUNCS.get(ufunc.__name__)
    if method != "__call__" or function is None:
        return NotImplemented
    if not all(isinstance(x, ndarray | np.ndarray | SCALARS) for x in inputs):
        return NotImplemented
    return function(*inputs, **options)


def _array_function(self, function, types, arguments, options):
    from .modules import CUPY

    module = function.__module__.split(".")[1:]
    try:
        found = getattr(functools.reduce(getattr, module, CUPY), function.__name__)
    except AttributeError:
        return NotImplemented
    if not all(kind in (ndarray, np.ndarray) for kind in types):
        return NotImplemented
    return found(*arguments, **options)


def _dlpack(self, *, stream=None, **options):
    raise NotImplementedError("stand-in: DLPack")


ndarray.__array_ufunc__ = _array_ufunc
ndarray.__array_function__ = _array_function
ndarray.__dlpack__ = _dlpack
ndarray.__dlpack_device__ = lambda self: (2, self._memory.device_id)
ndarray.__getstate__ = None
ndarray.__reduce__ = lambda self: (creation.array, (self.get(),))
