"""The loader across epochs and saves."""

import json

import pytest

from minigrad.data import Loader
from minigrad_kernels.errors import KindError, ShapeError, StateError
from tests.data.data_batches import AUGMENT, PREFETCH, arrays, assert_same_batches, labels_of, numbered


@pytest.mark.parametrize("prefetch", PREFETCH)
@pytest.mark.parametrize("stop", range(6))
def test_resume_delivers_the_remaining_batches(stop, prefetch):
    def new():
        return Loader(numbered(), 5, shuffle=True, seed=2, transform=AUGMENT, prefetch=prefetch)

    whole = new()
    epochs = [list(arrays(whole)) for _ in range(3)]
    loader = new()
    assert_same_batches(arrays(loader), epochs[0])
    iterator = arrays(loader)
    assert_same_batches([next(iterator) for _ in range(stop)], epochs[1][:stop])
    state = json.loads(json.dumps(loader.state_dict()))
    iterator.close()
    assert (state["seed"], state["epoch"], state["position"]) == (2, 1, stop)

    resumed = Loader(numbered(), 5, shuffle=True, seed=99, transform=AUGMENT, prefetch=prefetch)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert_same_batches(arrays(resumed), epochs[1][stop:])
    assert_same_batches(arrays(resumed), epochs[2])


def test_an_epoch_left_early_is_begun_again():
    loader = Loader(numbered(), 5, shuffle=True)
    first = next(arrays(loader))
    assert loader.state_dict()["position"] == 1 and loader.epoch == 0
    assert_same_batches([next(arrays(loader))], [first])


def test_a_state_goes_to_the_start_of_an_epoch():
    loader, other = Loader(numbered(), 5, shuffle=True), Loader(numbered(), 5, shuffle=True)
    epochs = [list(arrays(loader)) for _ in range(3)]
    assert loader.epoch == 3
    other.load_state_dict(other.state_dict() | {"epoch": 2, "position": 0})
    assert_same_batches(arrays(other), epochs[2])
    next(arrays(other))
    other.load_state_dict(other.state_dict() | {"epoch": 0, "position": 0})
    assert_same_batches(arrays(other), epochs[0])


def test_a_look_at_a_batch_leaves_the_iteration_its_place():
    loader = Loader(numbered(), 5)
    batches = arrays(loader)
    assert labels_of([next(batches), next(arrays(loader)), next(batches)]) == [
        list(range(5)),
        list(range(5)),
        list(range(5, 10)),
    ]
    assert (loader.epoch, loader.position) == (0, 2)
    assert len(list(batches)) == 3 and (loader.epoch, loader.position) == (1, 0)


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
    loader.load_state_dict(loader.state_dict() | {"epoch": 3})
    before = loader.state_dict()
    with pytest.raises(error, match="^load_state_dict: "):
        loader.load_state_dict(state)
    assert loader.state_dict() == before


def test_a_state_between_epochs_fits_other_batch_sizes():
    state = Loader(numbered(), 5, seed=6).state_dict() | {"epoch": 4}
    loader = Loader(numbered(), 7)
    loader.load_state_dict(state)
    assert (loader.seed, loader.epoch) == (6, 4)
