"""Spans: what a profile is made of, one for each call that it saw."""

__all__ = ["FORWARD", "BACKWARD", "MODULE", "PASS", "UPDATE", "KERNEL", "REGION", "OUTSIDE", "Span", "union"]

FORWARD, BACKWARD = "forward", "backward"  # a primitive applied; the gradients of one asked for
MODULE, PASS, UPDATE = "module", "pass", "update"  # a Module called; a walk over the tape; a step of an optimiser
KERNEL, REGION = "kernel", "region"  # compiled code entered; what the user named by record_function
OUTSIDE = ""  # the layer of what no Module asked for


class Span:
    """One call, on one thread.

    name, kind      what was called; kind is one of the words above
    layer           the dotted name of the Module that asked for it; OUTSIDE where none did
    joined          layers whose operations were fused into this one, which runs for them too
    begin, end      seconds by the host's clock since the profile began
    device          (begin, end) of what it gave the GPU to do, seconds on the same scale; None where there was none
    lane            the stream in which that ran, such as "cuda:0"
    parent          the Span inside which it was called, or None
    inner, kernels  seconds of the host in calls inside it; in compiled kernels (their launches, on a GPU)
    inner_device    seconds of the device in calls inside it
    nbytes          bytes of the results, or of the gradients
    kept            bytes that the tape began to keep for backward because of it
    thread          the number that Python gives the thread
    mark            the recorder's own: (place, mark at the begin, mark at the end) until the profile has ended
    """

    __slots__ = (
        "name", "kind", "layer", "joined", "begin", "end", "device", "lane", "parent", "inner", "inner_device",
        "kernels", "nbytes", "kept", "thread", "mark",
    )  # fmt: skip

    def __init__(self, name, kind, parent, thread):
        self.name, self.kind, self.parent, self.thread = name, kind, parent, thread
        self.layer, self.joined = OUTSIDE, ()
        self.begin = self.end = self.inner = self.kernels = self.inner_device = 0.0
        self.nbytes = self.kept = 0
        self.device = self.lane = self.mark = None

    @property
    def seconds(self):
        """Of the host, from begin to end."""
        return self.end - self.begin

    @property
    def own(self):
        """Seconds of the host less those of the calls inside it; kernels are its own."""
        return max(self.end - self.begin - self.inner, 0.0)

    @property
    def device_seconds(self):
        """Of the device, less those of the calls inside it."""
        return max(self.device[1] - self.device[0] - self.inner_device, 0.0) if self.device else 0.0

    def within(self, *kinds):
        """Whether it is, or was called inside, a Span of one of these kinds."""
        span = self
        while span is not None:
            if span.kind in kinds:
                return True
            span = span.parent
        return False

    def __repr__(self):
        place = f" in {self.layer}" if self.layer else ""
        return f"<{self.kind} {self.name}{place}, {1e3 * self.seconds:.3f} ms>"


def union(intervals):
    """Intervals (begin, end) that cover what these cover, apart from one another and in order."""
    found = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found
