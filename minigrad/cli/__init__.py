"""The command `minigrad`: train, evaluate, report, predict, export, info, warmup, launch, kernels and others."""

import os
import sys

from minigrad_kernels.errors import MinigradError
from minigrad_kernels.toolchain.machine import crowded

from ..parallel.errors import CommunicationError
from ..parallel.rank import FAILED
from .arguments import parser
from .settings import UsageError

__all__ = ["main"]

INTERRUPTED = 130  # what shells report for a program ended by Ctrl-C
UNREAD = 141  # what shells report for a program whose output nobody reads any more


def main(argv=None):
    """Run the command with these arguments, those of the process if None; returns the exit code.

    0   done
    1   failed at work
    2   refused before any work
    75  another rank of the same training failed
    130 interrupted
    141 whoever read the output has gone
    """
    _escape_what_cannot_be_encoded()
    if argv is None and crowded():  # a process of our own: threads that wait leave the processor to others
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    name = "minigrad"
    try:
        try:
            options = parser().parse_args(argv)
            if options.command is None:
                parser().print_help(sys.stderr)
                return 2
        except SystemExit as finished:  # after --help or a refusal, which argparse has printed
            code = finished.code
        else:
            name = f"minigrad {options.command}"
            options.argv = list(sys.argv[1:] if argv is None else argv)
            code = options.action(options)
        if sys.stdout is not None:
            sys.stdout.flush()  # here and not at exit, where an error could not be caught
        return code
    except BrokenPipeError:
        _discard_what_cannot_be_written()
        return UNREAD
    except (MinigradError, OSError) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        _discard_what_cannot_be_written()
        return 2 if isinstance(error, UsageError) else FAILED if isinstance(error, CommunicationError) else 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return INTERRUPTED


def _escape_what_cannot_be_encoded():
    """A name that the encoding of the terminal lacks is no reason to end a training."""
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _discard_what_cannot_be_written():
    """Python would try again at exit, and complain."""
    with open(os.devnull, "wb") as nowhere:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            try:
                stream.flush()
            except OSError:
                os.dup2(nowhere.fileno(), stream.fileno())
