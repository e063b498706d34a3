"""minigrad launch"""

import argparse
import math
import os
import shlex
import sys

from minigrad_kernels.errors import ShapeError

from .settings import UsageError, check_can_be_made, refusing

__all__ = ["add_launch", "run_launch"]

RESTARTS = 3
SECONDS = {  # default and meaning
    "timeout": (120.0, "that a rank waits for the others, and the job for a host"),
    "heartbeat": (10.0, "of silence after which a host is lost"),
    "grace": (30.0, "that ranks have to leave after SIGTERM"),
}
LEAST_HEARTBEAT = 2.0  # seconds: twice the time between two signs of life


def add_launch(parser):
    """The arguments of minigrad launch."""
    parser.set_defaults(action=run_launch)
    parser.add_argument(
        "-n", type=int, dest="ranks", metavar="N", help="ranks; default as many as --hosts have room for"
    )
    parser.add_argument(
        "--max-restarts", type=int, metavar="N", default=RESTARTS, help=f"after failures; default {RESTARTS}"
    )
    parser.add_argument("--hosts", metavar="A:2,B:2", help="hosts and how many ranks fit on each; default this host")
    parser.add_argument("--rsh", metavar="COMMAND", default="ssh", help="starts a command on a host; default ssh")
    parser.add_argument(
        "--min-ranks", type=int, metavar="N", help="go on with so few when a host is lost; default wait for it"
    )
    for name, (default, meaning) in SECONDS.items():
        text = f"{meaning}; default {default:g}"
        parser.add_argument(f"--{name}", type=float, metavar="SECONDS", default=default, help=text)
    parser.add_argument("--logs", metavar="FOLDER", help="what ranks other than 0 print; default launch-logs/JOB")
    parser.add_argument("--mpi", action="store_true", help="let mpiexec start the ranks")
    parser.add_argument("--mpiexec", metavar="PATH", help="the one to use with --mpi; default the one of this Python")
    parser.add_argument("-m", nargs=argparse.REMAINDER, dest="module", metavar="MODULE", help="a module, its arguments")
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="a Python script and its arguments, or minigrad and its arguments",
    )


def run_launch(options):
    """Start ranks, and start them again when one fails; returns the exit code.

    0    all ranks ended well, also after SIGTERM
    1    a rank failed and no restarts were left, or a host did not come
    2    refused before any work, by the command itself or by a rank
    130  as 0, after Ctrl-C; or the ranks did not leave in time
    143  ranks did not leave in time after SIGTERM
    """
    if os.name != "posix":
        raise UsageError("launch: it needs process groups, which this system has not; start the ranks by mpiexec")
    from ..parallel.launch.head import Head

    with refusing():
        job = _job(options)
    return Head(job).run()


def _job(options):
    """The Job of these options. Errors: ShapeError"""
    from ..parallel.launch.command import Job, mpi_command, parse_hosts, python_arguments

    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    arguments = python_arguments(words, options.module)
    hosts = parse_hosts(options.hosts) if options.hosts is not None else None
    ranks = options.ranks if options.ranks is not None else sum(places for _, places in hosts or [])
    _check_options(options, ranks)
    hosts = hosts or [("localhost", ranks)]
    places = sum(count for _, count in hosts)
    if ranks > places:
        raise ShapeError(f"launch: -n is {ranks}, but --hosts {options.hosts} have room for {places}")
    shared = {name: getattr(options, name) for name in ("max_restarts", "rsh", "logs", *SECONDS)}
    if not options.mpi:
        least = ranks if options.min_ranks is None else options.min_ranks
        return Job([sys.executable, *arguments], ranks, hosts, min_ranks=least, **shared)
    if options.hosts is not None or options.min_ranks is not None:
        raise ShapeError("launch: --mpi goes without --hosts and --min-ranks; mpiexec has options of its own")
    command = mpi_command(ranks, arguments, options.mpiexec)
    return Job(command, 1, [("localhost", 1)], mpi=True, **shared)


def _words(text):
    """The words of a command; none if it is not one."""
    try:
        return shlex.split(text)
    except ValueError:  # a quotation mark without another
        return []


def _check_options(options, ranks):
    if ranks < 1:
        raise ShapeError(f"launch: -n is {options.ranks}, want at least 1")
    if options.max_restarts < 0:
        raise ShapeError(f"launch: --max-restarts is {options.max_restarts}, want at least 0")
    if options.min_ranks is not None and not 1 <= options.min_ranks <= ranks:
        raise ShapeError(f"launch: --min-ranks is {options.min_ranks}, want 1 to {ranks}")
    if not _words(options.rsh):
        raise ShapeError(f"launch: --rsh is {options.rsh!r}, want a command")
    if options.logs is not None:
        check_can_be_made("launch: --logs", options.logs)
    if options.mpiexec is not None and not options.mpi:
        raise ShapeError("launch: --mpiexec is for --mpi")
    for name in SECONDS:
        value, least = getattr(options, name), LEAST_HEARTBEAT if name == "heartbeat" else 0.0
        if not (least <= value < math.inf) or name == "timeout" and not value:
            wanted = "more than 0" if name == "timeout" else f"at least {least:g}"
            raise ShapeError(f"launch: --{name} is {value:g} seconds, want {wanted}")
