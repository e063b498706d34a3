"""Labels that are out of range on a device that is not waited for.

A kernel that meets such a label makes its row NaN and writes row and label into the place's array `wrong`. The next
time that the host waits for the device, or looks at an array there, the error is raised and the array cleared, so the
device and the process stay as usable as before.
"""

from minigrad_kernels.errors import ShapeError
from minigrad_kernels.softmax import NO_WRONG_LABEL, wrong_label

__all__ = ["raise_wrong_label"]


def raise_wrong_label(word):
    """Raise what kernels wrote into the only element of a NumPy array, and clear it.

    Errors  ValueError with the row and the label
    """
    found = wrong_label(int(word[0]))
    if found is not None:
        word[0] = NO_WRONG_LABEL
        row, label = found
        raise ShapeError(
            f"cross_entropy: target[{row}] = {label} is not the number of a class; its loss and gradient are NaN "
            "(found when the device was waited for)"
        )
