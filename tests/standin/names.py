"""The names that CuPy has, with the arguments of its functions: names.json, written from the real module.

python tests/standin/names.py writes it anew, with --print it only shows it; that needs CuPy installed, but no GPU. Of
each namespace it holds, by name:
    for a function     its parameters as Python writes them ("a, axis=None")
    for a ufunc        {"types": [...]}; loops that end in "!" are there to refuse
    for a whole number {"value": n}
    for a class        {"members": {name: parameters or null}}
    for anything else, and where CuPy does not say, null
and besides what its arrays say of themselves, as looks.py asks them.
"""

import ast
import functools
import importlib
import inspect
import json
import re
import sys
from pathlib import Path

__all__ = ["NAMESPACES", "described", "known", "signature"]

FILE = Path(__file__).with_name("names.json")
NAMESPACES = (
    "cupy", "cupy.linalg", "cupy.random", "cupy.cuda", "cupy.cuda.device", "cupy.cuda.driver", "cupy.cuda.function",
    "cupy.cuda.memory", "cupy.cuda.nccl", "cupy.cuda.nvtx", "cupy.cuda.pinned_memory", "cupy.cuda.runtime",
    "cupy.cuda.stream", "cupy.lib.stride_tricks", "cupyx",
)  # fmt: skip
UNKNOWN = "..."  # stands for a default that cannot be written down


def _parameters(function):
    """The parameters of a function as text, None if it does not say."""
    try:
        return _written(list(inspect.signature(function).parameters.values()))
    except (TypeError, ValueError):
        first = (function.__doc__ or "").strip().partition("\n")[0]
        found = re.fullmatch(r"[\w.]+\((.*)\)( -> .*)?", first)
        return _of_cython(found[1]) if found else None


def _written(parameters):
    parts, starred = [], False
    for position, parameter in enumerate(parameters):
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        plain = isinstance(parameter.default, str | int | float | bool | None | tuple)
        default = "" if parameter.default is parameter.empty else f"={repr(parameter.default) if plain else UNKNOWN}"
        parts.append(stars + parameter.name + default)
        following = parameters[position + 1 :]
        if parameter.kind is parameter.POSITIONAL_ONLY and not any(p.kind is p.POSITIONAL_ONLY for p in following):
            parts.append("/")
    return ", ".join(parts)


def _of_cython(text):
    """Parameters of compiled code, without the types that stand before their names."""
    parts = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        declared, equals, default = part.partition("=")
        name = declared.split()[-1]
        if name not in ("self", "cls"):
            parts.append(name + equals + (default if _is_literal(default) else UNKNOWN[: 3 * bool(equals)]))
    return ", ".join(parts)


def _is_literal(text):
    try:
        ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _described(value, ufunc):
    if isinstance(value, ufunc):
        refused = [op.error_func is not None for op in value._ops.ops]
        return {"types": [loop + "!" * bad for loop, bad in zip(value.types, refused, strict=True)]}
    if inspect.isclass(value) and value.__module__.startswith(("cupy", "cupyx")):
        members = {name: getattr(value, name, None) for name in dir(value)}
        return {
            "members": {name: _parameters(m) if callable(m) else None for name, m in members.items() if _ours(name)}
        }
    if type(value) is int:
        return {"value": value}
    return _parameters(value) if callable(value) and not inspect.isclass(value) else None


def _ours(name):
    return not name.startswith("_") or re.fullmatch(r"__(array|cuda|dlpack)\w*__", name)


def _module(namespace):
    """A namespace, which need not be a module that can be imported: the runtime and the driver are attributes."""
    package, _, name = namespace.rpartition(".")
    try:
        return importlib.import_module(namespace)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(package), name)


def described():
    """What names.json should hold, from the CuPy that is installed."""
    import cupy

    found = {"version": cupy.__version__}
    for namespace in NAMESPACES:
        module = _module(namespace)
        if not getattr(module, "available", True):  # the library behind it is not installed
            found[namespace] = known()[namespace]
            continue
        names = [name for name in sorted(dir(module)) if not name.startswith("_")]
        found[namespace] = {name: _described(getattr(module, name), cupy.ufunc) for name in names}
    sys.path.insert(0, str(Path(__file__).parent))
    from looks import outcomes

    memory = cupy.cuda.UnownedMemory(4096, 1024, None, 0)  # nothing there is ever looked at
    found["looks"] = outcomes(cupy, cupy.cuda.MemoryPointer(memory, 0))
    return found


@functools.cache
def known():
    return json.loads(FILE.read_text())


@functools.cache
def signature(parameters):
    """The inspect.Signature of parameters as text."""
    space = {}
    exec(f"def function({parameters}): pass", space)  # of names.json, which this repository holds
    return inspect.signature(space["function"])


if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    text = json.dumps(described(), indent=0) + "\n"
    print(text, end="") if "--print" in sys.argv else FILE.write_text(text)
