"""Where the files of a published data set are found, and how they are fetched and trusted.

The folders looked through, in order: the caller's data_dir, the one named by the environment variable
MINIGRAD_DATA, and the cache of the operating system; each also has a subfolder named after the data set. The
first that holds all files is used. The two that the user names may hold other files than the published ones,
say fewer records; in the cache only the published ones are accepted.
"""

import contextlib
import hashlib
import os
import warnings
from dataclasses import dataclass
from pathlib import Path

from minigrad_kernels.errors import KindError

from .formats import DataError

__all__ = ["CIFAR10", "MNIST", "Published", "PublishedFile", "find", "obtain"]

ENVIRONMENT = "MINIGRAD_DATA"
TIMEOUT = 30  # seconds without an answer before the next mirror is tried
CHUNK = 1 << 16


@dataclass(frozen=True)
class PublishedFile:
    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Published:
    name: str
    title: str
    mirrors: tuple[str, ...]
    files: tuple[PublishedFile, ...]


MNIST = Published(
    name="mnist",
    title="MNIST (LeCun, Cortes and Burges; CC BY-SA 3.0)",
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    files=(
        PublishedFile(
            "train-images-idx3-ubyte.gz",
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        PublishedFile(
            "train-labels-idx1-ubyte.gz",
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        PublishedFile(
            "t10k-images-idx3-ubyte.gz",
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        PublishedFile(
            "t10k-labels-idx1-ubyte.gz",
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
)

CIFAR10 = Published(
    name="cifar10",
    title="CIFAR-10 (Krizhevsky 2009)",
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
    files=(
        PublishedFile(
            "cifar-10-binary.tar.gz",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
)


def find(published, data_dir=None):
    """The folder that holds all files of the data set, or None. Touches no network and opens no file."""
    for folder, _ in _folders(published, data_dir):
        if all((folder / file.name).is_file() for file in published.files):
            return folder
    return None


def obtain(published, data_dir, download):
    """The folder that holds the data set, and a sentence on where its files come from.

    What is not found is downloaded into the subfolder of data_dir, of MINIGRAD_DATA, or of the cache,
    whichever of the three comes first. Errors: DataError if files are absent and cannot be had, or not to be
    trusted.
    """
    folder = find(published, data_dir)
    if folder is None:
        folder = _bases(data_dir)[0][0] / published.name
        for file in published.files:
            if not (folder / file.name).is_file():
                _download(published, file, folder, download)
    chosen_by_user = dict(_folders(published, data_dir))[folder]
    unpublished = [file for file in published.files if not _is_published(folder / file.name, file)]
    if unpublished and not chosen_by_user:
        raise DataError(
            f"{published.name}: {folder / unpublished[0].name} is not the published file "
            f"(sha256 {unpublished[0].sha256}); delete it to have it downloaded again"
        )
    source = f"{published.title}, from {folder}"
    if unpublished:
        source += f"; not the published file: {', '.join(file.name for file in unpublished)}"
    return folder, source


def _pooch():
    """pooch, imported when asked for, because that takes as long as all the rest of this package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in Jupyter without ipywidgets its tqdm would warn that bars are plain text
        import pooch
    return pooch


def _bases(data_dir):
    """(folder, whether the user chose it), first choice first."""
    if not isinstance(data_dir, str | os.PathLike | None):
        raise KindError(f"data_dir is of type {type(data_dir).__name__}, want a string or a path")
    chosen = [data_dir, os.environ.get(ENVIRONMENT)]
    bases = [(Path(folder).expanduser(), True) for folder in chosen if folder]
    return [*bases, (Path(_pooch().os_cache("minigrad")), False)]


def _folders(published, data_dir):
    seen = {}
    for base, chosen_by_user in _bases(data_dir):
        for folder in (base, base / published.name):
            seen.setdefault(folder, chosen_by_user)
    return list(seen.items())


def _is_published(path, file):
    if path.stat().st_size != file.size:
        return False
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256


def _download(published, file, folder, download):
    from tqdm import tqdm

    pooch = _pooch()
    reason, absent = "download is off", not folder.exists()
    for mirror in published.mirrors if download else ():
        try:
            # disable=None: no bar where the output is no terminal
            with tqdm(total=file.size, desc=file.name, unit="B", unit_scale=True, disable=None) as bar:
                fetch = pooch.HTTPDownloader(progressbar=bar, chunk_size=CHUNK, timeout=TIMEOUT)
                pooch.retrieve(mirror + file.name, f"sha256:{file.sha256}", file.name, folder, downloader=fetch)
            return
        except (OSError, ValueError) as error:  # no network, page or room; or another sha256 than published
            reason = f"{mirror}: {' '.join(str(error).split())[:200]}"
    if absent:
        with contextlib.suppress(OSError):  # another process may have put something into it
            folder.rmdir()
    raise DataError(
        f"{published.name}: {file.name} is not there ({reason}); put it into {folder}, or name another folder by "
        f"--data-dir or {ENVIRONMENT}, or use --data digits"
    )
