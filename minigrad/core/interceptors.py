"""Interceptors: tools that see every op, on one stack.

An op that is applied goes through the stack from the newest interceptor to the oldest, and runs in the end:

    class Print(Interceptor):
        def apply(self, primitive, values, below):
            result = proceed(below, primitive, values)
            print(primitive.name, result.shape)
            return result

    with Print():
        loss = model(images).sum()

An interceptor may look at arguments and result, change them, or do something else instead. Those of a higher `level`
come first, whenever they were opened: autocast (2) decides in which type an op computes, fusion (1) whether it waits
for the next one, and the others (0) see what runs. Threads have stacks of their own. Where the stack is empty, an op
costs one test more.
"""

import contextlib
import operator

from minigrad_kernels.toolchain.modes import Mode

__all__ = ["Interceptor", "interceptors", "ordered", "proceed", "stack"]

stack = Mode("interceptors", ())
interceptors = stack.get  # those that are open, the last one sees an op first


def proceed(below, primitive, values):
    """Apply a primitive to its arguments, in the order of its signature, through the interceptors below.

    Ops that an interceptor applies itself go through those below it.
    """
    if not below:
        return primitive.now(values)
    token = stack.variable.set(below[:-1])
    try:
        return below[-1].apply(primitive, values, below[:-1])
    finally:
        stack.variable.reset(token)


class Interceptor(contextlib.ContextDecorator):
    """A tool that sees ops while it is open: as a with block or a decorator.

    level           see the head of this file
    eager           whether it wants each op by itself and at once; else one may have been joined with the next (fusion)
    in_place        whether leaves may be updated in place inside, which it hears of by before_write alone
    forward_only    whether it has nothing to say to the ops of backward
    """

    level, eager, in_place, forward_only = 0, False, True, False

    def __enter__(self):
        stack.enter(ordered((*interceptors(), self)))
        return self

    def __exit__(self, *error):
        stack.leave()

    def apply(self, primitive, values, below):
        """The result of a primitive, which proceed(below, primitive, values) gives."""
        return proceed(below, primitive, values)

    def before_write(self, tensor):
        """A leaf is about to be written in place."""

    def before_gradient(self, leaf, adds):
        """The gradient of a leaf is about to change: to be added to, or forgotten."""


def ordered(tools):
    """Interceptors as the stack has them."""
    return tuple(sorted(tools, key=operator.attrgetter("level")))
