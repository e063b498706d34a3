"""Interceptors: tools that see every op, on one stack.

An op that is applied goes through the stack from the newest interceptor to the oldest, and runs in the end:

    class Print(Interceptor):
        def apply(self, primitive, values, below):
            result = proceed(below, primitive, values)
            print(primitive.name, result.shape)
            return result

    with Print():
        loss = model(images).sum()

An interceptor may look at arguments and result, change them, or do something else instead. Threads have stacks of their
own. Where the stack is empty, an op costs one test more.
"""

import contextlib

from minigrad_kernels.toolchain.modes import Mode

__all__ = ["Interceptor", "interceptors", "proceed"]

_stack = Mode("interceptors", ())
interceptors = _stack.get  # those that are open, the newest last


def proceed(below, primitive, values):
    """Apply a primitive to its arguments, in the order of its signature, through the interceptors below.

    Ops that an interceptor applies itself go through those below it.
    """
    if not below:
        return primitive.now(values)
    token = _stack.variable.set(below[:-1])
    try:
        return below[-1].apply(primitive, values, below[:-1])
    finally:
        _stack.variable.reset(token)


class Interceptor(contextlib.ContextDecorator):
    """A tool that sees ops while it is open: as a with block or a decorator.

    eager       whether it wants each op by itself and at once; else one may have been joined with the next (fusion)
    in_place    whether leaves may be updated in place inside, which it hears of by before_write alone
    """

    eager, in_place = False, True

    def __enter__(self):
        _stack.enter((*interceptors(), self))
        return self

    def __exit__(self, *error):
        _stack.leave()

    def apply(self, primitive, values, below):
        """The result of a primitive, which proceed(below, primitive, values) gives."""
        return proceed(below, primitive, values)

    def before_write(self, tensor):
        """A leaf is about to be written in place."""
