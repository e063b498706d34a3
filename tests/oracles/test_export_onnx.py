"""Networks in ONNX files, run by onnxruntime: the same outputs for batches of any size."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

import minigrad
from minigrad import data, models, nn, ops
from minigrad.cli import main
from minigrad.data.loader import Loader
from minigrad.export import ExportError, export_onnx
from minigrad.export.rules.table import RULES, rule
from tests.cli_runs import elsewhere, finished  # noqa: F401  (fixtures)
from tests.oracles.networks import (
    NETWORKS,
    attention,
    blocks,
    generative,
    images,
    learning,
    metrics,
    sequences,
    training,
)
from tests.stand_in_gpus import gpus

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
runtime.set_default_logger_severity(3)

SOURCES = (attention, blocks, generative, images, learning, metrics, sequences, training)  # each fills NETWORKS
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BATCHES = (1, 2, 5)


def drawn(rng, shape, dtype):
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 3, shape).astype(dtype)


def compare(model, shapes, path, dtypes="float32", batches=BATCHES, tolerance=1e-5):
    """Export, run both on batches of several sizes, and return the file's model."""
    export_onnx(model, path, shapes, dtype=dtypes)
    several = isinstance(shapes, list)
    shapes = shapes if several else [shapes]
    dtypes = dtypes if isinstance(dtypes, list) else [dtypes] * len(shapes)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    model.eval()
    for batch in batches:
        rng = np.random.default_rng(batch)
        arrays = [
            drawn(rng, (batch, *shape[1:])[: len(shape)], dtype) for shape, dtype in zip(shapes, dtypes, strict=True)
        ]
        with minigrad.no_grad():
            wanted = model(*map(minigrad.tensor, arrays))
        wanted = wanted if isinstance(wanted, list | tuple) else [wanted]
        names = [one.name for one in session.get_inputs()]
        found = session.run(None, dict(zip(names, arrays, strict=True)))
        for ours, theirs in zip(wanted, found, strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            np.testing.assert_allclose(theirs, ours.numpy(), rtol=tolerance, atol=tolerance)
    return onnx.load(path)


# ---- layers ----------------------------------------------------------------------------------------------------------

I, S, M = (1, 3, 9, 8), (1, 4, 10), (1, 6)  # images, sequences, features
CLASSES = {"shapes": [M, (1,)], "dtypes": ["float32", "int64"]}
TABLE = [
    (lambda: nn.ELU(0.7), I),
    (lambda: nn.GELU(), I),
    (lambda: nn.GELU("tanh"), I),
    (lambda: nn.Hardtanh(-0.5, 0.7), I),
    (lambda: nn.LeakyReLU(0.2), I),
    (lambda: nn.LogSigmoid(), I),
    (lambda: nn.LogSoftmax(1), I),
    (lambda: nn.ReLU(), I),
    (lambda: nn.ReLU6(), I),
    (lambda: nn.SiLU(), I),
    (lambda: nn.Sigmoid(), I),
    (lambda: nn.Softmax(-1), S),
    (lambda: nn.Softmax(2), I),
    (lambda: nn.Softplus(2.0, 1.0), I),
    (lambda: nn.Tanh(), I),
    (lambda: nn.Conv1d(4, 6, 3, 2, 1), S),
    (lambda: nn.Conv2d(3, 6, 3, 2, 1, 2, groups=3), I),
    (lambda: nn.Conv2d(3, 6, (2, 3), padding="same"), I),
    (lambda: nn.Conv2d(3, 6, 3, padding=1, padding_mode="reflect", bias=False), I),
    (lambda: nn.ConvTranspose1d(4, 6, 3, 2, 1, 1), S),
    (lambda: nn.ConvTranspose2d(3, 6, 3, 2, 1, 1, groups=3, dilation=2), I),
    (lambda: nn.Dropout(), I),
    (lambda: nn.Dropout1d(), S),
    (lambda: nn.Dropout2d(), I),
    (lambda: nn.Embedding(7, 5, padding_idx=0), {"shapes": M, "dtypes": "int64"}),
    (lambda: nn.Linear(6, 5), M),
    (lambda: nn.Linear(10, 5, bias=False), S),
    (lambda: nn.BatchNorm1d(4), S),
    (lambda: nn.BatchNorm2d(3), I),
    (lambda: nn.BatchNorm2d(3, affine=False), I),
    (lambda: nn.BatchNorm2d(3, track_running_stats=False), I),
    (lambda: nn.GroupNorm(1, 3), I),
    (lambda: nn.GroupNorm(2, 4), S),
    (lambda: nn.InstanceNorm1d(4), S),
    (lambda: nn.InstanceNorm2d(3, affine=True), I),
    (lambda: nn.InstanceNorm2d(3, track_running_stats=True), I),
    (lambda: nn.LayerNorm((9, 8)), I),
    (lambda: nn.LayerNorm((3, 9, 8), elementwise_affine=False), I),
    (lambda: nn.LayerNorm(8, bias=False), I),
    (lambda: nn.CircularPad1d((1, 2)), S),
    (lambda: nn.CircularPad2d((1, 2, 0, 1)), I),
    (lambda: nn.ConstantPad1d((1, 2), 0.5), S),
    (lambda: nn.ConstantPad2d((1, -2, 0, 1), 0.5), I),
    (lambda: nn.ReflectionPad1d((1, 2)), S),
    (lambda: nn.ReflectionPad2d((1, 2, 0, 1)), I),
    (lambda: nn.ReplicationPad1d((1, 0)), S),
    (lambda: nn.ReplicationPad2d((1, 2, 0, 1)), I),
    (lambda: nn.ZeroPad1d((1, 2)), S),
    (lambda: nn.ZeroPad2d((1, 2, 0, 1)), I),
    (lambda: nn.MaxPool1d(3, 2, 1), S),
    (lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True), I),
    (lambda: nn.MaxPool2d((3, 2), (2, 3), (1, 0), dilation=2, ceil_mode=True), I),
    (lambda: nn.MaxPool2d(2, 3, ceil_mode=True), I),
    (lambda: nn.MaxPool2d((1, 2), padding=(0, 1), dilation=5), I),
    (lambda: nn.AvgPool1d(3, 2, 1), S),
    (lambda: nn.AvgPool2d(2), I),
    (lambda: nn.AvgPool2d(3, 2, 1, True, False), I),
    (lambda: nn.AdaptiveAvgPool2d(1), I),
    (lambda: nn.AdaptiveAvgPool2d((3, 5)), I),
    (lambda: nn.Flatten(), I),
    (lambda: nn.Identity(), I),
    (lambda: nn.Unflatten(1, (2, 2)), S),
    (lambda: nn.Upsample(size=(5, 13)), I),
    (lambda: nn.Upsample(scale_factor=2, mode="linear"), S),
    (lambda: nn.Upsample(scale_factor=1.7, mode="bilinear"), I),
    (lambda: nn.UpsamplingNearest2d(2), I),
    (lambda: nn.UpsamplingBilinear2d(2), I),
    (lambda: nn.Sequential(nn.Linear(6, 3), nn.ReLU()), M),
    (lambda: nn.MSELoss(), {"shapes": [M, M]}),
    (lambda: nn.L1Loss(reduction="sum"), {"shapes": [M, M]}),
    (lambda: nn.SmoothL1Loss(beta=0.4), {"shapes": [M, M]}),
    (lambda: nn.HuberLoss(delta=0.3, reduction="none"), {"shapes": [M, M]}),
    (lambda: OfShares(nn.BCELoss()), {"shapes": [M, M]}),
    (lambda: nn.BCEWithLogitsLoss(pos_weight=minigrad.full((6,), 2.0)), {"shapes": [M, M]}),
    (lambda: OfShares(nn.KLDivLoss(reduction="batchmean")), {"shapes": [M, M]}),
    (lambda: nn.CosineSimilarity(), {"shapes": [M, M]}),
    (lambda: nn.PairwiseDistance(3.0), {"shapes": [M, M]}),
    (lambda: nn.TripletMarginLoss(), {"shapes": [M, M, M]}),
    (lambda: nn.CrossEntropyLoss(), CLASSES),
    (lambda: nn.CrossEntropyLoss(reduction="none"), CLASSES),
    (lambda: nn.CrossEntropyLoss(), {"shapes": [M, M]}),
]
CONTAINERS = {"Module", "ModuleDict", "ModuleList", "ParameterList", "Parameter"}  # which compute nothing themselves


class OfShares(nn.Module):
    """A loss whose inputs are between 0 and 1."""

    def __init__(self, loss):
        self.loss = loss

    def forward(self, input, target):
        return self.loss(ops.sigmoid(input), ops.sigmoid(target))


@pytest.mark.parametrize("make, where", TABLE, ids=[f"{i}-{make()!r:.40}" for i, (make, _) in enumerate(TABLE)])
def test_layers(make, where, tmp_path):
    minigrad.manual_seed(0)
    where = where if isinstance(where, dict) else {"shapes": where}
    compare(make(), where["shapes"], tmp_path / "layer.onnx", where.get("dtypes", "float32"))


def test_every_layer_has_a_row():
    rows = {type(part).__name__ for make, _ in TABLE for part in make().modules()}
    layers = {name for name in nn.__all__ if isinstance(getattr(nn, name), type)}
    assert layers - rows == CONTAINERS


# ---- operations ------------------------------------------------------------------------------------------------------

OPERATIONS = [
    lambda x: ops.exp(x) + ops.expm1(x) + ops.log(x * x + 1) + ops.log1p(abs(x)) + ops.rsqrt(x * x + 1),
    lambda x: ops.sin(x) * ops.cos(x) - 1 / (ops.sign(x) + 3) + ops.erf(x) ** 2 + ops.reciprocal(x * x + 1),
    lambda x: ops.where((x > 0.5) | (x < -0.5), x, 1.0) + (x >= 0).to("float32") - ops.maximum(x, 0.1),
    lambda x: ops.where(ops.logical_and(x != 0, ~(x <= 1)), x.clamp(-1, 1), ops.minimum(x, x * 2)),
    lambda x: ops.isfinite(x / x).to("int64") + ops.isnan(x).to("int64") + ops.isinf(x).to("int32"),
    lambda x: ops.remainder(x, 0.7) + ops.div(x, 0.3, rounding_mode="floor") + ops.div(x, 0.3, rounding_mode="trunc"),
    lambda x: ops.div((x * 9).to("int64"), 4, rounding_mode="floor") + (x * 9).to("int64") % 4,
    lambda x: x.sum(1) + x.mean(-1) + x.var(1) + x.std(1, correction=0) + x.prod(1) + x.amax(1) - x.amin(1),
    lambda x: x.amax(1) + x.argmin(1) + x.argmax(1) + ops.logsumexp(x, 1) + x.cumsum(1)[:, -1],
    lambda x: x.norm(1, 1) + x.norm(2, 1) + x.norm(float("inf"), 1) + x.norm(3, 1) + x.norm(0, 1),
    lambda x: (x.sum() * 0 - 3).norm() + (x.sum() * 0 - 3).norm(3),  # of a number, over no axes
    lambda x: ops.all(x > -9, 1).to("float32") + ops.any(x > 9, 1).to("float32") + x.mean() + x.var(correction=0),
    lambda x: ops.roll(x, (1, -2), (1, 1)) + ops.flip(x, (1,)) + ops.tile(x[:, :3], (1, 2)) + x[..., ::-1],
    lambda x: ops.cat([x[:, 1:3], x[:, -1:], x[:, [0, 2, 0]]], 1)[:, None].squeeze(1),
    lambda x: ops.stack([x, x], 1).transpose(0, 1).flatten() * 2,
    lambda x: (x.unsqueeze(2) @ x.unsqueeze(1)).tril().triu(-1),
    lambda x: ops.einsum("ni,nj->nij", x, x) + ops.matmul(x, minigrad.ones(6, 6))[:, None],
    lambda x: x[-1] + x[0] + x.shape[0] + minigrad.zeros(x.shape[0], 6).sum(0),
    lambda x: x.expand(2, x.shape[0], 6).reshape(-1, 3) / x.shape[0],
    lambda x: ops.masked_fill(x, x > 0, 3.0).chunk(2, 1)[1] + minigrad.full((x.shape[0], 3), 2.0),
    lambda x: {"doubled": x * 2, "first": x[:, 0]}["doubled"],
]


class Applied(nn.Module):
    def __init__(self, function):
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_operations(number, tmp_path):
    compare(Applied(OPERATIONS[number]), M, tmp_path / "ops.onnx", batches=(2, 5))


def test_whole_numbers_and_doubles(tmp_path):
    counted = Applied(lambda x: ops.bitwise_and(x > 0, x < 2).sum(1) + (x * 2 - 1).sum(1))
    compare(counted, M, tmp_path / "whole.onnx", "int64")
    compare(nn.Linear(6, 5).double(), M, tmp_path / "double.onnx", "float64", tolerance=1e-12)


# ---- networks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", models.MODELS)
def test_models(name, tmp_path):
    minigrad.manual_seed(0)
    shape = {"digits-cnn": (1, 8, 8), "resnet": (3, 32, 32)}.get(name, (1, 28, 28))
    model = models.build(name, shape)
    with minigrad.no_grad():
        model(minigrad.rand(8, *shape))  # gives batch norm its statistics
    made = compare(model, (1, *shape), tmp_path / "model.onnx")
    assert {one.name for one in made.graph.initializer} >= {name for name, _ in model.named_parameters()}
    assert made.ir_version == 8 and made.opset_import[0].version == 17 and made.producer_name == "minigrad"
    (first,) = made.graph.input
    assert [one.dim_param or one.dim_value for one in first.type.tensor_type.shape.dim] == ["batch", *shape]
    for stored in made.graph.initializer:
        if stored.name in (state := model.state_dict()):
            np.testing.assert_array_equal(onnx.numpy_helper.to_array(stored), state[stored.name].numpy())


@pytest.mark.parametrize("name", ["data_parallel", "pipeline"])
def test_networks_of_the_examples(name, tmp_path):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    minigrad.manual_seed(0)
    compare(module.network(), (1, 1, 8, 8), tmp_path / "example.onnx")


OTHERWISE = {
    "text_cnn": "places: it was made of the input",  # the largest elements and where they are
    "capsules": "the number of its arguments changes with the batch",  # a list with an entry for each element
    "graph_convolution": "does not fit",  # a matrix of all pairs of elements
    "lstm": "the same operations whatever the input",  # a loop over the first dimension
}


def called(name):
    """(module, its arguments) for the model of a source, or for each of its parts where those are called instead."""
    model, step = NETWORKS[name].build(minigrad, nn, nn.functional)
    calls: dict = {}
    for module in (model, *model.children()):
        module.register_forward_hook(lambda module, arguments, out: calls.setdefault(module, arguments) and None)
    model.double()
    step(model, *[minigrad.tensor(array, requires_grad=array.dtype == np.float64) for array in NETWORKS[name].inputs])
    found = {model: calls[model]} if model in calls else calls
    return [(module.float(), arguments) for module, arguments in found.items() if all(map(is_tensor, arguments))]


def is_tensor(value):
    return isinstance(value, minigrad.Tensor)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_as_users_write_them(name, tmp_path):
    minigrad.manual_seed(0)
    for module, arguments in called(name):
        shapes = [one.shape for one in arguments]
        dtypes = ["float32" if one.dtype == "float64" else str(one.dtype) for one in arguments]
        if name in OTHERWISE:
            with pytest.raises((ExportError, ValueError), match=OTHERWISE[name]):
                export_onnx(module, tmp_path / "net.onnx", shapes, dtype=dtypes)
        else:
            compare(module, shapes, tmp_path / "net.onnx", dtypes, (2, 5), 3e-5)


@pytest.mark.parametrize("seed", range(8))
def test_random_networks(seed, tmp_path):
    rng = np.random.default_rng(seed)
    minigrad.manual_seed(seed)
    layers, channels, size = [], 2, 12
    for _ in range(rng.integers(2, 6)):
        wider = int(rng.choice([2, 4, 6]))
        layers.append(nn.Conv2d(channels, wider, 3, int(rng.integers(1, 3)), 1, groups=2))
        channels = wider
        after = (nn.BatchNorm2d(channels), nn.GroupNorm(2, channels), nn.InstanceNorm2d(channels), nn.Dropout(0.3))
        layers += [after[rng.integers(4)], (nn.ReLU(), nn.SiLU(), nn.GELU(), nn.ELU())[rng.integers(4)]]
        layers += [nn.Upsample(scale_factor=2)] * int(rng.integers(2))
    pool = (nn.AdaptiveAvgPool2d(2), nn.Sequential(nn.Upsample(size=(5, 4)), nn.MaxPool2d(2)))[rng.integers(2)]
    model = nn.Sequential(*layers, pool, nn.Flatten(), nn.Linear(4 * channels, 3), nn.LogSoftmax(1))
    compare(model, (1, 2, size, size), tmp_path / "random.onnx")


def test_several_inputs_and_outputs(tmp_path):
    made = compare(Applied(lambda x, y: (x + y, (x * y).sum(1))), [M, M], tmp_path / "two.onnx")
    assert [one.name for one in made.graph.input] == ["input_0", "input_1"]
    assert [one.name for one in made.graph.output] == ["output_0", "output_1"]
    export_onnx(Applied(lambda x: {"scores": x * 2, "input": x[:, 0]}), tmp_path / "named.onnx", M)
    assert [one.name for one in onnx.load(tmp_path / "named.onnx").graph.output] == ["scores", "input_1"]


def test_the_model_stays_as_it_was(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout())
    model[2].eval()
    before = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    state = minigrad.default_generator.get_state()
    export_onnx(model, tmp_path / "model.onnx", I, metadata={"made": "by a test"})
    assert [module.training for module in model.modules()] == [True, True, True, False]
    assert minigrad.default_generator.get_state() == state
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), before[name])
    made = onnx.load(tmp_path / "model.onnx")
    assert {one.key: one.value for one in made.metadata_props} == {"made": "by a test"}


class InHalves(nn.Module):
    def __init__(self):
        self.inner = nn.Linear(6, 2)

    def forward(self, input):
        with minigrad.autocast("float16"):
            return self.inner(input)


def test_autocast(tmp_path):
    with minigrad.autocast("bfloat16"):  # around the export: without effect on it
        compare(nn.Linear(6, 2), M, tmp_path / "around.onnx", batches=())
    assert {one.op_type for one in onnx.load(tmp_path / "around.onnx").graph.node} == {"Gemm", "Identity"}
    made = compare(InHalves(), M, tmp_path / "within.onnx", tolerance=2e-3)
    assert made.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16


class Scaled(nn.Module):
    def __init__(self):
        self.weight = nn.Parameter(minigrad.full((6,), 3.0))

    def forward(self, input):
        return input * self.weight + 1


class ScaledByABuffer(Scaled):
    def __init__(self):
        self.register_buffer("weight", minigrad.full((6,), 3.0))


@pytest.mark.parametrize("kind", [Scaled, ScaledByABuffer])
def test_a_network_on_a_gpu(kind, tmp_path):
    with gpus():
        export_onnx(kind().to("cuda"), tmp_path / "gpu.onnx", M)
    rows = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    (found,) = runtime.InferenceSession(tmp_path / "gpu.onnx").run(None, {"input": rows})
    np.testing.assert_allclose(found, rows * 3 + 1, rtol=1e-6)


# ---- what cannot leave -----------------------------------------------------------------------------------------------


def own_arrays(x):
    return minigrad.tensor(x.numpy() * 2) + 1


REFUSED = [
    (Applied(own_arrays), M, "add in layer the model .*own_arrays.*made of the input without operations"),
    (Applied(lambda x: ops.dropout(x)), M, "dropout in layer the model .*ONNX has no operation"),
    (Applied(lambda x: x.cumprod(1)), M, "cumprod .*ONNX has no operation"),
    (Applied(lambda x: x * float(np.sqrt(x.shape[0]))), M, "mul .*other: it changes with the batch"),
    (Applied(lambda x: (~x.to("int64")).to("float32")), M, "bitwise_not .*no bits of integers"),
    (Applied(lambda x: x.var(0)), M, "var .*over the batch, whose size is left open"),
    (Applied(lambda x: ops.roll(x, 1, 0)), M, "roll goes along the batch"),
    (Applied(lambda x: x * 2 if x.shape[0] == 2 else x + 2), M, "applies mul to one batch and add to another"),
    (Applied(lambda x: x if x.shape[0] == 2 else x + 2), M, "more operations to one batch"),
]


@pytest.mark.parametrize("model, shape, message", REFUSED, ids=[message[:30] for *_, message in REFUSED])
def test_what_cannot_be_exported_is_named(model, shape, message, tmp_path):
    with pytest.raises(ExportError, match=message):
        export_onnx(model, tmp_path / "no.onnx", shape)
    assert not list(tmp_path.iterdir())


def test_a_rule_for_an_operation_of_ones_own(tmp_path):
    @minigrad.primitive
    def halved(input):
        return input / 2

    model = nn.Sequential(nn.Linear(6, 2), Applied(halved))
    with pytest.raises(ExportError, match="halved in layer 1"):
        export_onnx(model, tmp_path / "own.onnx", M)
    try:
        rule(halved)(lambda graph, results, input: graph.node("Mul", input, graph.number(0.5, input.dtype)))
        compare(model, M, tmp_path / "own.onnx")
    finally:
        del RULES[halved]


def test_the_code_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (EXAMPLES / "docs" / "export.md").read_text()
    names: dict = {}
    known = set(RULES)
    try:
        for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
            exec(block, names)
    finally:
        for added in set(RULES) - known:
            del RULES[added]
    assert {one.name for one in tmp_path.iterdir()} == {"lenet.onnx", "weights.npz"} and "classifier" in names


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["mlp", "digits-cnn"])
def test_the_command_writes_what_takes_pixels(model, tmp_path, capsys, finished):  # noqa: F811
    run = finished
    if model != "mlp":
        run = tmp_path / "run"
        options = ["--data", "digits", "--model", model, "--epochs", "1", "--limit", "64", "--no-new-writers"]
        assert main(["train", *options, "--no-report", "--out", str(run)]) == 0
    capsys.readouterr()
    assert main(["export", str(run), "--onnx", str(tmp_path / "run.onnx")]) == 0
    assert "pixels 0..255 as uint8" in capsys.readouterr().out
    from minigrad.cli.run import Run

    _, settings, pictures = Run.of(run)
    network = settings.build_model(pictures)
    minigrad.checkpoint.load(run / "last", network)
    _, test = data.digits(size=settings.size)
    (batch, _) = next(iter(Loader(test, 7, transform=settings.transform(pictures))))
    with minigrad.no_grad():
        wanted = network.eval()(batch).numpy()
    session = runtime.InferenceSession(tmp_path / "run.onnx")
    (found,) = session.run(None, {"input": test.images[:7]})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == list(pictures.classes)
