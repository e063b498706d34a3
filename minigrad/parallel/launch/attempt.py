"""What is known of the ranks that were started together, and who is to blame when they end."""

import math
import time
from dataclasses import dataclass, field

from ..transport import FAILED
from .hosts import Host
from .processes import words

__all__ = ["REFUSED", "Attempt"]

REFUSED = 2  # what shells, argparse and minigrad return for a command that makes no sense
BLAME = 0.5  # seconds for the one who failed the others to be heard of


@dataclass
class Attempt:
    """One attempt of a job.

    where    {rank: Host}
    patience seconds for a rank to end after another has
    first    when the first rank ended
    ended    {rank: what its agent said}, in the order of arrival
    failed   when the first failure was heard of
    lost     a Host that was lost with ranks on it
    """

    number: int
    size: int
    where: dict
    patience: float = math.inf
    began: float = field(default_factory=time.monotonic)
    ended: dict = field(default_factory=dict)
    first: float | None = None
    failed: float | None = None
    lost: Host | None = None

    def note(self, end):
        """Take down the end of a rank."""
        self.ended[end["rank"]] = end
        self.first = self.first or time.monotonic()
        if end["code"] and self.failed is None:
            self.failed = time.monotonic()

    def well(self):
        """Whether all ranks ended, and well."""
        return len(self.ended) == self.size and not self._failures()

    def waited(self):
        """Whether the others ended well so long ago that whoever still runs hangs."""
        return self.first is not None and self.failed is None and time.monotonic() - self.first > self.patience

    def over(self, hopeless):
        """Whether nothing more is worth waiting for; `hopeless` says that one failure is the end of all."""
        if self.lost is not None or len(self.ended) == self.size or self.waited():
            return True
        known = any(end["code"] != FAILED for end in self._failures())
        late = self.failed is not None and time.monotonic() - self.failed > BLAME
        return hopeless and (known or late)

    def refused(self):
        """Whether the first that failed by itself said, by exit code 2, that it cannot do what it was asked to."""
        own = [end for end in self._failures() if end["code"] != FAILED]
        return self.lost is None and bool(own) and own[0]["code"] == REFUSED

    def account(self, mpi):
        """(who failed, how, after how many seconds, its last words)

        The first that failed by itself; else the one that did not answer; else one that was failed by another.
        """
        seconds = time.monotonic() - self.began
        if self.lost is not None:
            return f"host {self.lost.title}", "was lost", seconds, ""
        failures = self._failures()
        own = [end for end in failures if end["code"] != FAILED]
        silent = set(self.where) - set(self.ended)
        if silent and (len(silent) == 1 or not failures) and not own:
            rank = min(silent)
            how = "did not answer the others" if failures else "did not end after the others"
            return f"rank {rank} on {self.where[rank].title}", how, seconds, ""
        end = (own or failures)[0]
        name = "mpiexec" if mpi else f"rank {end['rank']} on {self.where[end['rank']].title}"
        how = words(end["code"]) + ("" if own else ", because another failed it")
        return name, how, end["seconds"], end["tail"]

    def _failures(self):
        return [end for end in self.ended.values() if end["code"]]
