"""Readers of IDX and of the binary CIFAR-10 archive, in which MNIST and CIFAR-10 are published, and of pictures.

Sizes are checked before memory is asked for, nothing is extracted to disk, and whatever is wrong with a file ends as
one DataError that names the file and the reason.
"""

import contextlib
import gzip
import math
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np

from minigrad_kernels.errors import MinigradError

__all__ = ["DataError", "read_cifar10", "read_idx", "read_picture"]

MAX_BYTES = 1 << 28  # of an array; MNIST needs 47 million, a member of CIFAR-10 31 million

CIFAR10_TRAIN = tuple(f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6))
CIFAR10_TEST = "cifar-10-batches-bin/test_batch.bin"
CIFAR10_RECORD = 1 + 3 * 32 * 32  # one label byte, then the red, green and blue planes


class DataError(MinigradError, ValueError):
    """A data file that is absent, damaged or not what it should be."""


def read_idx(path):
    """Read one array of bytes from an IDX file, plain or gzip-compressed.

    Shapes  as the file says, at least 1 dimension, none of them 0
    Types   uint8
    Errors  DataError for every fault of the file, for other types, and for an array of more than 256 MiB
    Source  LeCun, Cortes and Burges, The MNIST database of handwritten digits, section "File formats"
    """
    with _opened("read_idx", path) as file:
        start = _take(file, 4)
        if start[:3] != b"\0\0\x08" or not start[3]:
            raise ValueError(f"starts with 0x{start.hex()}, wanted 0x000008 (bytes) and the number of dimensions")
        shape = struct.unpack(f">{start[3]}I", _take(file, 4 * start[3]))
        size = math.prod(shape)
        if not 0 < size <= MAX_BYTES:
            raise ValueError(f"shape {shape} takes {size} bytes, wanted 1 to {MAX_BYTES}")
        array = np.frombuffer(_take(file, size), np.uint8).reshape(shape)
        if file.read(1):
            raise ValueError(f"goes on after the {size} bytes of its shape {shape}")
    return array.copy()


def read_cifar10(path):
    """Read the binary CIFAR-10 archive (tar, gzip-compressed or plain) without extracting it.

    Returns (train_images, train_labels), (test_images, test_labels). data_batch_1.bin and test_batch.bin must
    be there; data_batch_2.bin to data_batch_5.bin are read where they are. Other members are passed over.

    Shapes  images (N, 3, 32, 32), labels (N,)
    Types   uint8, labels 0 to 9
    Errors  DataError for every fault of the file
    Source  Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images; the archive's readme.html
    """
    found = {}
    with _opened("read_cifar10", path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
        for member in archive:
            if member.name in (*CIFAR10_TRAIN, CIFAR10_TEST):
                found[member.name] = _cifar10_records(archive, member)
        for name in (CIFAR10_TRAIN[0], CIFAR10_TEST):
            if name not in found:
                raise ValueError(f"does not hold {name}")
        while file.read(1 << 20):  # to the end, where gzip compares its checksum
            pass
    train = np.concatenate([found[name] for name in CIFAR10_TRAIN if name in found])
    parts = train, found[CIFAR10_TEST]
    return tuple((records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].copy()) for records in parts)


def _cifar10_records(archive, member):
    size = member.size
    if not member.isreg() or not 0 < size <= MAX_BYTES or size % CIFAR10_RECORD:
        raise ValueError(f"{member.name} has {size} bytes, wanted a regular file of records of {CIFAR10_RECORD} bytes")
    records = np.frombuffer(_take(archive.extractfile(member), size), np.uint8).reshape(-1, CIFAR10_RECORD)
    if records[:, 0].max() > 9:
        raise ValueError(f"{member.name} has label {records[:, 0].max()}, wanted 0 to 9")
    return records


@contextlib.contextmanager
def _opened(op, path):
    """The file, unpacked where gzip packed it; whatever goes wrong inside becomes a DataError."""
    try:
        with Path(path).open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if packed else contextlib.nullcontext(raw) as file:
                yield file
    except (OSError, EOFError, ValueError, OverflowError, zlib.error, tarfile.TarError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DataError(f"{op}: {path}: {reason}") from error


def _take(file, count):
    """Exactly the next count bytes."""
    taken = file.read(count)
    if len(taken) < count:
        raise ValueError(f"is truncated: {count - len(taken)} of the next {count} bytes are missing")
    return taken


# ---- pictures --------------------------------------------------------------------------------------------------------


def read_picture(path):
    """The picture, grey or colour, on white where it is transparent. Errors: DataError if Pillow cannot read it"""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            grey = picture.mode[0] in "1LI"
            if picture.mode[0] == "I":  # 16 bits
                picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
            picture = picture.convert("RGBA")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:  # SyntaxError: a broken chunk
        raise DataError(f"{path} cannot be read as a picture: {error}") from error
    white = Image.new("RGBA", picture.size, "white")
    return Image.alpha_composite(white, picture).convert("L" if grey else "RGB")
