"""What Tensors refuse beside the ops: reading, conversion, operators, backward, hooks, and what extends the tape."""

import operator
from functools import partial

import numpy as np

import minigrad
from minigrad import Tensor, gradcheck, gradgradcheck, primitive
from minigrad.core import tape
from minigrad.core.tape import write


def leaf(*shape):
    return Tensor(np.ones(shape, np.float32), requires_grad=True)


X, SCALAR, WHOLE = Tensor(np.ones((2, 3), np.float32)), Tensor(np.float32(1)), Tensor(np.array([0, 1]))


def row(name, error, pattern, function, *args, **options):
    return f"{name}: {pattern}", partial(function, *args, **options), error, pattern


def reading():
    several = r"self has shape \(2, 3\), wanted a single element"
    yield row("Tensor.item", ValueError, f"item: {several}", X.item)
    yield row("bool", ValueError, rf"bool: {several}; ask .any\(\) or .all\(\)", bool, X)
    yield row("float", ValueError, f"item: {several}", float, X)
    yield row("int", ValueError, f"item: {several}", int, X)
    yield row("index", TypeError, "index: self has .*wanted a single integer", operator.index, X)
    yield row("index", TypeError, r"index: self has shape \(\) and elements float32", range, SCALAR)
    yield row("len", TypeError, "len: self has no dimensions", len, SCALAR)
    yield row("iter", TypeError, "len: self has no dimensions", list, SCALAR)
    numpy = r"numpy: self requires a gradient, which NumPy would lose; call .detach\(\).numpy\(\)"
    yield row("Tensor.numpy", RuntimeError, numpy, leaf(2).numpy)
    yield row("np.asarray", RuntimeError, numpy, np.asarray, leaf(2))
    yield row("Tensor.size", TypeError, "size: dim is 'a', wanted an integer", X.size, "a")
    yield row("Tensor.size", TypeError, "size: dim is True", X.size, True)
    yield row("Tensor.size", IndexError, "size: dim is 2, but self has 2 dimensions", X.size, 2)
    dlpack = r"dlpack: self requires a gradient, .*call .detach\(\)"
    yield row("np.from_dlpack", BufferError, dlpack, np.from_dlpack, leaf(2))
    backwards = r"dlpack: self lies backwards .*call .clone\(\)"
    yield row("np.from_dlpack", BufferError, backwards, np.from_dlpack, X[:, ::-1])
    yield row("Tensor[]=", RuntimeError, "setitem: input is a leaf that", operator.setitem, leaf(2), 0, 1)
    yield row("Tensor[]", IndexError, "getitem: ", operator.getitem, X, 2)
    yield row("Tensor[]", IndexError, "getitem: ", operator.getitem, X, (0, 0, 0))
    yield row("Tensor[]", IndexError, "getitem: .*wanted integers or bools", operator.getitem, X, [0.5])
    yield row("Tensor[]", IndexError, "getitem: ", operator.getitem, X, "a")
    yield row("Tensor.to", TypeError, "wanted an element type such as 'float32' or the name of a device", X.to, "half")
    yield row("Tensor.to", TypeError, "element type is complex64, wanted", X.to, np.complex64)
    yield row("Tensor.requires_grad_", TypeError, "wants floating elements, got int64", WHOLE.requires_grad_)
    yield row("Tensor.requires_grad_", TypeError, "requires_grad is 'no', wanted True", X.requires_grad_, "no")
    inner = "requires_grad_: self is the result of an operation; use .detach"
    yield row("Tensor.requires_grad_", RuntimeError, inner, (2 * leaf(2)).requires_grad_, False)
    yield row(
        "copy.deepcopy", RuntimeError, "deepcopy: self was made by mul, wanted a leaf", (2 * leaf(2)).__deepcopy__, {}
    )


def operators():
    for function in (operator.add, operator.sub, operator.mul, operator.truediv, operator.eq, operator.lt):
        yield row(f"Tensor {function.__name__}", ValueError, "do not broadcast", function, X, Tensor(np.ones((2, 2))))
    yield row("Tensor @", ValueError, "matmul: ", operator.matmul, X, X)
    yield row("Tensor @", ValueError, "matmul: ", operator.matmul, X, SCALAR)
    yield row("Tensor **", TypeError, "pow", operator.pow, WHOLE, -WHOLE)
    yield row("Tensor &", TypeError, "bitwise_and: ", operator.and_, X, X)
    yield row("Tensor ~", TypeError, "bitwise_not: ", operator.invert, X)
    yield row("Tensor +", ValueError, "add: .*64 bits|add: .* fit", operator.add, WHOLE, 10**30)
    yield row("Tensor + int8", ValueError, "add: ", operator.add, Tensor(np.ones(2, np.int8)), 1000)


def walked():
    """A scalar, through whose graph backward has gone."""
    loss = (leaf(2) * leaf(2)).sum()
    loss.backward()
    return loss


def changed():
    """A scalar, one of whose factors was written to since."""
    factor = leaf(2)
    loss = (factor * leaf(2)).sum()
    write(factor)[...] = 2
    return loss


def backward():
    none = r"the Tensor has no history and does not require a gradient; make what you differentiate by with requires_g"
    yield row("Tensor.backward", RuntimeError, f"backward: {none}", SCALAR.backward)
    yield row("grad", RuntimeError, f"grad: {none}", minigrad.grad, SCALAR, leaf(2))
    yield row(
        "Tensor.backward", RuntimeError, r"an output of shape \(2,\) is no scalar; pass a gradient", leaf(2).backward
    )
    yield row("Tensor.backward", RuntimeError, "retain_graph=True|freed", walked().backward)
    yield row("Tensor.backward", RuntimeError, "mul: .*changed|was written|changed", changed().backward)
    scalar = leaf(2).sum()
    yield row("Tensor.backward", ValueError, "gradient .*shape", scalar.backward, Tensor(np.ones(2, np.float32)))
    yield row("Tensor.backward", TypeError, "backward: gradient is a float, wanted a Tensor", scalar.backward, 1.0)
    yield row("Tensor.backward", TypeError, "gradient is a ndarray, wanted a Tensor", scalar.backward, np.ones(()))
    for name in ("retain_graph", "create_graph"):
        yield row("Tensor.backward", TypeError, f"backward: {name} is 'yes'", scalar.backward, None, **{name: "yes"})
        yield row("grad", TypeError, f"grad: {name} is 2, wanted True or", minigrad.grad, scalar, X, **{name: 2})
    yield row("grad", TypeError, "grad: allow_unused is None", minigrad.grad, scalar, X, allow_unused=None)
    yield row("grad", RuntimeError, r"grad: inputs\[0\] does not require a gradient", minigrad.grad, scalar, X)
    yield row("grad", TypeError, r"grad: inputs\[1\] is a str, wanted a Tensor", minigrad.grad, scalar, [leaf(2), "w"])
    yield row("grad", TypeError, "grad: an output is a float, wanted a Tensor", minigrad.grad, 1.0, leaf(2))
    yield row("grad", ValueError, "grad: 2 grad_outputs for 1 outputs", minigrad.grad, scalar, leaf(2), [X, X])
    unused = r"grad: the outputs do not depend on inputs\[0\]; pass allow_unused=True"
    yield row("grad", RuntimeError, unused, minigrad.grad, scalar, leaf(2))
    yield row(
        "Tensor.register_hook", TypeError, "register_hook: hook is a int, wanted a func", leaf(2).register_hook, 3
    )
    yield row("Tensor.register_hook", RuntimeError, "does not require a gradient", X.register_hook, print)
    post = "register_post_accumulate_grad_hook"
    yield row(f"Tensor.{post}", TypeError, f"{post}: hook is a NoneType", getattr(leaf(2), post), None)
    yield row(f"Tensor.{post}", RuntimeError, f"{post}: wants a leaf", getattr(X, post), print)
    yield row("Tensor.retain_grad", RuntimeError, "retain_grad: self does not require a gradient", X.retain_grad)
    late = "after_backward: no backward pass is under way"
    yield row("after_backward", RuntimeError, late, tape.after_backward, print)
    yield row("write", RuntimeError, "write: the Tensor was made by mul; only leaves", write, 2 * leaf(2))


def doubled(input):
    return 2 * input


def returned(result):
    def op(input):
        return result

    return primitive(op)


def extensions():
    yield row("primitive", TypeError, "primitive: forward is a int, wanted a function", primitive, 3)
    yield row("primitive", TypeError, r"fixed or view names \['x'\]", primitive, doubled, view="x")
    yield row("primitive", TypeError, r"fixed or view names \['y'\]", primitive, doubled, fixed=("y",))
    double = primitive(doubled)
    rule = r"doubled: a rule is given for x, the arguments are \('input',\)"
    yield row("Primitive.grads", TypeError, rule, double.grads, x=lambda g: g)
    yield row("Primitive.grads", TypeError, r"the rule of input asks for \['y'\]", double.grads, input=lambda g, y: g)
    yield row("primitive", RuntimeError, "doubled: input requires a gradient but has no rule", double, leaf(2))
    yield row("primitive", TypeError, "op: the function returned a list, wanted an array", returned([1.0]), X)
    yield row("primitive", TypeError, "a function of Tensors needs no @primitive", returned(X), X)
    yield row(
        "recompute", TypeError, "recompute: function is a int, wanted one that can be called", minigrad.recompute, 3
    )
    yield row("gradcheck", TypeError, "gradcheck: inputs is a int, wanted", gradcheck, doubled, 3)
    yield row("gradgradcheck", TypeError, "gradgradcheck: inputs is a str", gradgradcheck, doubled, "x")


REFUSALS = [*reading(), *operators(), *backward(), *extensions()]
