"""The names that CuPy has, with the arguments of its functions: names.json, written from the real module.

python tests/standin/names.py writes it anew, with --print it only shows it; that needs CuPy installed, but no GPU. Of
each namespace it holds, by name:
    for a function     its parameters as Python writes them ("a, axis=None")
    for a ufunc        {"inputs": n, "outputs": n}
    for a whole number {"value": n}
    for a class        {"members": {name: parameters or null}}
    for anything else, and where CuPy does not say, null
"""

import ast
import functools
import importlib
import inspect
import json
import re
import sys
from pathlib import Path

FILE = Path(__file__).with_name("names.json")
PARTS = "device driver function memory nccl nvtx pinned_memory runtime stream".split()
NAMESPACES = "cupy", "cupy.linalg", "cupy.cuda", *(f"cupy.cuda.{part}" for part in PARTS), "cupyx"


def _parameters(function):
    """The parameters of a function as text, None if it does not say; "..." for a default that cannot be written."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        first = (function.__doc__ or "").strip().partition("\n")[0]
        found = re.fullmatch(r"[\w.]+\((.*)\)( -> .*)?", first)
        return _of_cython(found[1]) if found else None
    written = [
        p.replace(default=p.default if p.default is p.empty or _is_literal(repr(p.default)) else ...)
        for p in (p.replace(annotation=p.empty) for p in parameters)
        if p.name != "self"
    ]
    return str(inspect.Signature(written))[1:-1].replace("Ellipsis", "...")


def _of_cython(text):
    """Parameters of compiled code, without the types that stand before their names."""
    parts = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        declared, equals, default = part.partition("=")
        name = declared.split()[-1]
        if name not in ("self", "cls"):
            parts.append(name + equals + (default if _is_literal(default) else "..." * bool(equals)))
    return ", ".join(parts)


def _is_literal(text):
    try:
        ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _described(value, ufunc):
    if isinstance(value, ufunc):
        return {"inputs": value.nin, "outputs": value.nout}
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


def described():
    """What names.json should hold, from the CuPy that is installed."""
    import cupy

    found = {"version": cupy.__version__}
    for namespace in NAMESPACES:
        package, _, name = namespace.rpartition(".")
        try:
            module = importlib.import_module(namespace)
        except ModuleNotFoundError:  # the runtime and the driver are attributes
            module = getattr(importlib.import_module(package), name)
        if not getattr(module, "available", True):  # the library behind it is not installed
            found[namespace] = known()[namespace]
            continue
        names = [name for name in sorted(dir(module)) if not name.startswith("_")]
        found[namespace] = {name: _described(getattr(module, name), cupy.ufunc) for name in names}
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
