"""The way of a kernel through Numba's passes: those that kernels need, and no bookkeeping between them.

Numba has passes for closures, with, literal_unroll, raise and functions to be inlined, and describes each pass, for
listeners, before it runs. Of what compiling a kernel takes, that is a tenth. A function that needs more than these
passes do is refused by one of them, and Numba then takes it along its own way.

Two more things are left out. Where no references are counted, nobody asks where a variable dies. And what an operator
gives for some types is looked up once, though kernels ask three times in four for what has been asked before, and what
min and max of two integers give not at all.
"""

import operator

from numba.core import compiler, ir, types
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import (
    IRLegalization,
    NoPythonBackend,
    NopythonRewrites,
    NoPythonSupportedFeatureValidation,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import (
    DeadBranchPrune,
    FixupArgs,
    GenericRewrites,
    IRProcessing,
    ReconstructSSA,
    RewriteSemanticConstants,
    TranslateByteCode,
)

from .lowering import choice_of

__all__ = ["Pipeline", "count_references"]

UNTYPED = (
    TranslateByteCode,
    FixupArgs,
    IRProcessing,
    RewriteSemanticConstants,
    DeadBranchPrune,
    GenericRewrites,
    ReconstructSSA,
)


class Pipeline:
    """Takes a function the short way, and where that does not do, the long one.

    lowering    the pass that makes code, into what library() gives for each way
    """

    pipeline_name = "minigrad"

    def __init__(self, lowering, library):
        self.lowering, self.library, self.exec_times = lowering, library, {}

    def run(self, state):
        state.library = self.library()
        try:
            self._short(state)
        except Exception:  # the function needs more, or Numba says better what is wrong with it
            state.library, state.func_ir = self.library(), None
            _long(state, self.lowering).run(state)

    def _short(self, state):
        for kind in UNTYPED:
            _run(kind, state)
        _infer_types(state)
        _run(PreLowerStripPhis, state)
        if _has_array_expressions(state):
            _run(NopythonRewrites, state)
        for kind in (NoPythonSupportedFeatureValidation, self.lowering, NoPythonBackend):
            _run(kind, state)


class _Operators:
    """A typing context of Numba's that remembers what operators give, and knows what min and max of integers do."""

    known: dict = {}  # (operator, types) -> signature; nearly all are numbers, or elements of arrays

    def __init__(self, context):
        self.context = context

    def __getattr__(self, name):
        return getattr(self.context, name)

    def resolve_function_type(self, function, arguments, keywords):
        key = getattr(function, "typing_key", function)
        if not keywords and (choice := choice_of(key, arguments)):
            return choice
        if keywords or not _is_operator(key):
            return self.context.resolve_function_type(function, arguments, keywords)
        asked = function, tuple(arguments)
        if asked not in self.known:
            found = self.context.resolve_function_type(function, arguments, keywords)
            if found is None:
                return None
            self.known[asked] = found
        return self.known[asked]


def _is_operator(function):
    return getattr(function, "__module__", None) == operator.add.__module__


def _infer_types(state):
    context = state.typingctx
    state.typingctx = _Operators(context)
    try:
        _run(NopythonTypeInference, state)
    finally:
        state.typingctx = context


def count_references(state):
    """Find where variables die: code that counts references to arrays asks for that."""
    if not any(True for block in state.func_ir.blocks.values() for _ in block.find_insts(ir.Del)):
        _run(IRLegalization, state)


def _long(state, lowering):
    """Numba's own passes without its parallel loops."""
    builder, passes = compiler.DefaultPassBuilder, PassManager("minigrad")
    passes.passes.extend(builder.define_untyped_pipeline(state).passes)
    passes.passes.extend(builder.define_typed_pipeline(state).passes)
    for kind in (NoPythonSupportedFeatureValidation, IRLegalization, lowering, NoPythonBackend):
        passes.add_pass(kind, kind.__name__)
    passes.finalize()
    return passes


def _run(kind, state):
    found = kind()
    found.analysis = {RewriteSemanticConstants: None, DeadBranchPrune: None}  # which pruning asks for
    found.run_pass(state)


def _has_array_expressions(state):
    """Whether an array is made by operators or by a call of NumPy's: Numba makes one loop of several."""
    kinds = state.typemap
    for block in state.func_ir.blocks.values():
        for assign in block.find_insts(ir.Assign):
            value = assign.value
            if isinstance(value, ir.Expr) and isinstance(kinds.get(assign.target.name), types.Array):
                if value.op in ("unary", "binop", "inplace_binop") or value.op == "call" and _of_numpy(kinds, value):
                    return True
    return False


def _of_numpy(kinds, call):
    function = kinds.get(call.func.name)
    module = getattr(getattr(function, "typing_key", None), "__module__", None) or "numpy"  # ufuncs have none
    return isinstance(function, types.Function) and module.partition(".")[0] == "numpy"
