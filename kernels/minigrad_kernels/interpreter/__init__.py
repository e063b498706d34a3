"""Runs compiled kernels without a GPU: executes their PTX on NumPy arrays, finds faults, counts what they cost."""

from .array import Array, address, array, as_array, empty
from .launch import interpret, recording
from .report import Counts, Fault, Location, Report

__all__ = [
    "Array", "Counts", "Fault", "Location", "Report", "address", "array", "as_array", "empty", "interpret", "recording",
]  # fmt: skip
