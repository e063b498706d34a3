"""The workspace of sums over the rows of a matrix, which are split by its shape alone, as bias/plan.py says."""

from ..bias.plan import cut

__all__ = ["workspace"]

ALIGNMENT = 16  # bytes: what 128-bit accesses want


def workspace(count, channels):
    """The bytes that any device wants: two sums of float64 for each part, and room to move to the alignment."""
    parts = cut(count, channels).parts if count else 0
    return 16 * parts * channels + ALIGNMENT - 1
