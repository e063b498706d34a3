"""The loader across epochs and saves."""

import json

import pytest

from minigrad.data import Loader
from minigrad_kernels.errors import KindError, ShapeError, StateError
from tests.data_batches import AUGMENT, PREFETCH, assert_same_batches, numbered


@pytest.mark.parametrize("prefetch", PREFETCH)
@pytest.mark.parametrize("stop", range(6))
def test_resume_delivers_the_remaining_batches(stop, prefetch):
    def new():
        return Loader(numbered(), 5, shuffle=True, seed=2, transform=AUGMENT, prefetch=prefetch)

    whole = new()
    epochs = [list(whole.arrays()) for _ in range(3)]
    loader = new()
    assert_same_batches(loader.arrays(), epochs[0])
    iterator = loader.arrays()
    assert_same_batches([next(iterator) for _ in range(stop)], epochs[1][:stop])
    state = json.loads(json.dumps(loader.state_dict()))
    iterator.close()
    assert (state["seed"], state["epoch"], state["position"]) == (2, 1, stop)

    resumed = Loader(numbered(), 5, shuffle=True, seed=99, transform=AUGMENT, prefetch=prefetch)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    resumed.set_epoch(1)
    assert_same_batches(resumed.arrays(), epochs[1][stop:])
    assert_same_batches(resumed.arrays(), epochs[2])


def test_an_epoch_left_early_is_begun_again():
    loader = Loader(numbered(), 5, shuffle=True)
    first = next(loader.arrays())
    assert loader.state_dict()["position"] == 1 and loader.epoch == 0
    assert_same_batches([next(loader.arrays())], [first])


def test_set_epoch_goes_to_that_epoch():
    loader, other = Loader(numbered(), 5, shuffle=True), Loader(numbered(), 5, shuffle=True)
    epochs = [list(loader.arrays()) for _ in range(3)]
    assert loader.epoch == 3
    other.set_epoch(2)
    assert_same_batches(other.arrays(), epochs[2])
    next(other.arrays())
    other.set_epoch(0)
    assert other.state_dict()["position"] == 0
    assert_same_batches(other.arrays(), epochs[0])


def test_the_latest_iteration_counts():
    loader = Loader(numbered(), 5)
    first, second = loader.arrays(), loader.arrays()
    next(first), next(second), next(first)
    assert loader.position == 1
    assert len(list(first)) == 3 and (loader.epoch, loader.position) == (0, 1)
    assert len(list(second)) == 4 and (loader.epoch, loader.position) == (1, 0)


STATE = Loader(numbered(), 5).state_dict() | {"position": 2}
REFUSED_STATES = {
    "no dict": (ShapeError, [1]),
    "nothing": (ShapeError, {}),
    "one key less": (ShapeError, {k: v for k, v in STATE.items() if k != "seed"}),
    "one key more": (ShapeError, STATE | {"more": 1}),
    "negative position": (ShapeError, STATE | {"position": -1}),
    "position beyond the epoch": (ShapeError, STATE | {"position": 6}),
    "float epoch": (KindError, STATE | {"epoch": 1.0}),
    "text seed": (KindError, STATE | {"seed": "0"}),
    "other batch size": (StateError, STATE | {"batch_size": 4}),
    "other number of images": (StateError, STATE | {"images": 22}),
    "other order": (StateError, STATE | {"shuffle": True}),
    "other last batch": (StateError, STATE | {"drop_last": True}),
}


@pytest.mark.parametrize("case", REFUSED_STATES)
def test_refused_states_change_nothing(case):
    error, state = REFUSED_STATES[case]
    loader = Loader(numbered(), 5, seed=4)
    loader.set_epoch(3)
    before = loader.state_dict()
    with pytest.raises(error, match="^load_state_dict: "):
        loader.load_state_dict(state)
    assert loader.state_dict() == before


def test_a_state_between_epochs_fits_other_batch_sizes():
    state = Loader(numbered(), 5, seed=6).state_dict() | {"epoch": 4}
    loader = Loader(numbered(), 7)
    loader.load_state_dict(state)
    assert (loader.seed, loader.epoch) == (6, 4)
