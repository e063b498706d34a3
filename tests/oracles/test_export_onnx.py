"""Networks in ONNX files, run by onnxruntime: the same outputs for batches of any size."""

import copy
import json
import re
from pathlib import Path

import numpy as np
import pytest

import minigrad
from minigrad import data, models, nn, ops
from minigrad.cli import main
from minigrad.data.loader import Loader
from minigrad.export import RULES, export_onnx
from tests.cli.cli_runs import elsewhere, finished  # noqa: F401  (fixtures)

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
runtime.set_default_logger_severity(3)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def drawn(batch, shape, dtype):
    rng, shape = np.random.default_rng(batch), (batch, *shape[1:])
    return rng.standard_normal(shape).astype(dtype) if dtype.startswith("f") else rng.integers(0, 3, shape)


def compare(model, shape, path, dtype="float32", batches=(1, 2, 5), tolerance=1e-5, **options):
    """Export, run both on batches of several sizes, and return the file's model."""
    export_onnx(model, path, shape, dtype=dtype, **options)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch in batches:
        array = drawn(batch, shape, dtype)
        with minigrad.no_grad():
            ours = model.eval()(minigrad.tensor(array))
        (theirs,) = session.run(None, {"input": array})
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(theirs, ours.numpy(), rtol=tolerance, atol=tolerance)
    return onnx.load(path)


# ---- layers and operations -------------------------------------------------------------------------------------------


class Applied(nn.Module):
    def __init__(self, function):
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


I, S, M = (1, 3, 9, 8), (1, 4, 10), (1, 6)  # images, sequences, features
TABLE = {
    I: lambda: [
        *(nn.ELU(0.7), nn.GELU(), nn.Hardtanh(-0.5, 0.7), nn.LeakyReLU(0.2), nn.LogSigmoid(), nn.LogSoftmax(1)),
        *(nn.ReLU(), nn.SiLU(), nn.Sigmoid(), nn.Softplus(2.0, 1.0), nn.Tanh(), nn.ReflectionPad2d(1), nn.Dropout2d()),
        *(nn.Conv2d(3, 6, 3, 2, 1, 2, groups=3), nn.Conv2d(3, 6, (2, 3), padding="same"), nn.BatchNorm2d(3)),
        *(nn.LayerNorm((9, 8)), nn.ConstantPad2d((1, 2, 0, 1), 0.5), nn.AdaptiveAvgPool2d((3, 5)), nn.Flatten()),
        *(nn.MaxPool2d((3, 2), (2, 3), (1, 0), dilation=2, ceil_mode=True), nn.AvgPool2d(3, 2, 1, True, False)),
        *(nn.MaxPool2d((1, 2), padding=(0, 1), dilation=5), nn.Upsample(size=(5, 13))),
        nn.Upsample(scale_factor=1.7, mode="bilinear"),
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
    ],
    S: lambda: [
        *(nn.Softmax(-1), nn.BatchNorm1d(4), nn.Unflatten(1, (2, 2)), nn.Upsample(scale_factor=2, mode="linear")),
    ],
    M: lambda: [
        *(nn.Linear(6, 5), nn.Embedding(7, 5, padding_idx=0), nn.Sequential(nn.Linear(6, 3), nn.ReLU())),
        *map(Applied, OPERATIONS),
    ],
}
OPERATIONS = [
    lambda x: ops.exp(-x) + ops.log(x * x + 1) + ops.sqrt(abs(x)) + ops.erf(x) ** 2 + ops.reciprocal(x * x + 1),
    lambda x: ops.maximum(x, 0.1) - ops.minimum(x, x * 2) / 3,
    lambda x: x.sum(1, keepdim=True) * x.mean(1, keepdim=True) + (x * 9).to("int64").sum(1, keepdim=True),
    lambda x: ops.cat([x, x.reshape(-1, 2, 3).permute(0, 2, 1).reshape(-1, 6).to("float64")], 1),
    lambda x: (x.unsqueeze(2) @ x.unsqueeze(1)).transpose(1, 2).flatten(1),
    lambda x: ops.matmul(x, minigrad.ones(6, 6)) + minigrad.ones(6).exp(),
    lambda x: x.reshape(-1, 3),  # whose first size is twice the batch
]
ROWS = [(shape, number) for shape, make in TABLE.items() for number in range(len(make()))]


@pytest.mark.parametrize("shape, number", ROWS, ids=str)
def test_layers(shape, number, tmp_path):
    minigrad.manual_seed(0)
    layer = TABLE[shape]()[number]
    compare(layer, shape, tmp_path / "layer.onnx", "int64" if type(layer) is nn.Embedding else "float32")


def test_whole_numbers_doubles_and_halves(tmp_path):
    linear, half = nn.Linear(6, 2), minigrad.autocast("float16")
    compare(Applied(lambda x: (x * 2 - 1).sum(1)), M, tmp_path / "whole.onnx", "int64")
    with minigrad.autocast("bfloat16"):  # around the export: without effect on it
        made = compare(linear, M, tmp_path / "around.onnx", batches=())
    assert {one.op_type for one in made.graph.node} == {"Gemm", "Identity"}
    made = compare(Applied(half(lambda x: linear(x))), M, tmp_path / "within.onnx", tolerance=2e-3)
    assert made.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    compare(linear.double(), M, tmp_path / "double.onnx", "float64", tolerance=1e-12)


# ---- networks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.deep] * (n == "resnet")) for n in models.MODELS])
def test_models(name, tmp_path):
    """Weights under their names; the model stays as it was."""
    minigrad.manual_seed(0)
    shape = {"digits-cnn": (1, 8, 8), "resnet": (3, 32, 32)}.get(name, (1, 28, 28))
    model = models.build(name, shape)
    with minigrad.no_grad():
        model(minigrad.rand(8, *shape))  # gives batch norm its statistics
    state, random = copy.deepcopy(model.state_dict()), minigrad.default_generator.get_state()
    next(model.children()).eval()
    modes = [module.training for module in model.modules()]
    made = compare(model, (1, *shape), tmp_path / "model.onnx", batches=(), metadata={"made": "by a test"})
    assert [module.training for module in model.modules()] == modes
    assert minigrad.default_generator.get_state() == random
    assert all(np.array_equal(state[key], value) for key, value in model.state_dict().items())
    compare(model, (1, *shape), tmp_path / "model.onnx", batches=(1, 3))
    names = {one.name for one in made.graph.initializer}
    for path, layer in model.named_modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            assert {f"{path}.{name}" for name, _ in layer.named_parameters()} <= names
    assert made.ir_version == 8 and made.opset_import[0].version == 17 and made.producer_name == "minigrad"
    assert {one.key: one.value for one in made.metadata_props} == {"made": "by a test"}
    (first,) = made.graph.input
    assert [one.dim_param or one.dim_value for one in first.type.tensor_type.shape.dim] == ["batch", *shape]


# ---- what cannot leave -----------------------------------------------------------------------------------------------


REFUSED = [
    (nn.Sequential(nn.GroupNorm(1, 3)), I, r"^export_onnx: sample_norm in layer 0 \(.*\).* has no rule[^\n]*$"),
    (nn.Sequential(nn.ConvTranspose2d(3, 6, 3)), I, "conv2d_input_grad in layer 0 .* has no rule"),
    (Applied(lambda x: (x, x)), M, "returned a tuple, wanted a Tensor"),
    (Applied(lambda x: minigrad.tensor(x.numpy() * 2)), M, "the output of the model differs between batches"),
    (Applied(lambda x: x + minigrad.tensor(x.numpy())), M, r"add in layer the model \(.*lambda.*\) differs between"),
    (Applied(lambda x: x * 2 if x.shape[0] == 2 else x + 2), M, "mul in layer .* differs between batches"),
]


@pytest.mark.parametrize("model, shape, message", REFUSED, ids=[message[:30] for *_, message in REFUSED])
def test_what_cannot_be_exported_is_named(model, shape, message, tmp_path):
    with pytest.raises(minigrad.MinigradError, match=message):
        export_onnx(model, tmp_path / "no.onnx", shape)
    assert not list(tmp_path.iterdir())


def test_the_code_of_the_page(tmp_path, monkeypatch):
    """Among it a rule for an operation of one's own."""
    monkeypatch.chdir(tmp_path)
    page = (EXAMPLES / "docs" / "differences.md").read_text()
    names: dict = {}
    known = set(RULES)
    try:
        for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
            exec(block, names)
        compare(Applied(names["halved"]), M, tmp_path / "own.onnx")
    finally:
        for added in set(RULES) - known:
            del RULES[added]
    assert {one.name for one in tmp_path.iterdir()} == {"lenet.onnx", "weights.npz", "own.onnx"}


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_writes_what_takes_pixels(tmp_path, capsys, finished):  # noqa: F811
    run = finished
    capsys.readouterr()
    assert main(["export", str(run), "--onnx", str(tmp_path / "run.onnx")]) == 0
    assert "pixels 0..255 as uint8" in capsys.readouterr().out
    from minigrad.cli.run import Run

    _, settings = Run.of(run)
    network = settings.build_model()
    minigrad.checkpoint.load(run / "last", network)
    _, test = data.digits(size=settings.side)
    (batch, _) = next(iter(Loader(test, 7, transform=settings.transform())))
    with minigrad.no_grad():
        wanted = network.eval()(batch).numpy()
    session = runtime.InferenceSession(tmp_path / "run.onnx")
    (found,) = session.run(None, {"input": test.images[:7]})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == list(settings.classes)
