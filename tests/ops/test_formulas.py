"""The math sheet: every public op states its mathematics, and what it states is what the engine computes."""

import inspect
from contextlib import suppress
from pathlib import Path

import numpy as np

from minigrad import Tensor, ops, sheet
from minigrad.cli import main
from minigrad.core.tape import grad
from tests.ops.cases import all_ops
from tests.ops.formulas import evaluated, fitted, statements
from tests.ops.test_ops import results, wrap

PAGE = Path(__file__).resolve().parents[2] / "examples" / "docs" / "math.md"
SIGNATURES = {name: inspect.signature(getattr(ops, name)) for name in ops.__all__}


def words_of(name, names):
    """What docstrings call dim, p and others where they are no such arguments."""
    x = names["x"]
    if name in ("var", "std"):
        unbiased, correction = names["unbiased"], names["correction"]
        return {"correction": correction if correction is not None else 1 if unbiased is None else int(unbiased)}
    if name == "norm":
        return {"p": 2 if names["p"] in (None, "fro") else names["p"]}
    if name in ("pairwise_distance", "triplet_margin_loss"):
        return {"dim": -1}
    return {"N": x.shape[0], "C": x.shape[-1]} if name == "cross_entropy" else {}


def bound(name, arguments):
    """{argument: its array or value, as formulas want it} of a call whose first argument is a Tensor."""
    names = {key: value.array if isinstance(value, Tensor) else value for key, value in arguments.items()}
    first = next(iter(names.values()))
    for key, value in names.items():
        if key.endswith("weight"):
            names[key] = np.ones(first.shape) if value is None else np.asarray(value, float)
        if value is None and key == "bias":
            names[key] = 0.0
    names["x"] = first
    return names | words_of(name, names)


def kept(names, array):
    """A result with the dimensions that a reduction took from it, of size 1."""
    x, dim = names["x"], names.get("dim", False)
    if dim is False or array.ndim >= x.ndim:
        return array
    dims = range(x.ndim) if dim is None or isinstance(dim, tuple | list) and not dim else np.atleast_1d(dim)
    return np.expand_dims(array, tuple(int(one) for one in dims))


def called(op, sample):
    """(names that formulas may use, {argument: the engine's gradient}) of a call; None where there is none."""
    args, kwargs = sample.draw(wrap)
    call = SIGNATURES[op.name].bind(*args, **kwargs)
    call.apply_defaults()
    live = {key: value for key, value in call.arguments.items() if isinstance(value, Tensor) and value.requires_grad}
    outputs = results(op, args, kwargs)
    if not isinstance(next(iter(call.arguments.values())), Tensor) or len(outputs) > 1 or not outputs[0].requires_grad:
        return None
    names, (out,) = bound(op.name, call.arguments), outputs
    g = np.random.default_rng(3).standard_normal(out.shape)
    engine = {}
    for (key, value), dx in zip(live.items(), grad(out, [*live.values()], Tensor(g), allow_unused=True), strict=True):
        shape = names[key].shape if np.size(names[key]) == np.size(value.array) else value.shape
        engine[f"d{key}"] = np.zeros(shape) if dx is None else dx.array.reshape(shape)
    engine["dx"] = engine.get(f"d{next(iter(call.arguments))}")
    engine["out"] = engine["loss"] = kept(names, out.array)
    return names | {"g": kept(names, g), "out": engine["out"], "loss": engine["loss"]}, engine


def tried(op, sample):
    """{formula's name: whether it gives what the engine does} of the statements that are expressions."""
    if (call := called(op, sample)) is None:
        return {}
    names, engine = call
    stated, holds = sheet.sections(inspect.getdoc(getattr(ops, op.name))), {}
    for name, code in statements(stated.get("Math")) + statements(stated.get("Grads")):
        wanted, value = engine.get(name), None
        with suppress(ArithmeticError, AttributeError, IndexError, TypeError, ValueError):  # of other arguments
            value = evaluated(code, names)
        if value is None:
            continue
        names.setdefault(name, value)
        if wanted is not None and (np.any(wanted) or not code.co_names):  # 0 by chance says nothing
            holds[name] = False
            with suppress(ValueError):  # of another shape
                holds[name] = np.allclose(fitted(value, wanted.shape), wanted, 1e-7, 1e-9)
    return holds


CHECKED = {  # ops by what of their docstrings holds on a sample
    "value": {"mul", "softmax", "var", "mse_loss", "gelu", "cosine_similarity", "logsumexp"},
    "gradient": {"mul", "softmax", "std", "huber_loss", "gelu", "norm", "matmul", "linear", "kl_div"},
}


def test_formulas_are_what_the_engine_computes():
    """What is stated as an expression holds on a sample, as words may limit it to some."""
    found = {"value": set(), "gradient": set()}
    for op in all_ops():
        stated, held = set(), set()
        for sample in op.samples if op.differentiable else ():
            holds = {} if sample.random else tried(op, sample)
            stated |= {*holds}
            held |= {formula for formula, right in holds.items() if right}
        assert stated == held, f"{op.name}: {stated - held} is what the engine computes on no sample"
        for formula in held:
            found["value" if formula in ("out", "loss") else "gradient"].add(op.name)
    for kind, names in CHECKED.items():
        assert names <= found[kind] and len(found[kind]) > 45, (kind, len(found[kind]), names - found[kind])


def test_the_page_is_current(capsys):
    assert main(["math", "--page"]) == 0
    assert capsys.readouterr().out == sheet.page()
    assert PAGE.read_text() == sheet.page(), "out of date; minigrad math --page > examples/docs/math.md writes it"


def test_the_command(capsys):
    assert main(["math", "matmul", "adam"]) == 0
    out = capsys.readouterr().out
    assert "dinput = g @ other^T        dother = input^T @ g" in out and "v = beta2 v + (1 - beta2) g^2" in out
    assert main(["math"]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert listed == set(sheet.entries()) >= set(ops.__all__) | {"SGD", "AdamW", "clip_grad_norm_"}
    assert main(["math", "cros_entropy"]) == 2
    assert "no formula is called 'cros_entropy'; near it are cross_entropy" in capsys.readouterr().err
