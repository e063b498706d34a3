"""One authenticated TCP connection between two processes that know the same key.

Whoever connects and whoever accepts prove to each other that they know the key, by HMAC-SHA256 over fresh random
numbers of both and over the role of the one who proves (so that nobody can send a proof back to its author). Then
messages of bytes go both ways, each behind its length. What is sent is neither encrypted nor signed: the key keeps
strangers out, not those who can change what passes on the network.

Bytes    connecting: MAGIC, 32 random;  accepting: MAGIC, 32 random, its proof;  connecting: its proof;  accepting: OK
Source   RFC 2104 (HMAC); ISO/IEC 9798-4 (mutual authentication by three passes)
"""

import errno
import hmac
import secrets
import selectors
import socket as sockets
import struct
import time
from collections import Counter

from minigrad_kernels.errors import KindError, ShapeError

from .errors import CommunicationError, DeadlineError, PeerLost, WrongKey

__all__ = ["LIMIT", "Connection", "listen"]

MAGIC = b"minigrad link 1\n"  # names the version of this protocol
REFUSAL = MAGIC + b"is all that is spoken here\n"
NONCE = 32  # bytes
PROOF = 32
OK = b"\x06"
LIMIT = 1 << 24  # bytes of a message; what is larger belongs to a transport
PIECE = 1 << 18  # bytes read at once, whatever length was announced
LENGTH = struct.Struct("<Q")
STALL = 2.0  # seconds that one who knocks may take to prove itself while others wait
ANSWER = 10.0  # seconds after which one who got no answer knocks again
FOREVER = 1e6  # seconds; what poll() takes at most is a little more

# poll() has no limit on descriptors, unlike select(), and needs no descriptor of its own, unlike epoll.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


def listen(host="", port=0):
    """A socket that listens for Connection.accept, over IPv4 and IPv6 where host is empty.

    port     0 for a free one; .getsockname()[1] says which
    Errors   CommunicationError if the port is taken or the host is not here
    """
    try:
        if host:
            family, *_, address = sockets.getaddrinfo(host, port, type=sockets.SOCK_STREAM)[0]
            listener = sockets.create_server(address[:2], family=family, backlog=1024)
        else:
            listener = _listen_everywhere(port)
    except OSError as error:
        place = f"port {port}" + (f" of {host}" if host else "")
        hint = "another process listens there; choose another port" if error.errno == errno.EADDRINUSE else error
        raise CommunicationError(f"listen: cannot listen on {place}: {hint}") from error
    listener.setblocking(False)
    return listener


def _listen_everywhere(port):
    if sockets.has_dualstack_ipv6():
        try:
            return sockets.create_server(("", port), family=sockets.AF_INET6, backlog=1024, dualstack_ipv6=True)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
    return sockets.create_server(("", port), backlog=1024)  # IPv6 is switched off on this host


class Connection:
    """Messages of bytes to and from one peer; one thread may send while another receives.

    Deadlines are values of time.monotonic(). After a DeadlineError a receive may be tried again; a send that was cut
    off by its deadline closes the connection, for its rest would be missing.
    """

    def __init__(self, socket):
        """Of a connected socket, whose peer is trusted; use connect or accept."""
        self.socket = socket
        self._partial = bytearray()  # of what is being read
        self._length = None  # of the message that is being read
        socket.setblocking(False)
        try:
            self.address, self.port = _place(socket.getpeername())
            self.local_address, _ = _place(socket.getsockname())
            _tune(socket)
        except OSError as error:  # the peer is gone already
            socket.close()
            raise PeerLost(f"connection: lost at once: {error}") from error

    @classmethod
    def connect(cls, host, port, key, deadline):
        """Connect to whoever listens there, trying again until the deadline.

        Errors  WrongKey at once if someone with another key answers, CommunicationError at once if it does not speak
                this protocol; DeadlineError with the last reason
        """
        _check_key(key)
        wait, reason = 0.02, "there was no time to try"
        while time.monotonic() < deadline:
            try:
                return cls._connect_once(host, port, key, deadline)
            except (DeadlineError, PeerLost, OSError) as error:
                reason = error
            time.sleep(max(0.0, min(wait, deadline - time.monotonic())))
            wait = min(2 * wait, 0.5)
        raise DeadlineError(f"connect: {_name(host, port)} did not answer in time: {reason}") from None

    @classmethod
    def _connect_once(cls, host, port, key, deadline):
        problem = None
        for family, kind, protocol, _, address in sockets.getaddrinfo(host, port, type=sockets.SOCK_STREAM):
            limit = min(deadline, time.monotonic() + ANSWER)
            socket = sockets.socket(family, kind, protocol)
            try:
                socket.settimeout(max(0.001, limit - time.monotonic()))
                socket.connect(address)
                if socket.getsockname() == socket.getpeername():
                    # The system gave this socket the very port it looks for, and so it met itself. It must leave no
                    # trace, else nobody could listen there for a minute.
                    socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0))
                    raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")
                connection = cls(socket)
                connection._ask(key, limit)
                return connection
            except (DeadlineError, PeerLost, OSError) as error:
                socket.close()
                problem = error
            except BaseException:
                socket.close()
                raise
        raise problem

    @classmethod
    def accept(cls, listener, key, deadline, dropped=None):
        """The next connection of one who knows the key; others are dropped, and counted in the error.

        listener  of listen(); it is readable while someone waits to be accepted
        dropped   a Counter of reasons to go on with, for one who accepts several
        Errors    DeadlineError
        """
        _check_key(key)
        dropped = Counter() if dropped is None else dropped
        while _ready(listener, selectors.EVENT_READ, deadline):
            try:
                socket, _ = listener.accept()
            except (BlockingIOError, ConnectionError):
                continue  # who knocked has left
            try:
                connection = cls(socket)
                connection._admit(key, min(deadline, time.monotonic() + STALL))
                return connection
            except DeadlineError:
                dropped["too slow"] += 1
            except WrongKey:
                dropped["with another key"] += 1
            except PeerLost:
                dropped["gone before it proved itself"] += 1
            except CommunicationError:
                dropped["of another protocol"] += 1
            socket.close()
            if time.monotonic() > deadline:  # or a flood of strangers would keep us here
                break
        port = listener.getsockname()[1]
        counts = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        raise DeadlineError(
            f"accept: nobody came to port {port} in time" + (f"; turned away: {counts}" if counts else "")
        )

    def send(self, message, deadline):
        """Errors: PeerLost, DeadlineError, ShapeError for more than LIMIT bytes."""
        if len(message) > LIMIT:
            raise ShapeError(f"send: message has {len(message)} bytes, want at most {LIMIT}")
        self._write(LENGTH.pack(len(message)) + message, deadline)

    def receive(self, deadline):
        """The next message. Errors: PeerLost, DeadlineError, CommunicationError for an absurd length."""
        if self._length is None:
            (length,) = LENGTH.unpack(self._read(LENGTH.size, deadline))
            if length > LIMIT:
                self.close()
                raise CommunicationError(f"{self} announced {length} bytes, the limit is {LIMIT}; closed")
            self._length = length
        message = self._read(self._length, deadline)
        self._length = None
        return message

    def poll(self, seconds):
        """Whether something came, or the peer went, within so many seconds."""
        return _ready(self.socket, selectors.EVENT_READ, time.monotonic() + seconds)

    def fileno(self):
        return self.socket.fileno()

    def close(self):
        self.socket.close()

    def __str__(self):
        return f"connection with {_name(self.address, self.port)}"

    def _ask(self, key, deadline):
        """The part of the one who connects."""
        ours = secrets.token_bytes(NONCE)
        self._write(MAGIC + ours, deadline)
        magic = self._read(len(MAGIC), deadline)
        if magic != MAGIC:
            raise CommunicationError(
                f"{self}: it speaks another protocol, {magic!r}, not {MAGIC!r}: is the port right?"
            )
        theirs = self._read(NONCE, deadline)
        if not hmac.compare_digest(self._read(PROOF, deadline), _proof(key, b"accepts ", ours, theirs)):
            self._write(bytes(PROOF), deadline)  # no proof: it says no more than that we go
            raise WrongKey(f"{self}: it does not know the key; is it of another job?")
        self._write(_proof(key, b"connects", ours, theirs), deadline)
        self._read(len(OK), deadline)

    def _admit(self, key, deadline):
        """The part of the one who accepts."""
        if self._read(len(MAGIC), deadline) != MAGIC:
            self._write(REFUSAL, deadline)
            raise CommunicationError(f"{self}: it speaks another protocol")
        theirs, ours = self._read(NONCE, deadline), secrets.token_bytes(NONCE)
        self._write(MAGIC + ours + _proof(key, b"accepts ", theirs, ours), deadline)
        if not hmac.compare_digest(self._read(PROOF, deadline), _proof(key, b"connects", theirs, ours)):
            raise WrongKey(f"{self}: it does not know the key")
        self._write(OK, deadline)

    def _read(self, count, deadline):
        while len(self._partial) < count:
            try:
                piece = self.socket.recv(min(count - len(self._partial), PIECE))
            except BlockingIOError:
                if not _ready(self.socket, selectors.EVENT_READ, deadline):
                    raise DeadlineError(f"{self}: nothing came in time") from None
                continue
            except OSError as error:
                raise self._lost(error) from error
            if not piece:
                raise self._lost("closed by the other side")
            self._partial += piece
        taken, self._partial = bytes(self._partial), bytearray()
        return taken

    def _write(self, message, deadline):
        rest = memoryview(message)
        while rest:
            try:
                rest = rest[self.socket.send(rest) :]
            except BlockingIOError:
                if not _ready(self.socket, selectors.EVENT_WRITE, deadline):
                    self.close()
                    raise DeadlineError(f"{self}: what was sent was not taken in time; closed") from None
            except OSError as error:
                raise self._lost(error) from error

    def _lost(self, reason):
        return PeerLost(f"{self}: {'closed on this side' if self.fileno() < 0 else reason}")


def _proof(key, role, connecting, accepting):
    return hmac.digest(key, MAGIC + role + connecting + accepting, "sha256")


def _ready(socket, event, deadline):
    """Wait until the socket is ready for the event; False if it is not at the deadline."""
    if socket.fileno() < 0:
        raise CommunicationError("connection: it is closed on this side")
    with _Selector() as selector:
        selector.register(socket, event)
        return bool(selector.select(min(max(0.0, deadline - time.monotonic()), FOREVER)))


def _tune(socket):
    """Send small messages at once, and notice within a minute that a host is gone."""
    socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
    socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(sockets, option):  # not every system has them
            socket.setsockopt(sockets.IPPROTO_TCP, getattr(sockets, option), value)


def _check_key(key):
    if not isinstance(key, bytes) or not key:
        raise KindError(f"connection: key is of type {type(key).__name__}, want bytes, at least one")


def _place(address):
    """Host and port of a socket address; one of IPv4 that came through a socket for both is written as such."""
    host, port = address[:2]
    return host.removeprefix("::ffff:"), port


def _name(host, port):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
