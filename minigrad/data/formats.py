"""Readers of IDX and of the binary CIFAR-10 archive, in which MNIST and CIFAR-10 are published, and of pictures.

Nothing is extracted to disk, and whatever is wrong with a file ends as one DataError that names the file and the
reason.
"""

import contextlib
import gzip
import io
import math
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np

from minigrad_kernels.errors import MinigradError

CIFAR10_TRAIN = tuple(f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6))
CIFAR10_TEST = "cifar-10-batches-bin/test_batch.bin"
CIFAR10_RECORD = 1 + 3 * 32 * 32  # one label byte, then the red, green and blue planes


class DataError(MinigradError, ValueError):
    """A data file that is absent, damaged or not what it should be."""


def read_idx(path):
    """Read one array of bytes from an IDX file, plain or gzip-compressed.

    Shapes  as the file says, at least 1 dimension
    Types   uint8
    Errors  DataError for every fault of the file, and for other types
    Source  LeCun, Cortes and Burges, The MNIST database of handwritten digits, section "File formats"
    """
    with _unpacked("read_idx", path) as content:
        if content[:3] != b"\0\0\x08" or not content[3]:
            raise ValueError(f"starts with 0x{content[:4].hex()}, wanted 0x000008 (bytes) and the number of dimensions")
        begin = 4 + 4 * content[3]  # one number of 4 bytes a dimension
        shape = struct.unpack(f">{content[3]}I", content[4:begin])
        if len(content) - begin != math.prod(shape):
            raise ValueError(f"holds {len(content) - begin} bytes behind its header, wanted those of its shape {shape}")
        return np.frombuffer(content, np.uint8, offset=begin).reshape(shape).copy()


def read_cifar10(path):
    """Read the binary CIFAR-10 archive (tar, gzip-compressed or plain) without extracting it.

    Returns (train_images, train_labels), (test_images, test_labels). data_batch_1.bin and test_batch.bin must
    be there; data_batch_2.bin to data_batch_5.bin are read where they are. Other members are passed over.

    Shapes  images (N, 3, 32, 32), labels (N,)
    Types   uint8, labels 0 to 9
    Errors  DataError for every fault of the file
    Source  Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images; the archive's readme.html
    """
    with _unpacked("read_cifar10", path) as content, tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        first, *more = CIFAR10_TRAIN
        train = [first, *(name for name in more if name in archive.getnames())]
        return _cifar10_records(archive, train), _cifar10_records(archive, [CIFAR10_TEST])


def _cifar10_records(archive, names):
    """(images, labels) of these members."""
    content = b"".join(archive.extractfile(name).read() for name in names)
    if not content or len(content) % CIFAR10_RECORD:
        raise ValueError(f"{', '.join(names)}: {len(content)} bytes, wanted records of {CIFAR10_RECORD} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, CIFAR10_RECORD)
    if records[:, 0].max() > 9:
        raise ValueError(f"has label {records[:, 0].max()}, wanted 0 to 9")
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


@contextlib.contextmanager
def _unpacked(op, path):
    """The bytes of a file, of what gzip packed in it if it did; whatever goes wrong inside becomes a DataError."""
    try:
        content = Path(path).read_bytes()
        yield gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (OSError, EOFError, LookupError, ValueError, zlib.error, struct.error, tarfile.TarError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DataError(f"{op}: {path}: {reason}") from error


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
