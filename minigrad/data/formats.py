"""Readers of the formats in which MNIST and CIFAR-10 are published: IDX, and the binary CIFAR-10 archive.

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

__all__ = ["DataError", "read_cifar10", "read_idx"]

IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MAX_IDX_RANK = 8
MAX_IDX_BYTES = 1 << 28  # MNIST needs 47 million

CIFAR10_TRAIN = tuple(f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6))
CIFAR10_TEST = "cifar-10-batches-bin/test_batch.bin"
CIFAR10_SHAPE = (3, 32, 32)
CIFAR10_RECORD = 1 + math.prod(CIFAR10_SHAPE)  # one label byte, then the red, green and blue planes
CIFAR10_RECORDS = 10_000  # in one member, at most
CIFAR10_LABELS = 10

CHUNK = 1 << 20


class DataError(MinigradError, ValueError):
    """A data file that is absent, damaged or not what it should be."""


def read_idx(path, max_bytes=MAX_IDX_BYTES):
    """Read one array from an IDX file, plain or gzip-compressed.

    Shapes  as the file says, 1 to 8 dimensions, none of them 0
    Types   uint8, int8, int16, int32, float32 or float64, in the byte order of this machine
    Errors  DataError for every fault of the file, and for an array of more than max_bytes bytes
    Source  LeCun, Cortes and Burges, The MNIST database of handwritten digits, section "File formats"
    """
    with _opened("read_idx", path) as file:
        zeros, code, rank = struct.unpack(">HBB", _take(file, 4))
        if zeros:
            raise ValueError(f"starts with 0x{zeros:04x}, an IDX file starts with 0x0000")
        if code not in IDX_TYPES:
            known = ", ".join(f"0x{known:02x}" for known in IDX_TYPES)
            raise ValueError(f"type code is 0x{code:02x}, want one of {known}")
        if not 1 <= rank <= MAX_IDX_RANK:
            raise ValueError(f"has {rank} dimensions, want 1 to {MAX_IDX_RANK}")
        shape = struct.unpack(f">{rank}I", _take(file, 4 * rank))
        dtype = np.dtype(IDX_TYPES[code])
        size = math.prod(shape) * dtype.itemsize
        if not 0 < size <= max_bytes:
            raise ValueError(f"shape {shape} of {dtype.name} takes {size} bytes, want 1 to {max_bytes}")
        elements = _take(file, size)
        if file.read(1):
            raise ValueError(f"goes on after the {size} bytes of its shape {shape}")
    return np.frombuffer(elements, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def read_cifar10(path):
    """Read the binary CIFAR-10 archive (tar, gzip-compressed or plain) without extracting it.

    Returns (train_images, train_labels), (test_images, test_labels). data_batch_1.bin and test_batch.bin must
    be there; data_batch_2.bin to data_batch_5.bin are read where they are. Other members are passed over.

    Shapes  images (N, 3, 32, 32), labels (N,)
    Types   uint8, labels 0 to 9
    Errors  DataError for every fault of the file
    Source  Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images; the archive's readme.html
    """
    records = {}
    with _opened("read_cifar10", path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
        for member in archive:
            if member.name in (*CIFAR10_TRAIN, CIFAR10_TEST):
                records[member.name] = _cifar10_records(archive, member)
        for name in (CIFAR10_TRAIN[0], CIFAR10_TEST):
            if name not in records:
                raise ValueError(f"does not hold {name}")
        while file.read(CHUNK):  # to the end, where gzip compares its checksum
            pass
    train = np.concatenate([records[name] for name in CIFAR10_TRAIN if name in records])
    return _cifar10_images_and_labels(train), _cifar10_images_and_labels(records[CIFAR10_TEST])


def _cifar10_records(archive, member):
    count, rest = divmod(member.size, CIFAR10_RECORD)
    if not member.isreg() or rest or not 1 <= count <= CIFAR10_RECORDS:
        wanted = f"a regular file of 1 to {CIFAR10_RECORDS} records of {CIFAR10_RECORD} bytes"
        raise ValueError(f"{member.name} has {member.size} bytes, want {wanted}")
    content = _take(archive.extractfile(member), member.size)
    records = np.frombuffer(content, np.uint8).reshape(count, CIFAR10_RECORD)
    wrong = np.flatnonzero(records[:, 0] >= CIFAR10_LABELS)
    if wrong.size:
        raise ValueError(f"{member.name}: label {records[wrong[0], 0]} in record {wrong[0]}, want 0 to 9")
    return records


def _cifar10_images_and_labels(records):
    return records[:, 1:].reshape(-1, *CIFAR10_SHAPE), records[:, 0].copy()


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
