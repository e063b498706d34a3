"""One flipped bit in any byte of any file of a checkpoint, and a file cut at any length: one CheckpointError."""

import random

import numpy as np

from minigrad import checkpoint
from tests.train.checkpoint_bits import Damaged, small


def weights(parts):
    return [np.asarray(tensor).copy() for tensor in parts["model"].state_dict().values()]


def test_a_flipped_bit_in_any_byte_is_seen(tmp_path):
    parts, draw = small(tmp_path), random.Random(0)
    damaged, before = Damaged(tmp_path, parts), weights(parts)
    for path, content in damaged.files.items():
        for byte in range(len(content)):
            damaged.flip(path, 8 * byte + draw.randrange(8))
    assert all(map(np.array_equal, weights(parts), before))
    checkpoint.load(tmp_path, **parts)


def test_a_file_that_is_cut_anywhere_is_seen(tmp_path):
    damaged = Damaged(tmp_path, small(tmp_path))
    for path, content in damaged.files.items():
        for length in range(0, len(content), 19):
            damaged.cut(path, length)
    checkpoint.load(tmp_path, **damaged.parts)
