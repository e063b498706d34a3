"""How MNIST and CIFAR-10 are found, trusted and downloaded."""

import gzip
import hashlib
import struct
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from minigrad.data import DataError, Dataset, available, cifar10, mnist
from minigrad.data.sources import CIFAR10, MNIST, Published, obtain
from minigrad_kernels.errors import MinigradError
from minigrad_kernels.layout import CHANNELS_LAST, is_dense


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    """No test sees the files, or the cache, of whoever runs it."""
    monkeypatch.delenv("MINIGRAD_DATA", raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache" / name)
    return tmp_path / "cache" / "minigrad"


def idx(array):
    return gzip.compress(struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes())


def mnist_files():
    """{name: content} of an MNIST of 5 and 3 images."""
    contents = {}
    for part, count in (("train", 5), ("t10k", 3)):
        contents[f"{part}-images-idx3-ubyte.gz"] = idx(np.zeros((count, 28, 28), np.uint8))
        contents[f"{part}-labels-idx1-ubyte.gz"] = idx(np.arange(count, dtype=np.uint8))
    return contents


def write(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


# ---- found on disk ---------------------------------------------------------------------------------------------------


def test_a_named_folder_goes_before_the_environment_and_that_before_the_cache(tmp_path, monkeypatch, empty_cache):
    files = mnist_files()
    assert available("mnist") is None and (available("digits") / "digits.csv.gz").is_file()
    for load, published in ((mnist, MNIST), (cifar10, CIFAR10)):
        with pytest.raises(DataError, match=f"^{published.name}: .*not there, .*download is off.*--data digits"):
            load(download=False)
    assert not empty_cache.exists()
    cached = write(empty_cache / "mnist", files)
    assert available("mnist") == cached
    monkeypatch.setenv("MINIGRAD_DATA", str(write(tmp_path / "env", files)))
    assert available("mnist") == tmp_path / "env"
    assert available("mnist", write(tmp_path / "mine" / "mnist", files).parent) == tmp_path / "mine" / "mnist"
    write(tmp_path / "part", dict(list(files.items())[:3]))
    assert available("mnist", tmp_path / "part") is None
    train, test = mnist(tmp_path / "mine", download=False)
    assert (len(train), len(test)) == (5, 3) and train.images.shape == (5, 1, 28, 28)
    assert train.mean == test.mean == (0.1307,) and train.classes[7] == "7"
    assert f"{tmp_path / 'mine' / 'mnist'}; not the published file: train-images-idx3-ubyte.gz" in train.source


def test_mnist_files_that_do_not_fit(tmp_path):
    for message, name, content in (
        ("labels have shape .4,., wanted .5,. for 5 images", "train-labels-idx1-ubyte.gz", idx(np.zeros(4, np.uint8))),
        ("holds images .5, 28, 27.", "train-images-idx3-ubyte.gz", idx(np.zeros((5, 28, 27), np.uint8))),
        ("read_idx: .*t10k-images-idx3-ubyte.gz: ", "t10k-images-idx3-ubyte.gz", b"\x1f\x8bdamaged"),
    ):
        write(tmp_path, mnist_files() | {name: content})
        with pytest.raises(MinigradError, match=message):
            mnist(tmp_path)


def test_shared_sets(shared_data):
    for load, tolerance in ((mnist, 2e-3), (cifar10, 0.01)):
        train, test = load(shared_data, download=False)
        assert len(train) >= 10000 and len(test) >= 2000 and is_dense(train.images, CHANNELS_LAST)
        whole = Dataset(train.images, train.labels, train.classes)
        np.testing.assert_allclose(whole.mean, train.mean, atol=tolerance)
        np.testing.assert_allclose(whole.std, train.std, atol=tolerance)
    assert train.classes[3] == "cat"


# ---- downloaded, from a server on this machine -----------------------------------------------------------------------

GOOD = b"content" * 1000


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; from the folder half it promises the whole file and sends half."""

    def log_message(self, format, *arguments):
        pass

    def copyfile(self, source, outputfile):
        content = source.read()
        outputfile.write(content[: len(content) // 2] if "half" in self.path else content)


@pytest.fixture
def address(tmp_path):
    """Of a server that has the file in right, another in wrong, sends a part of it from half, and none from absent."""
    for folder, content in (("right", GOOD), ("wrong", b"other content"), ("half", GOOD)):
        write(tmp_path / "server" / folder, {"f.bin": content})
    handler = partial(Handler, directory=str(tmp_path / "server"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()
        thread.join()


def toy(*mirrors):
    return Published("toy", "Toy", mirrors, {"f.bin": hashlib.sha256(GOOD).hexdigest()})


def test_a_download_goes_to_the_next_mirror_and_trusts_no_other_file(address, empty_cache, tmp_path):
    folder = empty_cache / "toy"
    for mirror in ("http://127.0.0.1:9/", f"{address}absent/", f"{address}wrong/", f"{address}half/"):
        with pytest.raises(DataError, match=f"^toy: {folder}/f.bin is not there, .*\\({mirror}.*--data digits$"):
            obtain(toy(mirror), None, True)
        assert not list(folder.glob("*"))
    published = toy(*(f"{address}{name}/" for name in ("absent", "wrong", "right")))
    for before in ({}, {"f.bin": b"other content"}):
        write(folder, before)
        assert obtain(published, None, True) == (folder, f"Toy, from {folder}")
        assert [entry.read_bytes() for entry in folder.iterdir()] == [GOOD]
    mine = write(tmp_path / "mine" / "toy", {"f.bin": b"of the user"})  # which is spared
    assert obtain(published, tmp_path / "mine", True) == (mine, f"Toy, from {mine}; not the published file: f.bin")
    assert (mine / "f.bin").read_bytes() == b"of the user"
