"""From runs of a network to a graph: the calls of all runs side by side, each put through the rule of its primitive."""

import numpy as np

from .. import device
from ..errors import MinigradError
from .graph import Graph, Value
from .rules import RULES
from .runs import Traced
from .sizes import ExportError, Size, merged

__all__ = ["translated"]


def translated(model, runs, names):
    """(graph, inputs, outputs) of the Runs of a model whose inputs bear these names; the latter two as Values."""
    _check_alike(runs)
    return _Translation(model, runs, names).result()


def _check_alike(runs):
    first = runs[0]
    for other in runs[1:]:
        for one, two in zip(first.calls, other.calls, strict=False):
            if one.primitive is not two.primitive:
                raise ExportError(
                    f"export_onnx: {_place(one)} the model applies {one.primitive.name} to one batch and "
                    f"{two.primitive.name} to another; wanted the same operations whatever the input"
                )
        if len(first.calls) != len(other.calls) or first.outputs.keys() != other.outputs.keys():
            raise ExportError("export_onnx: the model applies more operations to one batch than to another")


def _place(call):
    return f"in layer {call.layer or 'the model'} ({call.line})"


class _Translation:
    """values: a Value for each array of the first run that has one, by the ids of the arrays of all runs."""

    def __init__(self, model, runs, names):
        self.runs, self.names = runs, names
        self.graph = Graph(next(name for name, array in zip(names, runs[0].inputs, strict=True) if array.ndim))
        self.values, self.varying, self.sources = {}, set(), {}
        self.owned = _owned(model)
        for name in (*names, *self.owned.values()):
            self.sources[name] = self.graph.named(name)

    def result(self):
        inputs = [
            self._bound(self.sources[name], arrays, True)
            for name, *arrays in zip(self.names, *[run.inputs for run in self.runs], strict=True)
        ]
        used = self._used()
        for number, calls in enumerate(zip(*[run.calls for run in self.runs], strict=True)):
            if number in used:
                self._call(calls)
        outputs = []
        for name in self.runs[0].outputs:
            try:
                value = self._value([run.outputs[name] for run in self.runs])
            except ExportError as error:
                raise ExportError(f"export_onnx: {name} of the model: {error}") from None
            out = self.graph.named(name)
            self.graph.nodes.append(("Identity", self.graph.named(f"{name}/Identity"), [value.name], [out], {}))
            outputs.append(Value(out, value.shape, value.sample))
        return self.graph, inputs, outputs

    def _used(self):
        """The numbers of the calls that the outputs depend on."""
        run, used = self.runs[0], set()
        wanted = {id(array) for array in run.outputs.values()}
        for number in reversed(range(len(run.calls))):
            call = run.calls[number]
            if any(id(array) in wanted for array in call.results):
                used.add(number)
                wanted |= {id(one.array) for one in _traced(call.values)}
        return used

    # ---- arrays ----------------------------------------------------------------------------------------------------

    def _bound(self, name, arrays, varying):
        """The Value for an array of each run."""
        shape = merged([array.shape for array in arrays])
        value = Value(name, shape, arrays[0])
        key = tuple(map(id, arrays))
        self.values[key] = value
        if varying:
            self.varying.add(key)
        return value

    def _value(self, arrays):
        """The Value that is known for these arrays, else a constant."""
        key = tuple(map(id, arrays))
        if key in self.values:
            return self.values[key]
        name = self.owned.get(id(arrays[0]))
        if name is not None:
            return self._bound(self.graph.constant(device.host(arrays[0]), self.sources[name]), arrays, False)
        shape = merged([array.shape for array in arrays])
        host = [device.host(array) for array in arrays]
        if any(isinstance(size, Size) for size in shape):
            flat = np.concatenate([array.reshape(-1) for array in host])
            if not len(flat) or (flat != flat[0]).any():
                raise ExportError(_NOT_TRACED)
            name = self.graph.node("Expand", flat[:1].reshape(()), self.graph.integers(shape))
        elif all(np.array_equal(array, host[0], equal_nan=device.is_floating(array.dtype)) for array in host):
            name = self.graph.constant(host[0])
        else:
            raise ExportError(_NOT_TRACED)
        return self._bound(name, arrays, False)

    def _argument(self, values):
        first = values[0]
        if isinstance(first, Traced):
            return self._value([value.array for value in values])
        if isinstance(first, tuple) and any(_traced(first)):
            return tuple([self._argument(each) for each in zip(*values, strict=True)])
        return merged(values)

    # ---- calls -----------------------------------------------------------------------------------------------------

    def _call(self, calls):
        call, primitive = calls[0], calls[0].primitive
        self.graph.layer = call.layer
        try:
            found = [[id(one.array) for one in _traced(c.values)] for c in calls]
            if len({*map(len, found)}) > 1:
                raise ExportError("the number of its arguments changes with the batch")
            keys = [*zip(*found, strict=True)]
            if primitive not in RULES and not self.varying.intersection(keys):
                return  # its results are constants, like all that they were made of
            if primitive not in RULES:
                raise ExportError("ONNX has no operation for it here")
            arguments = []
            for name, values in zip(primitive.names, zip(*[c.values for c in calls], strict=True), strict=True):
                try:
                    arguments.append(self._argument(values))
                except ExportError as error:
                    raise ExportError(f"{name}: {error}") from None
            results = [each for each in zip(*[c.results for c in calls], strict=True)]
            shapes = [merged([array.shape for array in arrays]) for arrays in results]
            wanted = [Value("", shape, arrays[0]) for shape, arrays in zip(shapes, results, strict=True)]
            made = RULES[primitive](self.graph, wanted, *arguments)
            for name, arrays in zip((made,) if isinstance(made, str) else made, results, strict=False):
                self._bound(name, arrays, bool(self.varying.intersection(keys)))
        except (MinigradError, TypeError) as error:
            raise ExportError(f"export_onnx: {primitive.name} {_place(call)}: {error}") from error


_NOT_TRACED = (
    "it was made of the input without operations of minigrad (from an array or by Python), or by one that ONNX has not"
)


def _traced(values):
    """The Tensors among arguments."""
    for value in values:
        if isinstance(value, Traced):
            yield value
        elif isinstance(value, tuple):
            yield from _traced(value)


def _owned(model):
    """{id of the array: name} for parameters and buffers; a shared one has its first name."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {id(tensor.data): name for name, tensor in reversed(named)}
