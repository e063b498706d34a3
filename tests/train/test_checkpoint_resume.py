"""Going on from a checkpoint of any step ends with the bits of the training that was not left."""

import shutil

import pytest

from minigrad import checkpoint
from tests.reliability import kills


class Quiet(kills.Told):
    def say(self, what):
        pass


def trained(folder, name, keep):
    """Train in this process as kills.py does, with so many checkpoints kept."""
    with pytest.MonkeyPatch.context() as patch:
        real = checkpoint.save
        patch.setattr(checkpoint, "save", lambda *args, **options: real(*args, **options | {"keep": keep}))
        patch.setattr(kills, "EVERY", 1)
        kills.train(folder, name, Quiet())


@pytest.mark.parametrize("name", kills.PARTS)
def test_any_step_can_be_gone_on_from(tmp_path, name):
    trained(tmp_path / "whole/last", name, 100)
    wanted, numbers = kills.state(tmp_path / "whole"), checkpoint.numbers(tmp_path / "whole/last")
    assert len(numbers) >= 12
    stride = 1 if name == "dense" else 5  # it accumulates: groups that an epoch does not fill are saved, too
    for number in numbers[:-1:stride]:
        place = tmp_path / str(number) / "last"
        place.mkdir(parents=True)
        shutil.copy(checkpoint.path_of(tmp_path / "whole/last", number), place)
        trained(place, name, 1)
        assert kills.state(tmp_path / str(number)) == wanted, number
