"""minigrad.autograd, as torch.autograd: grad, Function for gradients of one's own, and Variable of long ago.

A Function states its gradient for all arguments at once. A new op is shorter as a `primitive`, one rule an argument.
"""

import functools
import inspect

from minigrad_kernels.errors import KindError, StateError

from .core.modes import enable_grad, no_grad, recording
from .core.primitive import primitive
from .core.tape import backward as _backward
from .core.tape import grad
from .core.tensor import Tensor, tensors_of

__all__ = ["Function", "Variable", "backward", "enable_grad", "grad", "no_grad"]


def Variable(data, requires_grad=False):
    """data itself: Tensors have had gradients of their own since PyTorch 0.4."""
    return data.requires_grad_() if requires_grad else data


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False):
    """Tensor.backward of each of these Tensors."""
    tensors = [tensors] if isinstance(tensors, Tensor) else tensors
    given = [None] * len(tensors) if grad_tensors is None else grad_tensors
    for tensor, gradient in zip(tensors, given, strict=True):
        _backward(tensor, gradient, retain_graph, create_graph)


class Context:
    """What forward leaves for backward, under any names.

    saved_tensors       what save_for_backward was given
    needs_input_grad    for each argument of forward: whether it is a Tensor that requires a gradient
    """

    def __init__(self, name, arguments):
        self._name, self._are_tensors = name, [isinstance(one, Tensor) for one in arguments]
        self._shapes = [one.shape for one in arguments if isinstance(one, Tensor)]
        self.needs_input_grad = tuple(isinstance(one, Tensor) and one.requires_grad for one in arguments)
        self._saved, self._asked, self._given = (), (), []

    def save_for_backward(self, *tensors):
        """Keep Tensors, or None, for backward."""
        self._saved = [(tensor, None if tensor is None else tensor.version[0]) for tensor in tensors]

    @property
    def saved_tensors(self):
        if any(tensor is not None and tensor.version[0] != number for tensor, number in self._saved):
            raise StateError(f"{self._name}: a saved Tensor was changed after forward; call backward before")
        return tuple(tensor for tensor, _ in self._saved)

    def _gradient(self, backward, index, incoming):
        """The gradient of the Tensor number `index` among the arguments; a pass asks backward once for all of them."""
        asked = *incoming, recording.get()
        if len(asked) != len(self._asked) or any(a is not b for a, b in zip(asked, self._asked, strict=True)):
            given = backward(self, *incoming)
            given = given if isinstance(given, tuple) else (given,)
            if len(given) < len(self._are_tensors):
                wanted = f"wanted one for each of the {len(self._are_tensors)} arguments of forward"
                raise KindError(f"{self._name}: backward returned {len(given)} gradients, {wanted}")
            tensors = [one for one, is_tensor in zip(given, self._are_tensors, strict=False) if is_tensor]
            self._asked, self._given = asked, tensors
        gradient = self._given[index]
        # A copy, as backward may give one Tensor twice, or a saved one.
        return incoming[0].new_zeros(self._shapes[index]) if gradient is None else gradient.clone()


class Function:
    """An op with a gradient of its own: subclass it, define forward and backward, and call apply.

        class Square(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                return 2 * x * g

        y = Square.apply(x)

    forward     gets a context and the arguments of apply, and gives a Tensor or a tuple of Tensors. Nothing that it
                does is recorded. Or it gets the arguments alone, where setup_context(ctx, inputs, output) is defined
    backward    gets the context and a gradient for each output, and gives one for each argument of forward, None for
                what has none. What it computes can be differentiated again
    Errors  TypeError if forward gives no Tensor, or backward another number of gradients
    """

    @classmethod
    def apply(cls, *arguments):
        """forward of these arguments, recorded with backward as its gradient."""
        context, apart = Context(cls.__name__, arguments), hasattr(cls, "setup_context")
        with no_grad():
            results = cls.forward(*arguments) if apart else cls.forward(context, *arguments)
            if apart:
                cls.setup_context(context, arguments, results)
        several = tensors_of(cls.__name__, results if isinstance(results, tuple) else (results,))
        call, arrays = functools.partial(context._gradient, cls.backward), tuple(result.array for result in several)
        tensors = [one for one in arguments if isinstance(one, Tensor)]
        made = _applied(len(several))(*tensors, call=call, results=arrays)
        return (made,) if isinstance(results, tuple) and len(several) == 1 else made

    @staticmethod
    def forward(context, *arguments):
        raise NotImplementedError("Function: forward is not defined")

    @staticmethod
    def backward(context, *gradients):
        raise NotImplementedError("Function: backward is not defined")


@functools.cache
def _applied(count):
    """The primitive of all Functions with so many outputs: its result is there, its gradient is what the call gives."""

    def function(*inputs, call, results):
        return results if count > 1 else results[0]

    outputs = [f"out{i}" for i in range(count)]
    names = ["call", "index", "g", *[f"g_{name}" for name in outputs[1:]]]
    rule = lambda call, index, *incoming: call(index, incoming)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    rule.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    made = primitive(outputs=tuple(outputs), fixed=("call", "results"))(function)
    made.grads(inputs=rule)
    return made
