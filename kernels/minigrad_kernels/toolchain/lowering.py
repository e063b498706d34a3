"""LLVM code of kernels, in fewer instructions than Numba would write for LLVM to remove.

Numba keeps a variable that several blocks use on the stack, copies an array's seven fields there for each element that
is read or written, clears what is not used any more, so that references are counted once, and divides to see how often
a loop runs. Kernels count no references, and most of what they do is loops over elements: here a variable that is set
once is a value, an element takes the fields that it needs, and a loop with a positive step counts.
"""

from numba.core import cgutils, types
from numba.core.analysis import compute_cfg_from_blocks, compute_use_defs
from numba.core.ir import Assign, Expr
from numba.core.ir_utils import get_definition, guard
from numba.core.lowering import Lower as NumbaLower

__all__ = ["Lower"]

NUMBERS = types.Integer, types.Float, types.Boolean
FIELDS = {"size": "nitems", "shape": "shape", "strides": "strides"}  # attributes of an array, and where they lie


class _Values(NumbaLower):
    """A variable that is set once, in a block that all its uses come from, is a value."""

    def _find_singly_assigned_variable(self):
        super()._find_singly_assigned_variable()
        if self.context.enable_nrt:
            return
        places, dominators = compute_use_defs(self.blocks), compute_cfg_from_blocks(self.blocks).dominators()
        counts, uses = {}, {}
        for label, block in self.blocks.items():
            for assign in block.find_insts(Assign):
                counts.setdefault(assign.target.name, []).append(label)
            for name in places.usemap[label]:
                uses.setdefault(name, []).append(label)
        self._singly_assigned_vars = {
            name
            for name, (place, *more) in counts.items()
            if not more and all(place != use and place in dominators[use] for use in uses.get(name, ()))
        }

    def loadvar(self, name):
        if not self.context.enable_nrt and name not in self._blk_local_varmap:
            self._singly_assigned_vars.discard(name)  # its block comes later
        return super().loadvar(name)

    def delvar(self, name):
        if self.context.enable_nrt:
            super().delvar(name)

    def storevar(self, value, name, argidx=None):
        if self.context.enable_nrt or argidx is not None or name in self._singly_assigned_vars:
            super().storevar(value, name, argidx)
        else:
            self._alloca_var(name, self.typeof(name))
            self.builder.store(value, self.getvar(name))


class Lower(_Values):
    """Numba's lowering; where references are counted, just that."""

    def lower_expr(self, resty, expr):
        lower = None if self.context.enable_nrt else getattr(self, f"_{expr.op}", None)
        found = lower and lower(resty, expr)
        return super().lower_expr(resty, expr) if found is None else found

    def lower_inst(self, inst):
        name = type(inst).__name__
        if self.context.enable_nrt or name not in ("SetItem", "StaticSetItem") or not self._set(inst):
            super().lower_inst(inst)

    def _field(self, value, kind, name):
        place = self.context.data_model_manager[kind].get_field_position(name)
        return self.builder.extract_value(value, place)

    # ---- arrays ----------------------------------------------------------------------------------------------------

    def _getattr(self, resty, expr):
        kind, field = self.typeof(expr.value.name), FIELDS.get(expr.attr)
        return self._field(self.loadvar(expr.value.name), kind, field) if type(kind) is types.Array and field else None

    def _getitem(self, resty, expr):
        return self._element(expr.value, expr.index)

    def _static_getitem(self, resty, expr):
        return self._element(expr.value, expr.index_var)

    def _element(self, array, index):
        kind = self.typeof(array.name)
        place = self._place(array, kind, index)
        return place and self.context.unpack_value(self.builder, kind.dtype, place, None if kind.aligned else 1)

    def _set(self, inst):
        """Write an element, if that is what the instruction does; whether it is."""
        kind, source = self.typeof(inst.target.name), self.typeof(inst.value.name)
        index = inst.index if type(inst).__name__ == "SetItem" else inst.index_var
        place = self._place(inst.target, kind, index) if isinstance(source, NUMBERS) else None
        if place is not None:
            value = self.context.cast(self.builder, self.loadvar(inst.value.name), source, kind.dtype)
            self.context.pack_value(self.builder, kind.dtype, value, place, None if kind.aligned else 1)
        return place is not None

    def _place(self, array, kind, index):
        """A pointer to an element; None where the index asks for more, or for something else."""
        if type(kind) is not types.Array or index is None or self.context.enable_boundscheck:
            return None
        index_kind = self.typeof(index.name)
        tuples = isinstance(index_kind, types.BaseTuple)
        kinds = index_kind.types if tuples else (index_kind,)
        plain = isinstance(kind.dtype, NUMBERS) and all(isinstance(one, types.Integer) for one in kinds)
        if not plain or len(kinds) != kind.ndim:
            return None
        builder, whole, given = self.builder, self.loadvar(array.name), self.loadvar(index.name)
        values = cgutils.unpack_tuple(builder, given, kind.ndim) if tuples else [given]
        sizes, steps = (cgutils.unpack_tuple(builder, self._field(whole, kind, name)) for name in ("shape", "strides"))
        indices = [self._inside(*one) for one in zip(values, kinds, sizes, strict=True)]
        data = self._field(whole, kind, "data")
        return cgutils.get_item_pointer2(self.context, builder, data, sizes, steps, kind.layout, indices)

    def _inside(self, value, kind, size):
        """An index, of a type that may be negative counted from the end then."""
        value = self.context.cast(self.builder, value, kind, types.intp if kind.signed else types.uintp)
        if not kind.signed:
            return value
        below = self.builder.icmp_signed("<", value, value.type(0))
        return self.builder.select(below, self.builder.add(value, size), value)

    # ---- loops -----------------------------------------------------------------------------------------------------

    def _getiter(self, resty, expr):
        step = self._step(expr.value)
        if not step:
            return None
        builder, (start, stop) = self.builder, cgutils.unpack_tuple(self.builder, self.loadvar(expr.value.name), 3)[:2]
        number = start.type
        distance = builder.sub(stop, start)
        count = distance if step == 1 else builder.sdiv(builder.sub(distance, number(1)), number(step))
        count = count if step == 1 else builder.add(count, number(1))
        count = builder.select(builder.icmp_signed(">", distance, number(0)), count, number(0))
        fields = {"stop": stop, "step": number(step)}
        for name, value in ("iter", start), ("count", count):
            fields[name] = cgutils.alloca_once(builder, number)
            builder.store(value, fields[name])
        model, made = self.context.data_model_manager[resty], self.context.get_value_type(resty)(None)
        for name, value in fields.items():
            made = builder.insert_value(made, value, model.get_field_position(name))
        return made

    def _step(self, variable):
        """The step of a range, if it is written where the range is, and positive; else 0."""
        if not isinstance(self.typeof(variable.name), types.RangeType):
            return 0
        call = guard(get_definition, self.func_ir, variable)
        if not isinstance(call, Expr) or call.op != "call" or call.kws or call.vararg is not None:
            return 0
        if getattr(self.typeof(call.func.name), "typing_key", None) is not range:
            return 0
        step = 1 if len(call.args) < 3 else getattr(self.typeof(call.args[2].name), "literal_value", 0)
        return max(0, step)

    def _iternext(self, resty, expr):
        kind = self.typeof(expr.value.name)
        if not isinstance(kind, types.RangeIteratorType):
            return None
        builder, state = self.builder, self.loadvar(expr.value.name)
        place, left, step = (self._field(state, kind, name) for name in ("iter", "count", "step"))
        value, count = builder.load(place), builder.load(left)
        builder.store(builder.sub(count, count.type(1), flags=["nsw"]), left)
        builder.store(builder.add(value, step), place)
        found = self.context.get_value_type(resty)(None)
        found = builder.insert_value(found, value, 0)
        return builder.insert_value(found, builder.icmp_signed(">", count, count.type(0)), 1)

    def _pair_first(self, resty, expr):
        return self.builder.extract_value(self.loadvar(expr.value.name), 0)

    def _pair_second(self, resty, expr):
        return self.builder.extract_value(self.loadvar(expr.value.name), 1)
