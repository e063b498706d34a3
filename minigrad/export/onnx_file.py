"""ONNX: a graph as a file."""

import numpy as np

from .. import __version__
from .sizes import ExportError, Size

__all__ = ["OPSET", "model_of"]

OPSET, IR = 17, 8  # what runtimes since 2022 read


def model_of(graph, inputs, outputs, name, metadata):
    """The ModelProto of a graph, checked.

    Errors  ExportError where the checker of ONNX objects, or without the package onnx
    """
    onnx = imported()
    used = {one for _, _, names, _, _ in graph.nodes for one in names}
    nodes = [_node(onnx, *parts) for parts in graph.nodes]
    constants = [_constant(onnx, name, array) for name, array in graph.constants.items() if name in used]
    made = onnx.helper.make_graph(
        nodes, name, [_info(onnx, v) for v in inputs], [_info(onnx, v) for v in outputs], constants
    )
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    producer = {"producer_name": "minigrad", "producer_version": __version__}
    model = onnx.helper.make_model(made, opset_imports=opsets, ir_version=IR, **producer)
    onnx.helper.set_model_props(model, metadata)
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"export_onnx: the checker of ONNX refuses the graph: {error}") from error
    return model


def imported():
    """The package onnx."""
    try:
        import onnx
    except ImportError as error:
        hint = "pip install -e '.[export]', or pip install onnx"
        raise ExportError(f"export_onnx: it needs the package onnx: {hint}") from error
    return onnx


def _node(onnx, kind, name, inputs, outputs, attributes):
    attributes = {
        key: onnx.helper.np_dtype_to_tensor_dtype(value) if isinstance(value, np.dtype) else value
        for key, value in attributes.items()
    }
    return onnx.helper.make_node(kind, inputs, outputs, name, **attributes)


def _constant(onnx, name, array):
    return onnx.numpy_helper.from_array(array, name)


def _info(onnx, value):
    sizes = [_size(size) for size in value.shape]
    return onnx.helper.make_tensor_value_info(value.name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), sizes)


def _size(size):
    """An integer, "batch", or None for a size that follows from it."""
    if isinstance(size, Size):
        return "batch" if size == Size(1) else None
    return size
