"""Messages between the ranks of a job over TCP, one connection between every two.

One thread does the reading for all connections, always, so two ranks that send much to each other never wait for one
another. It also writes large payloads, straight from the array they lie in; small messages are sent by whoever posts
them. It sleeps while nothing happens.

Bytes    a frame (kind, channel, length of the header, length of the payload), the payload, the header. The payload
         comes first so that it begins where memory is aligned.
The end  A rank that ends in good order says GOODBYE on each connection, one that fails says ABORT and why; then it
         sends no more, and reads until the other side has closed too. An end without either is a crash.
"""

import selectors
import socket as sockets
import struct
import threading
import time
from collections import defaultdict, deque

import numpy as np

from minigrad_kernels.errors import ShapeError

from .. import device
from .errors import CommunicationError, DeadlineError, PeerLost
from .transport import Done, Transport

__all__ = ["TcpTransport"]

FRAME = struct.Struct("<BxHIQ")
MESSAGE, GOODBYE, ABORT = 1, 2, 3
HEADER_LIMIT = 1 << 16  # bytes
PAYLOAD_LIMIT = 1 << 40
CHANNELS = 1 << 15
SMALL = 1 << 16  # bytes of a payload that is copied rather than waited for
READS = 16  # from one connection before the others have their turn
LINGER = 2.0  # seconds that the end may take where a peer does not answer
FOREVER = 1e6  # seconds; conditions take no infinity


class _Parcel:
    """Bytes on their way to one rank, and the Delivery of them."""

    def __init__(self, link, parts):
        self.link = link
        self.parts = deque(memoryview(part) for part in parts)
        self.done = False

    def wait(self, deadline):
        link = self.link
        link.transport._wait_until(lambda: self.done, link.rank, deadline, "what was sent was not taken")


class _Link:
    """The connection with one rank. Its reading side belongs to the thread, its writing side to who holds `sending`."""

    def __init__(self, transport, rank, connection):
        self.transport, self.rank, self.connection = transport, rank, connection
        self.socket = connection.socket
        self.lost = None  # why nothing comes any more, in words
        self.sending = threading.RLock()  # a signal's handler may abort in the middle of a post
        self.outgoing = deque()
        self.last = False  # nothing is to follow what is outgoing
        self.events = selectors.EVENT_READ
        self.frame, self.body = bytearray(FRAME.size), None
        self.view = memoryview(self.frame)  # what is to be filled next

    def write(self):
        """Send as much as the socket takes; whether something is left. Its caller holds `sending`."""
        while self.outgoing:
            parcel = self.outgoing[0]
            while parcel.parts:
                try:
                    rest = parcel.parts[0][self.socket.send(parcel.parts[0]) :]
                except BlockingIOError:
                    return True
                except OSError:  # the reading side will find out why, and perhaps the peer's last words
                    self.outgoing.clear()
                    return False
                if rest:
                    parcel.parts[0] = rest
                else:
                    parcel.parts.popleft()
            self.outgoing.popleft()
            self.transport._mark(parcel)
        return False

    def advance(self):
        """The message that is complete now that `view` is full, or None; sets the next `view`."""
        if self.body is None:
            kind, _, header, payload = FRAME.unpack(self.frame)
            if kind not in (MESSAGE, GOODBYE, ABORT) or header > HEADER_LIMIT or payload > PAYLOAD_LIMIT:
                raise CommunicationError(f"it announced {header} and {payload} bytes of kind {kind}, which cannot be")
            self.body = device.empty((payload + header,), np.uint8)
            self.view = memoryview(self.body)
            if payload + header:
                return None
        kind, channel, _, payload = FRAME.unpack(self.frame)
        body, self.body, self.view = self.body, None, memoryview(self.frame)
        return kind, channel, body[payload:].tobytes(), body[:payload]


class TcpTransport(Transport):
    """Messages over the connections of a Meeting, which belong to it from then on."""

    name = "tcp"

    def __init__(self, meeting):
        self.rank, self.size = meeting.rank, meeting.size
        self._changed = threading.Condition()  # of inboxes, of what is lost or done, of the reason
        self._inboxes = defaultdict(deque)  # (source, channel) -> [(header, payload)]
        self._reason, self._ended, self._hurry = None, False, False
        self._links = {peer: _Link(self, peer, connection) for peer, connection in meeting.connections.items()}
        self._open = set(self._links.values())  # the thread's own, as is the selector
        self._selector = selectors.DefaultSelector()
        self._bell, self._ear = sockets.socketpair()  # wakes the thread
        self._called = deque()  # links that have something to write
        for socket in (self._bell, self._ear):
            socket.setblocking(False)
        self._selector.register(self._ear, selectors.EVENT_READ)
        for link in self._open:
            self._selector.register(link.socket, selectors.EVENT_READ, link)
        self._thread = threading.Thread(target=self._serve, name="minigrad-tcp", daemon=True)
        self._thread.start()

    def post(self, to, channel, header, payload):
        if len(header) > HEADER_LIMIT or not 0 <= channel < CHANNELS:
            wanted = f"at most {HEADER_LIMIT} bytes and a channel below {CHANNELS}"
            raise ShapeError(f"post: header has {len(header)} bytes, channel is {channel}, want {wanted}")
        if to == self.rank:
            self._arrived(to, channel, header, payload.copy())
            return Done()
        link, payload = self._links[to], payload.reshape(-1).view(np.uint8)
        if self._ended or self._reason or link.lost:
            raise self._error(to)
        frame = FRAME.pack(MESSAGE, channel, len(header), payload.nbytes)
        small = payload.nbytes <= SMALL
        parcel = _Parcel(link, [b"".join((frame, payload, header))] if small else [frame, payload, header])
        with link.sending:
            link.outgoing.append(parcel)
            left = link.write() if small and len(link.outgoing) == 1 else True
        if left:
            self._call(link)
        return Done() if small else parcel

    def take(self, source, channel, deadline):
        with self._changed:
            inbox = self._inboxes[source, channel]
            self._wait_until(lambda: inbox, source, deadline, "no message came")
            return inbox.popleft()

    def abort(self, reason):
        self._end(ABORT, reason)

    def close(self):
        self._end(GOODBYE, "")

    def _wait_until(self, reached, peer, deadline, complaint):
        with self._changed:
            while not reached():
                if self._ended or self._reason or (peer != self.rank and self._links[peer].lost):
                    raise self._error(peer)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise DeadlineError(f"rank {self.rank}: {complaint} in time, of rank {peer}")
                self._changed.wait(min(left, FOREVER))

    def _error(self, peer):
        """Why nothing more is to be had of that rank."""
        if self._reason:
            return CommunicationError(self._reason)
        if self._ended:
            return CommunicationError(f"rank {self.rank}: its transport is closed")
        return PeerLost(f"rank {peer} {self._links[peer].lost}, while rank {self.rank} still needs it")

    def _mark(self, parcel):
        with self._changed:
            parcel.done = True
            self._changed.notify_all()

    def _call(self, link):
        """Have the thread write to that rank."""
        self._called.append(link)
        self._ring()

    def _ring(self):
        try:
            self._bell.send(b"\0")
        except OSError:  # it rings already, or the thread is gone
            pass

    def _end(self, kind, text):
        with self._changed:
            if self._ended:
                return
            self._ended = True
            if kind == ABORT:
                text = self._reason = self._reason or text
            self._changed.notify_all()
        text = text.encode()[:HEADER_LIMIT]
        for link in self._links.values():
            with link.sending:
                while kind == ABORT and len(link.outgoing) > 1:  # a part of the first may have left
                    link.outgoing.pop()
                link.outgoing.append(_Parcel(link, [FRAME.pack(kind, 0, len(text), 0) + text]))
                link.last = True
            self._call(link)
        self._thread.join(LINGER)
        self._hurry = True
        self._ring()
        self._thread.join(LINGER)

    # What follows is done by the thread.

    def _serve(self):
        try:
            while self._open and not self._hurry:
                for key, events in self._selector.select():
                    if key.data is None:
                        self._answer()
                        continue
                    if events & selectors.EVENT_READ:
                        self._read(key.data)
                    if events & selectors.EVENT_WRITE and key.data in self._open:
                        self._write(key.data)
        except BaseException as error:
            with self._changed:
                self._reason = self._reason or f"rank {self.rank}: its communication failed: {error!r}"
        finally:
            for link in list(self._open):
                self._lose(link, "was left")
            for resource in (self._selector, self._bell, self._ear):
                resource.close()

    def _answer(self):
        """Write where the bell rang for."""
        try:
            self._ear.recv(4096)
        except BlockingIOError:
            pass
        while self._called:
            link = self._called.popleft()
            if link in self._open:
                self._write(link)

    def _write(self, link):
        with link.sending:
            left = link.write()
            if link.last and not left:
                try:
                    link.socket.shutdown(sockets.SHUT_WR)
                except OSError:  # it is broken, as the reading side will see
                    pass
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if left else 0)
        if events != link.events:
            link.events = events
            self._selector.modify(link.socket, events, link)

    def _read(self, link):
        for _ in range(READS):
            try:
                count = link.socket.recv_into(link.view)
                if not count:
                    return self._lose(link, "is gone: its connection was closed without a goodbye")
                link.view = link.view[count:]
                if link.view:
                    return  # that was all there is for now
                message = link.advance()
            except BlockingIOError:
                return
            except (OSError, MemoryError, CommunicationError) as error:
                return self._lose(link, f"is lost: {error}")
            if message:
                self._understand(link, *message)

    def _understand(self, link, kind, channel, header, payload):
        if kind == MESSAGE:
            return self._arrived(link.rank, channel, header, payload)
        with self._changed:
            if kind == ABORT:
                self._reason = self._reason or header.decode("utf-8", "replace")
            else:
                link.lost = link.lost or "has ended"
            self._changed.notify_all()

    def _arrived(self, source, channel, header, payload):
        with self._changed:
            self._inboxes[source, channel].append((header, payload))
            self._changed.notify_all()

    def _lose(self, link, why):
        """Close a connection through which nothing more will come."""
        self._open.discard(link)
        self._selector.unregister(link.socket)
        link.connection.close()
        with link.sending:
            link.outgoing.clear()
        with self._changed:
            link.lost = link.lost or why
            self._changed.notify_all()
