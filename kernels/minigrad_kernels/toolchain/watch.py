"""Watchers: tools that are told of the parts of a program which are no ops.

    kind        subject, and what happens
    "module"    a Module is called
    "pass"      the tape is walked from the last op to the first
    "backward"  a node of the tape is visited: its gradients are computed and passed on
    "update"    an optimiser takes a step
    "kernel"    a kernel: compiled code is entered
    "region"    a name that the user gives to what happens inside

A watcher is a function of kind and subject, called when a part begins, that returns a context which lasts as long as
the part. Threads have watchers of their own. Where there are none, a part costs one test.
"""

import contextlib
import functools

from .modes import Mode

_watchers = Mode("watchers", ())
watchers = _watchers.get  # the functions that are told, the newest last


def watching(watcher):
    """A with block in which a watcher is told."""
    return _watchers.setting((*watchers(), watcher))


@contextlib.contextmanager
def part(kind, subject):
    """A with block that is a part of this kind."""
    with contextlib.ExitStack() as stack:
        for watcher in watchers():
            stack.enter_context(watcher(kind, subject))
        yield


def launched(kernel, call, *arguments):
    """call(*arguments), told as the part of a kernel; what it enters itself belongs to it and is not told."""
    with part("kernel", kernel):
        token = _watchers.variable.set(())
        try:
            return call(*arguments)
        finally:
            _watchers.variable.reset(token)


def watched(kind):
    """A decorator: each call of the function is a part of this kind, whose subject is the first argument."""

    def decorated(function):
        @functools.wraps(function)
        def run(subject, *args, **kwargs):
            if not watchers():
                return function(subject, *args, **kwargs)
            with part(kind, subject):
                return function(subject, *args, **kwargs)

        return run

    return decorated
