"""Small changes to a source file, one at a time: what tests of it should notice.

Compared, added and multiplied otherwise; numbers and truth values that are others; conditions that are negated,
branches that are swapped; statements that are left out; arguments that are dropped. Texts, annotations, decorators and
the bodies of kernels, which Numba compiles, stay as they are.
"""

import ast
from typing import NamedTuple

__all__ = ["Mutant", "mutants"]

PAIRS = [(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)]
PAIRS += [(ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.BitAnd, ast.BitOr), (ast.And, ast.Or)]
SWAPPED = {old: new for pair in PAIRS for old, new in (pair, pair[::-1])}
SWAPPED |= dict.fromkeys((ast.Pow, ast.FloorDiv, ast.Mod), ast.Mult)
ASIDE = ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert  # of which nothing inside is changed
KEPT = "annotation", "returns", "decorator_list", "format_spec"
COMPILED = {"jit", "njit", "device", "kernel", "line", "loop", "shared", "emitted", "intrinsic"}  # decorators


class Mutant(NamedTuple):
    """A change: where it stands, what it is, and the bytes of the file that it puts others in place of."""

    file: str
    lines: tuple  # (of the expression, of its statement, of the function around it): the first and the last of each
    scope: str  # the function or class
    change: str
    span: tuple
    text: str

    @property
    def key(self):
        """What names the change as long as only the code around it moves."""
        return f"{self.file} {self.scope}: {self.change}"

    def applied(self, source):
        start, end = self.span
        return source[:start] + self.text.encode() + source[end:]


def _others(node):
    """What may stand in place of a node."""
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Compare(ops=[one, *rest]):
            yield ast.Compare(node.left, [SWAPPED[type(one)](), *rest], node.comparators)
        case ast.BinOp(op=op) if type(op) in SWAPPED:
            yield ast.BinOp(node.left, SWAPPED[type(op)](), node.right)
        case ast.BoolOp(op=op):
            yield ast.BoolOp(SWAPPED[type(op)](), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.IfExp():
            yield ast.IfExp(node.test, node.orelse, node.body)
        case ast.Call(args=args, keywords=words):
            for word in words:
                if word.arg not in (None, "strict"):  # zip(..., strict=True) only guards
                    yield ast.Call(node.func, args, [other for other in words if other is not word])
            if len(args) > 1 and not isinstance(args[-1], ast.Starred):
                yield ast.Call(node.func, args[:-1], words)
        case ast.Expr(value=ast.Constant()):
            return  # a docstring
        case ast.AugAssign(op=op):
            yield ast.Pass()
            if type(op) in SWAPPED:
                yield ast.AugAssign(node.target, SWAPPED[type(op)](), node.value)
        case ast.Expr() | ast.Raise() | ast.Delete() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()


def _is_compiled(node):
    names = {
        part.id if isinstance(part, ast.Name) else getattr(part, "attr", "")
        for decorator in getattr(node, "decorator_list", ())
        for part in ast.walk(decorator)
    }
    return bool(names & COMPILED)


def _places(node, scope="", around=(), statement=None):
    """(old node, new one, scope, statement, lines of the function) of all that may be changed below a node."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if field in KEPT or not isinstance(child, ast.AST) or _is_compiled(child):
                continue
            where, lines, whole = scope, around, child if isinstance(child, ast.stmt) else statement
            if name := getattr(child, "name", None) if isinstance(child, ast.stmt) else None:
                where, lines = f"{scope}.{name}".lstrip("."), (child.lineno, child.end_lineno)
            for new in _others(child):
                yield child, new, where, whole, lines
            if field == "test" and isinstance(node, ast.If | ast.While):
                yield child, ast.UnaryOp(ast.Not(), child), where, whole, lines
            if not isinstance(child, ASIDE) and not (isinstance(child, ast.keyword) and child.arg == "strict"):
                yield from _places(child, where, lines, whole)


def _shown(node):
    text = ast.unparse(ast.fix_missing_locations(node)).split("\n")[0]
    return text if len(text) < 90 else text[:87] + "..."


def mutants(file, source):
    """All changes to the bytes of a file; a few of them make no program, as a starred argument alone."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for old, new, scope, statement, around in _places(ast.parse(source)):
        before, after = _shown(old), "left out" if isinstance(new, ast.Pass) else _shown(new)
        where = f" in {_shown(statement)}" if len(before) < 20 and old is not statement else ""
        span = starts[old.lineno - 1] + old.col_offset, starts[old.end_lineno - 1] + old.end_col_offset
        text = ast.unparse(new) if isinstance(new, ast.stmt) else f"({ast.unparse(new)})"
        block = getattr(statement, "body", None)  # of a compound statement the lines above its body
        last = max(statement.lineno, block[0].lineno - 1) if block else statement.end_lineno
        lines = (old.lineno, old.end_lineno), (statement.lineno, last), around
        yield Mutant(file, lines, scope, f"{before} -> {after}{where}", span, text)
