"""The code between Python and a shared kernel: hands the shares to Numba's pool of threads, or does them in place."""

import inspect

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .compiler import Entry, Part

__all__ = ["entry_of"]


def entry_of(function):
    """The entry (door, threads, shares, arguments of the kernel) of a shared kernel.

    It is called for every share (number, shares) of the work: by threads of the pool whose door this is the address
    of, or one after another where it is 0.
    """
    names = ", ".join(list(inspect.signature(function).parameters)[1:])
    known = {"__name__": function.__module__, "_body": Part(function), "_spread": _spread}
    own = "_door, _threads, _shares"
    exec(f"def entry({own}, {names}):\n    _spread(_body, {own}, ({names},))\n", known)
    known["entry"].__qualname__ = known["entry"].__name__ = function.__name__
    return Entry(known["entry"], kept_as=function)


@intrinsic
def _spread(typing_context, body, door, threads, shares, arguments):
    team = types.UniTuple(types.intp, 2)
    call = body.get_call_type(typing_context, (team, *arguments.types), {})
    if call.return_type != types.none:
        return None
    kernel = body.dispatcher.overloads[call.args]

    def generate(context, builder, signature, values):
        context.active_code_library.add_linking_library(kernel.library)
        _, door, threads, shares, arguments = values
        work = cgutils.pack_struct(builder, [shares, arguments])
        callback = _callback(context, builder, kernel, call, work.type)
        _call(context, builder, callback, (door, threads, shares), work)
        return context.get_dummy_value()

    return types.none(body, types.intp, types.intp, types.intp, arguments), generate


BYTES = ir.IntType(8).as_pointer()


def _callback(context, builder, kernel, call, work_type):
    """A function for the pool, f(places, counts, steps, work): does the shares from the number that it finds on.

    The pool steps through arrays that it is given for each share; the only one here has elements of one byte and
    begins where the work does, so its place says which share it is.
    """
    number = context.get_value_type(types.intp)
    kind = ir.FunctionType(ir.VoidType(), [BYTES.as_pointer(), number.as_pointer(), number.as_pointer(), BYTES])
    function = ir.Function(builder.module, kind, name=f"{builder.function.name}.shares")
    function.linkage = "internal"
    places, counts, _, work = function.args
    inside = ir.IRBuilder(function.append_basic_block())
    first = inside.sub(inside.ptrtoint(inside.load(places), number), inside.ptrtoint(work, number))
    whole = inside.load(inside.bitcast(work, work_type.as_pointer()))
    shares, arguments = (inside.extract_value(whole, index) for index in range(2))
    arguments = [inside.extract_value(arguments, index) for index in range(len(call.args) - 1)]
    body = context.declare_function(builder.module, kernel.fndesc)
    with cgutils.for_range(inside, inside.load(counts), intp=number) as loop:
        team = cgutils.pack_array(inside, [inside.add(first, loop.index), shares])
        # Kernels raise nothing, so there is no status to look at.
        context.call_conv.call_function(inside, body, call.return_type, call.args, [team, *arguments])
    inside.ret_void()
    return function


def _call(context, builder, callback, settings, work):
    door, threads, shares = settings
    number = context.get_value_type(types.intp)

    def place_of(value):
        place = cgutils.alloca_once_value(builder, value)
        return place, builder.bitcast(place, BYTES)

    _, work = place_of(work)
    (places, any_places), (counts, any_counts), (steps, any_steps) = map(place_of, (work, shares, number(1)))
    with builder.if_else(builder.icmp_signed("==", door, number(0))) as (alone, together):
        with alone:
            builder.call(callback, [places, counts, steps, work], attrs=("noinline",))
        with together:
            kind = ir.FunctionType(ir.VoidType(), [BYTES] * 5 + [number] * 3)
            pool = builder.inttoptr(door, kind.as_pointer())
            function = builder.bitcast(callback, BYTES)
            dimensions, arrays = number(0), number(1)
            builder.call(pool, [function, any_places, any_counts, any_steps, work, dimensions, arrays, threads])
