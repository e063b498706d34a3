"""Memory that kernels reach beside their arguments."""

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .cpu import jit

__all__ = ["add", "array_at", "clear", "copy", "flat", "stack_array"]


@intrinsic
def _pointer(typing_context, address, like):
    """The address, an int64, as a pointer to elements of the type that the array `like` has."""
    if not isinstance(address, types.Integer) or not isinstance(like, types.Array):
        return None
    pointer = types.CPointer(like.dtype)

    def generate(context, builder, signature, values):
        return builder.inttoptr(values[0], context.get_value_type(pointer))

    return pointer(address, like), generate


@jit
def array_at(address, size, like):
    """The `size` elements at an address, an int64, as a 1-D array typed as `like`. For use in kernels."""
    return numba.carray(_pointer(address, like), (size,))


@intrinsic
def flat(typing_context, array):
    """A C-contiguous array as a 1-D one. For use in kernels, where reshape takes ten times as long to compile."""
    if not isinstance(array, types.Array) or array.layout != "C":
        return None
    from numba.np.arrayobj import make_array, populate_array

    array_type = types.Array(array.dtype, 1, "C")

    def generate(context, builder, signature, values):
        whole, flat = make_array(array)(context, builder, values[0]), make_array(array_type)(context, builder)
        shape, step = [whole.nitems], [whole.itemsize]
        populate_array(flat, data=whole.data, shape=shape, strides=step, itemsize=whole.itemsize, meminfo=None)
        return flat._getvalue()

    return array_type(array), generate


@intrinsic(prefer_literal=True)
def stack_array(typing_context, size, like, used=None):
    """A 1-D array of `size` elements (a literal number) typed as `like`, not cleared. For use in kernels.

    It lives on the stack of the function that asks for it, until that function returns. With `used`, an integer from
    0 to size, the array has only the first so many: a slice of it takes longer to compile.
    """
    whole = used in (None, types.none) or isinstance(used, types.Omitted)
    if not isinstance(size, types.IntegerLiteral) or not isinstance(like, types.Array):
        return None
    from numba.np.arrayobj import make_array, populate_array  # slow to import, and only compilation needs it

    array_type, count = types.Array(like.dtype, 1, "C"), size.literal_value

    def generate(context, builder, signature, values):
        element = context.get_data_type(like.dtype)
        with builder.goto_entry_block():  # alloca_once of Numba would clear it, one element after the other
            memory = builder.alloca(ir.ArrayType(element, count))
        memory.align = 64  # a cache line: a vector that lies across two of them is slow to read back
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(element))
        array = make_array(array_type)(context, builder)
        data = builder.bitcast(memory, element.as_pointer())
        shape = [context.get_constant(types.intp, count) if whole else values[2]]
        populate_array(array, data=data, shape=shape, strides=[itemsize], itemsize=itemsize, meminfo=None)
        return array._getvalue()

    return array_type(size, like, types.none if whole else types.intp), generate


# Plain loops: an assignment to a slice takes long to compile, and between arrays it may take memory of Numba's.


@jit
def clear(array):
    """Zeros into a 1-D array. For use in kernels."""
    for k in range(array.size):
        array[k] = 0


@jit
def add(x, total):
    """Add a 1-D array to another of that size. For use in kernels."""
    for k in range(x.size):
        total[k] += x[k]


@jit
def copy(source, target):
    """The elements of a 1-D array into the first ones of another. For use in kernels."""
    for k in range(source.size):
        target[k] = source[k]
