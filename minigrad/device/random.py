"""Random numbers that can be saved and repeated.

Two sources hang on one seed. Initialisers and shuffles draw from NumPy's Philox generator. Dropout takes keys
(seed, step): its mask is a pure function of key and position, so it is the same on every device and can be made
again in the backward pass instead of being stored.
"""

import copy
import functools
import operator

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.toolchain.modes import Mode, capturing

__all__ = ["Generator", "default_generator", "generator", "manual_seed"]

WORDS = 4  # that Philox makes at once, into its buffer
COUNTS = "buffer_pos", "has_uint32", "uinteger"  # of numbers of Philox's state
DRAW_BITS = 20  # of the step in a key of a shard: the number of the draw within an update


class Generator:
    """A seeded source of random numbers whose state is a dictionary of JSON values."""

    of_one_shard = False  # whether it serves a shard of one update alone
    twin_of = None  # the Generator that a graph moves on for this one

    def __init__(self, seed=0):
        self.manual_seed(seed)

    def manual_seed(self, seed):
        """Start again from this seed, an integer from 0 to 2^63 - 1."""
        try:
            seed = operator.index(seed)
        except TypeError:
            raise KindError(f"manual_seed: seed is {seed!r}, wanted an integer from 0 to 2^63 - 1") from None
        if not 0 <= seed < 1 << 63:
            raise ShapeError(f"manual_seed: seed is {seed}, wanted an integer from 0 to 2^63 - 1")
        self.seed, self.step = seed, 0
        self.numpy = np.random.Generator(np.random.Philox(self.seed))
        return self

    def next_key(self):
        """A key (seed, step) that no earlier call has returned since seeding.

        Within a graph it is an array (seed, step) of the GPU and a number to add to that step, for the graph's kernels.
        """
        recorder = capturing.get()
        key = (self.seed, self.step + 1) if recorder is None else recorder.count_of(self)
        self.advance()
        return key

    def advance(self):
        """Leave out one key, as if it had been drawn."""
        if (recorder := capturing.get()) is not None:
            recorder.note(self.advance, functools.partial(setattr, self, "step", self.step))
        self.step += 1

    def stands(self):
        """(seed, step) of the latest key."""
        return self.seed, self.step

    def twin(self):
        """Another Generator that draws from now on what this one will, in each replay of a graph too."""
        twin = copy.copy(self)
        twin.twin_of = self.twin_of or self
        if "numpy" in twin.__dict__:
            twin.numpy = copy.deepcopy(self.numpy)
        return twin

    def of_shard(self, shard):
        """The Generator of one shard of the next update: a function of seed, step and shard alone.

        Keys of dropout are (seed mixed with shard, step 2^20 + number of the draw).
        """
        return _ShardGenerator(self, shard)

    def get_state(self):
        """A dictionary of JSON values, from which set_state goes on."""
        state = self.numpy.bit_generator.state
        words = {name: [int(word) for word in values] for name, values in state["state"].items()}
        rest = {name: int(state[name]) for name in COUNTS}
        return {"seed": self.seed, "step": self.step, "words": words, **rest, "buffer": state["buffer"].tolist()}

    def set_state(self, state):
        """Go on as the Generator did that gave this state. Errors: ValueError if it is malformed; nothing is changed"""
        try:
            found = Generator(state["seed"])
            found.step = state["step"]
            found.numpy.bit_generator.state = {
                "bit_generator": "Philox",
                "state": {name: np.array(state["words"][name], np.uint64) for name in ("counter", "key")},
                "buffer": np.array(state["buffer"], np.uint64),
                **{name: state[name] for name in COUNTS},
            }
            if found.get_state() != state or not 0 <= found.step < 1 << 63 or not 0 <= state["buffer_pos"] <= WORDS:
                raise ValueError(f"{state!r:.60}")
        except (TypeError, ValueError, LookupError, OverflowError) as error:
            wrong = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise ShapeError(f"set_state: wanted what get_state() gives, got {wrong}") from error
        self.seed, self.step, self.numpy = found.seed, found.step, found.numpy


@functools.lru_cache(maxsize=256)
def _mixed(seed, shard):
    """The seed of a shard."""
    return int(np.random.SeedSequence(seed, spawn_key=(shard,)).generate_state(1, np.uint64)[0]) >> 1


class _ShardGenerator(Generator):
    """Draws of one shard in one update."""

    of_one_shard = True

    def __init__(self, whole, shard):
        self._whole, self._key = whole, (shard, whole.step)
        self.seed, self.step = self.stands()

    def stands(self):
        """(seed, step) before the first key of the update that is next."""
        return _mixed(self._whole.seed, self._key[0]), self._whole.step << DRAW_BITS

    @functools.cached_property
    def numpy(self):
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=self._key)))


default_generator = Generator()
_drawing = Mode("generator", default_generator)
current, generator = _drawing.variable, _drawing.get  # what draws without a generator of their own take, in this thread


def drawing_from(source):
    """A block within which what draws without a generator of its own takes this one."""
    return _drawing.setting(source)


def manual_seed(seed):
    """Seed initialisers, dropout and every other draw that is not given a generator of its own."""
    return generator().manual_seed(seed)
