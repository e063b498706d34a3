"""Memory that kernels reach beside their arguments."""

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .cpu import jit


def _array(context, builder, dtype, data, count):
    """A 1-D array of Numba over memory that somebody else holds."""
    from numba.np.arrayobj import make_array, populate_array  # slow to import, and only compilation needs it

    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(dtype)))
    array = make_array(types.Array(dtype, 1, "C"))(context, builder)
    populate_array(array, data=data, shape=[count], strides=[itemsize], itemsize=itemsize, meminfo=None)
    return array._getvalue()


@intrinsic
def array_at(typing_context, address, size, like):
    """The `size` elements at an address, an int64, as a 1-D array typed as `like`. For use in kernels."""
    if not isinstance(address, types.Integer) or not isinstance(like, types.Array):
        return None

    def generate(context, builder, signature, values):
        data = builder.inttoptr(values[0], context.get_data_type(like.dtype).as_pointer())
        return _array(context, builder, like.dtype, data, values[1])

    return types.Array(like.dtype, 1, "C")(types.int64, types.intp, like), generate


@intrinsic
def flat(typing_context, array):
    """A C-contiguous array as a 1-D one. For use in kernels, where reshape takes ten times as long to compile."""
    if not isinstance(array, types.Array) or array.layout != "C":
        return None

    def generate(context, builder, signature, values):
        whole = context.make_array(array)(context, builder, values[0])
        return _array(context, builder, array.dtype, whole.data, whole.nitems)

    return types.Array(array.dtype, 1, "C")(array), generate


@intrinsic(prefer_literal=True)
def stack_array(typing_context, size, like, used=None):
    """A 1-D array of `size` elements (a literal number) typed as `like`, not cleared. For use in kernels.

    It lives on the stack of the function that asks for it, until that function returns. With `used`, an integer from
    0 to size, the array has only the first so many: a slice of it takes longer to compile.
    """
    whole = used in (None, types.none) or isinstance(used, types.Omitted)
    if not isinstance(size, types.IntegerLiteral) or not isinstance(like, types.Array):
        return None

    def generate(context, builder, signature, values):
        element = context.get_data_type(like.dtype)
        with builder.goto_entry_block():  # alloca_once of Numba would clear it, one element after the other
            memory = builder.alloca(ir.ArrayType(element, size.literal_value))
        memory.align = 64  # a cache line: a vector that lies across two of them is slow to read back
        count = context.get_constant(types.intp, size.literal_value) if whole else values[2]
        return _array(context, builder, like.dtype, builder.bitcast(memory, element.as_pointer()), count)

    return types.Array(like.dtype, 1, "C")(size, like, types.none if whole else types.intp), generate


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
def sum_rows(rows, out):
    """Add up the rows of a matrix in their order, in the first of them, and write the sums in the type of out."""
    for k in range(1, len(rows)):
        add(rows[k], rows[0])
    copy(rows[0], out)


@jit
def copy(source, target):
    """The elements of a 1-D array into the first ones of another. For use in kernels."""
    for k in range(source.size):
        target[k] = source[k]
