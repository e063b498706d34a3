"""The tape: backward and grad.

Backward is the chain rule, dL/dx = sum over the uses y of x of dL/dy dy/dx, taken from the last operation to the
first. The nodes below the result are visited in the reverse order of their making, so a node's gradient is complete
before its rules are asked. One pass beforehand counts the edges into each leaf: when the count reaches zero, that
leaf's gradient is final and its hooks fire, while the rest of backward goes on.

Source  Linnainmaa 1976, "Taylor expansion of the accumulated rounding error"; Griewank and Walther 2008, "Evaluating
        Derivatives", chapter 3
"""

import operator

from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.toolchain.capture import capturing

from . import device, fusion
from .flags import flag_of
from .modes import Mode, autocasting, enable_grad, is_grad_enabled, no_grad, recording, repeating
from .node import one, target_of
from .primitive import Primitive, primitive
from .tensor import Tensor

__all__ = [
    "Primitive",
    "Tensor",
    "after_backward",
    "backward",
    "enable_grad",
    "grad",
    "is_grad_enabled",
    "no_grad",
    "primitive",
    "repeating",
    "write",
]


def write(tensor):
    """The array of a leaf, to be written in place: the one door for optimisers, initialisers and running statistics.

    It raises the version that all Tensors on this memory share, so that a backward pass which still needs the old
    values is refused instead of computing with the new ones.
    Errors  RuntimeError if the Tensor is the result of an operation
    """
    if tensor.node is not None:
        raise StateError(f"write: the Tensor was made by {tensor.node.primitive.name}; only leaves can be written")
    if fusion.waiting():
        fusion.before_writing(tensor)
    tensor.version[0] += 1
    if (recorder := capturing.get()) is not None:
        recorder.write_to(tensor)
    return tensor.array


def backward(tensor, gradient, retain_graph, create_graph):
    """Add the gradient of a scalar (of sum(gradient * tensor) otherwise) to .grad of the leaves below it."""
    if gradient is None and not tensor.shape and tensor.requires_grad:
        first = Tensor.made(one(device.place_of(tensor.array), tensor.dtype))
    else:
        first = _first_gradient("backward", tensor, gradient)
    create_graph = flag_of("backward", "create_graph", create_graph)
    retain_graph = create_graph if retain_graph is None else flag_of("backward", "retain_graph", retain_graph)
    recorder = capturing.get()

    def finish(leaf, gradient, owned):
        if recorder is not None:
            recorder.gradient_of(leaf, adds=True)
        _accumulate(leaf, gradient, owned and not create_graph)
        for (hook,) in leaf.ready_hooks:
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


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=False):
    """The gradients of the sum of outputs with respect to inputs, leaves or not; .grad is left alone.

    outputs         a scalar Tensor or several; others need grad_outputs of their shapes
    inputs          a Tensor or several
    allow_unused    give None for an input that the outputs do not depend on, instead of an error
    Returns a tuple with one Tensor per input. Only rules on a path to an input are asked.
    Errors  as Tensor.backward; RuntimeError for an unused input
    """
    create_graph, allow_unused = (
        flag_of("grad", "create_graph", create_graph),
        flag_of("grad", "allow_unused", allow_unused),
    )
    retain_graph = create_graph if retain_graph is None else flag_of("grad", "retain_graph", retain_graph)
    outputs, inputs = (list(x) if isinstance(x, list | tuple) else [x] for x in (outputs, inputs))
    given = grad_outputs if isinstance(grad_outputs, list | tuple) else [grad_outputs] * len(outputs)
    if len(given) != len(outputs):
        raise ShapeError(f"grad: {len(given)} grad_outputs for {len(outputs)} outputs")
    for index, tensor in enumerate(inputs):
        if not isinstance(tensor, Tensor):
            raise KindError(f"grad: inputs[{index}] is a {type(tensor).__name__}, wanted a Tensor")
        if not tensor.requires_grad:
            raise StateError(f"grad: inputs[{index}] does not require a gradient; call .requires_grad_() on it before")
    roots = [(tensor, _first_gradient("grad", tensor, g)) for tensor, g in zip(outputs, given, strict=True)]
    targets, found = [target_of(tensor) for tensor in inputs], {}

    def finish(target, gradient, owned):
        found[target] = gradient if owned or gradient.requires_grad else _own(gradient)  # which may be updated in place

    _walk(roots, finish, retain_graph, create_graph, set(targets))
    if not allow_unused and any(target not in found for target in targets):
        index = next(i for i, target in enumerate(targets) if target not in found)
        raise StateError(f"grad: the outputs do not depend on inputs[{index}]; pass allow_unused=True for None")
    return tuple(found.get(target) for target in targets)


def _first_gradient(op, tensor, gradient):
    if not isinstance(tensor, Tensor):
        raise KindError(f"{op}: an output is a {type(tensor).__name__}, wanted a Tensor")
    if not tensor.requires_grad:
        hint = "make what you differentiate by with requires_grad=True, and compute the loss outside of no_grad()"
        raise StateError(f"{op}: the Tensor has no history and does not require a gradient; {hint}")
    if gradient is None:
        if tensor.array.size != 1:
            raise StateError(f"{op}: an output of shape {tensor.shape} is no scalar; pass a gradient of that shape")
        return Tensor.made(device.full(tensor.shape, 1, tensor.dtype, like=tensor.array))
    if not isinstance(gradient, Tensor):
        raise KindError(f"{op}: gradient is a {type(gradient).__name__}, wanted a Tensor")
    if gradient.shape != tensor.shape:
        raise ShapeError(f"{op}: gradient has shape {gradient.shape}, wanted the output's {tensor.shape}")
    if gradient.dtype != tensor.dtype:
        raise KindError(f"{op}: gradient has elements {gradient.dtype}, wanted the output's {tensor.dtype}")
    device.common_place(op, {"the output": tensor.array, "gradient": gradient.array})
    return gradient


def _walk(roots, finish, retain_graph, create_graph, inputs=frozenset()):
    """Visit the nodes below roots, (Tensor, gradient) pairs, from the newest to the oldest.

    finish  called as finish(target, gradient, owned) the moment the gradient of a leaf, or of one of inputs, is
            complete; owned says that no one else holds its array
    inputs  if there are any, only gradients on a path to them are computed
    """
    nodes, arriving = _reachable([tensor for tensor, _ in roots], inputs)
    pending = {}
    recorded, cast = recording.variable.set(create_graph), autocasting.variable.set(None)
    try:
        for tensor, gradient in roots:
            _add(pending, target_of(tensor), gradient, False, create_graph)
        for leaf in [target for target in pending if isinstance(target, Tensor) and target not in arriving]:
            _finish_leaf(pending, leaf, finish, inputs)
        while nodes:
            _visit(*nodes.pop(), pending, arriving, finish, retain_graph, create_graph, inputs)
    finally:
        autocasting.variable.reset(cast)
        recording.variable.reset(recorded)


def _visit(node, wanted, pending, arriving, finish, retain_graph, create_graph, inputs):
    """Pass the gradients of a node on along the wanted edges, and finish the leaves that thereby have all of theirs."""
    gradients = [pending.pop((node, output), _NOTHING)[0] for output in range(len(node.outputs))]
    if node.hooks or node.retained or inputs:
        _complete(node, gradients, finish, inputs)
    for arrived in gradients:
        if arrived is not None:
            for target, gradient, owned in node.gradients(gradients, wanted, create_graph):
                if target in pending:
                    _add(pending, target, gradient, owned, create_graph)
                else:
                    pending[target] = gradient, owned
            break
    for edge in wanted:
        target = edge[4]
        if target.__class__ is not tuple:
            left = arriving[target] = arriving[target] - 1
            if not left:
                _finish_leaf(pending, target, finish, inputs)
    if not retain_graph:
        node.free()


_NOTHING = (None,)  # a gradient that did not arrive


def _reachable(tensors, inputs):
    """([(node, edges to follow)] from the oldest to the newest, how many of these edges lead into each leaf).

    Every node is checked before anything is changed.
    """
    nodes, stack = set(), [tensor.node for tensor in tensors if tensor.node is not None]
    while stack:
        node = stack.pop()
        if node not in nodes:
            nodes.add(node)
            stack += [edge[4][0] for edge in node.edges if edge[4].__class__ is tuple]
    useful, listed, arriving = set(), [], {}
    for node in sorted(nodes, key=_order):
        wanted = node.edges
        if inputs:
            wanted = [e for e in wanted if e[4] in inputs or (e[4].__class__ is tuple and e[4][0] in useful)]
            if not wanted and not any((node, i) in inputs for i in range(len(node.outputs))):
                continue
            useful.add(node)
        if node.freed:
            node.check()
        for _, version, number in node.versions:
            if version[0] != number:
                node.check()
        listed.append((node, wanted))
        for edge in wanted:
            target = edge[4]
            if target.__class__ is not tuple:
                arriving[target] = arriving.get(target, 0) + 1
    return listed, arriving


_order = operator.attrgetter("order")


def _complete(node, gradients, finish, inputs):
    """Pass the complete gradients of a node's outputs through its hooks, and to those who asked for them."""
    for output, hook in node.hooks or ():
        if gradients[output] is not None:
            gradients[output] = _after_hook(hook, gradients[output])
    for output, gradient in enumerate(gradients):
        if (node, output) in inputs and gradient is not None:
            finish((node, output), gradient, False)
    for output, reference in () if inputs else node.retained:
        if (tensor := reference()) is not None and gradients[output] is not None:
            _accumulate(tensor, gradients[output], False)


def _finish_leaf(pending, leaf, finish, inputs):
    if (arrived := pending.pop(leaf, None)) and (not inputs or leaf in inputs):
        gradient, owned = arrived
        for _, hook in leaf.hooks:
            gradient, owned = _after_hook(hook, gradient), False
        finish(leaf, gradient, owned)


def _own(gradient):
    """A copy of a gradient without history that others may hold too."""
    return Tensor.made(device.copy(gradient.array, device.order_of(gradient.array)))


def _after_hook(hook, gradient):
    gradient = gradient if gradient.requires_grad else _own(gradient)  # a hook may update it in place
    replaced = hook(gradient)
    if replaced is None:
        return gradient
    if not isinstance(replaced, Tensor) or (replaced.shape, replaced.dtype) != (gradient.shape, gradient.dtype):
        raise ShapeError(
            f"hook: returned {replaced!r}, wanted None or a Tensor of shape {gradient.shape} and type {gradient.dtype}"
        )
    return replaced


def _add(pending, target, gradient, owned, create_graph):
    """Add a contribution to what has arrived at target, into memory that the engine alone holds where there is any."""
    if target not in pending:
        pending[target] = gradient, owned
        return
    total, total_owned = pending[target]
    if not create_graph and total_owned and device.can_hold_a_sum(total.array):
        device.accumulate(total.array, gradient.array)
    elif not create_graph and owned and device.can_hold_a_sum(gradient.array):
        device.accumulate(gradient.array, total.array)
        pending[target] = gradient, True
    else:
        pending[target] = total + gradient, True


def _accumulate(tensor, gradient, owned):
    """Add to .grad; once there, its array keeps its address, because others may hold it.

    A gradient that can itself be differentiated is not copied: it is a result, and results are never written.
    """
    total = tensor.grad
    if gradient._requires_grad or (total is not None and total.requires_grad):
        tensor.grad = gradient if total is None else total + gradient
    elif total is None:
        data, array = tensor._data, gradient._data
        whole = owned and device.can_hold_a_sum(array)
        if not whole or array.strides != data.strides:
            array = (device.contiguous if whole else device.copy)(array, device.order_of(data))
        tensor.grad = gradient if array is gradient._data and gradient.__class__ is Tensor else Tensor.made(array)
    else:
        device.accumulate(write(total), gradient.array)
