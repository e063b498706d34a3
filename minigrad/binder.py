"""How the arguments of a primitive are put in order, and those of its rules are found."""

import inspect
import operator

__all__ = ["PLAIN", "binder", "call_of"]

PLAIN = {int, float, bool, str, tuple, type(None)}  # what a tuple among arguments is mostly made of: no Tensors


def binder(name, signature):
    """A function that turns the arguments of a call into a tuple in the order of the signature.

    It is compiled once: Signature.bind would cost more than the rest of the tape.
    """
    defaults = {
        f"_{key}": parameter.default
        for key, parameter in signature.parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    declared = [
        f"{parameter.replace(default=inspect.Parameter.empty, annotation=inspect.Parameter.empty)}"
        + (f"=_{key}" if f"_{key}" in defaults else "")
        for key, parameter in signature.parameters.items()
    ]
    names = "".join(f"{key}, " for key in signature.parameters)
    namespace = dict(defaults)
    name = name if name.isidentifier() else "bind"  # of a lambda
    exec(f"def {name}({', '.join(declared)}):\n    return ({names})", namespace)
    return namespace[name]


def call_of(rule, wants):
    """(rule, what takes the values that it wants from a dictionary, whether that gives a tuple of them)."""
    if not wants:
        return rule, lambda values: (), True
    return rule, operator.itemgetter(*wants), len(wants) > 1
