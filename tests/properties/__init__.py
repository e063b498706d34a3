"""Random calls of every op beside its definition in NumPy: a Rule for each op, a file for each family.

tests/test_properties.py runs a few calls of each, tests/reliability/properties.py as many as one likes.
"""

import importlib
import pkgutil

__all__ = ["rules"]


def rules():
    """{name of an op: its Rule}"""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return {rule.name: rule for module in modules for rule in getattr(module, "RULES", ())}
