"""The profiles that are under way. A thread sees those that were begun in it, those alone."""

import contextvars
import threading

__all__ = ["active", "opened", "profiles"]

profiles: "contextvars.ContextVar[tuple]" = contextvars.ContextVar("profiles", default=())


def active():
    """The recorders of the profiles that are under way in this thread."""
    found = profiles.get()
    return [one for one in found if one.thread == threading.get_ident()] if found else ()


class opened:
    """A Span in every profile that is under way, as a context; done(span, recorder) is called for each at its end."""

    __slots__ = ("recorders", "spans")

    def __init__(self, recorders, name, kind, layers=None, place=None):
        self.recorders = recorders
        layers = layers or [None] * len(recorders)
        self.spans = [one.open(name, kind, layer, place) for one, layer in zip(recorders, layers, strict=True)]

    def __enter__(self):
        return list(zip(self.spans, self.recorders, strict=True))

    def __exit__(self, *error):
        for span, recorder in zip(reversed(self.spans), reversed(self.recorders), strict=True):
            recorder.close(span)
