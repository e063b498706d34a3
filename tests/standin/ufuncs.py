"""cupy.ufunc: CuPy's loops (names.json), chosen as it chooses them, computed by NumPy's ufunc of that name."""

import numpy as np

from .arrays import check, dtype_of, fresh, ndarray, store
from .graphs import recorded
from .names import known

__all__ = ["SCALARS", "UFUNCS", "ufunc"]

SCALARS = bool | int | float | complex | np.generic


class ufunc:
    """One elementwise function."""

    def __init__(self, name, types, function=None):
        self.name, self.__name__, self.types = f"cupy_{name}", name, list(types)
        self._loops = [tuple(loop.split("->")) for loop in types if "V" not in loop]
        self.nin, self.nout = (len(side.rstrip("!")) for side in self._loops[0])
        self.nargs = self.nin + self.nout
        self._numpys = function or getattr(np, name)

    def __repr__(self):
        return f"<ufunc '{self.name}'>"

    @recorded
    def __call__(self, *arguments, out=None, dtype=None, casting="same_kind", **others):
        if others:
            raise TypeError(f"Wrong arguments {others}")
        if not self.nin <= len(arguments) <= self.nargs:
            raise TypeError(
                f"Wrong number of arguments for {self.name!r}. It must be either {self.nin} or {self.nargs} (with "
                f"outputs), but given {len(arguments)}."
            )
        outs = self._outputs(arguments[self.nin :], out)
        arguments = arguments[: self.nin]
        for argument in arguments:
            if not isinstance(argument, ndarray | SCALARS):
                raise TypeError(f"Unsupported type {type(argument)}")
        check(self.__name__, *arguments, *outs)
        values = [a._x if isinstance(a, ndarray) else a for a in arguments]
        takes, gives = self._loop(values, dtype)
        with np.errstate(all="ignore"):
            results = self._compute(values, takes)
        results = [r.astype(kind, copy=False) for r, kind in zip(results, gives, strict=True)]
        made = [self._give(result, target, casting) for result, target in zip(results, outs, strict=True)]
        return made[0] if self.nout == 1 else tuple(made)

    def _outputs(self, positional, out):
        if out is not None and positional:
            raise ValueError("Cannot specify 'out' as both a positional and keyword argument")
        if out is not None:
            positional = out if isinstance(out, tuple) else (out,)
        for target in positional:
            if target is not None and not isinstance(target, ndarray):
                raise TypeError("Output arguments type must be cupy.ndarray")
        return [*positional, *[None] * (self.nout - len(positional))]

    def _loop(self, values, dtype):
        """The types of a loop: the first to which the arguments can be cast safely, Python's numbers by kind."""
        if dtype is not None:
            wanted = dtype_of(dtype).char
            found = (loop for loop in self._loops if loop[1][0] == wanted)
        else:
            fits = lambda takes: all(_fits(value, kind, values) for value, kind in zip(values, takes, strict=True))
            found = (loop for loop in self._loops if fits(loop[0]))
        takes, gives = next(found, (None, "!"))
        if not gives.endswith("!"):
            return takes, gives
        raise TypeError(f"Wrong type ({[getattr(v, 'dtype', type(v)) for v in values]}) of arguments for {self.name}")

    def _compute(self, values, takes):
        cast = [
            np.asarray(value, kind) if _is_pythons(value) else value.astype(kind, copy=False)
            for value, kind in zip(values, takes, strict=True)
        ]
        found = self._numpys(*cast)
        return [np.asarray(part) for part in (found if self.nout > 1 else (found,))]

    def _give(self, result, target, casting):
        if target is None:
            return fresh(result)
        if target.shape != np.broadcast_shapes(result.shape, target.shape):
            raise ValueError("Out shape is mismatched")
        if not np.can_cast(result.dtype, target.dtype, casting):
            raise TypeError(
                f"Cannot cast ufunc '{self.name}' output from {result.dtype} to {target.dtype} with casting rule "
                f"'{casting}'"
            )
        store(target, result.astype(target.dtype, copy=False))
        return target

    # ---- methods -----------------------------------------------------------------------------------------------------

    def reduce(self, array, axis=0, dtype=None, out=None, keepdims=False):
        method = {"add": "sum", "multiply": "prod"}.get(self.__name__)
        if method is None:
            raise NotImplementedError(f"`{self.name}.reduce` is not supported yet")
        return getattr(array, method)(axis, dtype, out, keepdims)

    def accumulate(self, array, axis=0, dtype=None, out=None):
        method = {"add": "cumsum", "multiply": "cumprod"}.get(self.__name__)
        if method is None:
            raise NotImplementedError(f"`{self.name}.accumulate` is not supported yet")
        return getattr(array, method)(axis, dtype, out)

    def outer(self, a, b, **options):
        return self(a.reshape(a.shape + (1,) * b.ndim), b, **options)

    def at(self, a, indices, b=None):
        method = {"add": "scatter_add", "maximum": "scatter_max", "minimum": "scatter_min"}.get(self.__name__)
        if method is None:
            raise NotImplementedError(f"`{self.name}.at` is not supported yet")
        getattr(a, method)(indices, b)


ufunc.__module__ = "cupy._core._kernel"


def _is_pythons(value):
    """Whether a number is Python's own: its type adapts to the arrays beside it."""
    return type(value) in (bool, int, float, complex)


def _fits(value, kind, values):
    """Whether an argument can be cast to the type of a loop; Python's numbers adapt to the arrays beside them."""
    if _is_pythons(value):
        typed = [v.dtype for v in values if not _is_pythons(v)]
        if not typed:
            return np.can_cast(np.asarray(value).dtype, kind)
        return np.can_cast(np.result_type(*typed, value), kind)
    return np.can_cast(value.dtype, kind)


UFUNCS = {
    name: ufunc(name, told["types"])
    for name, told in known()["cupy"].items()
    if isinstance(told, dict) and "types" in told and hasattr(np, name)
}
