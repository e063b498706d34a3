"""minigrad math: the formula, gradients, shapes, types, errors and source of an op, from its docstring."""

from .. import sheet
from ..core.errors import MinigradError
from .settings import UsageError

__all__ = ["run_math"]


def run_math(options):
    """Print one entry of the sheet, several, the list of all, or the whole page."""
    if options.page and options.names:
        raise UsageError(f"--page is the whole sheet; leave out {' '.join(options.names)}")
    if options.page:
        print(sheet.page(), end="")
        return 0
    if not options.names:
        return _list()
    try:
        found = [sheet.entry(name) for name in options.names]
    except MinigradError as error:
        raise UsageError(str(error).removeprefix("math: ")) from error
    print("\n\n".join(map(str, found)))
    return 0


def _list():
    for title, members in sheet.families().items():
        print(f"{title}")
        for entry in members:
            print(f"  {entry.name:<34}{entry.summary}")
        print()
    print("minigrad math NAME prints formula, gradients, shapes, types, errors and source")
    return 0
