"""How the losses of rows are added up, by their number alone, and the workspace that this takes."""

__all__ = ["ALIGNMENT", "FEW", "READY_CLASSES", "READY_ROWS", "SHARE", "SMALL", "alone", "parts", "workspace"]

SMALL = 1 << 16  # elements; below it a second thread of a CPU costs more than it brings
FEW = 2048  # rows, whose losses fit on the stack of a thread
READY_CLASSES, READY_ROWS = 128, 4096  # at most, where a GPU computes gradients with the losses
SHARE = 4096  # rows that one block of a GPU adds up
ALIGNMENT = 16  # bytes


def alone(rows, classes):
    """Whether cross_entropy_total is work for one thread of a CPU, and takes no workspace there."""
    return rows * classes < SMALL and rows <= FEW


def parts(rows):
    """Into how many parts a GPU cuts the rows, at least one."""
    return max(1, -(-rows // SHARE))


def workspace(rows):
    """The bytes that cross_entropy_total wants for so many rows: their losses, and two numbers for each part."""
    return 8 * (rows + 2 * parts(rows)) + ALIGNMENT - 1
