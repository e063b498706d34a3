"""Going on from a checkpoint of any step ends with the bits of the training that was not left."""

import shutil

import pytest

from minigrad import checkpoint
from minigrad.cli import main
from tests.reliability import kills


@pytest.mark.parametrize("recipe", kills.RECIPES)
def test_any_step_can_be_gone_on_from(tmp_path, recipe, monkeypatch):
    """Also from steps after groups of batches that an epoch does not fill."""
    whole, real = tmp_path / "whole", checkpoint.save
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", lambda *args, **options: real(*args, **options | {"keep": 100}))
        assert main([*kills.words_of(recipe), "--epochs", "2", "--save-every", "1", "--out", str(whole)]) == 0
    last = lambda folder: {kind: kills.state(folder)["last", kind] for kind in ("state", "tensors")}
    numbers = checkpoint.numbers(whole / "last")
    assert len(numbers) >= 7
    for number in numbers[1 : -1 : 2 if recipe == "accumulated" else 5]:
        folder = tmp_path / str(number)
        (folder / "last").mkdir(parents=True)
        shutil.copy(whole / "config.json", folder)
        shutil.copy(checkpoint.path_of(whole / "last", number), folder / "last")
        assert main(["train", "--resume", str(folder), "--no-report"]) == 0
        assert last(folder) == last(whole), number
