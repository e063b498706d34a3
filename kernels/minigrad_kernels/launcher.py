"""What a launcher takes, stated once: its arrays by shape, element type and order in memory, and its settings.

    @launcher(x=reads("rows K+"), out=writes("rows K"), eps=number)
    def standardize(x, eps, out):
        ...
        return kernel

From the statement come the checks of a call and their messages, the float32 copies of arrays of 16 bits, and what
kernels see of arrays. The function below it is a plan: it is called with arguments that fit, and gives the function
that runs all calls whose arrays lie like these, with the arguments in the same order. Plans are kept by the layouts of
the arrays and by sizes, so a step that repeats itself does not look twice. Other settings are looked at in each call.

A shape is letters, alternatives with | between them: a letter stands for one size in all arrays of a call, with + for
at least 1, and * for all axes of an array. Element types are names of NumPy's, alternatives with a space between them,
or FLOAT, SUMS, EITHER.

Where there are no kernels for arrays of 16 bits, float16 and bfloat16, the launcher is called again with float32 copies
of all arrays declared FLOAT, and what it wrote is rounded back, once: to nearest, ties to even. So sums are float32
whatever goes in.

`workspace`, where a launcher has such an argument, is a function (bytes, array): it gives so many bytes on the device
of the array, from a multiple of 16 on, as a pool does. Kernels ask it for what they need besides their arguments.
"""

import functools
import inspect
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from .errors import KindError, ShapeError
from .layout import CHANNELS_LAST, FILTER, c_order, in_memory_order, order_of
from .toolchain import alias, backend, implementation

MOST = 1024  # plans of a launcher
LIMIT = 1 << 31  # sizes, strides and paddings are 32-bit inside kernels
COUNTED = LIMIT - 1024  # elements that threads, of whole blocks, can number with 32 bits
SINGLE = np.dtype(np.float32)
FLOATS = (SINGLE, np.dtype(np.float64))
USABLE = 0x100 | 0x400  # of the flags of NumPy's arrays: NPY_ARRAY_ALIGNED and NPY_ARRAY_WRITEABLE

FLOAT = "float"  # one floating type for all arrays declared so
SUMS = "sums"  # of FLOAT arrays, and of statistics and parameters beside them: float32 beside 16 bits
EITHER = "either"  # FLOAT, or SUMS for results that are not rounded
ANY, C_ORDER = (), "C order"  # orders in memory: whatever the strides are; that of the axes, however many
ORDERS = {
    CHANNELS_LAST: "channels last (memory order N, H, W, C)",
    FILTER: "filter layout (memory order P, Q, C, O)",
}


# ---- what is declared ------------------------------------------------------------------------------------------------


class Array(NamedTuple):
    """What a launcher says of arrays; reads, writes and updates make it."""

    role: str  # r, w or rw
    names: str  # with ? behind them: or None; with * before them: lists of such arrays
    shape: str | None  # None: the plan looks at it
    dtype: str = FLOAT
    order: tuple | str | None = None  # axes, slowest in memory first; None: channels last of four axes, else C order
    counted: bool = False  # whether threads of a GPU number its elements, with 32 bits


reads, writes, updates = (functools.partial(Array, role) for role in ("r", "w", "rw"))


class Size(NamedTuple):
    """A setting on which plans depend, by a function (op, name, value)."""

    of: Callable


def number(op, name, value):
    """A setting that is a number."""
    return float(value)


def _flag(op, name, value):
    if type(value) is not bool:
        raise KindError(f"{op}: {name} is {value!r}, wants True or False")
    return value


flag = Size(_flag)  # a setting that is True or False


def whole(least=-1 << 63, limit=1 << 63):
    """A setting that is an integer of at least `least` and less than `limit`."""

    def checked(op, name, value):
        if type(value) is not int and (isinstance(value, bool) or not isinstance(value, int | np.integer)):
            raise KindError(f"{op}: {name} is {value!r}, wants an integer")
        if not least <= value < limit:
            raise ShapeError(f"{op}: {name} is {value}, wants {least} to {limit - 1}")
        return int(value)

    return Size(checked)


def pair(least):
    """A setting that is (vertical, horizontal), from one integer or two, each at least `least`."""

    def checked(op, name, value):
        values = value if isinstance(value, tuple | list) else (value, value)
        if len(values) != 2 or not all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in values):
            raise KindError(f"{op}: {name} is {value!r}, wants an integer or a pair of integers")
        if not all(least <= v < LIMIT for v in values):
            raise ShapeError(f"{op}: {name} is {value}, wants at least {least} and less than {LIMIT}")
        return value if type(value) is tuple else tuple(map(int, values))

    return Size(checked)


# ---- what kernels see of arrays --------------------------------------------------------------------------------------


def pixels(array, order):
    """Images as C-contiguous (N, H, W, C)."""
    return (lambda a: a.transpose(0, 2, 3, 1)) if array.ndim == 4 else None  # faster than by CHANNELS_LAST


def matrix(array, order):
    """Images as the rows of a matrix of C columns, pixel by pixel."""
    columns = array.shape[1] if array.ndim == 4 else 0
    return (lambda a: a.transpose(0, 2, 3, 1).reshape(-1, columns)) if array.ndim == 4 else None


def flat(array, order):
    """All elements in the order of memory."""
    return (lambda a: a.reshape(-1)) if order == c_order(array.ndim) else lambda a: a.transpose(order).reshape(-1)


# ---- checks ----------------------------------------------------------------------------------------------------------


def is_half(dtype):
    """Whether an element type is float16 or bfloat16."""
    return dtype.itemsize == 2 and (dtype.kind == "f" or dtype.name == "bfloat16")


def check(op, name, array, like, dtypes, shape=None, order=None, writes=False):
    """Refuse what is no array of the kind of `like`, of one of these types, this shape and this order in memory.

    order: as in Array, or a function of the array that gives it
    """
    _check_type(op, name, array, like, dtypes)
    if shape is not None:
        wants_shape(op, name, array, shape)
    _check_memory(op, name, array, _axes(array, order), writes)


def _axes(array, order):
    """The order in memory that is declared for an array, as axes."""
    if order == C_ORDER or (order is None and array.ndim != 4):
        return c_order(array.ndim)
    if callable(order):
        return order(array)
    return CHANNELS_LAST if order is None else order


def wants_shape(op, name, array, wanted):
    """Refuse an array of another shape."""
    if array.shape != wanted:
        raise ShapeError(f"{op}: {name} has shape {array.shape}, wants {wanted}")


def _check_type(op, name, array, like, dtypes, hint=""):
    if type(array) is not type(like):
        got, wanted = (f"{type(one).__module__}.{type(one).__qualname__}" for one in (array, like))
        raise KindError(f"{op}: {name} is {got}, wants {wanted}")
    if array.dtype not in dtypes:
        raise KindError(f"{op}: {name} has type {array.dtype}, wants {' or '.join(map(str, dtypes))}{hint}")


def _check_memory(op, name, array, order, writes):
    if order and not array.transpose(order).flags.c_contiguous:
        wanted = ORDERS.get(order) or f"no gaps and axes in the order {order}"
        got = f"{name} has strides {array.strides} (shape {array.shape})"
        raise ShapeError(f"{op}: {got}, wants {'C order' if order == c_order(array.ndim) else wanted}; pass a copy")
    if not getattr(array.flags, "aligned", True):  # arrays of CuPy always are, and can be written
        raise ShapeError(f"{op}: {name} lies at an address that is no multiple of its element; pass a copy")
    if writes and not getattr(array.flags, "writeable", True):
        raise ShapeError(f"{op}: {name} is read-only, wants an array to write to")


def _text(form, sizes):
    axes = [str(sizes.get(letter.rstrip("+"), letter.rstrip("+"))) for letter in form]
    return f"({axes[0]},)" if len(axes) == 1 else f"({', '.join(axes)})"


def _bind(op, name, array, declared, sizes):
    """Refuse a shape that is not as declared where letters have these sizes, and note those of its other letters."""
    if declared is None:
        return None
    if declared == "*":
        return wants_shape(op, name, array, sizes.setdefault("*", array.shape))
    forms = [form.split() for form in declared.split("|")]
    for form in forms:
        if len(form) == array.ndim:
            found = {letter.rstrip("+"): size for letter, size in zip(form, array.shape, strict=True)}
            least = all(size or letter[-1] != "+" for letter, size in zip(form, array.shape, strict=True))
            if least and all(sizes.get(letter, size) == size for letter, size in found.items()):
                sizes.update(found)
                return None
    wanted = " or ".join(_text(form, sizes) for form in forms)
    ones = ", ".join(letter[:-1] for letter in forms[-1] if "+" in letter)
    raise ShapeError(f"{op}: {name} has shape {array.shape}, wants {wanted}{ones and f' with {ones} at least 1'}")


# ---- calls -----------------------------------------------------------------------------------------------------------


def layouts_of(arrays, like):
    """All that checks look at, of each array such as `like`, or None; CuPy's are always aligned and can be written."""
    if isinstance(like, ndarray):
        return tuple(
            [a if a is None else (a.__class__, a.shape, a.strides, a.dtype, a.flags.num & USABLE) for a in arrays]
        )
    return tuple([a if a is None else (a.__class__, a.shape, a.strides, a.dtype) for a in arrays])


def launcher(*arrays, op=None, view=pixels, under=(), native=None, **settings):
    """A decorator for plans.

    arrays      Array
    op          what the messages call it; its own name where None
    view        what kernels see of arrays: pixels, matrix, flat; None: the arrays themselves
    under       functions without arguments: modes on which plans depend
    native      called with the arguments of a call in 16 bits: whether there are kernels for it
    settings    functions (op, name, value) that give a setting as kernels want it
    """

    def decorated(plan):
        contract = _Contract(plan, op or plan.__name__, view, native, arrays, settings)
        make = _launch_of_lists if contract.lists else _launch
        contract.launch = functools.update_wrapper(make(contract, under), plan)
        contract.launch.contract = contract
        return contract.launch

    return decorated


def _launch(contract, under):
    """The function that finds the plan of a call and runs it: what each launch costs the host is here."""
    op, first, settings, bind, arrays = contract.op, contract.first, contract.settings, contract.bind, contract.of
    sizes = contract.sizes and itemgetter(*[k for k, _, _ in contract.sizes])
    plans, planned, run, rests = contract.plans, contract.planned, contract.run, contract.rests

    def launch(*arguments, **named):
        rest = None if named else rests.get(len(arguments))
        given = bind(arguments, named) if rest is None else [*arguments, *rest]
        for k, name, setting in settings:
            given[k] = setting(op, name, given[k])
        try:
            key = layouts_of(arrays(given), given[first])
            if sizes:
                key = key, sizes(given)
            if under:
                key = key, *[mode() for mode in under]
            plan = plans.get(key)
        except (AttributeError, TypeError):  # something is no array or no number, as checks may say
            key = plan = None
        run(plan or planned(key, given), given)

    return launch


def _launch_of_lists(contract, under):
    """The function that looks at the type of lists of arrays, which have plans of their own."""

    def launch(*arguments, **named):
        given = contract.bind(arguments, named)
        arrays = given[contract.first]
        half = len(arrays) and is_half(getattr(arrays[0], "dtype", SINGLE))
        (contract.widened if half else contract.plan)(*given)

    return launch


class _Contract:
    """A launcher's statement, and the plans of the calls that fit it.

    A plan is (sizes, views, run): sizes are lists of (position, name, function, setting that it has seen), views of
    (position, function).
    """

    launch: Any

    def __init__(self, plan, op, view, native, arrays, settings):
        self.plan, self.op, self.view, self.native = plan, op, view, native
        self.signature = inspect.signature(plan)
        self.names = list(self.signature.parameters)
        defaults = [parameter.default for parameter in self.signature.parameters.values()]
        required = defaults.count(inspect.Parameter.empty)
        self.rests = {n: defaults[n:] for n in range(required, len(defaults) + 1)}  # what n arguments leave out
        at = self.names.index
        named = [(name, array) for array in arrays for name in array.names.split()]
        self.arrays = [(at(name.strip("*?")), name.strip("*?"), array) for name, array in named]
        self.optional = {at(name.strip("*?")) for name, _ in named if name.endswith("?")}
        self.lists = any(name.startswith("*") for name, _ in named)
        others = [(at(name), name, setting) for name, setting in settings.items()]
        self.sizes = [(k, name, setting.of) for k, name, setting in others if isinstance(setting, Size)]
        self.settings = [other for other in others if not isinstance(other[2], Size)]
        places = [k for k, _, _ in self.arrays]
        self.of, self.first = itemgetter(*places), min(places)
        self.plans = {}

    def bind(self, arguments, named):
        """All arguments in the order of the launcher's."""
        if named or len(arguments) not in self.rests:  # seldom
            bound = self.signature.bind(*arguments, **named)  # which says what is missing or unknown
            bound.apply_defaults()
            arguments = bound.args
        return [*arguments, *self.rests[len(arguments)]]

    def run(self, plan, given):
        sizes, views, run = plan
        for k, name, setting, size in sizes:
            if given[k] is not size:  # 1 == True == 1.0, but they are not all right
                given[k] = setting(self.op, name, given[k])
        for k, view in views:
            given[k] = view(given[k])
        run(*given)

    def planned(self, key, given):
        """The plan of a call, after all checks; it is kept unless key is None."""
        for k, name, size in self.sizes:
            given[k] = size(self.op, name, given[k])
        dtype, orders = self._check(given)
        plan = self._wide(given, orders) if dtype is not None and is_half(dtype) else self._narrow(given, orders)
        if key is not None:
            if len(self.plans) >= MOST:
                self.plans.clear()
            self.plans[key] = plan
        return plan

    def _float(self, given):
        """(name, array) of the first FLOAT array, of a list its first one; (None, None) where there is none."""
        for k, name, declared in self.arrays:
            if declared.dtype == FLOAT and given[k] is not None:
                return name, given[k][0] if self.lists else given[k]
        return None, None

    def _check(self, given):
        """Refuse arrays that are not as declared; the type of FLOAT arrays, and the order in memory of each array."""
        like, sizes, orders = given[self.first], {str(size): size for size in (1, 2)}, {}
        on_gpu = backend(like) == "cuda"
        first, array = self._float(given)
        dtype = sums = getattr(array, "dtype", None)
        if dtype is not None and is_half(dtype):
            sums = SINGLE
        elif first is not None:
            _check_type(self.op, first, array, like, FLOATS)
        known = {FLOAT: (dtype,), SUMS: (sums,), EITHER: (dtype, sums)[: 1 + (sums != dtype)]}
        for k, name, declared in self.arrays:
            array, order = given[k], declared.order
            if array is None and k in self.optional:
                continue
            types = known.get(declared.dtype) or [*map(np.dtype, declared.dtype.split())]
            hint = (
                f"; convert one, as by {first}.to('{getattr(array, 'dtype', '')}')" if declared.dtype in known else ""
            )
            _check_type(self.op, name, array, like, types, hint)
            _bind(self.op, name, array, declared.shape, sizes)
            if on_gpu and declared.counted and array.size >= COUNTED:
                got = f"{name} has shape {array.shape}"
                raise ShapeError(f"{self.op}: {got}, wants less than {COUNTED} elements; split it")
            if declared.shape == "*" and order is None:
                order = order_of(like)
            orders[k] = _axes(array, order)
            _check_memory(self.op, name, array, orders[k], "w" in declared.role)
        return dtype, orders

    def _narrow(self, given, orders):
        """The plan that kernels for the type of the arrays run."""
        run, first = self.plan(*given), given[self.first]
        if run is None:
            run = implementation(self.plan.__module__, self.plan.__name__, first)
        return self._sizes(given), [*self._views(given, orders)] if self.view else [], run

    def _sizes(self, given):
        return [(*size, given[size[0]]) for size in self.sizes]

    def _views(self, given, orders):
        for k, _, declared in self.arrays:
            if k in orders:
                view = self.view(given[k], orders[k])
                if declared.role == "r" and not getattr(given[k].flags, "writeable", True):
                    view = _aliased(view)
                if view is not None:
                    yield k, view

    # ---- 16 bits ----

    def _wide(self, given, orders):
        """The plan for arrays of 16 bits: copies, unless `native` says that there are kernels for a call."""
        plan = None

        def run(*arguments):
            nonlocal plan
            if not (self.native and self.native(*arguments)):
                return self.widened(*arguments)
            given = list(arguments)
            plan = plan or self._narrow(given, orders)
            return self.run(plan, given)

        return self._sizes(given), [], run

    def widened(self, *arguments):
        """Call the launcher with float32 copies, whatever `native` says."""
        given, results = [*arguments], []
        dtype = self._float(given)[1].dtype
        with np.errstate(all="ignore"):  # what is too large for float16 becomes infinite, without a warning
            for k, name, declared in self.arrays:
                if declared.dtype in (FLOAT, EITHER):
                    given[k] = self._copy(name, given[k], declared, dtype, results)
            self.launch(*given)
            for array, copy in results:
                _write(array, copy)

    def _copy(self, name, array, declared, dtype, results):
        """A float32 copy of an array, or of a list of them; results: pairs of what is written and its copy."""
        if isinstance(array, list):
            return [self._copy(f"{name}[{k}]", one, declared, dtype, results) for k, one in enumerate(array)]
        if array is None or (declared.dtype == EITHER and array.dtype == SINGLE):
            return array
        _check_type(self.op, name, array, array, (dtype,))
        copy = np.empty_like(array, SINGLE)
        if "r" in declared.role:
            _write(copy, array)
        if "w" in declared.role:
            results.append((array, copy))
        return copy


def _aliased(view):
    return alias if view is None else lambda a: alias(view(a))


def _write(target, array):
    target, array = in_memory_order(target, array)
    target[...] = array
