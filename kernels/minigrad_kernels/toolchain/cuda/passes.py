"""What Numba's LLVM IR lacks for code as good as CUDA C's, added between Numba and the CUDA compiler.

restrict   no pointer argument overlaps another one, so that loads need not wait for stores
loops      the unroll marks become metadata of the loops that they stand in
names      the kernel's own name
"""

import re

from llvmlite import ir
from llvmlite.ir import values

from .intrinsics import UNROLL

__all__ = ["loops", "names", "restrict"]


def restrict(function):
    """Promise that memory reached through one pointer argument is reached through no other."""
    for argument in function.args:
        if isinstance(argument.type, ir.PointerType):
            argument.add_attribute("noalias")


def _successors(block):
    return [operand for operand in block.terminator.operands if isinstance(operand, ir.Block)]


def _back_edges(function):
    """(end, header) of every loop: edges to a block on the path that the depth-first walk has taken to it."""
    edges, on_path, done = [], [], set()

    def branches(block):
        on_path.append(block)
        return block, iter(_successors(block))

    stack = [branches(function.entry_basic_block)]
    while stack:
        block, rest = stack[-1]
        following = next(rest, None)
        if following is None:
            done.add(stack.pop()[0])
            on_path.pop()
        elif following in on_path:
            edges.append((block, following))
        elif following not in done:
            stack.append(branches(following))
    return edges


def _bodies(function):
    """{(end, header): the blocks of the loop}"""
    before = {}
    for block in function.blocks:
        for following in _successors(block):
            before.setdefault(following, []).append(block)
    bodies = {}
    for end, header in _back_edges(function):
        body, waiting = {header}, [end]
        while waiting:
            block = waiting.pop()
            if block not in body:
                body.add(block)
                waiting += before.get(block, [])
        bodies[end, header] = body
    return bodies


def _marks(function):
    """(block, mark, count) of every unroll mark."""
    for block in function.blocks:
        for instruction in block.instructions:
            name = getattr(getattr(instruction, "callee", None), "name", "")
            if name.startswith(UNROLL):
                yield block, instruction, int(name[len(UNROLL) :])


def _hint(module, count):
    """Metadata of a loop. Its first operand is itself, which tells it from the metadata of all other loops."""
    name = {0: "llvm.loop.unroll.full", 1: "llvm.loop.unroll.disable"}.get(count, "llvm.loop.unroll.count")
    option = module.add_metadata([name] if count < 2 else [name, ir.IntType(32)(count)])
    hint = values.MDValue(module, (option,), name=str(len(module.metadata)))
    hint.operands = (hint, option)
    return hint


def loops(module):
    """Replace every unroll mark by metadata of the innermost loop around it."""
    for function in module.functions:
        marks = [] if function.is_declaration else list(_marks(function))
        bodies = _bodies(function) if marks else {}
        for block, mark, count in marks:
            around = [edge for edge, body in bodies.items() if block in body]
            if around:  # none: the front end itself has unrolled the loop
                end, _ = min(around, key=lambda edge: len(bodies[edge]))
                end.terminator.set_metadata("llvm.loop", _hint(module, count))
            block.instructions.remove(mark)
    for name in [name for name in module.globals if name.startswith(UNROLL)]:
        del module.globals[name]


def names(text, entry, name):
    """IR under the kernel's own name, without Numba's environment.

    The lines of the source stay, but not where its variables live: on those libnvvm 13.0 now and then loses a label.
    """
    text = text.replace(entry, name)
    return re.sub(r'^@"?_ZN08NumbaEnv.*\n|^.*call void @"llvm\.dbg\..*\n', "", text, flags=re.MULTILINE)
