"""The command `minigrad`: train, evaluate, report, predict, export, info, launch, kernels and others."""

import os
import sys
from importlib import import_module

from minigrad_kernels import toolchain
from minigrad_kernels.errors import MinigradError

from ..parallel.errors import CommunicationError
from ..parallel.rank import FAILED
from .arguments import parser


def main(argv=None):
    """Run the command with these arguments, those of the process if None; returns the exit code.

    0   done
    1   failed at work
    2   refused: a value, a kind or a file that cannot be used
    75  another rank of the same training failed
    130 interrupted
    141 whoever read the output has gone
    """
    name, threads = "minigrad", toolchain.threads()
    try:
        top = parser()
        if "_ARGCOMPLETE" in os.environ:  # a shell asks what may follow
            import_module("argcomplete").autocomplete(top)
        options = top.parse_args(argv)
        if options.command is None:
            top.print_help(sys.stderr)
            return 2
        name, options.argv = f"minigrad {options.command}", sys.argv[1:] if argv is None else argv
        module = import_module(f".{options.module}", __name__)  # not before, so that --help is quick
        code = getattr(module, f"run_{options.command}")(options)
        sys.stdout.flush()  # here and not at exit, where an error could not be caught
        return code
    except SystemExit as finished:  # after --help, or a refusal that was printed
        return finished.code
    except (MinigradError, OSError) as error:
        try:
            sys.stdout.flush()
        except OSError:  # Python would write again at exit, and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 141
        print(f"{name}: error: {error}", file=sys.stderr)
        if isinstance(error, CommunicationError):
            return FAILED
        return 2 if isinstance(error, MinigradError) and isinstance(error, ValueError | TypeError) else 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    finally:
        toolchain.set_threads(threads)
