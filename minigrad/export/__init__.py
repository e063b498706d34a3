"""The way out to other programs: networks as ONNX, weights from their files."""

from ..errors import KindError, ShapeError
from .sizes import ExportError
from .weights import WeightsError, load_weights

__all__ = ["ExportError", "WeightsError", "export_onnx", "load_weights"]


def export_onnx(model, path, input_shape, *, dtype="float32", metadata=None):
    """Write a network, as it acts in use, and its weights into an ONNX file that takes batches of any size.

    The network runs on a few small batches of random numbers while all operations are written down; it is then as
    before. So whatever `forward` does with Tensors is exported, and what it does with Python numbers and branches is
    fixed as it went. A size that differs between the batches is computed from that of the batch.

    path            of the file, which is replaced in one step
    input_shape     with the batch, whose size is left open: (1, 1, 28, 28); or a list of such for several inputs
    dtype           the elements of the input, or a list for several inputs
    metadata        {name: text} that the file carries, such as what the input should look like

    The input is called "input" ("input_0", ... for several), the output "output" ("output_0", ..., or the keys of a
    dictionary that the network returns). Constants bear the names of the parameters and buffers. Operator set 17.
    Errors  ExportError, a RuntimeError, for an operation that ONNX has not, or whose result was made around the
            operations, with its layer and the line that applied it; without the package onnx. No file is written then
    Source  ONNX, "Operator Schemas", version 17
    """
    from ..checkpoint import write_atomic
    from ..nn import Module
    from .onnx_file import imported, model_of
    from .runs import run
    from .sizes import BATCHES
    from .translate import translated

    imported()
    if not isinstance(model, Module):
        raise KindError(f"export_onnx: model is a {type(model).__name__}, wanted a Module")
    shapes, dtypes = _inputs(input_shape, dtype)
    try:
        runs = [run(model, shapes, dtypes, batch, seed) for seed, batch in enumerate(BATCHES)]
    except ShapeError as error:
        hint = "; it has the batch too, as in (1, 1, 28, 28)"
        raise ShapeError(f"export_onnx: input_shape {input_shape} does not fit{hint}: {error}") from error
    names = ["input"] if len(shapes) == 1 else [f"input_{number}" for number in range(len(shapes))]
    graph, inputs, outputs = translated(model, runs, names)
    made = model_of(graph, inputs, outputs, type(model).__name__, dict(metadata or {}))
    write_atomic(path, made.SerializeToString())


def _inputs(input_shape, dtype):
    """(shapes, element types) of the inputs."""
    from .. import device
    from ..ops.arguments import shape_of

    several = isinstance(input_shape, list | tuple) and any(isinstance(one, list | tuple) for one in input_shape)
    shapes = [shape_of("export_onnx", "input_shape", (one,)) for one in (input_shape if several else [input_shape])]
    if any(0 in shape for shape in shapes) or not any(shapes):
        raise ShapeError(f"export_onnx: input_shape is {input_shape}, wanted (N, ...) without an empty dimension")
    dtypes = list(dtype) if isinstance(dtype, list | tuple) else [dtype] * len(shapes)
    if len(dtypes) != len(shapes):
        raise ShapeError(f"export_onnx: {len(dtypes)} element types for {len(shapes)} inputs")
    return shapes, [device.element_type(one) for one in dtypes]
