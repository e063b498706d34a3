"""How numbers of bytes, and tables, are written as text."""

__all__ = ["SIZES", "aligned", "in_bytes"]

SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))


def in_bytes(count):
    """A number of bytes with three digits, or more where that takes whole ones."""
    size, unit = next((unit for unit in SIZES if count >= unit[0]), SIZES[-1])
    return f"{count / size:.3g} {unit}" if count < 1000 * size else f"{count / size:.0f} {unit}"


def aligned(rows, words):
    """Rows of cells as lines of text: so many columns of words, which begin alike, then numbers, which end alike."""
    columns = []
    for number, cells in enumerate(zip(*rows, strict=True)):
        pad, width = str.ljust if number < words else str.rjust, max(map(len, cells))
        columns.append([pad(cell, width) for cell in cells])
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
