"""A folder of pictures as a data set: a subfolder a class."""

import numpy as np
import pytest
from PIL import Image

from minigrad.data import DataError, Loader, folder


def pictures(path, names, mode="L", count=5):
    for level, name in enumerate(names):
        (path / name / "more").mkdir(parents=True)
        for k in range(count):
            place = path / name / ("more" if k else "") / f"{k}.{('png', 'bmp', 'tiff')[k % 3]}"
            Image.fromarray(np.full((6 + k, 9), 40 * level + k, np.uint8)).convert(mode).save(place)


def test_pictures_become_images_of_one_size(tmp_path):
    pictures(tmp_path / "grey", ["cat", "dog"])
    (tmp_path / "grey" / "dog" / ".hidden").write_text("no picture")
    train, test = folder(tmp_path / "grey", 8, seed=1)
    assert train.classes == ("cat", "dog") and len(train) == 8 and len(test) == 2
    for part in (train, test):
        assert part.images.shape[1:] == (1, 8, 8) and part.mean == train.mean
        assert ((part.images[:, 0, 0, 0] >= 40) == part.labels).all()
    assert (folder(tmp_path / "grey", 8, seed=1)[0].images == train.images).all()
    ((images, labels),) = Loader(train, 64)  # a batch of what is there
    assert len(images) == len(labels) == 8
    pictures(tmp_path / "colour", ["a", "b"], "RGB")
    Image.new("RGBA", (5, 5), (9, 9, 9, 0)).save(tmp_path / "colour" / "b" / "clear.png")
    colour = folder(tmp_path / "colour", 4)
    assert colour[0].images.shape[1:] == (3, 4, 4)
    assert sum((part.images == 255).all((1, 2, 3)).sum() for part in colour) == 1  # on white, as predict has it


def test_what_is_no_folder_of_pictures_is_refused(tmp_path):
    pictures(tmp_path, ["a"])
    with pytest.raises(DataError, match="has 1 subfolders, wanted one for each of at least two classes"):
        folder(tmp_path)
    (tmp_path / "b").mkdir()
    with pytest.raises(DataError, match=r"b holds no pictures"):
        folder(tmp_path)
    (tmp_path / "b" / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"notes.txt cannot be read as a picture"):
        folder(tmp_path)
