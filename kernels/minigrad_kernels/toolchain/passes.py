"""The way of a kernel through Numba's passes: those that kernels need, and no bookkeeping between them.

Numba has passes for closures, with, literal_unroll, raise and functions to be inlined, and describes each pass, for
listeners, before it runs. Of what compiling a kernel takes, that is a tenth. A function that needs more than these
passes do is refused by one of them, and Numba then takes it along its own way.
"""

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

__all__ = ["Pipeline"]

UNTYPED = (
    TranslateByteCode,
    FixupArgs,
    IRProcessing,
    RewriteSemanticConstants,
    DeadBranchPrune,
    GenericRewrites,
    ReconstructSSA,
)
TYPED = NopythonTypeInference, PreLowerStripPhis
CHECKED = NoPythonSupportedFeatureValidation, IRLegalization


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
        for kind in UNTYPED + TYPED:
            _run(kind, state)
        if _has_array_expressions(state):
            _run(NopythonRewrites, state)
        for kind in (*CHECKED, self.lowering, NoPythonBackend):
            _run(kind, state)


def _long(state, lowering):
    """Numba's own passes without its parallel loops."""
    builder, passes = compiler.DefaultPassBuilder, PassManager("minigrad")
    passes.passes.extend(builder.define_untyped_pipeline(state).passes)
    passes.passes.extend(builder.define_typed_pipeline(state).passes)
    for kind in (*CHECKED, lowering, NoPythonBackend):
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
