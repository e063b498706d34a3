"""CuPy's functions: where nothing else is said, NumPy's of that name on the memory beneath, with CuPy's arguments.

What CuPy's own function does not take (where=, initial=, subok= ...) is refused with TypeError, as are arrays of the
host. Calls of what NVIDIA's libraries compute are counted by name.
"""

import inspect

import numpy as np

from .arrays import check, fresh, like_views, ndarray, plain, store
from .graphs import capturing, recorded
from .machine import current
from .names import known, signature

__all__ = ["LIBRARY", "bound", "derived", "refuse_host"]

LIBRARY = {"dot", "einsum", "inner", "kron", "matmul", "outer", "tensordot", "vdot"}
FREE = {  # functions whose first argument need not be an array
    "arange", "bartlett", "blackman", "broadcast_shapes", "can_cast", "common_type", "einsum", "eye", "geomspace",
    "hamming", "hanning", "identity", "indices", "iscomplexobj", "isrealobj", "isscalar", "issubdtype", "ix_",
    "kaiser", "linspace", "logspace", "meshgrid", "mintypecode", "ndim", "promote_types", "result_type", "shape",
    "size", "tri", "tril_indices", "triu_indices", "typename", "where", "min_scalar_type", "iterable", "isfortran",
}  # fmt: skip
WAITS = {  # the host waits for these: it needs values, for the shape of the result or to check them
    "argwhere", "compress", "extract", "flatnonzero", "histogram", "nonzero", "repeat", "setdiff1d",
    "sliding_window_view", "trim_zeros", "union1d", "unique", "unique_values",
}  # fmt: skip
ARRAYS = {"allclose", "array_equal", "array_equiv", "count_nonzero"}  # give 0-d arrays where NumPy gives numbers


def bound(name, parameters, arguments, options):
    """The given arguments by their names; TypeError for others than CuPy's function has."""
    try:
        return signature(parameters).bind(*arguments, **options)
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None


def refuse_host(name, values):
    """CuPy converts no array of the host by itself."""
    for value in values:
        if isinstance(value, np.ndarray):
            raise TypeError(f"Unsupported type {type(value)} (stand-in, in {name}: send it by cupy.asarray)")
        if type(value) in (list, tuple):
            refuse_host(name, value)


def arrays_in(values):
    """The arrays among arguments and in the lists among them."""
    for value in values:
        if isinstance(value, ndarray):
            yield value
        elif type(value) in (list, tuple):
            yield from arrays_in(value)


def _for_numpy(function, call):
    """(arguments, options) of a call in the names that NumPy has for them."""
    if any(p.kind is p.VAR_POSITIONAL for p in call.signature.parameters.values()):
        return [plain(a) for a in call.args], {name: plain(value) for name, value in call.kwargs.items()}
    theirs = list(inspect.signature(function).parameters.values())
    named = {p.name for p in theirs if p.kind is not p.POSITIONAL_ONLY}
    arguments, options = [], {}
    for position, name in enumerate(call.signature.parameters):
        if name not in call.arguments:
            continue
        value = call.arguments[name]
        if call.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            options |= value
        elif position == 0 or theirs[min(position, len(theirs) - 1)].kind is inspect.Parameter.POSITIONAL_ONLY:
            arguments.append(value)
        else:
            options[name if name in named else theirs[position].name] = value
    return [plain(a) for a in arguments], {name: plain(value) for name, value in options.items()}


def derived(name, function, parameters, label=""):
    """CuPy's function of a name, computed by NumPy's."""
    label = label or name

    def call(*arguments, **options):
        given = bound(name, parameters, arguments, options)
        values = [*given.args, *given.kwargs.values()]
        refuse_host(label, values)
        found = list(arrays_in(values))
        if not found and name not in FREE and "." not in label:
            first = next(iter(values), None)
            raise TypeError(f"Unsupported type {type(first)} (stand-in, in {label}: wants an array of CuPy)")
        check(label, *found)
        _count(name, label)
        out, kind = given.arguments.pop("out", None), None
        if name in ("argmax", "argmin"):
            kind = given.arguments.pop("dtype", None)
        theirs, named = _for_numpy(function, given)
        if name == "take":
            named["mode"] = "wrap"
        if name == "take_along_axis":
            named["indices"] = named["indices"] % theirs[0].shape[named["axis"]]
        with np.errstate(all="ignore"):
            result = function(*theirs, **named)
        if name in ARRAYS:
            result = np.asarray(result)
        if kind is not None:
            result = result.astype(kind)
        return like_views(result, found) if out is None else _into(out, result)

    call.__name__, call.__module__ = name, "cupy"
    return recorded(call)


def _count(name, label):
    machine = current()
    if name in LIBRARY or "." in label:
        if capturing():
            raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")
        machine.library[label] += 1
    if name in WAITS:
        machine.wait(label)


def _into(out, result):
    result = np.asarray(result)
    if not isinstance(out, ndarray):
        raise TypeError("Output arguments type must be cupy.ndarray")
    if out.shape != result.shape:
        raise ValueError(f"Out shape is mismatched: {out.shape}, wants {result.shape}")
    if not np.can_cast(result.dtype, out.dtype, "same_kind"):
        raise TypeError(f"Cannot cast from {result.dtype} to {out.dtype} with casting rule 'same_kind'")
    store(out, result.astype(out.dtype, copy=False))
    return out


def find(name):
    """CuPy's function or value of a name: None if the stand-in has nothing for it."""
    told = known()["cupy"][name]
    numpys = getattr(np, name, None)
    if isinstance(told, str) and callable(numpys):
        return derived(name, numpys, told)
    alike = isinstance(numpys, type | float) or name in ("s_", "index_exp")  # modules and mgrid would work on the host
    return numpys if alike else None


@recorded
def matmul(a, b, out=None, **options):
    """The product of matrices, by cuBLAS."""
    for position, operand in zip("ab", (a, b), strict=True):
        if not isinstance(operand, ndarray):
            kind = f"{type(operand).__module__}.{type(operand).__name__}"
            raise TypeError(
                f"Argument '{position}' has incorrect type (expected cupy._core.core._ndarray_base, got {kind})"
            )
    if options.keys() - {"axes", "axis", "keepdims", "casting", "dtype", "signature", "order"}:
        raise TypeError(f"Wrong arguments {options}")
    check("matmul", a, b, *[out] * (out is not None))
    _count("matmul", "matmul")
    with np.errstate(all="ignore"):
        result = np.matmul(a._x, b._x, **options)
    return fresh(result) if out is None else _into(out, result)
