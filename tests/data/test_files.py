"""The readers of IDX and CIFAR-10: what they read, and that a malformed file ends as a DataError that names it."""

import gzip
import io
import struct
import tarfile

import numpy as np
import pytest

from minigrad.data import DataError, read_cifar10, read_idx
from minigrad.data.formats import CIFAR10_RECORD, CIFAR10_TEST, CIFAR10_TRAIN


def header(*shape, code=0x08):
    return struct.pack(f">HBB{len(shape)}I", 0, code, len(shape), *shape)


def records(count, seed=0):
    content = np.random.default_rng(seed).integers(0, 256, (count, CIFAR10_RECORD), np.uint8)
    content[:, 0] %= 10
    return content


def archive(**members):
    """A tar of these members in the folder of the data set."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


@pytest.mark.parametrize("shape", [(12,), (1, 3, 2, 2), (2,) * 8])
def test_idx_of_any_shape(shape, tmp_path):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    content = header(*shape) + array.tobytes()
    for packed in (content, gzip.compress(content)):
        (tmp_path / "array").write_bytes(packed)
        read = read_idx(str(tmp_path / "array"))
        assert read.dtype == np.uint8 and read.flags.writeable
        np.testing.assert_array_equal(read, array)


def test_cifar_reads_batches_in_their_order(tmp_path):
    batches, path = [records(seed + 1, seed) for seed in range(6)], tmp_path / "cifar.tar.gz"
    names = [name.split("/")[1].removesuffix(".bin") for name in (*CIFAR10_TRAIN, CIFAR10_TEST)]
    members = {names[i]: batches[i].tobytes() for i in (5, 3, 0, 4, 2, 1)}
    path.write_bytes(gzip.compress(archive(readme=b"<html>", **members)))
    (images, labels), (test_images, test_labels) = read_cifar10(path)
    whole = np.concatenate(batches[:5])
    np.testing.assert_array_equal(labels, whole[:, 0])
    np.testing.assert_array_equal(images.reshape(15, -1), whole[:, 1:])
    np.testing.assert_array_equal(test_labels, batches[5][:, 0])
    assert images.shape == (15, 3, 32, 32) and test_images.shape == (6, 3, 32, 32)
    assert images[0, 1, 2, 3] == whole[0, 1 + 1024 + 2 * 32 + 3]  # red, green and blue planes, row by row


GOOD, BATCH = header(2, 3, 4) + bytes(range(24)), records(3).tobytes()
LONG = gzip.compress(header(4000) + np.random.default_rng(0).bytes(4000))
TAR = archive(data_batch_1=BATCH, test_batch=BATCH)
FAULTS = [  # of the reader: what the file holds, what the error says
    (read_idx, b"", "wanted 0x000008"),
    (read_idx, GOOD[:10], "."),
    (read_idx, GOOD[:-1], "holds 23 bytes behind its header, wanted those of its shape"),
    (read_idx, GOOD + b"\0", "holds 25 bytes"),
    (read_idx, header(24, code=0x0D) + bytes(96), "starts with 0x00000d01, wanted 0x000008"),
    (read_idx, LONG[:-500], "."),
    (read_idx, LONG[:-6] + bytes(1) + LONG[-5:], "CRC"),
    (read_cifar10, b"a" * 2000, "."),
    (read_cifar10, TAR[:4000], "."),
    (read_cifar10, archive(test_batch=BATCH), "data_batch_1.bin.* not found"),
    (read_cifar10, archive(data_batch_1=BATCH[:-1], test_batch=BATCH), "records of 3073 bytes"),
    (read_cifar10, archive(data_batch_1=b"\xff" * CIFAR10_RECORD, test_batch=BATCH), "has label 255, wanted 0 to 9"),
]


def test_a_malformed_file_is_a_data_error(tmp_path):
    for number, (read, content, reason) in enumerate(FAULTS):
        path = tmp_path / f"file {number}"
        with pytest.raises(DataError, match=f"^{read.__name__}: {path}: "):
            read(path)
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"^{read.__name__}: {path}: .*{reason}"):
            read(path)
