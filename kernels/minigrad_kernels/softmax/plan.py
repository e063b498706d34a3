"""How the losses of rows are added up, by their number alone, and the workspace that this takes."""

__all__ = ["ALIGNMENT", "FEW", "SMALL", "alone", "workspace"]

SMALL = 1 << 16  # elements; below it a second thread of a CPU costs more than it brings
FEW = 2048  # rows, whose losses fit on the stack of a thread
ALIGNMENT = 16  # bytes


def alone(rows, classes):
    """Whether cross_entropy_total is work for one thread of a CPU, and takes no workspace there."""
    return rows * classes < SMALL and rows <= FEW


def workspace(rows):
    """The bytes that cross_entropy_total wants for so many rows: their losses."""
    return 8 * rows + ALIGNMENT - 1
