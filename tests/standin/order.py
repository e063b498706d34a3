"""What has to happen before what: finds memory that two streams use while neither waits for the other.

Everything here runs at once, so such a mistake would go unseen. Therefore each stream counts its operations, and knows
how far it has seen those of the others: by events that it waited for, by the host that waited, and by the rules of the
default stream. An access that overlaps one of another stream, not both of them reads, has to have seen that.

The host's threads count as one. Memory that goes back to the pool may be the next that its stream gets: whoever gets
it is taken to have the very bytes that other streams may still be using.
"""

MANY = 32  # accesses to one allocation, from where on those that the host waited for are forgotten
DEFAULT = 0  # what the driver calls the default stream of a device


class OrderError(RuntimeError):
    """Two streams use the same memory and neither waits for the other."""


class Order:
    """Streams are (device, what the driver calls them); a vector says how many operations of each were seen."""

    def __init__(self):
        self.streams, self.host, self.independent = {}, {}, set()
        self.given_back = {}  # stream that memory was allocated on -> [(bytes, accesses that may not have ended)]

    # ---- who has seen what -------------------------------------------------------------------------------------------

    def vector(self, stream):
        """What an operation that starts now on a stream has seen."""
        found = self.streams.setdefault(stream, {})
        merge(found, self.host)
        if stream not in self.independent:
            device, name = stream
            for other, seen in list(self.streams.items()):
                beside = other[0] == device and other != stream and other not in self.independent
                if beside and DEFAULT in (name, other[1]):
                    merge(found, seen)
        return found

    def host_waits(self, *streams, seen=None):
        """The host waits for streams, or for what an event has seen."""
        for stream in streams:
            merge(self.host, self.vector(stream))
        merge(self.host, seen or {})

    def recorded(self, stream):
        """What an event that is recorded now stands for."""
        return dict(self.vector(stream))

    def waits(self, stream, vector):
        merge(self.vector(stream), vector)

    # ---- accesses ----------------------------------------------------------------------------------------------------

    def allocated(self, owner, stream, size):
        """Memory may be what was given back on this stream before."""
        owner.stream, owner.accesses = stream, []
        for bytes_, accesses in list(self.given_back.get(stream, [])):  # a finaliser may add to it
            if bytes_ >= size:
                owner.accesses += [(0, size, True, *a[3:5], a[5] + " (before it was given back)") for a in accesses]

    def freed(self, owner, size):
        left = [access for access in owner.accesses if access[3] != owner.stream and not _seen(self.host, access)]
        kept = self.given_back.setdefault(owner.stream, [])
        kept[:] = [(n, some) for n, some in kept if not all(_seen(self.host, access) for access in some)]
        if left:
            kept.append((size, left))

    def operate(self, stream, name, reads, writes):
        """An operation on a stream that reads and writes bytes: (owner, first, end) of each.

        Errors  OrderError if it need not have seen an access of another stream
        """
        vector = self.vector(stream)
        vector[stream] = clock = vector.get(stream, 0) + 1
        for ranges, writing in ((reads, False), (writes, True)):
            for owner, low, high in ranges:
                accesses = getattr(owner, "accesses", None)
                if accesses is None or low == high:
                    continue
                if len(accesses) > MANY:
                    accesses[:] = [access for access in accesses if not _seen(self.host, access)]
                for access in accesses:
                    if access[0] < high and low < access[1] and (writing or access[2]) and not _seen(vector, access):
                        raise OrderError(_told(name, stream, writing, access))
                covered = lambda a, low=low, high=high, writing=writing: low <= a[0] and a[1] <= high and (
                    writing or not a[2] and a[3] == stream
                )  # fmt: skip
                accesses[:] = [access for access in accesses if not covered(access)]
                accesses.append((low, high, writing, stream, clock, name))


def merge(vector, other):
    for stream, clock in other.items():
        if vector.get(stream, 0) < clock:
            vector[stream] = clock


def _seen(vector, access):
    return vector.get(access[3], 0) >= access[4]


def _told(name, stream, writing, access):
    place = lambda stream: f"on stream {stream[1]} of device {stream[0]}"
    return (
        f"{name} {place(stream)} {'writes' if writing else 'reads'} memory that {access[5]} {place(access[3])} "
        f"{'wrote' if access[2] else 'read'}, and does not wait for it (stand-in: record an event there and wait here)"
    )
