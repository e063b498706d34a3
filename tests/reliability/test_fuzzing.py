"""Readers of files on damaged and hostile ones: only the documented errors leave, and what is refused changes nothing.

tests/reliability/fuzz.py goes on for as long as it is told to; what it finds becomes a row of FOUND here.
"""

import io
import random
import zipfile

import pytest

from .fuzzing import TARGETS, mutations
from .fuzzing.target import from_row

MUTATIONS = 60  # of each target


def replaced(old, new):
    """The first seed with other bytes in one place."""

    def made(seed):
        assert old in seed
        return seed.replace(old, new, 1)

    return made


def header(text):
    """A .npz file with a member of this header; NumPy reads one of version 1 as Python 2 may have written it."""

    def made(_):
        archive, line = io.BytesIO(), text.encode().ljust(118) + b"\n"
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("w.npy", b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line)
        return archive.getvalue()

    return made


BOTH = replaced(b'"eps"', b'"epoch"'), replaced(b'"base_lrs"', b'"base_lr"')
FOUND = [
    (
        "npz",
        lambda _: from_row(
            "c-jl_W@Zs#fB;2?uVyoDHv(B8%nHQidU*wvll?+{10oq2${DKFQ&NkQi`1<Y)NRsC)O8fp)AEZ-iW2kU^NUhaLE>(SImM|!@#2icf>a=1!`MehfkMC);LXS+!i?LMFwnrr0CRJIH!B;6!w7`NKza#S0RZ{|DmV"
        ),
    ),
    ("npz", header("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 64)}")),
    ("npz", header("(" * 90)),
    ("history", replaced(b'"steps": 7', b'"steps": Infinity')),
    ("checkpoint-state", lambda seed: BOTH[1](BOTH[0](seed))),  # an option that stayed when the schedule was refused
    ("config", replaced(b'"data_dir": null', b'"data_dir": ' + b"[" * 20000 + b"]" * 20000)),
    ("resume", replaced(b'"batch_size": 4', b'"batch_size": 5')),
]


@pytest.fixture
def prepared(request, tmp_path):
    target = TARGETS[request.param]
    return target, *target.prepare(tmp_path)


@pytest.mark.parametrize("prepared", TARGETS, indirect=True)
def test_valid_files_are_read(prepared):
    _, seeds, read = prepared
    for seed in seeds:
        read(seed)


@pytest.mark.parametrize("prepared, damage", FOUND, indirect=["prepared"])
def test_what_was_found_once_is_refused(prepared, damage):
    target, seeds, read = prepared
    with pytest.raises(target.errors):
        read(damage(seeds[0]))


@pytest.mark.parametrize("prepared", TARGETS, indirect=True)
def test_only_documented_errors_leave(prepared):
    target, seeds, read = prepared
    draw, refused = random.Random(0), 0
    for turn in range(MUTATIONS):
        data = seeds[turn % len(seeds)]
        for _ in range(draw.randrange(1, 3)):
            data = target.mutate(data, draw, lambda part: mutations.plain(part, draw))
        try:
            read(data)
        except target.errors:
            refused += 1
    assert refused > MUTATIONS / 4
