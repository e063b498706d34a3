"""Arrays as communication sees them: their elements in the order of memory, without gaps, on the host or not."""

from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import is_dense

from .. import device
from ..core.tape import write
from ..core.tensor import Tensor

__all__ = ["flat_of", "words"]


def flat_of(op, name, array, changed=True):
    """A view of the elements of an array or a leaf Tensor, one after another as they lie in memory.

    changed     whether they will be written, which a Tensor must know
    Errors      TypeError for what is neither, ValueError where memory has gaps, RuntimeError for a Tensor with history
    """
    if isinstance(array, Tensor):
        array = write(array) if changed else array.array
    if not device.is_array(array):
        raise KindError(f"{op}: {name} is a {type(array).__name__}, wanted an array or a Tensor")
    if not device.can_hold_a_sum(array) and (changed or not is_dense(array, device.order_of(array))):
        raise ShapeError(f"{op}: {name} (shape {array.shape}) is read-only or has gaps, wanted a dense array")
    return array.transpose(device.order_of(array)).reshape(-1)


def words(array):
    """Element type, shape and, unless it is C's, the order of the axes in memory: what ranks must have in common."""
    array = array.array if isinstance(array, Tensor) else array
    order = device.order_of(array)
    plain = order == tuple(range(array.ndim)) or array.flags.c_contiguous
    return f"{array.dtype} {array.shape}".replace(" ", "") + ("" if plain else f"in{order}".replace(" ", ""))
