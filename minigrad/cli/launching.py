"""minigrad launch"""

import argparse
import math
import os

from minigrad_kernels.errors import ShapeError

from .settings import UsageError, check_can_be_made, count, number, positive, refusing

__all__ = ["add_launch", "run_launch"]


def add_launch(parser):
    """The arguments of minigrad launch."""
    parser.set_defaults(action=run_launch)
    add = parser.add_argument
    add("-n", type=count, dest="ranks", metavar="N", help="ranks; default as many as --hosts have room for")
    whole = number(int, lambda value: value >= 0, "an integer of at least 0")
    add("--max-restarts", type=whole, metavar="K", default=3, help="after failures; default 3")
    add("--hosts", metavar="A:4,B:4", help="hosts and how many ranks fit on each; default this host")
    add("--min-ranks", type=count, metavar="M", help="go on with so few where a host is gone; default wait for it")
    seconds = number(float, lambda value: 0 <= value < math.inf, "seconds, at least 0")
    for name, kind, meaning in (
        ("timeout", positive, "that a rank waits for another, from its second step on"),
        ("grace", seconds, "that ranks have to leave after SIGTERM"),
    ):
        add(f"--{name}", type=kind, metavar="SECONDS", default=30.0, help=f"{meaning}; default 30")
    add("--logs", metavar="FOLDER", help="what ranks other than 0 print; default launch-logs/JOB")
    add("-m", nargs=argparse.REMAINDER, dest="module", metavar="MODULE", help="a module, its arguments")
    help = "a Python script and its arguments, or minigrad and its arguments"
    add("words", nargs=argparse.REMAINDER, metavar="COMMAND", help=help)


def run_launch(options):
    """Start ranks by mpiexec, and start them again when one fails; returns the exit code.

    0    all ranks ended well, also after SIGTERM
    1    a rank failed and no restarts were left, or a host did not come
    2    refused before any work, by the command itself or by a rank
    130  as 0, after Ctrl-C; or the ranks did not leave in time
    143  ranks did not leave in time after SIGTERM
    """
    if os.name != "posix":
        raise UsageError("launch: it needs process groups, which this system has not; start the ranks by mpiexec")
    with refusing():
        job = _launch(options)
    return job.run()


def _launch(options):
    from ..parallel.launch import Launch, parse_hosts

    words = _words(options)
    hosts = None if options.hosts is None else parse_hosts(options.hosts)
    room = math.inf if hosts is None else sum(places for _, places in hosts)
    ranks = options.ranks or (0 if hosts is None else room)
    if not ranks:
        raise ShapeError("launch: -n is missing")
    if ranks > room:
        raise ShapeError(f"launch: -n is {ranks}, but --hosts {options.hosts} have room for {room}")
    if not 1 <= (options.min_ranks or ranks) <= ranks:
        raise ShapeError(f"launch: --min-ranks is {options.min_ranks}, want 1 to {ranks}")
    if options.logs is not None:
        check_can_be_made("launch: --logs", options.logs)
    shared = {name: getattr(options, name) for name in ("max_restarts", "min_ranks", "timeout", "grace", "logs")}
    return Launch(words, ranks, hosts, **shared)


def _words(options):
    """What the interpreter is told: a script with its arguments, or a module with its own."""
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if options.module:
        return ["-m", *options.module]
    if words and words[0] == "minigrad":
        return ["-m", *words]
    if not words or not os.path.isfile(words[0]):
        what = f"{words[0]} is no file" if words else "nothing to start"
        raise ShapeError(f"launch: {what}; want a Python script, or minigrad and its arguments, or -m MODULE")
    return list(words)
