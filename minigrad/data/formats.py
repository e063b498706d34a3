"""Readers of the formats in which MNIST and CIFAR-10 are published: IDX, and the binary CIFAR-10 archive.

A file from elsewhere is not trusted: sizes are checked before memory is asked for, nothing is extracted to
disk, and whatever is wrong with a file ends as one DataError that names the file and the reason.
"""

import contextlib
import gzip
import math
import os
import stat
import struct
import tarfile
import zlib

import numpy as np

from minigrad_kernels.errors import KindError, MinigradError

__all__ = ["DataError", "read_cifar10", "read_idx"]

IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MAX_IDX_RANK = 8
MAX_IDX_BYTES = 1 << 28  # MNIST needs 47 million
MAX_ARCHIVE_BYTES = 1 << 28  # the published CIFAR-10 archive unpacks to 184 million

CIFAR10_TRAIN = tuple(f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6))
CIFAR10_TEST = "cifar-10-batches-bin/test_batch.bin"
CIFAR10_SHAPE = (3, 32, 32)
CIFAR10_RECORD = 1 + math.prod(CIFAR10_SHAPE)  # one label byte, then the red, green and blue planes
CIFAR10_RECORDS = 10_000  # in one member, at most
CIFAR10_LABELS = 10

TAR_BLOCK = 512
TAR_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE)
TAR_NO_CONTENT = (  # the size field of these says nothing about bytes that follow
    tarfile.LNKTYPE,
    tarfile.SYMTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.DIRTYPE,
    tarfile.FIFOTYPE,
)
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
    with _opened("read_idx", path, limit=max_bytes + 4 + 4 * MAX_IDX_RANK) as file:
        zeros, code, rank = struct.unpack(">HBB", file.take(4))
        if zeros:
            raise file.error(f"starts with 0x{zeros:04x}, an IDX file starts with 0x0000")
        if code not in IDX_TYPES:
            known = ", ".join(f"0x{known:02x}" for known in IDX_TYPES)
            raise file.error(f"type code is 0x{code:02x}, want one of {known}")
        if not 1 <= rank <= MAX_IDX_RANK:
            raise file.error(f"has {rank} dimensions, want 1 to {MAX_IDX_RANK}")
        shape = struct.unpack(f">{rank}I", file.take(4 * rank))
        if 0 in shape:
            raise file.error(f"shape {shape} holds no elements")
        dtype = np.dtype(IDX_TYPES[code])
        size = math.prod(shape) * dtype.itemsize
        if size > max_bytes:
            raise file.error(f"shape {shape} of {dtype.name} takes {size} bytes, at most {max_bytes} are allowed")
        elements = file.take(size)
        if not file.at_end():
            raise file.error(f"goes on after the {size} bytes of its shape {shape}")
    return elements.view(dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


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
    with _opened("read_cifar10", path, limit=MAX_ARCHIVE_BYTES) as file:
        for member in _tar_members(file):
            if member.name not in (*CIFAR10_TRAIN, CIFAR10_TEST):
                file.skip(member.size)
            elif member.name in records:
                raise file.error(f"holds {member.name} twice")
            else:
                records[member.name] = _cifar10_records(file, member)
        for name in (CIFAR10_TRAIN[0], CIFAR10_TEST):
            if name not in records:
                raise file.error(f"does not hold {name}")
    train = np.concatenate([records[name] for name in CIFAR10_TRAIN if name in records])
    return _cifar10_images_and_labels(train), _cifar10_images_and_labels(records[CIFAR10_TEST])


def _cifar10_records(file, member):
    if member.type not in TAR_REGULAR:
        raise file.error(f"{member.name} is not a regular member")
    count, rest = divmod(member.size, CIFAR10_RECORD)
    if rest or not 1 <= count <= CIFAR10_RECORDS:
        wanted = f"1 to {CIFAR10_RECORDS} records of {CIFAR10_RECORD} bytes"
        raise file.error(f"{member.name} has {member.size} bytes, want {wanted}")
    records = file.take(member.size).reshape(count, CIFAR10_RECORD)
    wrong = np.flatnonzero(records[:, 0] >= CIFAR10_LABELS)
    if wrong.size:
        raise file.error(f"{member.name}: label {records[wrong[0], 0]} in record {wrong[0]}, want 0 to 9")
    return records


def _cifar10_images_and_labels(records):
    return records[:, 1:].reshape(-1, *CIFAR10_SHAPE), records[:, 0].copy()


def _tar_members(file):
    """Yield each member's header; the caller takes or skips member.size bytes before it asks for the next."""
    while (block := file.take(TAR_BLOCK)).any():
        member = tarfile.TarInfo.frombuf(block.tobytes(), "utf-8", "surrogateescape")
        if member.type in TAR_NO_CONTENT:
            member.size = 0
        if member.size < 0:
            raise file.error(f"member {member.name!r} has the size {member.size}")
        yield member
        file.skip(-member.size % TAR_BLOCK)
    # Reading to the end also makes gzip compare its checksum.
    while not file.at_end():
        if file.take(TAR_BLOCK).any():
            raise file.error("goes on after the end of the archive")


def _state(file):
    """The size of an open file, and when it was written to."""
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


@contextlib.contextmanager
def _opened(op, path, limit):
    """A reader of at most limit bytes from a regular file; whatever goes wrong inside becomes a DataError."""
    try:
        os.fspath(path)
    except TypeError:
        raise KindError(f"{op}: path is of type {type(path).__name__}, want a string or a path") from None
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise DataError(f"{op}: {path}: is not a regular file")
        with open(path, "rb") as raw:
            before = _state(raw)
            compressed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if compressed else contextlib.nullcontext(raw) as stream:
                yield _Reader(op, path, stream, limit)
            if _state(raw) != before:
                raise DataError(f"{op}: {path}: was changed while it was read; try again when it is whole")
    except MinigradError:
        raise
    except (OSError, EOFError, ValueError, OverflowError, zlib.error, tarfile.TarError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DataError(f"{op}: {path}: {reason}") from error


class _Reader:
    """Takes exactly the bytes asked for from a stream, and never more than the limit in all."""

    def __init__(self, op, path, stream, limit):
        self.op, self.path, self.stream, self.limit = op, path, stream, limit
        self.left = limit

    def error(self, reason):
        return DataError(f"{self.op}: {self.path}: {reason}")

    def take(self, count):
        """The next count bytes, as a uint8 array."""
        self._count(count)
        taken = np.empty(count, np.uint8)  # the system backs it with memory only as far as bytes arrive
        for start in range(0, count, CHUNK):
            part = self._read(min(CHUNK, count - start))
            taken[start : start + len(part)] = np.frombuffer(part, np.uint8)
        return taken

    def skip(self, count):
        self._count(count)
        for start in range(0, count, CHUNK):
            self._read(min(CHUNK, count - start))

    def at_end(self):
        """Whether no byte follows; looking takes none."""
        return not self.stream.peek(1)

    def _count(self, count):
        self.left -= count
        if self.left < 0:
            raise self.error(f"unpacks to more than {self.limit} bytes")

    def _read(self, count):
        part = self.stream.read(count)
        if len(part) < count:
            raise self.error(f"is truncated: {count - len(part)} of the next {count} bytes are missing")
        return part
