"""Ranks that are threads of one process: replicas on its devices, several on one if need be."""

import contextvars
import copy
import threading
import time
from collections import defaultdict, deque

import numpy as np

from ..core.check import integer_of
from ..device import random
from .communicator import Communicator, current
from .errors import CommunicationError, DeadlineError, PeerLost
from .transport import Transport


class _Mail:
    """The messages that wait, of all threads."""

    def __init__(self, size):
        self.size = size
        self.changed = threading.Condition()
        self.waiting = defaultdict(deque)  # (source, to, channel) -> [(header, payload)]
        self.gone, self.reason = set(), None


class LocalTransport(Transport):
    """Messages between threads, through memory that they share."""

    name, backend = "local", "host"

    def __init__(self, rank=0, mail=None):
        self.mail = mail or _Mail(1)
        self.rank, self.size = rank, self.mail.size

    def post(self, to, channel, header, payload):
        mail = self.mail
        with mail.changed:
            self.check()
            mail.waiting[self.rank, to, channel].append((header, payload.view(np.uint8).copy()))
            mail.changed.notify_all()

    def take(self, source, channel, deadline):
        mail, key = self.mail, (source, self.rank, channel)
        with mail.changed:
            while True:
                if mail.waiting[key]:
                    return mail.waiting[key].popleft()
                self.check()
                if source in mail.gone:
                    raise PeerLost(f"rank {source} has ended, while rank {self.rank} waits for a message of it")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise DeadlineError(f"rank {self.rank}: no message from rank {source} came in time")
                mail.changed.wait(min(left, threading.TIMEOUT_MAX))

    def check(self):
        if self.mail.reason:
            raise CommunicationError(self.mail.reason)
        if self.rank in self.mail.gone:
            raise CommunicationError(f"rank {self.rank}: its transport is closed")

    def settle(self, deadline, posted=None):
        """Nothing is under way: a message is there as soon as it was posted."""

    def abort(self, reason):
        with self.mail.changed:
            self.mail.reason = self.mail.reason or reason
            self.mail.changed.notify_all()

    def close(self):
        with self.mail.changed:
            self.mail.gone.add(self.rank)
            self.mail.changed.notify_all()


def run_local(function, size, *arguments, timeout=60.0):
    """Call function(world, *arguments) in `size` threads, each a rank of its own; returns the list of the results.

    The threads begin with equal random numbers of their own, so each builds the same model. parallel.init() inside
    gives the thread's world.

    timeout     seconds for a collective
    Errors      the first exception of a rank, once all have ended
    """
    mail, results, failures = _Mail(integer_of("run_local", "size", size, 1)), [None] * size, []

    def run(rank):
        world = Communicator(LocalTransport(rank, mail), timeout=timeout)
        current.set(world)
        random.current.set(copy.deepcopy(random.generator()))
        try:
            with world:
                results[rank] = function(world, *arguments)
        except BaseException as error:
            failures.append(error)  # in the order of time, so the first is the cause

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(run, rank), name=f"minigrad-rank-{rank}")
        for rank in range(size)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException as error:  # Ctrl-C reaches this thread alone
        LocalTransport(0, mail).abort(f"run_local: {type(error).__name__}")
        raise
    if failures:
        raise next((error for error in failures if not isinstance(error, CommunicationError)), failures[0])
    return results
