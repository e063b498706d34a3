"""The IDX reader: what it reads, and that every malformed file ends as a DataError that names the file."""

import gzip
import struct

import numpy as np
import pytest

from minigrad.data import DataError, read_cifar10, read_idx
from minigrad_kernels.errors import MinigradError


def header(*shape, zeros=0, code=0x08, rank=None):
    return struct.pack(f">HBB{len(shape)}I", zeros, code, len(shape) if rank is None else rank, *shape)


GOOD = header(2, 3, 4) + bytes(range(24))
PACKED = gzip.compress(GOOD, mtime=0)
LONG = gzip.compress(header(4000) + np.random.default_rng(0).bytes(4000), mtime=0)


def flipped(data, at):
    changed = bytearray(data)
    changed[at] ^= 0xFF
    return bytes(changed)


IDX_FAULTS = {
    "empty file": (b"", "truncated"),
    "one byte": (b"\x00", "truncated"),
    "magic only": (GOOD[:4], "truncated"),
    "half a dimension": (GOOD[:10], "truncated"),
    "no elements": (GOOD[:16], "truncated"),
    "one element short": (GOOD[:-1], "truncated: 1 of"),
    "one byte over": (GOOD + b"\x00", "goes on after the 24 bytes"),
    "two files in one": (GOOD + GOOD, "goes on"),
    "first zero byte set": (b"\x01" + GOOD[1:], "starts with 0x0100"),
    "second zero byte set": (b"\x00\x01" + GOOD[2:], "starts with 0x0001"),
    "text": (b"label,pixel\n1,2\n", "starts with"),
    "html page": (b"<!DOCTYPE html><html>", "starts with"),
    "little-endian magic": (b"\x03\x08\x00\x00" + GOOD[4:], "starts with"),
    "type code 0": (header(2, code=0) + b"ab", "starts with 0x00000001, wanted 0x000008"),
    "type code 0x0a": (header(2, code=0x0A) + b"ab", "starts with 0x00000a01"),
    "type code 0xff": (header(2, code=0xFF) + b"ab", "starts with 0x0000ff01"),
    "floats": (header(24, code=0x0D) + bytes(96), "starts with 0x00000d01"),
    "rank 0": (header(rank=0) + b"a", "starts with 0x00000800"),
    "rank 255": (header(*[1] * 255) + b"a", "dimension"),
    "rank above the header": (header(24, rank=2) + b"\x01" * 24, "truncated|wanted 1 to"),
    "zero dimension": (header(0), "takes 0 bytes, wanted 1 to"),
    "zero inside": (header(3, 0, 4), "takes 0 bytes, wanted 1 to"),
    "zero beside huge": (header(0xFFFFFFFF, 0, 0xFFFFFFFF), "takes 0 bytes, wanted 1 to"),
    "huge dimension": (header(0xFFFFFFFF), "wanted 1 to"),
    "eight huge dimensions": (header(*[0xFFFFFFFF] * 8), "wanted 1 to"),
    "product wraps 64 bits to 0": (header(1 << 31, 1 << 31, 4), "wanted 1 to"),
    "dimension too big": (flipped(GOOD, 7), "truncated"),
    "gzip of nothing": (gzip.compress(b""), "truncated"),
    "gzip header only": (PACKED[:10], "."),
    "gzip magic only": (b"\x1f\x8b", "."),
    "gzip truncated in data": (LONG[:-500], "."),
    "gzip without checksum": (LONG[:-8], "."),
    "gzip checksum wrong": (flipped(LONG, -6), "CRC"),
    "gzip length wrong": (flipped(LONG, -2), "."),
    "gzip data flipped": (flipped(LONG, 2000), "."),
    "gzip method unknown": (flipped(LONG, 2), "."),
    "gzip then rubbish": (LONG + b"rubbish", "."),
    "gzip of gzip": (gzip.compress(LONG), "starts with"),
    "gzip bomb within its shape": (gzip.compress(header(1 << 29) + bytes(1 << 20)), "wanted 1 to"),
    "gzip bomb after its shape": (gzip.compress(GOOD + bytes(1 << 22)), "goes on"),
    "bzip2": (b"BZh91AY&SY" + bytes(40), "starts with"),
}


@pytest.mark.parametrize("fault", IDX_FAULTS)
def test_malformed_idx_is_a_data_error(fault, tmp_path):
    content, reason = IDX_FAULTS[fault]
    path = tmp_path / "file-idx"
    path.write_bytes(content)
    with pytest.raises(DataError, match=reason) as caught:
        read_idx(path)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, MinigradError)
    assert str(caught.value).startswith(f"read_idx: {path}: ")


@pytest.mark.parametrize("fault", ["absent", "folder", "null byte"])
@pytest.mark.parametrize("read", [read_idx, read_cifar10])
def test_what_is_no_file_is_a_data_error(read, fault, tmp_path):
    path = {"absent": tmp_path / "absent", "folder": tmp_path, "null byte": "a\0b"}[fault]
    with pytest.raises(DataError, match=read.__name__):
        read(path)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", [(12,), (1, 3, 2, 2), (2,) * 8])
def test_idx_of_any_shape(shape, packed, tmp_path):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    content = header(*shape) + array.tobytes()
    path = tmp_path / "array"
    path.write_bytes(gzip.compress(content) if packed else content)
    read = read_idx(str(path))
    assert read.dtype == np.uint8 and read.flags.writeable
    np.testing.assert_array_equal(read, array)


def test_random_bytes_never_escape_as_other_errors(tmp_path):
    generator = np.random.default_rng(0)
    path = tmp_path / "noise"
    seeds = [GOOD, PACKED, LONG, header(2, 3, code=0x0D) + bytes(24)]
    refused = 0
    for turn in range(1500):
        content = bytearray(seeds[turn % len(seeds)])
        for _ in range(generator.integers(1, 4)):
            content[generator.integers(len(content))] = generator.integers(256)
        path.write_bytes(content[: generator.integers(1, len(content) + 1)])
        try:
            read_idx(path)
        except DataError:
            refused += 1
    assert refused > 1000


def test_shared_files(shared_data):
    images = read_idx(shared_data / "mnist" / "t10k-images-idx3-ubyte.gz")
    labels = read_idx(shared_data / "mnist" / "t10k-labels-idx1-ubyte.gz")
    assert images.shape == (10000, 28, 28) and images.dtype == np.uint8
    assert labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
