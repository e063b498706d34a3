"""The tape: backward and grad.

Backward is the chain rule, dL/dx = sum over the uses y of x of dL/dy dy/dx, taken from the last operation to the
first. The nodes below the result are visited in the reverse order of their making, so a node's gradient is complete
before its rules are asked. One pass beforehand counts the edges into each leaf: when the count reaches zero, that
leaf's gradient is final and its hooks fire, while the rest of backward goes on.

Source  Linnainmaa 1976, "Taylor expansion of the accumulated rounding error"; Griewank and Walther 2008, "Evaluating
        Derivatives", chapter 3
"""

import contextlib
import itertools
import operator
from typing import NamedTuple

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.toolchain.watch import part, watched, watchers

from .. import device
from .check import flag_of
from .interceptors import interceptors, stack
from .modes import Mode, recording
from .tensor import Leaf, Target, Tensor, tensor_of

_count = itertools.count()
_new = tuple.__new__  # of named tuples: their own is a function of Python that calls this one


def now():
    """A number above the order of all nodes so far, and below that of later ones."""
    return next(_count)


class Edge(NamedTuple):
    """What a node knows of an argument that needs a gradient, and where this gradient goes.

    number  of the Tensor in a starred argument, else None
    """

    name: str
    number: int | None
    shape: tuple
    dtype: np.dtype
    target: Target


class Node:
    """One recorded application of a primitive."""

    __slots__ = (
        "order", "primitive", "edges", "kept", "fast", "versions", "outputs", "hooks", "retained", "freed", "observers",
        "__weakref__",
    )  # fmt: skip

    def __init__(self, primitive, values, edges, arrays, versions):
        self.order, self.primitive, self.edges, self.freed = next(_count), primitive, edges, False
        if primitive.single:
            self.outputs = ((arrays[0].shape, arrays[0].dtype, versions[0]),)
        else:
            self.outputs = [(a.shape, a.dtype, version) for a, version in zip(arrays, versions, strict=True)]
        self.hooks = self.retained = ()  # (output, hook), (output, weak reference to the Tensor)
        self.observers = ()  # called as observer(argument, gradient, incoming, kept) with each gradient it gives
        self.kept, self.versions = {}, []
        needs, self.fast = primitive.needs(tuple([edge.name for edge in edges]))
        for name, kind, position in needs:
            value = (arrays if kind == "output" else values)[position]
            if kind == "shape":
                value = tuple([one.shape for one in value]) if value.__class__ is tuple else value.shape
            self.kept[name] = value
            version = versions[position] if kind == "output" else getattr(value, "version", None)
            if version is not None:
                self.versions.append((name, version, version[0]))

    next_functions = property(lambda self: tuple((edge.target.node, edge.target.output) for edge in self.edges))

    def gradients(self, incoming, wanted, create_graph):
        """(target, gradient, whether the engine alone holds it) for each edge in wanted.

        incoming    one gradient per output, None where none arrived
        """
        if self.kept.__class__ is not dict:  # recompute puts a dictionary there that makes the values again
            self.kept.restore()
        if self.fast and not create_graph and incoming[0] is not None:
            return self._gradients_at_once(incoming, wanted)
        return self._gradients_by_rules(incoming, wanted)

    def _gradients_by_rules(self, incoming, wanted):
        primitive, values = self.primitive, self.kept | {"g": incoming[0]}
        held = [id(version) for _, version, _ in self.versions]  # of memory that others hold
        for output, name in enumerate(primitive.outputs):
            gradient = values[primitive.incoming[output]] = incoming[output]
            if gradient is not None:
                held.append(id(gradient.version))
            if name in values:  # kept as an array, so that there is no reference cycle
                target = None if name in primitive.fixed else Target(self, output)
                values[name] = Tensor.made(values[name], target, self.outputs[output][2])
        for edge in wanted:
            values["index"] = edge.number
            gradient = primitive.call_rule(edge.name, values, self.outputs)
            if gradient is not None:
                gradient = self._passed_on(edge, gradient, incoming)
                yield edge.target, gradient, id(gradient.version) not in held

    def _gradients_at_once(self, incoming, wanted):
        """By the primitive's function on arrays, whose results nobody else holds; by rules what it leaves to them."""
        values = {**self.kept, "needs": {edge.name for edge in wanted}, "g": incoming[0]}
        values.update(zip(self.primitive.incoming, incoming, strict=True))
        arrays = self.primitive.call_fast(values)
        found, left = [], []
        for edge in wanted:
            if (array := arrays.get(edge.name)) is None:
                left.append(edge)
                continue
            gradient = Tensor.made(array)
            if self.observers or array.shape != edge.shape or array.dtype != edge.dtype:
                gradient = self._passed_on(edge, gradient, incoming)
            found.append((edge.target, gradient, True))
        return [*found, *self._gradients_by_rules(incoming, left)] if left else found

    def _passed_on(self, edge, gradient, incoming):
        """The gradient of an argument in its shape and type, as the observers see it."""
        array = gradient._data if gradient.__class__ is Tensor else None
        if array is None or array.shape != edge.shape or array.dtype != edge.dtype:
            gradient = _fit(gradient, edge, self.primitive.name)
        for observer in self.observers:
            observer(edge.name, gradient, incoming, self.kept)
        return gradient

    def check(self):
        """Refuse to go backward through a freed node or through a value that has changed since."""
        if self.freed:
            found = "backward through a graph that was freed by an earlier backward"
            raise StateError(f"{self.primitive.name}: {found}; pass retain_graph=True to the earlier one")
        for argument, version, number in self.versions:
            if version[0] != number:
                found = f"{argument} was changed after it was used (version {version[0]}, recorded {number})"
                raise StateError(f"{self.primitive.name}: {found}; call backward before the optimiser's step")

    def free(self):
        """Let go of the values; the edges stay, so that a later backward knows which nodes it would need.

        A node that keeps none, a cast for instance, can be gone through again.
        """
        self.freed = self.freed or bool(self.kept)
        self.kept, self.versions = {}, []


def edge_to(name, number, tensor):
    """The Edge of an argument."""
    data = tensor._data
    return _new(Edge, (name, number, data.shape, data.dtype, tensor.target))


def _fit(gradient, edge, op):
    """The gradient in the shape and type of its argument: sums the axes along which the argument was repeated."""
    said, shape = f"{op}: the rule of {edge.name} returned", edge.shape
    if not isinstance(gradient, Tensor):
        raise KindError(f"{said} {type(gradient).__name__}, wanted a Tensor")
    if gradient.shape != shape:
        extra = gradient.ndim - len(shape)
        axes = range(extra, gradient.ndim)
        if extra < 0 or any(shape[i - extra] not in (1, gradient.shape[i]) for i in axes):
            raise ShapeError(f"{said} shape {gradient.shape}, wanted {shape}")
        repeated = [i for i in axes if shape[i - extra] == 1 and gradient.shape[i] != 1]
        gradient = gradient.sum((*range(extra), *repeated)).reshape(shape)
    return gradient if gradient.dtype == edge.dtype else gradient.to(edge.dtype)


def write(tensor):
    """The array of a leaf, to be written in place: the one door for optimisers, initialisers and running statistics.

    It raises the version that all Tensors on this memory share, so that a backward pass which still needs the old
    values is refused instead of computing with the new ones.
    Errors  RuntimeError if the Tensor is the result of an operation
    """
    return write_all((tensor,))[0]


def write_all(tensors):
    """The arrays of leaves, as write gives each."""
    tools = interceptors()
    for tensor in tensors:
        if not tensor.is_leaf:
            raise StateError(f"write: the Tensor was made by {tensor.node.primitive.name}; only leaves can be written")
        for interceptor in tools:
            interceptor.before_write(tensor)
        tensor.version[0] += 1
    return [tensor._data for tensor in tensors]


def zero_grad(leaves, set_to_none=True):
    """Forget the gradients of leaves, or fill them with zeros where they are."""
    tools = interceptors()
    for leaf in leaves:
        for interceptor in tools:
            interceptor.before_gradient(leaf, adds=False)
        if set_to_none:
            leaf.grad = None
        elif leaf.grad is not None:
            leaf.grad = leaf.grad.detach()
            device.fill(write(leaf.grad), 0)


def backward(tensor, gradient, retain_graph, create_graph):
    """Add the gradient of a scalar (of sum(gradient * tensor) otherwise) to .grad of the leaves below it."""
    first = _first_gradient("backward", tensor, gradient)
    create_graph = flag_of("backward", "create_graph", create_graph)
    retain_graph = create_graph if retain_graph is None else flag_of("backward", "retain_graph", retain_graph)
    tools = interceptors()

    def finish(target, gradient, owned):
        if (leaf := target[0].reference()) is not None:
            for interceptor in tools:
                interceptor.before_gradient(leaf, adds=True)
            _accumulate(leaf, gradient, owned and not create_graph)
            for (hook,) in target[0].ready_hooks:
                hook(leaf)

    functions = []
    token = _at_end.variable.set(functions)
    try:
        _walk([(tensor, first)], finish, retain_graph, create_graph)
        for function in functions:
            function()
    finally:
        _at_end.variable.reset(token)


_at_end = Mode("at_end", None)


def after_backward(function):
    """Have function() called at the end of the backward pass under way: for hooks that begin what must be ended.

    Errors  RuntimeError outside of Tensor.backward
    """
    functions = _at_end.get()
    if functions is None:
        raise StateError("after_backward: no backward pass is under way; call it in a hook")
    functions.append(function)


def grad(
    outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=False
):
    """The gradients of the sum of outputs with respect to inputs, leaves or not; .grad is left alone.

    outputs         a scalar Tensor or several; others need grad_outputs of their shapes
    inputs          a Tensor or several
    only_inputs     PyTorch's, without effect: it is so always
    allow_unused    give None for an input that the outputs do not depend on, instead of an error
    Returns a tuple with one Tensor per input. Only rules on a path to an input are asked.
    Errors  as Tensor.backward; RuntimeError for an unused input
    """
    create_graph = flag_of("grad", "create_graph", create_graph)
    allow_unused = flag_of("grad", "allow_unused", allow_unused)
    retain_graph = create_graph if retain_graph is None else flag_of("grad", "retain_graph", retain_graph)
    outputs, inputs = (list(x) if isinstance(x, list | tuple) else [x] for x in (outputs, inputs))
    given = grad_outputs if isinstance(grad_outputs, list | tuple) else [grad_outputs] * len(outputs)
    if len(given) != len(outputs):
        raise ShapeError(f"grad: {len(given)} grad_outputs for {len(outputs)} outputs")
    for index, tensor in enumerate(inputs):
        if not tensor_of("grad", f"inputs[{index}]", tensor).requires_grad:
            raise StateError(f"grad: inputs[{index}] does not require a gradient; call .requires_grad_() on it before")
    roots = [(tensor, _first_gradient("grad", tensor, g)) for tensor, g in zip(outputs, given, strict=True)]
    targets, found = [tensor.target for tensor in inputs], {}

    def finish(target, gradient, owned):
        found[target] = gradient if owned or gradient.requires_grad else _own(gradient)  # which may be updated in place

    _walk(roots, finish, retain_graph, create_graph, set(targets))
    if not allow_unused and any(target not in found for target in targets):
        index = next(i for i, target in enumerate(targets) if target not in found)
        raise StateError(f"grad: the outputs do not depend on inputs[{index}]; pass allow_unused=True for None")
    return tuple(found.get(target) for target in targets)


def _first_gradient(op, tensor, gradient):
    if not tensor_of(op, "an output", tensor).requires_grad:
        hint = "make what you differentiate by with requires_grad=True, and compute the loss outside of no_grad()"
        raise StateError(f"{op}: the Tensor has no history and does not require a gradient; {hint}")
    if gradient is None:
        if tensor.array.size != 1:
            hint = "pass a gradient of that shape, or take .sum() or .mean() first"
            raise StateError(f"{op}: an output of shape {tensor.shape} is no scalar; {hint}")
        return Tensor.made(device.full(tensor.shape, 1, tensor.dtype, like=tensor.array))
    if tensor_of(op, "gradient", gradient).shape != tensor.shape:
        raise ShapeError(f"{op}: gradient has shape {gradient.shape}, wanted the output's {tensor.shape}")
    if gradient.dtype != tensor.dtype:
        raise KindError(f"{op}: gradient has elements {gradient.dtype}, wanted the output's {tensor.dtype}")
    device.common_place(op, {"the output": tensor.array, "gradient": gradient.array})
    return gradient


def _walk(roots, finish, retain_graph, create_graph, inputs=frozenset()):
    """Visit the nodes below roots, (Tensor, gradient) pairs, from the newest to the oldest.

    finish  called as finish(target, gradient, owned) the moment the gradient of a leaf, or of one of inputs, is
            complete; owned says that no one else holds its array
    inputs  Targets; if there are any, only gradients on a path to them are computed
    """
    nodes, uses = _reachable([tensor.target for tensor, _ in roots], inputs)
    going = _Pass(finish, retain_graph, create_graph, inputs, uses)
    visit = watched("backward")(going.visit) if watchers() else going.visit
    recorded = recording.variable.set(create_graph)
    tools = stack.variable.set(tuple([one for one in interceptors() if not one.forward_only]))
    try:
        with part("pass", going) if watchers() else contextlib.nullcontext():
            going.pass_on([(tensor.target, gradient, False) for tensor, gradient in roots])
            going.count([edge_to("", None, tensor) for tensor, _ in roots])
            while nodes:
                visit(*nodes.pop())
    finally:
        stack.variable.reset(tools)
        recording.variable.reset(recorded)


def _reachable(roots, inputs):
    """([(node, edges to follow)] from the oldest to the newest, {leaf: how many edges and roots lead to it}).

    Every node is checked before anything is changed.
    """
    nodes, stack = set(), [root.node for root in roots if root.node.__class__ is Node]
    while stack:
        node = stack.pop()
        if node not in nodes:
            nodes.add(node)
            stack += [below for edge in node.edges if (below := edge.target.node).__class__ is Node]
    ordered = sorted(nodes, key=operator.attrgetter("order"))
    listed = _on_a_path(ordered, inputs) if inputs else [(node, node.edges) for node in ordered]
    uses = {root.node: roots.count(root) for root in roots}
    for node, wanted in listed:
        node.check()
        for edge in wanted:
            leaf = edge.target.node
            if leaf.__class__ is Leaf:
                uses[leaf] = uses.get(leaf, 0) + 1
    return listed, uses


def _on_a_path(nodes, inputs):
    """[(node, edges to follow)] of those that lead to one of inputs."""
    useful, listed = set(), []
    for node in nodes:
        wanted = [edge for edge in node.edges if edge.target in inputs or edge.target.node in useful]
        if wanted or any((node, output) in inputs for output in range(len(node.outputs))):
            useful.add(node)
            listed.append((node, wanted))
    return listed


class _Pass:
    """One backward pass.

    pending     {Target: (what has arrived there, whether the engine alone holds it)}
    uses        {leaf: how many edges into it are still to be followed}; at 0 its gradient is final
    """

    NOTHING = None, False  # what has arrived where nothing has

    def __init__(self, finish, retain_graph, create_graph, inputs, uses):
        self.finish, self.retain_graph, self.create_graph = finish, retain_graph, create_graph
        self.inputs, self.uses, self.pending = inputs, uses, {}

    def visit(self, node, wanted):
        """Pass the gradients of a node on along the wanted edges."""
        gradients = [self.pending.pop((node, output), self.NOTHING)[0] for output in range(len(node.outputs))]
        if node.hooks or node.retained or self.inputs:
            self.complete(node, gradients)
        if gradients[0] is not None or any([gradient is not None for gradient in gradients]):
            self.pass_on(node.gradients(gradients, wanted, self.create_graph))
        self.count(wanted)
        if not self.retain_graph:
            node.free()

    def pass_on(self, arrivals):
        """Have gradients arrive: (target, gradient, whether the engine alone holds it)."""
        for target, gradient, owned in arrivals:
            if target in self.pending:
                self.add(target, gradient, owned)
            else:
                self.pending[target] = gradient, owned

    def add(self, target, gradient, owned):
        """Add to what has arrived at target, into memory that the engine alone holds where there is any."""
        total, total_owned = self.pending[target]
        if not self.create_graph and total_owned and device.can_hold_a_sum(total.array):
            device.accumulate(total.array, gradient.array)
        elif not self.create_graph and owned and device.can_hold_a_sum(gradient.array):
            device.accumulate(gradient.array, total.array)
            self.pending[target] = gradient, True
        else:
            self.pending[target] = total + gradient, True

    def count(self, edges):
        """Edges have been followed: after the last one into a leaf its gradient is final."""
        for edge in edges:
            target, leaf = edge.target, edge.target.node
            if leaf.__class__ is Leaf:
                left = self.uses[leaf] = self.uses[leaf] - 1
                if not left and target in self.pending and (not self.inputs or target in self.inputs):
                    gradient, owned = self.pending.pop(target)
                    for _, hook in leaf.hooks:
                        gradient, owned = _after_hook(hook, gradient), False
                    self.finish(target, gradient, owned)

    def complete(self, node, gradients):
        """Pass the final gradients of a node's outputs through its hooks, and to those who asked for them."""
        for output, hook in node.hooks:
            if gradients[output] is not None:
                gradients[output] = _after_hook(hook, gradients[output])
        for output, gradient in enumerate(gradients):
            if (node, output) in self.inputs and gradient is not None:
                self.finish((node, output), gradient, False)
        for output, reference in () if self.inputs else node.retained:
            if (tensor := reference()) is not None and gradients[output] is not None:
                _accumulate(tensor, gradients[output], False)


def _own(gradient):
    """A copy of a gradient without history that others may hold too."""
    return Tensor.made(device.copy(gradient.array, device.order_of(gradient.array)))


def _after_hook(hook, gradient):
    gradient = gradient if gradient.requires_grad else _own(gradient)  # a hook may update it in place
    replaced = hook(gradient)
    if replaced is None:
        return gradient
    if not isinstance(replaced, Tensor) or (replaced.shape, replaced.dtype) != (gradient.shape, gradient.dtype):
        wanted = f"None or a Tensor of shape {gradient.shape} and type {gradient.dtype}"
        raise ShapeError(f"hook: returned {replaced!r}, wanted {wanted}")
    return replaced


def _accumulate(tensor, gradient, owned):
    """Add to .grad; once there, its array keeps its address, because others may hold it.

    A gradient that can itself be differentiated is not copied: it is a result, and results are never written.
    """
    total = tensor.grad
    if total is None:
        tensor.grad = gradient if gradient._requires_grad else _laid_out(tensor, gradient, owned)
    elif gradient._requires_grad or total._requires_grad:
        tensor.grad = total + gradient
    else:
        device.accumulate(write(total), gradient.array)


def _laid_out(tensor, gradient, owned):
    """A gradient in memory that nobody else holds, lying as its Tensor does."""
    data, array = tensor._data, gradient._data
    whole = owned and device.can_hold_a_sum(array)
    if not whole or array.strides != data.strides:
        array = (device.contiguous if whole else device.copy)(array, device.order_of(data))
    return gradient if array is gradient._data and gradient.__class__ is Tensor else Tensor.made(array)
