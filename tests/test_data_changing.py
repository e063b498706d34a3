"""Data files that change, shrink or break off while they are read: one error that says so, and no signal."""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import gzip
import mmap
import os
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from minigrad.data import DataError, Dataset, Loader, formats, read_idx, sources
from tests.test_data_sources import empty_cache, toy  # noqa: F401

PIXELS = np.arange(200 * 1 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(200, 1, 28, 28)
LABELS = np.arange(200) % 10


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


CHANGES = {
    "rewritten": lambda path: path.write_bytes(path.read_bytes()),
    "one byte": lambda path: _overwrite(path, 40),
    "shorter": lambda path: os.truncate(path, path.stat().st_size // 2),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"more"),
    "empty": lambda path: os.truncate(path, 0),
}


def _overwrite(path, at):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff")


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_while_it_is_read(tmp_path, monkeypatch, change, compressed):
    """After its first block; the second is the array, of several blocks."""
    path, read, reads = tmp_path / "images", formats._Reader._read, []
    path.write_bytes(gzip.compress(idx(PIXELS), 1) if compressed else idx(PIXELS))
    os.utime(path, ns=(0, 0))  # clocks of file systems are coarse

    def changed(self, count):
        reads.append(count)
        if len(reads) == 3:
            CHANGES[change](path)
        return read(self, min(count, 1 << 20))

    monkeypatch.setattr(formats, "CHUNK", 1 << 14)
    monkeypatch.setattr(formats._Reader, "_read", changed)
    with pytest.raises(DataError, match="read_idx: .*images: ") as caught:
        read_idx(path)
    assert "\n" not in str(caught.value) and len(reads) >= 3
    if change == "rewritten" or change == "one byte" and not compressed:
        assert str(caught.value).endswith("images: was changed while it was read; try again when it is whole")


@pytest.fixture
def mapped(tmp_path):
    """(path, a map of its images from an offset on)."""
    path = tmp_path / "images.bin"
    path.write_bytes(bytes(4096) + PIXELS.tobytes())
    return path, np.memmap(path, np.uint8, "r", 4096, PIXELS.shape)


@pytest.mark.skipif(os.name != "posix", reason="only POSIX lets mapped files shrink")
def test_a_mapped_file_that_shrank_is_refused(mapped):
    path, images = mapped
    os.truncate(path, 4096 + PIXELS.nbytes - 1)
    for given in (images, images[10:], images.reshape(100, 2, 28, 28)):
        with pytest.raises(DataError, match=r"the file of images has \d+ bytes, \d+ were mapped: it has shrunk"):
            Dataset(given, LABELS[: len(given)], range(10))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        labels = np.frombuffer(pages, np.uint8, 200)
        os.truncate(path, 100)
        with pytest.raises(DataError, match="the file of labels has 100 bytes"):
            Dataset(PIXELS, labels, range(256))
        del labels


@pytest.mark.skipif(os.name != "posix", reason="only POSIX lets mapped files shrink")
def test_a_mapped_file_that_shrinks_later_changes_nothing(mapped):
    """Not a signal, and not other images: the data set has its own."""
    path, images = mapped
    dataset = Dataset(images, LABELS, range(10))
    loader = Loader(dataset, 50)
    batches = iter(loader)
    first, _ = next(batches)
    os.truncate(path, 0)
    found = np.concatenate([first.numpy(), *(images.numpy() for images, _ in batches)])
    np.testing.assert_array_equal(found, PIXELS.astype(np.float32) / np.float32(255))


# ---- downloads -------------------------------------------------------------------------------------------------------


class Breaking(BaseHTTPRequestHandler):
    """Promises the whole file and sends half of it."""

    content = b"content" * 1000

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content[:3000])
        self.close_connection = True

    def log_message(self, format, *arguments):
        pass


def test_a_download_that_breaks_off_leaves_nothing(empty_cache):
    with ThreadingHTTPServer(("127.0.0.1", 0), Breaking) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with pytest.raises(DataError, match="toy: f.bin is not there .*--data digits") as caught:
                sources.obtain(toy(f"http://127.0.0.1:{server.server_port}/"), None, True)
        finally:
            server.shutdown()
            thread.join()
    assert "\n" not in str(caught.value) and not (empty_cache / "toy").exists()
