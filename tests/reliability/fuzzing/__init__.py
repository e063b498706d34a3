"""Readers of files, and what is tried on each: valid files, mutations of them, the errors that may leave.

tests/reliability/fuzz.py runs these under atheris; tests/reliability/test_fuzzing.py runs a few hundred mutations of
each, and every input that has ever brought out another error.
"""

from .files import FILES
from .states import STATES

__all__ = ["TARGETS"]

TARGETS = {target.name: target for target in (*FILES, *STATES)}
