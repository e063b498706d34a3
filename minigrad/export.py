"""Networks as ONNX files, which other programs run.

The network runs twice, on batches of 2 and of 3 random samples. In each run every primitive that is applied to what
came from the input writes its ONNX node by its rule, one of those below. Both runs must write the same nodes and
constants: so no size of a batch and no element of a sample is fixed in the file. A reshape leaves the first
size open, which therefore follows from the batch.

A rule is a function of the Graph, the result, and the arguments of the primitive in the order of its signature. It
adds nodes and returns the name of the last one's output.

Source  ONNX, "Operator Schemas", version 17
"""

import contextlib
import itertools
import math

import numpy as np

from minigrad_kernels.toolchain.watch import watching

from . import device
from .anomaly import origin
from .core.check import instance_of, shape_of
from .core.errors import KindError, MinigradError, ShapeError, StateError
from .core.interceptors import Interceptor, proceed
from .core.tensor import Tensor
from .nn.module import Module, evaluation
from .ops import conv, conversions, normalization, pool, reduce
from .ops.autocast import autocast
from .ops.elementwise import activations, arithmetic, choices
from .ops.matmul import linear_op, product
from .ops.shape import arrange, pads, select, views
from .ops.softmax import log_softmax_op, softmax_op

OPSET, IR = 17, 8  # what runtimes since 2022 read
ENDS = ("input", "output")
BATCHES = (2, 3)  # 1 would be taken for broadcasting
RULES: dict = {}  # {primitive: its rule}


class ExportError(StateError):
    """A network that cannot be written as ONNX."""


def rule(*primitives):
    """State the rule of primitives: a decorator."""

    def state(function):
        RULES.update(dict.fromkeys(primitives, function))
        return function

    return state


def export_onnx(model, path, input_shape, *, dtype="float32", metadata=None):
    """Write a network, as it acts in use, and its weights into an ONNX file that takes batches of any size.

    What `forward` does with Tensors is exported; what it does with Python numbers and branches is fixed as it went.

    path            of the file, which is replaced in one step
    input_shape     with the batch, whose size is left open: (1, 1, 28, 28)
    dtype           the elements of the input
    metadata        {name: text} that the file carries, such as what the input should look like

    The input is called "input", the output "output". Constants bear the names of the parameters and buffers.
    Errors  ExportError, a RuntimeError, for an op without a rule, for what depends on the batch's size or elements
            other than by ops, and without the package onnx. No file is written then
    """
    from .checkpoint import write_atomic

    instance_of("export_onnx", "model", model, Module)
    onnx = _onnx()
    shape, dtype = shape_of("export_onnx", "input_shape", (input_shape,)), device.element_type(dtype)
    graphs = [_written(model, (size, *shape[1:]), dtype) for size in BATCHES]
    _check_alike(*graphs)
    made = _model_of(graphs, type(model).__name__)
    onnx.helper.set_model_props(made, dict(metadata or {}))
    onnx.checker.check_model(made, full_check=True)
    write_atomic(path, made.SerializeToString())


def _onnx():
    try:
        import onnx
    except ImportError as error:
        hint = 'pip install -e ".[export]", or pip install onnx'
        raise ExportError(f"export_onnx: it needs the package onnx: {hint}") from error
    return onnx


class Graph(Interceptor):
    """The nodes and constants that one run of a model writes.

    names   {id of an array that came from the input: (its name, that array, so that its id stays its own)}
    places  for each node the op, the layer and the line that applied it
    """

    eager, in_place = True, False

    def __init__(self, model):
        self.nodes, self.places, self.constants = [], [], {}
        self.names = {}
        self.layers = {module: name for name, module in model.named_modules()}
        owned = [*model.named_parameters(), *model.named_buffers()]
        self.owned = {id(tensor.array): f"{name}_" if name in ENDS else name for name, tensor in reversed(owned)}
        self.layer = self.place = ""

    def node(self, kind, *inputs, **attributes):
        """The name of the output of a new node. Inputs are Tensors, names, arrays; None at the end is left out."""
        inputs = [self.name(one) for one in inputs if one is not None]
        name = f"{self.layer.replace('.', '/')}/{kind}_{len(self.nodes)}"
        self.nodes.append(_onnx().helper.make_node(kind, inputs, [name], name, **attributes))
        self.places.append(self.place)
        return name

    def name(self, value, dtype=None):
        """The name of a value, in another element type where one is given."""
        if isinstance(value, str):
            return value
        array = value.array if isinstance(value, Tensor) else np.asarray(value)
        if id(array) in self.names:
            name, _ = self.names[id(array)]
            return name if dtype is None or dtype == array.dtype else self.node("Cast", name, to=_kind(dtype))
        owned, array = self.owned.get(id(array)), device.host(array)
        if dtype is not None and dtype != array.dtype:
            owned, array = None, array.astype(dtype)
        name = owned or f"constant_{len(self.constants)}"
        self.constants[name] = np.ascontiguousarray(array).reshape(array.shape)
        return name

    @contextlib.contextmanager
    def watch(self, kind, subject):
        """Note which Module of the network is being called."""
        outer, self.layer = self.layer, self.layers.get(subject, self.layer) if kind == "module" else self.layer
        yield
        self.layer = outer

    def called(self, tensor, name):
        """State that a Tensor came from the input."""
        self.names[id(tensor.array)] = name, tensor.array

    def apply(self, primitive, values, below):
        """Apply a primitive, and write it down if an argument came from the input."""
        result = proceed(below, primitive, values)
        given = [one for value in values for one in (value if isinstance(value, tuple) else (value,))]
        if not any(isinstance(one, Tensor) and id(one.array) in self.names for one in given):
            return result
        self.place = f"{primitive.name} in layer {self.layer or 'the model'} ({origin()})"
        if primitive not in RULES:
            raise ExportError(f"export_onnx: {self.place} has no rule, so it cannot be written as ONNX")
        first = result if primitive.single else result[0]
        try:
            self.called(first, RULES[primitive](self, first, *values))
        except (MinigradError, TypeError, ValueError) as error:
            raise ExportError(f"export_onnx: {self.place}: {error}") from error
        return result


def _written(model, shape, dtype):
    """The Graph of a run on an input of this shape; nothing of the model changes."""
    random = np.random.default_rng(shape[0])
    drawn = random.random(shape, np.float32) if device.is_floating(dtype) else random.integers(0, 2, shape)
    like = next(iter([*model.parameters(), *model.buffers()]), None)
    graph = Graph(model)
    graph.input = Tensor(device.move(device.cast(drawn, dtype), "cpu" if like is None else like.device))
    graph.called(graph.input, "input")
    with evaluation(model), autocast("bfloat16", enabled=False), watching(graph.watch), graph:
        graph.output = model(graph.input)
    if not isinstance(graph.output, Tensor):
        raise KindError(f"export_onnx: the model returned a {type(graph.output).__name__}, wanted a Tensor")
    graph.place = "the output of the model"
    graph.node("Identity", graph.output)
    graph.nodes[-1].output[0] = "output"
    return graph


def _check_alike(first, second):
    """Refuse graphs whose nodes or constants differ."""
    for one, two, place in itertools.zip_longest(first.nodes, second.nodes, first.places, fillvalue="the end"):
        constants = [[graph.constants.get(name) for name in getattr(one, "input", ())] for graph in (first, second)]
        if one != two or not all(map(np.array_equal, *constants)):
            hint = "what follows the size or the elements of a batch otherwise than by ops cannot be written"
            raise ExportError(f"export_onnx: {place} differs between batches of {BATCHES[0]} and {BATCHES[1]}; {hint}")


def _model_of(graphs, title):
    """The ModelProto of two graphs that are alike."""
    onnx, graph, ends = _onnx(), graphs[0], []
    for name in ENDS:
        both = [getattr(one, name) for one in graphs]
        sizes = zip(both[0].shape, both[1].shape, strict=True)
        shape = [n if n == m else "batch" if (n, m) == BATCHES else None for n, m in sizes]
        ends.append(onnx.helper.make_tensor_value_info(name, _kind(both[0].dtype), shape))
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in graph.constants.items()]
    made = onnx.helper.make_graph(graph.nodes, title, ends[:1], ends[1:], constants)
    opsets, producer = [onnx.helper.make_opsetid("", OPSET)], {"producer_name": "minigrad"}
    return onnx.helper.make_model(made, opset_imports=opsets, ir_version=IR, **producer)


def _kind(dtype):
    """The number that ONNX gives to an element type."""
    return _onnx().helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


# ---- elementwise -----------------------------------------------------------------------------------------------------


def _elementwise(kind, **attributes):
    """The rule of ops whose arguments all have the element type of the result."""
    return lambda graph, out, *inputs: graph.node(kind, *[graph.name(one, out.dtype) for one in inputs], **attributes)


def _numbers(out, *values):
    """Numbers as constants of the element type of a result."""
    return [np.array(value, out.dtype) for value in values]


def _open_batch(shape):
    """A shape whose first size is left open."""
    return np.array([-1, *shape[1:]][: len(shape)], np.int64)


ALIKE = ("neg", "add", "sub", "mul", "pow", "abs", "erf", "exp", "log", "reciprocal", "sigmoid", "sqrt", "tanh")
RULES |= {getattr(arithmetic, name): _elementwise(name.capitalize()) for name in ALIKE}
RULES |= {
    choices.maximum: _elementwise("Max"),
    choices.minimum: _elementwise("Min"),
    activations.relu: lambda graph, out, input, inplace: graph.node("Relu", input),
    activations.leaky_relu: lambda graph, out, input, slope, _: graph.node("LeakyRelu", input, alpha=float(slope)),
    activations.hardtanh: lambda graph, out, input, low, high, _: graph.node("Clip", input, *_numbers(out, low, high)),
    activations.elu: lambda graph, out, input, alpha, inplace: graph.node("Elu", input, alpha=float(alpha)),
    activations.silu: lambda graph, out, input, inplace: graph.node("Mul", input, graph.node("Sigmoid", input)),
    conversions.cast: lambda graph, out, input, dtype: graph.node("Cast", input, to=_kind(out.dtype)),
    views.permute_op: lambda graph, out, input, dims: graph.node("Transpose", input, perm=dims),
    views.reshape_op: lambda graph, out, input, shape: graph.node("Reshape", input, _open_batch(shape)),
    arrange.cat_op: lambda graph, out, tensors, dim: _elementwise("Concat", axis=dim)(graph, out, *tensors),
    views.copy_op: lambda graph, out, input, order: graph.name(input),
    select.pick: lambda graph, out, input, places, axis: graph.node("Gather", input, places, axis=axis),
    product: lambda graph, out, input, other: graph.node("MatMul", input, other),
    linear_op: lambda graph, out, input, weight, bias: graph.node("Gemm", input, weight, bias, transB=1),
    softmax_op: lambda graph, out, input: graph.node("Softmax", input, axis=1),
    log_softmax_op: lambda graph, out, input: graph.node("LogSoftmax", input, axis=1),
}


@rule(arithmetic.div)
def _div(graph, out, input, other, rounding_mode):
    if rounding_mode is not None:
        raise ShapeError(f"rounding_mode is {rounding_mode!r}, wanted None; there is no such node")
    return _elementwise("Div")(graph, out, input, other)


@rule(activations.softplus)
def _softplus(graph, out, input, beta, threshold):
    beta, threshold = _numbers(out, beta, threshold)
    scaled = graph.node("Mul", input, beta)
    smooth = graph.node("Div", graph.node("Softplus", scaled), beta)
    return graph.node("Where", graph.node("Greater", scaled, threshold), input, smooth)


@rule(activations.gelu)
def _gelu(graph, out, input, approximate):
    root, cubic, inner, one, half = _numbers(out, math.sqrt(0.5), activations.CUBIC, activations.INNER, 1, 0.5)
    if approximate == "none":
        share = graph.node("Erf", graph.node("Mul", input, root))
    else:
        square = graph.node("Mul", graph.node("Mul", input, input), cubic)
        bent = graph.node("Mul", input, graph.node("Add", square, one))
        share = graph.node("Tanh", graph.node("Mul", bent, inner))
    return graph.node("Mul", input, graph.node("Mul", graph.node("Add", share, one), half))


# ---- shapes ----------------------------------------------------------------------------------------------------------


@rule(pads.pad_op)
def _pad(graph, out, input, widths, value):
    before, after = zip(*widths, strict=True)
    return graph.node("Pad", input, np.array([*before, *after], np.int64), *_numbers(out, value))


@rule(reduce.mean_op)
def _mean(graph, out, input, axes, keepdim):
    return graph.node("ReduceMean", graph.name(input, out.dtype), axes=axes, keepdims=int(keepdim))


@rule(reduce.sum_op)
def _sum(graph, out, input, axes, keepdim, dtype):
    return graph.node("ReduceSum", graph.name(input, out.dtype), np.array(axes, np.int64), keepdims=int(keepdim))


# ---- products, pools, normalisation, softmax -------------------------------------------------------------------------


@rule(conv.conv2d_op)
def _conv2d(graph, out, input, weight, bias, geometry):
    stride, padding, dilation, groups = geometry
    how = {"kernel_shape": weight.shape[2:], "strides": stride, "dilations": dilation, "group": groups}
    return graph.node("Conv", input, weight, bias, pads=(*padding, *padding), **how)


@rule(pool.max_pool2d_op)
def _max_pool2d(graph, out, input, windows, shape):
    """The end is padded so that the last window just fits, whether sizes were rounded up or down."""
    kernel, stride, padding, dilation = windows
    along = zip(input.shape[2:], kernel, stride, padding, dilation, out.shape[2:], strict=True)
    ends = [max(0, (i - 1) * s + d * (k - 1) + 1 - n - p) for n, k, s, p, d, i in along]
    if any(end >= size for end, size in zip(ends, kernel, strict=True)):
        raise ShapeError("its last windows reach further beyond the image than runtimes take")
    return graph.node("MaxPool", input, kernel_shape=kernel, strides=stride, dilations=dilation, pads=(*padding, *ends))


@rule(pool.average_over)
def _average_over(graph, out, input, rows, columns):
    """A pool where windows are alike and touch no padding; else the products with a matrix for each axis.

    A table has begin, end and divisor of each window along an axis.
    """
    steps, matrices = [], []
    for table, size in zip((rows, columns), input.shape[2:], strict=True):
        kernel, step = int(table[0, 2]), int(table[1, 0]) if len(table) > 1 else size
        begins = np.arange(0, size - kernel + 1, max(step, 1))
        if np.array_equal(table, np.stack([begins, begins + kernel, 0 * begins + kernel], axis=1)):
            steps.append((kernel, step))
        inside = (np.arange(size) >= table[:, :1]) & (np.arange(size) < table[:, 1:2])
        matrices.append((inside / table[:, 2:]).astype(out.dtype))
    if len(steps) == 2:
        kernel, stride = zip(*steps, strict=True)
        return graph.node("AveragePool", input, kernel_shape=kernel, strides=stride)
    above, beside = matrices
    return graph.node("MatMul", graph.node("MatMul", above, input), beside.T)


@rule(normalization.sample_norm_op)
def _layer_norm(graph, out, input, weight, bias, groups, eps):
    if input.ndim == 4:
        raise ShapeError("it has no rule for groups, so it cannot be written as ONNX")
    weight = np.ones(input.shape[1], out.dtype) if weight is None else weight
    return graph.node("LayerNormalization", input, weight, bias, axis=1, epsilon=float(eps))
