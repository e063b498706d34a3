"""Short LLVM IR for what kernels do most: loops over ranges, and single elements of arrays.

Numba lays each array and each range out in memory before it looks at one of its fields. LLVM finds that out, so the
machine code is the same, but a third of all instructions that Numba writes, and LLVM reads and removes, are of this
kind.
"""

import operator

from llvmlite import ir
from numba.core import cgutils, types

__all__ = ["without_references"]

SCALARS = types.Number, types.Boolean
RANGE, ITERATOR = types.range_state64_type, types.range_iter64_type
INT = ir.IntType(64)


def without_references(context):
    """Numba's context for code that counts no references to arrays: callers hold all of them.

    Its tables are complete: without this, it looks for more of them at each thing that it does not find.
    """
    own = context.subtarget(enable_nrt=False, refresh=_nothing)
    numbas = own.get_function

    def get_function(function, signature, **options):
        """What emits the call of a function with these types, called with (builder, arguments)."""
        emit = _emitter(own, getattr(function, "typing_key", function), signature)
        if emit is None:
            return numbas(function, signature, **options)

        def call(builder, arguments, place=None):
            found = emit(own, builder, signature, arguments)
            return numbas(function, signature)(builder, arguments, place) if found is None else found

        return call

    own.get_function = get_function
    return own


def _nothing():
    return


def _emitter(context, function, signature):
    """What emits a call, or None at times, which leaves it to Numba; None where it would do so each time."""
    kinds = signature.args
    if function is range and signature.return_type == RANGE:
        return _range if len(kinds) < 3 and all(types.unliteral(kind) == types.int64 for kind in kinds) else None
    if function == "getiter" and kinds[0] == RANGE:
        return _iterator
    if function == "iternext" and kinds[0] == ITERATOR:
        return _next
    if function in (operator.getitem, operator.setitem) and _is_element(*kinds) and not context.enable_boundscheck:
        return _get if function is operator.getitem else _set
    return None


# ---- ranges ----------------------------------------------------------------------------------------------------------


def _struct(context, builder, kind, *values):
    whole = ir.Constant(context.get_value_type(kind), ir.Undefined)
    for position, value in enumerate(values):
        whole = builder.insert_value(whole, value, position)
    return whole


def _range(context, builder, signature, arguments):
    """range(stop) or range(start, stop): the fields are start, stop and step."""
    start, stop = arguments if len(arguments) == 2 else (INT(0), *arguments)
    return _struct(context, builder, RANGE, start, stop, INT(1))


def _iterator(context, builder, signature, arguments):
    """Where it stands and how many are left lie in memory; the fields are place of the one, stop, step, of the other.

    Only for a range that _range has made, whose step is 1.
    """
    found = arguments[0]
    if not isinstance(found, ir.instructions.InsertValue) or getattr(found.value, "constant", None) != 1:
        return None
    start, stop = (builder.extract_value(found, position) for position in range(2))
    many = builder.sub(stop, start)
    count = builder.select(builder.icmp_signed(">", many, INT(0)), many, INT(0))
    places = [cgutils.alloca_once(builder, INT) for _ in range(2)]
    for place, value in zip(places, (start, count), strict=True):
        builder.store(value, place)
    return _struct(context, builder, ITERATOR, places[0], stop, INT(1), places[1])


def _next(context, builder, signature, arguments):
    """The pair of the number and whether there is one; who has been told that there is none does not ask again."""
    place, step, left = (builder.extract_value(arguments[0], position) for position in (0, 2, 3))
    value, count = builder.load(place), builder.load(left)
    builder.store(builder.add(value, step), place)
    builder.store(builder.sub(count, INT(1), flags=["nsw"]), left)
    return _struct(context, builder, signature.return_type, value, builder.icmp_signed(">", count, INT(0)))


# ---- elements --------------------------------------------------------------------------------------------------------


def _is_element(array, index, *value):
    """Whether an array in C order is asked for one element by as many integers as it has dimensions."""
    if not isinstance(array, types.Array) or array.layout != "C" or not array.aligned:
        return False
    integers = _indices(index)
    return (
        len(integers) == array.ndim > 0
        and all(isinstance(kind, types.Integer) for kind in integers)
        and all(isinstance(kind, SCALARS) for kind in (array.dtype, *value))
    )


def _indices(kind):
    return kind.types if isinstance(kind, types.BaseTuple) else (kind,)


def _address(context, builder, kind, array, index_kind, index):
    """Where the element lies; negative indices count from the end."""
    model, kinds = context.data_model_manager[kind], _indices(index_kind)
    indices = cgutils.unpack_tuple(builder, index) if isinstance(index_kind, types.BaseTuple) else [index]
    shape, at = model.get(builder, array, "shape"), None
    for axis, (integer, number) in enumerate(zip(kinds, indices, strict=True)):
        size = builder.extract_value(shape, axis)
        number = context.cast(builder, number, integer, types.intp if integer.signed else types.uintp)
        if integer.signed and not (isinstance(number, ir.Constant) and number.constant >= 0):
            negative = builder.icmp_signed("<", number, INT(0))
            number = builder.select(negative, builder.add(number, size), number)
        at = number if at is None else builder.add(builder.mul(at, size), number)
    return builder.gep(model.get(builder, array, "data"), [at])


def _get(context, builder, signature, arguments):
    (kind, index_kind), (array, index) = signature.args, arguments
    return context.unpack_value(builder, kind.dtype, _address(context, builder, kind, array, index_kind, index))


def _set(context, builder, signature, arguments):
    (kind, index_kind, value_kind), (array, index, value) = signature.args, arguments
    value = context.cast(builder, value, value_kind, kind.dtype)
    context.pack_value(builder, kind.dtype, value, _address(context, builder, kind, array, index_kind, index))
    return context.get_dummy_value()
