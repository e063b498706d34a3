"""How numbers of bytes are written."""

__all__ = ["SIZES", "in_bytes"]

SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))


def in_bytes(count):
    """A number of bytes with three digits, or more where that takes whole ones."""
    size, unit = next((unit for unit in SIZES if count >= unit[0]), SIZES[-1])
    return f"{count / size:.3g} {unit}" if count < 1000 * size else f"{count / size:.0f} {unit}"
