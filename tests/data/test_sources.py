"""How MNIST and CIFAR-10 are found, trusted and downloaded."""

import gzip
import hashlib
import struct
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from minigrad.data import DataError, Dataset, available, cifar10, mnist
from minigrad.data.sources import CIFAR10, MNIST, Published, find, obtain
from minigrad_kernels.errors import MinigradError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, is_dense


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    """No test sees the files, or the cache, of whoever runs it."""
    monkeypatch.delenv("MINIGRAD_DATA", raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache" / name)
    return tmp_path / "cache" / "minigrad"


def idx(array):
    return gzip.compress(struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes())


def mnist_files(train=5, test=3):
    generator = np.random.default_rng(0)
    contents = {}
    for part, count in (("train", train), ("t10k", test)):
        contents[f"{part}-images-idx3-ubyte.gz"] = idx(generator.integers(0, 256, (count, 28, 28), np.uint8))
        contents[f"{part}-labels-idx1-ubyte.gz"] = idx(generator.integers(0, 10, count, np.uint8))
    return contents


def write(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("place", ["data_dir", "environment"])
@pytest.mark.parametrize("subfolder", ["", "mnist"])
def test_mnist_of_the_user(place, subfolder, tmp_path, monkeypatch):
    folder = write(tmp_path / "mine" / subfolder, mnist_files())
    data_dir = str(tmp_path / "mine") if place == "data_dir" else None
    if place == "environment":
        monkeypatch.setenv("MINIGRAD_DATA", str(tmp_path / "mine"))
    train, test = mnist(data_dir, download=False)
    assert (len(train), len(test)) == (5, 3) and train.images.shape == (5, 1, 28, 28)
    assert train.mean == test.mean == (0.1307,) and train.classes[7] == "7"
    assert str(folder) in train.source and "not the published file: train-images-idx3-ubyte.gz" in train.source
    assert available("mnist", data_dir) == folder


def test_a_named_folder_goes_before_the_environment_and_that_before_the_cache(tmp_path, monkeypatch, empty_cache):
    files = mnist_files()
    assert available("mnist") is None
    cached = write(empty_cache / "mnist", files)
    assert available("mnist") == cached
    monkeypatch.setenv("MINIGRAD_DATA", str(write(tmp_path / "env", files)))
    assert available("mnist") == tmp_path / "env"
    assert available("mnist", write(tmp_path / "mine" / "mnist", files).parent) == tmp_path / "mine" / "mnist"
    write(tmp_path / "part", {name: files[name] for name in list(files)[:3]})
    assert available("mnist", tmp_path / "part") is None


def test_a_file_of_the_cache_is_the_published_one(server, empty_cache):
    root, address = server
    write(root, {"f.bin": b"content" * 1000})
    folder = write(empty_cache / "toy", {"f.bin": b"other content"})
    with pytest.raises(DataError, match="toy: .*f.bin is not there, or not the published file .download is off"):
        obtain(toy(address), None, False)
    assert obtain(toy(address), None, True) == (folder, f"Toy, from {folder}")
    assert (folder / "f.bin").read_bytes() == b"content" * 1000


def test_same_size_other_bytes_is_not_published(tmp_path):
    content = b"abc"
    published = Published("toy", "Toy", (), {"f": hashlib.sha256(content).hexdigest()})
    write(tmp_path, {"f": content})
    assert obtain(published, tmp_path, False) == (tmp_path, f"Toy, from {tmp_path}")
    write(tmp_path, {"f": b"abd"})
    assert obtain(published, tmp_path, False)[1].endswith("not the published file: f")


@pytest.mark.parametrize("load", [mnist, cifar10])
def test_absent_files_offline_take_one_line(load, empty_cache):
    with pytest.raises(DataError) as caught:
        load(download=False)
    message = str(caught.value)
    name = load.__name__
    first, *_ = {"mnist": MNIST, "cifar10": CIFAR10}[name].files
    assert "\n" not in message and message.startswith(f"{name}: {empty_cache / name / first} is not there, or not the")
    assert "(download is off)" in message and "--data digits" in message
    assert not empty_cache.exists()


def test_available_knows_digits_and_refuses_other_names():
    assert (available("digits") / "digits.csv.gz").is_file()
    assert available("mnist") is None and available("cifar10") is None
    with pytest.raises(ShapeError, match="available: name is 'imagenet'"):
        available("imagenet")


MISFITS = {
    "labels have shape .4,., wanted .5,. for 5 images": {"train-labels-idx1-ubyte.gz": idx(np.zeros(4, np.uint8))},
    "labels have shape .5,., wanted .3,. for 3 images": {"t10k-labels-idx1-ubyte.gz": idx(np.zeros(5, np.uint8))},
    "labels.0. = 10, but there are 10 classes": {"train-labels-idx1-ubyte.gz": idx(np.full(5, 10, np.uint8))},
    "train-images-idx3-ubyte.gz: holds images .5, 28, 27.": {
        "train-images-idx3-ubyte.gz": idx(np.zeros((5, 28, 27), np.uint8))
    },
    "train-images-idx3-ubyte.gz: holds images .5, 784.": {
        "train-images-idx3-ubyte.gz": idx(np.zeros((5, 784), np.uint8))
    },
    "labels have shape .3, 28, 28.": {"t10k-labels-idx1-ubyte.gz": idx(np.zeros((3, 28, 28), np.uint8))},
    "read_idx: .*t10k-images-idx3-ubyte.gz: ": {"t10k-images-idx3-ubyte.gz": b"\x1f\x8bdamaged"},
}


@pytest.mark.parametrize("case", MISFITS)
def test_mnist_files_that_do_not_fit(case, tmp_path):
    write(tmp_path, mnist_files() | MISFITS[case])
    with pytest.raises(MinigradError, match=case):
        mnist(tmp_path)


# Downloads, from a server on this machine


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format, *arguments):
        pass


@pytest.fixture
def server(tmp_path):
    """A folder and the address under which it is served."""
    root = tmp_path / "server"
    root.mkdir()
    handler = partial(QuietHandler, directory=str(root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield root, f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()
        thread.join()


def toy(*mirrors, content=b"content" * 1000):
    return Published("toy", "Toy", mirrors, {"f.bin": hashlib.sha256(content).hexdigest()})


def test_download_goes_to_the_next_mirror(server, empty_cache):
    root, address = server
    write(root / "wrong", {"f.bin": b"other content"})
    write(root / "right", {"f.bin": b"content" * 1000})
    published = toy(address + "absent/", address + "wrong/", address + "right/")
    folder, source = obtain(published, None, True)
    assert folder == empty_cache / "toy" and (folder / "f.bin").read_bytes() == b"content" * 1000
    assert "not the published" not in source
    assert [entry.name for entry in folder.iterdir()] == ["f.bin"]


def test_download_goes_to_the_users_folder_and_spares_what_is_there(server, tmp_path):
    root, address = server
    files = write(root, mnist_files())
    hashes = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files.iterdir()}
    published = Published("mnist", "M", (address,), hashes)
    mine = write(tmp_path / "mine" / "mnist", {"t10k-labels-idx1-ubyte.gz": idx(np.full(3, 2, np.uint8))})
    folder, source = obtain(published, tmp_path / "mine", True)
    assert folder == mine == find(published, tmp_path / "mine")
    assert source.endswith("not the published file: t10k-labels-idx1-ubyte.gz")
    assert mnist(tmp_path / "mine", download=False)[1].labels.tolist() == [2, 2, 2]


def test_download_of_other_bytes_is_refused_and_leaves_nothing(server, empty_cache):
    root, address = server
    write(root, {"f.bin": b"other content"})
    with pytest.raises(DataError, match="f.bin is not there, .*--data digits") as caught:
        obtain(toy(address), None, True)
    assert "\n" not in str(caught.value)
    assert not list((empty_cache / "toy").glob("*"))


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
            with pytest.raises(DataError, match="toy: .*f.bin is not there, .*--data digits") as caught:
                obtain(toy(f"http://127.0.0.1:{server.server_port}/"), None, True)
        finally:
            server.shutdown()
            thread.join()
    assert "\n" not in str(caught.value) and not list((empty_cache / "toy").glob("*"))


def test_no_server_is_one_line(empty_cache):
    with pytest.raises(DataError, match="toy: .*f.bin is not there, .*\\(http://127.0.0.1:9/: ") as caught:
        obtain(toy("http://127.0.0.1:9/"), None, True)
    assert "\n" not in str(caught.value) and str(empty_cache / "toy") in str(caught.value)
    assert not list((empty_cache / "toy").glob("*"))


def test_published_addresses_are_https_with_full_hashes():
    for published in (MNIST, CIFAR10):
        assert all(mirror.startswith("https://") and mirror.endswith("/") for mirror in published.mirrors)
        assert all(len(bytes.fromhex(sha)) == 32 for sha in published.files.values())


def test_shared_sets(shared_data):
    train, test = mnist(shared_data, download=False)
    assert len(train) >= 10000 and len(test) == 10000
    whole = Dataset(train.images, train.labels, train.classes)
    np.testing.assert_allclose(whole.mean, train.mean, atol=2e-3)
    np.testing.assert_allclose(whole.std, train.std, atol=2e-3)
    assert ("not the published" in train.source) == (len(train) < 60000)
    train, test = cifar10(shared_data, download=False)
    whole = Dataset(train.images, train.labels, train.classes)
    np.testing.assert_allclose(whole.mean, train.mean, atol=0.01)
    np.testing.assert_allclose(whole.std, train.std, atol=0.01)
    assert train.classes[3] == "cat" and is_dense(train.images, CHANNELS_LAST)
