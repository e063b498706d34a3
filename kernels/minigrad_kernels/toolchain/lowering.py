"""Short LLVM IR for what kernels do most: loops over ranges, elements and rows of arrays, arithmetic of integers.

Numba lays each array and each range out in memory before it looks at one of its fields, and min is a loop over a tuple.
LLVM finds that out, so the machine code is the same, but a third of all instructions that Numba writes for kernels, and
LLVM reads and removes, are of this kind.
"""

import functools
import operator

from llvmlite import ir
from numba.core import cgutils, types, typing
from numba.core.registry import cpu_target

__all__ = ["choice_of", "without_references"]

SCALARS = types.Number, types.Boolean
RANGE, ITERATOR = types.range_state64_type, types.range_iter64_type
INT = ir.IntType(64)
PAIR = types.int64, types.int64
CHOICES = {min: "<", max: ">"}
DIVISIONS = {operator.floordiv: False, operator.ifloordiv: False, operator.mod: True, operator.imod: True}
ATTRIBUTES = {"shape": "shape", "size": "nitems"}  # names of fields


def without_references(context):
    """Numba's context for code that counts no references to arrays: callers hold all of them.

    Its tables are complete: without this, it looks for more of them at each thing that it does not find.
    """
    own = context.subtarget(enable_nrt=False, refresh=_nothing)
    numbas, attribute_of = own.get_function, own.get_getattr

    def get_function(function, signature, **options):
        """What emits the call of a function with these types, called with (builder, arguments)."""
        emit = _emitter(own, getattr(function, "typing_key", function), signature)
        if emit is None:
            return numbas(function, signature, **options)
        return lambda builder, arguments, place=None: emit(own, builder, signature, arguments)

    def get_getattr(kind, name):
        known = isinstance(kind, types.Array) and name in ATTRIBUTES
        return functools.partial(_attribute, ATTRIBUTES[name]) if known else attribute_of(kind, name)

    own.get_function, own.get_getattr, own.get_abi_sizeof = get_function, get_getattr, _bytes_of
    own.pair_first, own.pair_second = (functools.partial(_of_pair, position) for position in range(2))
    return own


def _nothing():
    return


@functools.cache
def _bytes_of(kind):
    """The size of a type; Numba has LLVM read a module for each time that it asks."""
    return kind.get_abi_size(cpu_target.target_context.target_data)


def _emitter(context, function, signature):
    """What emits a call; None leaves it to Numba."""
    kinds = signature.args
    if function is range and signature.return_type == RANGE:
        return _range if all(types.unliteral(kind) == types.int64 for kind in kinds) else None
    if function in CHOICES and kinds == PAIR:
        return functools.partial(_choice, CHOICES[function])
    if function in DIVISIONS and kinds == PAIR:
        return functools.partial(_divided, DIVISIONS[function])
    if function == "getiter" and kinds[0] == RANGE:
        return _iterator
    if function == "iternext" and kinds[0] == ITERATOR:
        return _next
    if function in (operator.getitem, operator.setitem) and not context.enable_boundscheck:
        if _is_element(*kinds):
            return _get if function is operator.getitem else _set
        return _view if function is operator.getitem and _is_view(*kinds) else None
    return None


# ---- ranges ----------------------------------------------------------------------------------------------------------


def _struct(context, builder, kind, *values):
    whole = ir.Constant(context.get_value_type(kind), ir.Undefined)
    for position, value in enumerate(values):
        whole = builder.insert_value(whole, value, position)
    return whole


def _range(context, builder, signature, arguments):
    """The fields are start, stop and step."""
    start, stop = (INT(0), *arguments) if len(arguments) == 1 else arguments[:2]
    return _struct(context, builder, RANGE, start, stop, arguments[2] if len(arguments) == 3 else INT(1))


def _iterator(context, builder, signature, arguments):
    """Where it stands, and how many are left, lie in memory: the fields are one place, stop, step, the other place."""
    found = arguments[0]
    start, stop, step = (builder.extract_value(found, position) for position in range(3))
    if isinstance(found, ir.instructions.InsertValue) and _positive(found.value):
        step, distance = found.value, builder.sub(stop, start)
        size, more = step, INT(step.constant - 1)
    else:
        with builder.if_then(builder.icmp_signed("==", step, INT(0)), likely=False):
            context.call_conv.return_user_exc(builder, ValueError, ("range() arg 3 must not be zero",))
        up = builder.icmp_signed(">", step, INT(0))
        distance, size = builder.sub(stop, start), builder.select(up, step, builder.neg(step))
        distance, more = builder.select(up, distance, builder.neg(distance)), builder.sub(size, INT(1))
    steps = builder.udiv(builder.add(distance, more), size)
    count = builder.select(builder.icmp_signed(">", distance, INT(0)), steps, INT(0))
    places = [cgutils.alloca_once(builder, INT) for _ in range(2)]
    for place, value in zip(places, (start, count), strict=True):
        builder.store(value, place)
    return _struct(context, builder, ITERATOR, places[0], stop, step, places[1])


def _positive(value):
    return isinstance(value, ir.Constant) and value.constant > 0


def _next(context, builder, signature, arguments):
    """The pair of the number and whether there is one; who has been told that there is none does not ask again."""
    place, step, left = (builder.extract_value(arguments[0], position) for position in (0, 2, 3))
    value, count = builder.load(place), builder.load(left)
    builder.store(builder.add(value, step), place)
    builder.store(builder.sub(count, INT(1), flags=["nsw"]), left)
    return _struct(context, builder, signature.return_type, value, builder.icmp_signed(">", count, INT(0)))


def _of_pair(position, builder, pair, kind):
    return builder.extract_value(pair, position)


# ---- arithmetic of integers ------------------------------------------------------------------------------------------


def choice_of(function, kinds):
    """The signature of min or max of two integers, None for anything else."""
    if function in CHOICES and tuple(map(types.unliteral, kinds)) == PAIR:
        return typing.signature(types.int64, *PAIR)
    return None


def _choice(sign, context, builder, signature, arguments):
    return builder.select(builder.icmp_signed(sign, *arguments), *arguments)


def _divided(remainder, context, builder, signature, arguments):
    """Quotient, rounded down, or remainder, which has the sign of the divisor; by 0 both are 0, as Numba has it."""
    number, divisor = arguments
    if fixed := _positive(divisor):
        shift = divisor.constant.bit_length() - 1
        if divisor.constant == 1 << shift:
            return builder.and_(number, INT(divisor.constant - 1)) if remainder else builder.ashr(number, INT(shift))
        by = divisor
    else:  # the processor divides nothing by 0, nor the least number by -1
        special = builder.icmp_unsigned("<=", builder.add(divisor, INT(1)), INT(1))
        by = builder.select(special, INT(1), divisor)
    quotient, rest = builder.sdiv(number, by), builder.srem(number, by)
    apart = builder.icmp_signed("<", builder.xor(rest, by), INT(0))
    above = builder.and_(builder.icmp_signed("!=", rest, INT(0)), apart)  # sdiv rounds towards 0
    if remainder:
        return builder.add(rest, builder.select(above, by, INT(0)))
    quotient = builder.sub(quotient, builder.zext(above, INT))
    return quotient if fixed else builder.select(special, builder.mul(number, divisor), quotient)


# ---- arrays ----------------------------------------------------------------------------------------------------------


def _ordered(array):
    return isinstance(array, types.Array) and array.layout == "C" and array.aligned and array.ndim > 0


def _is_element(array, index, *value):
    """Whether an array in C order is asked for one element by as many integers as it has dimensions."""
    integers = _indices(index)
    return (
        _ordered(array)
        and len(integers) == array.ndim
        and all(isinstance(kind, types.Integer) for kind in integers)
        and all(isinstance(kind, SCALARS) for kind in (array.dtype, *value))
    )


def _indices(kind):
    return kind.types if isinstance(kind, types.BaseTuple) else (kind,)


def _fields(context, builder, kind, array, *names):
    model = context.data_model_manager[kind]
    return [model.get(builder, array, name) for name in names]


def _attribute(field, context, builder, kind, array, name):
    """What x.shape and x.size are."""
    return _fields(context, builder, kind, array, field)[0]


def _address(context, builder, kind, array, index_kind, index):
    """Where the element lies; negative indices count from the end."""
    indices = cgutils.unpack_tuple(builder, index) if isinstance(index_kind, types.BaseTuple) else [index]
    (data, shape), at = _fields(context, builder, kind, array, "data", "shape"), None
    for axis, (integer, number) in enumerate(zip(_indices(index_kind), indices, strict=True)):
        size = builder.extract_value(shape, axis)
        number = _from_start(context, builder, integer, number, size)
        at = number if at is None else builder.add(builder.mul(at, size), number)
    return builder.gep(data, [at])


def _from_start(context, builder, kind, number, size):
    """An index of an axis, of which negative ones count from the end."""
    number = context.cast(builder, number, kind, types.intp if kind.signed else types.uintp)
    if not kind.signed or isinstance(number, ir.Constant) and number.constant >= 0:
        return number
    return builder.select(builder.icmp_signed("<", number, INT(0)), builder.add(number, size), number)


def _get(context, builder, signature, arguments):
    (kind, index_kind), (array, index) = signature.args, arguments
    return context.unpack_value(builder, kind.dtype, _address(context, builder, kind, array, index_kind, index))


def _set(context, builder, signature, arguments):
    (kind, index_kind, value_kind), (array, index, value) = signature.args, arguments
    value = context.cast(builder, value, value_kind, kind.dtype)
    context.pack_value(builder, kind.dtype, value, _address(context, builder, kind, array, index_kind, index))
    return context.get_dummy_value()


def _is_view(array, index):
    """Whether an array in C order is asked for one of its rows, or for x[a:b]."""
    several = isinstance(index, types.SliceType) and not index.has_step and not isinstance(index, types.Literal)
    return _ordered(array) and (several or isinstance(index, types.Integer) and array.ndim > 1)


def _view(context, builder, signature, arguments):
    (kind, index_kind), (array, index) = signature.args, arguments
    names = "meminfo", "parent", "itemsize", "data", "shape", "strides"
    owner, parent, itemsize, data, shape, strides = _fields(context, builder, kind, array, *names)
    shape, strides = (cgutils.unpack_tuple(builder, values, kind.ndim) for values in (shape, strides))
    row = functools.reduce(builder.mul, shape[1:], INT(1))
    if isinstance(index_kind, types.SliceType):
        first, count = _bounds(context, builder, index, shape[0])
        shape = [count, *shape[1:]]
    else:
        first, count = _from_start(context, builder, index_kind, index, shape[0]), INT(1)
        shape, strides = shape[1:], strides[1:]
    data, items = builder.gep(data, [builder.mul(first, row)]), builder.mul(count, row)
    shape, strides = (cgutils.pack_array(builder, values, INT) for values in (shape, strides))
    return _struct(context, builder, signature.return_type, owner, parent, items, itemsize, data, shape, strides)


def _bounds(context, builder, index, size):
    """The first place of a slice, and how many it has."""

    def bound(position):
        place = _from_start(context, builder, types.intp, builder.extract_value(index, position), size)
        place = builder.select(builder.icmp_signed("<", place, INT(0)), INT(0), place)
        return builder.select(builder.icmp_signed(">", place, size), size, place)

    first, end = bound(0), bound(1)
    count = builder.sub(end, first)
    return first, builder.select(builder.icmp_signed("<", count, INT(0)), INT(0), count)
