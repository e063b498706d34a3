"""Random numbers that can be saved and repeated.

Two sources hang on one seed. Initialisers and shuffles draw from NumPy's Philox generator. Dropout takes keys
(seed, step): its mask is a pure function of key and position, so it is the same on every device and can be made
again in the backward pass instead of being stored.
"""

import contextlib
import contextvars
import copy
import functools
import operator

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.toolchain.capture import capturing

__all__ = ["Generator", "current", "default_generator", "drawing_from", "generator", "manual_seed"]

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
        if (recorder := capturing.get()) is None:
            self.step += 1
            return self.seed, self.step
        key = recorder.count_of(self)
        self.advance()
        return key

    def advance(self):
        """Leave out one key, as if it had been drawn."""
        self.step += 1
        if (recorder := capturing.get()) is not None:
            recorder.note(self.advance, self._go_back)

    def _go_back(self):
        self.step -= 1

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
        state = self.numpy.bit_generator.state
        words = {name: [int(word) for word in values] for name, values in state["state"].items()}
        rest = {name: int(state[name]) for name in ("buffer_pos", "has_uint32", "uinteger")}
        return {
            "seed": self.seed,
            "step": self.step,
            "words": words,
            **rest,
            "buffer": state["buffer"].tolist(),
        }

    def set_state(self, state):
        """Go on as the Generator did that gave this state. Errors: ValueError if it is malformed; nothing is changed"""
        try:
            words = {name: _words(state["words"][name], count) for name, count in (("counter", 4), ("key", 2))}
            buffer, position = _words(state["buffer"], 4), _words([state["buffer_pos"]], 1, 5)
            half, has_half = _words([state["uinteger"]], 1, 1 << 32), _words([state["has_uint32"]], 1, 2)
            seed, step = _words([state["seed"], state["step"]], 2, 1 << 63)
        except (TypeError, ValueError, KeyError, OverflowError, AttributeError) as error:
            wrong = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise ShapeError(f"set_state: wanted what get_state() gives, got {wrong}") from error
        self.manual_seed(int(seed))
        self.step = int(step)
        rest = {"buffer_pos": int(position[0]), "has_uint32": int(has_half[0]), "uinteger": int(half[0])}
        self.numpy.bit_generator.state = {"bit_generator": "Philox", "state": words, "buffer": buffer, **rest}


def _words(values, count, below=1 << 64):
    """So many integers from 0 up to, but not including, `below`, as an array."""
    if not isinstance(values, list | tuple) or len(values) != count:
        raise ValueError(f"{values!r:.60} for {count} integers")
    if not all(type(value) is int and 0 <= value < below for value in values):
        raise ValueError(f"{values!r:.60} for integers below {below}")
    return np.array(values, np.uint64)


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
current: contextvars.ContextVar[Generator] = contextvars.ContextVar("generator", default=default_generator)


def generator():
    """What draws without a generator of their own take: the default one, unless this thread or shard has its own."""
    return current.get()


@contextlib.contextmanager
def drawing_from(source):
    """Inside, what draws without a generator of its own takes this one."""
    token = current.set(source)
    try:
        yield
    finally:
        current.reset(token)


def manual_seed(seed):
    """Seed initialisers, dropout and every other draw that is not given a generator of its own."""
    return generator().manual_seed(seed)
