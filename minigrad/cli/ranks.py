"""A command that several ranks run together: one decides and speaks, all work."""

import contextlib
import json
import os
import sys

from ..parallel import CommunicationError, DeadlineError, init
from ..parallel.work import Worker
from .settings import UsageError, refusing

__all__ = ["Ranks", "attempt", "job"]


def attempt():
    """How often a launcher has started this job again: 0 for the first time."""
    return int(os.environ.get("MINIGRAD_ATTEMPT") or 0)


def job():
    """What a launcher calls this job, the same however often it is started; None without one."""
    return os.environ.get("MINIGRAD_JOB")


class _Told(UsageError):
    """A refusal that all ranks have heard, and rank 0 prints."""


def _decision(decide):
    try:
        with refusing():
            return json.dumps({"decided": decide()}).encode()
    except UsageError as error:
        return json.dumps({"refused": str(error)}).encode()


class Ranks:
    """The world of a command, as a context: rank 0 prints, the others are silent; an exception ends it for all."""

    def __init__(self):
        self.world = init()
        self._silence = contextlib.ExitStack()

    @property
    def first(self):
        return self.world.rank == 0

    def __enter__(self):
        if not self.first:
            nowhere = self._silence.enter_context(open(os.devnull, "w"))
            self._silence.enter_context(contextlib.redirect_stdout(nowhere))
        return self

    def __exit__(self, kind, error, trace):
        self._silence.close()
        if kind is not None and not issubclass(kind, _Told | SystemExit):
            self.world.abort(f"{kind.__name__}: {error}")
        self.world.close()
        if kind is _Told and not self.first:
            sys.exit(2)  # rank 0 says why

    def decided(self, decide):
        """What decide() gives on rank 0, a JSON value; where it refuses, all ranks do. It may take its time."""
        if self.world.size == 1:
            message = _decision(decide)
        else:
            deciding = Worker().submit(lambda: _decision(decide)) if self.first else None
            while not (message := self.world.broadcast_bytes(self._said(deciding))):
                pass
        message = json.loads(message)
        if "refused" in message:
            raise _Told(message["refused"])
        return message["decided"]

    def _said(self, deciding):
        """What rank 0 tells the others before their patience ends: its decision, or that there is none yet."""
        if deciding is None:
            return b""
        try:
            return deciding.wait(self.world.timeout / 4)
        except DeadlineError:
            return b""

    def together(self, work):
        """What work() gives on this rank; where it refuses on any rank, all refuse."""
        result = refusal = None
        try:
            with refusing():
                result = work()
        except UsageError as error:
            refusal = error
        try:
            found = [message.decode() for message in self.world.all_gather_bytes(str(refusal or "").encode())]
        except CommunicationError:
            raise refusal or sys.exception() from None
        for rank, said in enumerate(found):
            if said:
                raise _Told(said if rank == 0 else f"rank {rank}: {said}")
        return result

    def device(self, name):
        """The device of this rank: of several ranks on one host that were told "cuda", each takes a GPU of its own."""
        there = self.world.transport
        if name != "cuda" or there.local_size == 1:
            return name
        from .. import cuda

        count = cuda.device_count()
        name = f"cuda:{there.local_rank % max(count, 1)}"
        if count:
            cuda.set_device(name)
        return name

    def greatest(self, number):
        """The greatest of the integers from 0 to 255 that the ranks give."""
        return max(message[0] for message in self.world.all_gather_bytes(bytes([number])))
