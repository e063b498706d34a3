"""Small changes to a source file, one at a time: what tests of it should notice.

Compared, added and multiplied otherwise; numbers, truth values and names that are others; conditions that are negated,
branches that are swapped; statements that are left out; arguments that are dropped. Texts of errors, annotations and
decorators stay, and so does what makes no program.
"""

import ast
from pathlib import Path
from typing import NamedTuple

__all__ = ["Mutant", "mutants"]

ROOT = Path(__file__).resolve().parents[2]
COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
ASIDE = ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert
KEPT = "annotation", "returns", "decorator_list", "ctx", "targets", "target", "format_spec"
CHANGED = ast.expr, ast.stmt, ast.arguments, ast.keyword, ast.comprehension, ast.ExceptHandler, ast.withitem
LEFT_OUT = ast.Expr, ast.AugAssign, ast.Raise, ast.Delete


class Mutant(NamedTuple):
    file: str
    line: int
    scope: str  # the function or class that it stands in
    change: str
    code: object  # of the whole module

    @property
    def key(self):
        """What names the change as long as the code around it moves only."""
        return f"{self.file} {self.scope}: {self.change}"


def _other_constant(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}_" if isinstance(value, str) else value


def _expressions(node):
    """What may stand in place of an expression."""
    if isinstance(node, ast.Constant) and _other_constant(node.value) is not node.value:
        yield ast.Constant(_other_constant(node.value))
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
        yield ast.Compare(node.left, [COMPARED[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
        yield ast.BinOp(node.left, COMPUTED[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.Call):
        for index, word in enumerate(node.keywords):
            if word.arg:
                yield ast.Call(node.func, node.args, node.keywords[:index] + node.keywords[index + 1 :])
        if len(node.args) > 1 and not isinstance(node.args[-1], ast.Starred):
            yield ast.Call(node.func, node.args[:-1], node.keywords)


def _statements(node):
    """What may stand in place of a statement."""
    stores = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple)
    if isinstance(node, LEFT_OUT) or stores:
        yield ast.Pass()
    if isinstance(node, ast.If | ast.While):
        yield type(node)(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    if isinstance(node, ast.AugAssign) and type(node.op) in COMPUTED:
        yield ast.AugAssign(node.target, COMPUTED[type(node.op)](), node.value)


def _places(node, scope="", statement=None):
    """(a function that puts another node there, the node, its scope, its statement) of what may be changed below."""
    for field, value in ast.iter_fields(node):
        if field in KEPT:
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, CHANGED) or _is_said(child):
                continue
            here = f"{scope}.{child.name}".lstrip(".") if getattr(child, "name", None) else scope
            around = child if isinstance(child, ast.stmt) else statement
            if isinstance(value, list):
                yield (lambda new, value=value, index=index: value.__setitem__(index, new)), child, here, around
            else:
                yield (lambda new, field=field: setattr(node, field, new)), child, here, around
            if not isinstance(child, ASIDE):
                yield from _places(child, here, around)


def _is_said(node):
    """Whether a statement is a text, or says what is public."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return isinstance(target, ast.Name) and target.id in ("__all__", "__slots__")


def _shown(node):
    text = ast.unparse(ast.fix_missing_locations(node)).split("\n")[0]
    return text if len(text) < 90 else text[:87] + "..."


def mutants(name, source):
    """All mutants of a file."""
    tree = ast.parse(source)
    for put, node, scope, statement in list(_places(tree)):
        before = _shown(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not scope:
            continue  # a name
        for new in list((_statements if node is statement else _expressions)(node)):
            where = f" in {_shown(statement)}" if len(before) < 20 and node is not statement else ""
            put(ast.fix_missing_locations(ast.copy_location(new, node)))
            try:
                code = compile(tree, str(ROOT / name), "exec")  # errors tell the package's lines by their path
            except (SyntaxError, ValueError):  # as a lone starred argument
                continue
            finally:
                put(node)
            after = "left out" if isinstance(new, ast.Pass) else _shown(new)
            line = getattr(node, "test", node).lineno  # "if (" alone runs nothing
            yield Mutant(name, line, scope, f"{before} -> {after}{where}", code)
