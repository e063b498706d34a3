"""The math sheet: every public op states its mathematics, and what it states is what the engine computes."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from minigrad import Tensor, ops, sheet
from minigrad.cli import main
from minigrad.core.tape import grad
from tests.ops.cases import all_ops
from tests.ops.formulas import evaluated, fitted, statements
from tests.ops.test_ops import results, wrap

PAGE = Path(__file__).resolve().parents[2] / "examples" / "docs" / "math.md"
SIGNATURES = {name: inspect.signature(getattr(ops, name)) for name in ops.__all__}

# Formulas that hold for some arguments alone, as their docstrings say.
APPLIES = {
    "clamp": lambda names: names["min"] is not None and names["max"] is not None,
    "cosine_similarity": lambda names: names["x1"].shape == names["x2"].shape and names["eps"] < 0.01,
    "cross_entropy": lambda names: (
        names["input"].ndim == 2
        and names["target"].dtype.kind == "i"
        and not names["label_smoothing"]
        and (names["target"] != names["ignore_index"]).all()
    ),
    "div": lambda names: names["rounding_mode"] is None,
    "gelu": lambda names: names["approximate"] == "none",
    "kl_div": lambda names: not names["log_target"] and (names["target"] > 0).all(),
    "norm": lambda names: names["p"] in (None, "fro") or 0 < abs(names["p"]) < np.inf,
    "batch_norm": lambda names: names["training"],
    "pairwise_distance": lambda names: 0 < names["p"] < np.inf,
    "masked_select": lambda names: names["mask"].shape == names["input"].shape,
    "getitem": lambda names: isinstance(names["key"], int | slice),
    **dict.fromkeys(("cumsum", "flip", "transpose", "movedim"), lambda names: names["input"].ndim > 0),
    **dict.fromkeys(
        ("matmul", "t"), lambda names: all(x.ndim > 1 for x in names.values() if isinstance(x, np.ndarray))
    ),
    "scaled_dot_product_attention": lambda names: names["scale"] and names["attn_mask"] is not None,
    "linear": lambda names: names["weight"].ndim == 2 and names["input"].ndim > 1,
    **dict.fromkeys(("var", "std"), lambda names: not isinstance(names["dim"], bool)),
}
UNWEIGHTED = ("cross_entropy",)
STEPPED = ("remainder",)  # at a step NumPy's quotient may round to the other side


def dims_of(name, names):
    """What docstrings call D, and dim where it is not an argument."""
    x = next(iter(names.values()))
    if name == "layer_norm":
        return {"D": tuple(range(-len(np.atleast_1d(names["normalized_shape"])), 0))}
    if name == "batch_norm":
        return {"D": (0, *range(2, x.ndim))}
    if name in ("var", "std"):
        unbiased, correction = names["unbiased"], names["correction"]
        return {"correction": correction if correction is not None else 1 if unbiased is None else int(unbiased)}
    if name == "norm":
        return {"p": 2 if names["p"] in (None, "fro") else names["p"]}
    if name == "pairwise_distance":
        return {"dim": -1}
    if name == "cross_entropy":
        return {"N": x.shape[0], "C": x.shape[-1]}
    return {}


def bound(op, args, kwargs):
    """{argument: its array or value} of a call, defaults included; None where the formulas do not hold for it."""
    call = SIGNATURES[op.name].bind(*args, **kwargs)
    call.apply_defaults()
    names = {key: value.array if isinstance(value, Tensor) else value for key, value in call.arguments.items()}
    first = next(iter(names.values()))
    if names.get("reduction", "mean") != "mean" or not isinstance(first, np.ndarray) or not first.size:
        return None, call.arguments
    if not APPLIES.get(op.name, lambda names: True)(names) or op.name in UNWEIGHTED and names["weight"] is not None:
        return None, call.arguments
    for key, value in names.items():
        if key.endswith("weight"):
            names[key] = np.ones(first.shape) if value is None else np.asarray(value, float)
        if value is None and key == "bias":
            names[key] = 0.0
        elif value is not None and op.name == "batch_norm" and key in ("weight", "bias"):
            names[key] = value.reshape(-1, *[1] * (first.ndim - 2))
    return names | dims_of(op.name, names) | {"x": first}, call.arguments


def kept(names, array):
    """A result with the dimensions that a reduction took from it, of size 1."""
    x, dim = names["x"], names.get("dim", False)
    if dim is False or array.ndim >= x.ndim:
        return array
    dims = range(x.ndim) if dim is None or isinstance(dim, tuple | list) and not dim else np.atleast_1d(dim)
    return np.expand_dims(array, tuple(int(one) for one in dims))


def called(op, sample):
    """(names that formulas may use, {argument: the engine's gradient}) of a call; None where no formula holds."""
    args, kwargs = sample.draw(wrap)
    names, arguments = bound(op, args, kwargs)
    live = {key: value for key, value in arguments.items() if isinstance(value, Tensor) and value.requires_grad}
    outputs = results(op, args, kwargs)
    if names is None or len(outputs) > 1 or not live or not outputs[0].requires_grad:
        return None
    (out,) = outputs
    g = np.random.default_rng(3).standard_normal(out.shape)
    found = grad(out, list(live.values()), Tensor(g), allow_unused=True)
    engine = {}
    for (key, value), dx in zip(live.items(), found, strict=True):
        shape = names[key].shape if np.size(names[key]) == np.size(value.array) else value.shape
        engine[f"d{key}"] = np.zeros(shape) if dx is None else dx.array.reshape(shape)
    if (first := f"d{next(iter(arguments))}") in engine:
        engine["dx"] = engine[first]
    return names | {"g": kept(names, g)} | dict.fromkeys(("out", "loss"), kept(names, out.array)), engine


def literal(op, sample):
    """{formula's name: (what it gives, what the engine gives)} of the statements that are expressions."""
    if op.name in STEPPED and not sample.smooth or (call := called(op, sample)) is None:
        return {}
    names, engine = call
    stated, compared = sheet.sections(inspect.getdoc(getattr(ops, op.name))), {}
    for head in ("Math", "Grads"):
        for name, code in statements(stated.get(head)):
            value = evaluated(code, names)
            if value is None:
                continue
            wanted = names.get(name) if head == "Math" and name in ("out", "loss") else engine.get(name)
            if wanted is not None:
                compared[name] = fitted(value, wanted.shape), wanted
            names.setdefault(name, value)
    return compared


ELSEWHERE = ("as ", "of ", "those ")  # how Grads begin that name the gradients of others
SWITCHED = ("device", "dim")  # options whose place a Tensor may take: where it does, the docstring calls it other
# Ops whose gradients are stated in words, which tests/ops/test_ops.py alone checks.
WORDS = """
conv2d conv2d_input_grad conv2d_weight_grad conv_transpose2d
conv1d conv_transpose1d max_pool2d max_pool1d avg_pool2d avg_pool1d adaptive_avg_pool2d interpolate triplet_margin_loss
nll_loss group_norm instance_norm dropout dropout1d dropout2d normalize einsum max min cumprod prod sort topk permute
diagonal split chunk unbind tile repeat roll cat stack pad getitem masked_select gather scatter index_select embedding
""".split()
DIFFERENTIABLE = [op for op in all_ops() if op.differentiable]


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=str)
def test_formulas_are_what_the_engine_computes(op):
    """Each gradient is stated; each that is stated as an expression is evaluated on the samples where it holds."""
    text = sheet.sections(inspect.getdoc(getattr(ops, op.name)))["Grads"]
    first, evaluated = next(iter(SIGNATURES[op.name].parameters)), set()
    for sample in op.samples:
        if sample.random:
            continue
        for formula, (value, wanted) in literal(op, sample).items():
            np.testing.assert_allclose(value, wanted, rtol=1e-7, atol=1e-9, err_msg=f"{formula} of {sample}")
            evaluated.add(formula)
        args, kwargs = sample.draw(wrap)
        arguments = SIGNATURES[op.name].bind(*args, **kwargs).arguments
        for key, value in arguments.items() if sample.smooth and not text.startswith(ELSEWHERE) else ():
            if isinstance(value, Tensor) and value.requires_grad and key not in SWITCHED:
                stated = re.search(rf"\bd{key}(\b|_)", text) or key == first and re.search(r"\bdx\b", text)
                assert stated, f"{op.name}{sample} has a gradient for {key}, which Grads does not state"
    assert bool(evaluated - {"out", "loss"}) != (op.name in WORDS), "WORDS names those whose gradients are in words"


def test_the_page_is_current(capsys):
    assert main(["math", "--page"]) == 0
    assert capsys.readouterr().out == sheet.page()
    assert PAGE.read_text() == sheet.page(), "out of date; minigrad math --page > examples/docs/math.md writes it"


def test_the_command(capsys):
    assert main(["math", "matmul", "Adam"]) == 0
    out = capsys.readouterr().out
    assert "dinput = g @ other^T        dother = input^T @ g" in out and "v = beta2 v + (1 - beta2) g^2" in out
    assert main(["math"]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert listed == set(sheet.entries()) >= set(ops.__all__) | {"SGD", "Adam", "AdamW", "RMSprop", "clip_grad_norm_"}
    assert main(["math", "cros_entropy"]) == 2
    assert "no formula is called 'cros_entropy'; near it are cross_entropy" in capsys.readouterr().err
