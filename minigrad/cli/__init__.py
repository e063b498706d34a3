"""The command `minigrad`: train, evaluate, predict, info."""

import sys

from minigrad_kernels.errors import MinigradError

from .arguments import parser
from .settings import UsageError

__all__ = ["main"]

INTERRUPTED = 130  # what shells report for a program ended by Ctrl-C


def main(argv=None):
    """Run the command with these arguments, those of the process if None; returns the exit code.

    0   done
    1   failed at work
    2   refused before any work
    130 interrupted
    """
    try:
        options = parser().parse_args(argv)
    except SystemExit as finished:  # after --help or a refusal, which argparse has printed
        return finished.code
    options.argv = list(sys.argv[1:] if argv is None else argv)
    try:
        return options.action(options)
    except (MinigradError, OSError) as error:
        print(f"minigrad {options.command}: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print(f"minigrad {options.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
