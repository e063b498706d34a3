"""The readers of IDX and CIFAR-10: what they read, and that a malformed file ends as a DataError that names it."""

import gzip
import io
import struct
import tarfile

import numpy as np
import pytest

from minigrad.data import DataError, read_cifar10, read_idx
from minigrad.data.formats import CIFAR10_RECORD, CIFAR10_TEST, CIFAR10_TRAIN
from minigrad_kernels.errors import MinigradError


def flipped(data, at):
    changed = bytearray(data)
    changed[at] ^= 0xFF
    return bytes(changed)


def refuses(read, path, content, reason):
    path.write_bytes(content)
    with pytest.raises(DataError, match=reason) as caught:
        read(path)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, MinigradError)
    assert str(caught.value).startswith(f"{read.__name__}: {path}: ")


# ---- IDX -------------------------------------------------------------------------------------------------------------


def header(*shape, code=0x08):
    return struct.pack(f">HBB{len(shape)}I", 0, code, len(shape), *shape)


GOOD = header(2, 3, 4) + bytes(range(24))
LONG = gzip.compress(header(4000) + np.random.default_rng(0).bytes(4000), mtime=0)
IDX_FAULTS = {
    "empty file": (b"", "truncated"),
    "one element short": (GOOD[:-1], "truncated: 1 of"),
    "one byte over": (GOOD + b"\x00", "goes on after the 24 bytes"),
    "floats": (header(24, code=0x0D) + bytes(96), "starts with 0x00000d01, wanted 0x000008"),
    "zero beside huge": (header(0xFFFFFFFF, 0, 0xFFFFFFFF), "takes 0 bytes, wanted 1 to"),
    "gzip truncated in data": (LONG[:-500], "."),
    "gzip checksum wrong": (flipped(LONG, -6), "CRC"),
    "gzip bomb within its shape": (gzip.compress(header(1 << 29) + bytes(1 << 20)), "wanted 1 to"),
    "gzip bomb after its shape": (gzip.compress(GOOD + bytes(1 << 22)), "goes on"),
}


@pytest.mark.parametrize("fault", IDX_FAULTS)
def test_malformed_idx_is_a_data_error(fault, tmp_path):
    refuses(read_idx, tmp_path / "file-idx", *IDX_FAULTS[fault])
    for read in (read_idx, read_cifar10):
        for path in (tmp_path / "absent", tmp_path):
            with pytest.raises(DataError, match=read.__name__):
                read(path)


@pytest.mark.parametrize("shape", [(12,), (1, 3, 2, 2), (2,) * 8])
def test_idx_of_any_shape(shape, tmp_path):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    content = header(*shape) + array.tobytes()
    for packed in (content, gzip.compress(content)):
        (tmp_path / "array").write_bytes(packed)
        read = read_idx(str(tmp_path / "array"))
        assert read.dtype == np.uint8 and read.flags.writeable
        np.testing.assert_array_equal(read, array)


# ---- CIFAR-10 --------------------------------------------------------------------------------------------------------


def records(count, seed=0):
    content = np.random.default_rng(seed).integers(0, 256, (count, CIFAR10_RECORD), np.uint8)
    content[:, 0] %= 10
    return content


def archive(members, kind=tarfile.REGTYPE):
    """A tar of (name, content) pairs; the first is of another kind, such as a link."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number, (name, content) in enumerate(members):
            member = tarfile.TarInfo(name)
            member.size, member.type = len(content), tarfile.REGTYPE if number else kind
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


ONE, TEST = CIFAR10_TRAIN[0], CIFAR10_TEST
BATCH = records(3).tobytes()
TAR = archive([(ONE, BATCH), (TEST, BATCH)])
CIFAR_FAULTS = {
    "no tar": (b"a" * 2000, "."),
    "no training batch": (archive([(TEST, BATCH), ("../" + ONE, BATCH)]), "does not hold .*data_batch_1"),
    "record cut": (archive([(ONE, BATCH[:-1]), (TEST, BATCH)]), "records of 3073 bytes"),
    "label 255": (archive([(ONE, b"\xff" * CIFAR10_RECORD), (TEST, BATCH)]), "has label 255, wanted 0 to 9"),
    "symbolic link": (archive([(ONE, b""), (TEST, BATCH)], tarfile.SYMTYPE), "wanted a regular file"),
    "truncated in batch": (TAR[:4000], "truncated|unexpected end|empty|does not hold"),
}


@pytest.mark.parametrize("fault", CIFAR_FAULTS)
def test_malformed_cifar_is_a_data_error(fault, tmp_path):
    content, reason = CIFAR_FAULTS[fault]
    for packed in (content, gzip.compress(content)):
        refuses(read_cifar10, tmp_path / "cifar.tar.gz", packed, reason)
    assert [entry.name for entry in tmp_path.iterdir()] == ["cifar.tar.gz"]


def test_cifar_reads_batches_in_their_order(tmp_path):
    batches = {name: records(seed + 1, seed) for seed, name in enumerate(CIFAR10_TRAIN)}
    test, path = records(4, seed=9), tmp_path / "cifar.tar.gz"
    order = [CIFAR10_TRAIN[i] for i in (3, 0, 4, 2, 1)]
    members = [("cifar-10-batches-bin/readme.html", b"<html>"), (TEST, test.tobytes())]
    path.write_bytes(gzip.compress(archive(members + [(name, batches[name].tobytes()) for name in order])))
    (images, labels), (test_images, test_labels) = read_cifar10(path)
    whole = np.concatenate([batches[name] for name in CIFAR10_TRAIN])
    np.testing.assert_array_equal(labels, whole[:, 0])
    np.testing.assert_array_equal(images.reshape(15, -1), whole[:, 1:])
    np.testing.assert_array_equal(test_labels, test[:, 0])
    assert images.shape == (15, 3, 32, 32) and test_images.shape == (4, 3, 32, 32)
    assert images[0, 1, 2, 3] == whole[0, 1 + 1024 + 2 * 32 + 3]  # red, green and blue planes, row by row
    refuses(read_cifar10, path, flipped(path.read_bytes(), -6), "CRC")
