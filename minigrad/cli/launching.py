"""minigrad launch"""

import argparse
import math
import os
import shlex
import sys

from minigrad_kernels.errors import ShapeError

from .settings import UsageError, check_can_be_made, count, number, positive, refusing

__all__ = ["add_launch", "run_launch"]

LEAST_HEARTBEAT = 2.0  # seconds: twice the time between two signs of life


def _words(text):
    """A command as it is typed, refused if it has no words."""
    try:
        if shlex.split(text):
            return text
    except ValueError:  # a quotation mark without another
        pass
    raise argparse.ArgumentTypeError(f"got {text!r}, want a command")


def add_launch(parser):
    """The arguments of minigrad launch."""
    parser.set_defaults(action=run_launch)
    add = parser.add_argument
    add("-n", type=count, dest="ranks", metavar="N", help="ranks; default as many as --hosts have room for")
    whole = number(int, lambda value: value >= 0, "an integer of at least 0")
    add("--max-restarts", type=whole, metavar="N", default=3, help="after failures; default 3")
    add("--hosts", metavar="A:2,B:2", help="hosts and how many ranks fit on each; default this host")
    add("--rsh", type=_words, metavar="COMMAND", default="ssh", help="starts a command on a host; default ssh")
    add("--min-ranks", type=count, metavar="N", help="go on with so few when a host is lost; default wait for it")
    slow = number(float, lambda value: LEAST_HEARTBEAT <= value < math.inf, f"at least {LEAST_HEARTBEAT:g} seconds")
    seconds = number(float, lambda value: 0 <= value < math.inf, "seconds, at least 0")
    for name, kind, default, meaning in (
        ("timeout", positive, 120.0, "that a rank waits for the others, and the job for a host"),
        ("heartbeat", slow, 10.0, "of silence after which a host is lost"),
        ("grace", seconds, 30.0, "that ranks have to leave after SIGTERM"),
    ):
        add(f"--{name}", type=kind, metavar="SECONDS", default=default, help=f"{meaning}; default {default:g}")
    add("--logs", metavar="FOLDER", help="what ranks other than 0 print; default launch-logs/JOB")
    add("--mpi", action="store_true", help="let mpiexec start the ranks")
    add("--mpiexec", metavar="PATH", help="the one to use with --mpi; default the one of this Python")
    add("-m", nargs=argparse.REMAINDER, dest="module", metavar="MODULE", help="a module, its arguments")
    help = "a Python script and its arguments, or minigrad and its arguments"
    add("words", nargs=argparse.REMAINDER, metavar="COMMAND", help=help)


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
    ranks = sum(places for _, places in hosts or []) if options.ranks is None else options.ranks
    least = ranks if options.min_ranks is None else options.min_ranks
    if not 1 <= least <= ranks:
        raise ShapeError(f"launch: --min-ranks is {least}, want 1 to {ranks}" if ranks else "launch: -n is missing")
    if options.logs is not None:
        check_can_be_made("launch: --logs", options.logs)
    if options.mpiexec is not None and not options.mpi:
        raise ShapeError("launch: --mpiexec is for --mpi")
    hosts = hosts or [("localhost", ranks)]
    places = sum(count for _, count in hosts)
    if ranks > places:
        raise ShapeError(f"launch: -n is {ranks}, but --hosts {options.hosts} have room for {places}")
    shared = {name: getattr(options, name) for name in ("max_restarts", "rsh", "logs", "timeout", "heartbeat", "grace")}
    if not options.mpi:
        return Job([sys.executable, *arguments], ranks, hosts, min_ranks=least, **shared)
    if options.hosts is not None or options.min_ranks is not None:
        raise ShapeError("launch: --mpi goes without --hosts and --min-ranks; mpiexec has options of its own")
    command = mpi_command(ranks, arguments, options.mpiexec)
    return Job(command, 1, [("localhost", 1)], mpi=True, **shared)
