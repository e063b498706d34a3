"""A flipped bit in a checkpoint, and a file that is cut: one CheckpointError."""

import random

from minigrad import checkpoint
from tests.train.checkpoint_bits import Damaged, small


def test_a_flipped_bit_and_a_cut_are_seen_and_change_nothing(tmp_path):
    parts, draw = small(tmp_path), random.Random(0)
    damaged, before = Damaged(tmp_path, parts), checkpoint.weights_hash(parts["model"])
    for path, content in damaged.files.items():
        for byte in range(0, len(content), 7):
            damaged.flip(path, 8 * byte + draw.randrange(8))
        for length in range(0, len(content), 67):
            damaged.cut(path, length)
    assert checkpoint.weights_hash(parts["model"]) == before
    checkpoint.load(tmp_path, **parts)
