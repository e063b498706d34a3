"""The CIFAR-10 reader: what it reads, and that a malformed archive ends as a DataError naming the file."""

import gzip
import io
import tarfile

import numpy as np
import pytest

from minigrad.data import DataError, read_cifar10
from minigrad.data.formats import CIFAR10_RECORD, CIFAR10_TEST, CIFAR10_TRAIN


def flipped(data, at):
    changed = bytearray(data)
    changed[at] ^= 0xFF
    return bytes(changed)


def records(count, seed=0):
    content = np.random.default_rng(seed).integers(0, 256, (count, CIFAR10_RECORD), np.uint8)
    content[:, 0] %= 10
    return content


def archive(members, tail=b""):
    """A tar of (name, content or TarInfo) pairs."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                tar.addfile(content)
            else:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return stream.getvalue() + tail


def special(name, kind, target=""):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return name, member


def with_header(data, at, field, value):
    """The tar with one header field replaced and the header's checksum made right again."""
    changed = bytearray(data)
    start, length = field
    changed[at + start : at + start + length] = value.ljust(length, b"\0")
    changed[at + 148 : at + 156] = b" " * 8
    changed[at + 148 : at + 156] = b"%06o\0 " % sum(changed[at : at + 512])
    return bytes(changed)


ONE, TEST = CIFAR10_TRAIN[0], CIFAR10_TEST
BATCH = records(3).tobytes()
PAIR = [(ONE, BATCH), (TEST, BATCH)]
TAR = archive(PAIR)
SIZE = (124, 12)
BAD_LABEL = records(3)
BAD_LABEL[1, 0] = 10

TRUNCATED = "truncated|unexpected end|empty|does not hold"
CIFAR_FAULTS = {
    "empty file": (b"", TRUNCATED),
    "no tar": (b"a" * 2000, "."),
    "empty tar": (archive([]), "does not hold"),
    "no training batch": (archive([(TEST, BATCH)]), "does not hold .*data_batch_1"),
    "no test batch": (archive([(ONE, BATCH)]), "does not hold .*test_batch"),
    "only a later batch": (
        archive([(CIFAR10_TRAIN[1], BATCH), (TEST, BATCH)]),
        "does not hold .*data_batch_1",
    ),
    "other folder": (archive([(n.replace("-bin", ""), c) for n, c in PAIR]), "does not hold"),
    "leading ./": (archive([("./" + n, c) for n, c in PAIR]), "does not hold"),
    "absolute names": (archive([("/" + n, c) for n, c in PAIR]), "does not hold"),
    "upward names": (archive([("../" + n, c) for n, c in PAIR]), "does not hold"),
    "record cut": (archive([(ONE, BATCH[:-1]), (TEST, BATCH)]), "records of 3073 bytes"),
    "record and a byte": (archive([(ONE, BATCH), (TEST, BATCH + b"a")]), "test_batch.bin has 9220 bytes"),
    "empty batch": (archive([(ONE, b""), (TEST, BATCH)]), "has 0 bytes"),
    "label 10": (archive([(ONE, BAD_LABEL.tobytes()), (TEST, BATCH)]), "has label 10, wanted 0 to 9"),
    "label 255": (archive([(ONE, b"\xff" * CIFAR10_RECORD), (TEST, BATCH)]), "has label 255"),
    "symbolic link": (archive([special(ONE, tarfile.SYMTYPE, "/etc/passwd"), PAIR[1]]), "wanted a regular file"),
    "hard link": (archive([PAIR[1], special(ONE, tarfile.LNKTYPE, TEST)]), "wanted a regular file"),
    "folder": (archive([special(ONE, tarfile.DIRTYPE), PAIR[1]]), "does not hold|wanted a regular file"),
    "device": (archive([special(ONE, tarfile.CHRTYPE), PAIR[1]]), "wanted a regular file"),
    "fifo": (archive([special(ONE, tarfile.FIFOTYPE), PAIR[1]]), "wanted a regular file"),
    "sparse file": (with_header(TAR, 0, (156, 1), tarfile.GNUTYPE_SPARSE), "wanted a regular file"),
    "header checksum wrong": (flipped(TAR, 150), "."),
    "second header flipped": (flipped(TAR, 512 + 9728 + 3), "."),
    "truncated in header": (TAR[:300], TRUNCATED),
    "truncated in batch": (TAR[:4000], TRUNCATED),
    "truncated between members": (TAR[: 512 + 9728], TRUNCATED),
    "size beyond the file": (
        with_header(TAR, 0, SIZE, b"%011o" % (CIFAR10_RECORD * 4000)),
        TRUNCATED,
    ),
    "size too many records": (
        with_header(TAR, 0, SIZE, b"%011o" % (CIFAR10_RECORD * 100_000)),
        "307300000 bytes, wanted",
    ),
    "size 8 GiB": (with_header(TAR, 0, SIZE, b"77777777777"), "."),
    "size not octal": (with_header(TAR, 0, SIZE, b"99999999999"), "."),
    "size negative": (with_header(TAR, 0, SIZE, b"\xff" * 10 + b"\xfe\x00"), "."),
    "size of 2^64": (with_header(TAR, 0, SIZE, b"\x80" + b"\x00" * 2 + b"\x01" + b"\x00" * 8), "."),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("fault", CIFAR_FAULTS)
def test_malformed_cifar_is_a_data_error(fault, packed, tmp_path):
    content, reason = CIFAR_FAULTS[fault]
    path = tmp_path / "cifar.tar.gz"
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(DataError, match=reason) as caught:
        read_cifar10(path)
    assert str(caught.value).startswith(f"read_cifar10: {path}: ")
    assert [entry.name for entry in tmp_path.iterdir()] == ["cifar.tar.gz"]


@pytest.mark.parametrize("at", [-6, -2, 5000])
def test_flipped_gzip_byte_of_a_cifar_archive(at, tmp_path):
    path = tmp_path / "cifar.tar.gz"
    path.write_bytes(flipped(gzip.compress(TAR, mtime=0), at))
    with pytest.raises(DataError):
        read_cifar10(path)


def test_cifar_reads_batches_in_their_order(tmp_path):
    batches = {name: records(seed + 1, seed) for seed, name in enumerate(CIFAR10_TRAIN)}
    test = records(4, seed=9)
    order = [CIFAR10_TRAIN[i] for i in (3, 0, 4, 2, 1)]
    members = [
        ("cifar-10-batches-bin/readme.html", b"<html>"),
        special("cifar-10-batches-bin", tarfile.DIRTYPE),
    ]
    members += [(TEST, test.tobytes()), *((name, batches[name].tobytes()) for name in order)]
    path = tmp_path / "cifar.tar.gz"
    path.write_bytes(gzip.compress(archive(members)))
    (images, labels), (test_images, test_labels) = read_cifar10(path)
    whole = np.concatenate([batches[name] for name in CIFAR10_TRAIN])
    np.testing.assert_array_equal(labels, whole[:, 0])
    np.testing.assert_array_equal(images.reshape(15, -1), whole[:, 1:])
    np.testing.assert_array_equal(test_labels, test[:, 0])
    assert images.shape == (15, 3, 32, 32) and test_images.shape == (4, 3, 32, 32)
    # Red, green and blue planes, row by row.
    assert images[0, 1, 2, 3] == whole[0, 1 + 1024 + 2 * 32 + 3]


def test_random_changes_of_a_tar_never_escape_as_other_errors(tmp_path):
    generator = np.random.default_rng(0)
    path = tmp_path / "cifar.tar"
    refused = 0
    for _ in range(600):
        content = bytearray(TAR)
        for _ in range(generator.integers(1, 4)):
            header_at = generator.choice([0, 512 + 9728])
            content[header_at + generator.integers(512)] = generator.integers(256)
        path.write_bytes(content)
        try:
            read_cifar10(path)
        except DataError:
            refused += 1
    assert refused > 500


def test_shared_archive(shared_data):
    path = shared_data / "cifar10" / "cifar-10-binary.tar.gz"
    (images, labels), (test_images, test_labels) = read_cifar10(path)
    assert len(images) == len(labels) >= 10000 and len(test_images) == len(test_labels) >= 2000
    assert np.bincount(labels[:10000]).min() > 900
