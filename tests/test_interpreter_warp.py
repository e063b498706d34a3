"""Shuffle, vote, match and redux of the PTX interpreter against the manual's rules, one lane at a time."""

import functools
import operator

import numpy as np
import pytest

from minigrad_kernels.errors import StateError
from minigrad_kernels.interpreter import warp

generator = np.random.default_rng(20240613)
WARPS = 5
MEMBERS = {
    "all": np.ones((WARPS, 32), bool),
    "some": generator.random((WARPS, 32)) < 0.5,
    "one": np.arange(32) == np.array([0, 1, 17, 30, 31])[:, None],
}
MODES = ["up", "down", "bfly", "idx"]


def shuffle_by_the_manual(mode, a, b, c):
    """The pseudo-code of shfl: one warp, lists of 32 numbers."""
    results, predicates = [], []
    for lane in range(32):
        bval, cval, mask = b[lane] & 31, c[lane] & 31, (c[lane] >> 8) & 31
        max_lane = (lane & mask) | (cval & ~mask & 31)
        min_lane = lane & mask
        match mode:
            case "up":
                j = lane - bval
                pval = j >= max_lane
            case "down":
                j = lane + bval
                pval = j <= max_lane
            case "bfly":
                j = lane ^ bval
                pval = j <= max_lane
            case "idx":
                j = min_lane | (bval & ~mask & 31)
                pval = j <= max_lane
        results.append(a[j if pval else lane])
        predicates.append(pval)
    return results, predicates


def assert_shuffled(mode, value, b, c):
    result, in_range = warp.shuffle(mode, value, b, c)
    every_b, every_c = (np.broadcast_to(operand, value.shape).tolist() for operand in (b, c))
    assert result.dtype == value.dtype
    for w in range(len(value)):
        wanted, predicates = shuffle_by_the_manual(mode, value[w].tolist(), every_b[w], every_c[w])
        assert result[w].tolist() == wanted
        assert in_range[w].tolist() == predicates


@pytest.mark.parametrize("mode", MODES)
def test_shuffle_in_segments_of_each_width(mode):
    """As CUDA uses it: c = ((32 - width) << 8) | 31, for up without the 31."""
    value = generator.integers(0, 2**32, (2, 32), dtype=np.uint32)
    for width in (1, 2, 4, 8, 16, 32):
        c = (32 - width) << 8 | (0 if mode == "up" else 31)
        for b in range(32):
            assert_shuffled(mode, value, np.uint32(b), np.uint32(c))


@pytest.mark.parametrize("mode", MODES)
def test_shuffle_with_any_operands(mode):
    for _ in range(100):
        value = generator.standard_normal((WARPS, 32)).astype(np.float32)
        b, c = generator.integers(0, 2**32, (2, WARPS, 32), dtype=np.uint32)
        assert_shuffled(mode, value, b, c)
    assert_shuffled(mode, value, b[0].view(np.int32), c[:, :1])


def test_butterfly_sums_a_warp():
    total = value = generator.integers(0, 1000, (WARPS, 32), dtype=np.uint32)
    for step in (16, 8, 4, 2, 1):
        total = total + warp.shuffle("bfly", total, np.uint32(step), np.uint32(31))[0]
    assert (total == value.sum(axis=1, keepdims=True)).all()


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("chance", [0, 0.5, 1])
def test_vote(name, chance):
    members = MEMBERS[name]
    predicate = generator.random((WARPS, 32)) < chance
    results = {mode: warp.vote(mode, predicate, members) for mode in ("all", "any", "uni", "ballot")}
    assert results["ballot"].dtype == np.uint32
    for w in range(WARPS):
        lanes = [lane for lane in range(32) if members[w, lane]]
        votes = [bool(predicate[w, lane]) for lane in lanes]
        wanted = {
            "all": all(votes),
            "any": any(votes),
            "uni": all(vote == votes[0] for vote in votes),
            "ballot": sum(1 << lane for lane, vote in zip(lanes, votes, strict=True) if vote),
        }
        for mode, result in results.items():
            assert result[w].tolist() == [wanted[mode]] * 32


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.uint64, np.float32])
def test_match(name, dtype):
    members = MEMBERS[name]
    value = generator.integers(0, 3, (WARPS, 32)).astype(dtype)
    value[0] = 1
    value[1, members[1]] = 2
    any_mask = warp.match_any(value, members)
    all_mask, predicate = warp.match_all(value, members)
    assert any_mask.dtype == all_mask.dtype == np.uint32
    for w in range(WARPS):
        lanes = [lane for lane in range(32) if members[w, lane]]
        same = len({float(value[w, lane]) for lane in lanes}) == 1
        for lane in lanes:
            assert any_mask[w, lane] == sum(1 << other for other in lanes if value[w, other] == value[w, lane])
            assert all_mask[w, lane] == (sum(1 << other for other in lanes) if same else 0)
            assert predicate[w, lane] == same


def test_match_compares_bits():
    members = MEMBERS["all"][:1]
    value = np.zeros((1, 32), np.float32)
    value[0, 1], value[0, 2], value[0, 3] = -0.0, np.nan, np.nan
    mask = warp.match_any(value, members)[0]
    assert mask[:5].tolist() == [0xFFFFFFF1, 0b0010, 0b1100, 0b1100, 0xFFFFFFF1]


REDUCTIONS = {
    "add": operator.add,
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("dtype", [np.uint32, np.int32])
def test_redux(op, name, dtype):
    limits = np.iinfo(dtype)
    members = MEMBERS[name]
    value = generator.integers(limits.min, limits.max, (WARPS, 32), dtype=dtype, endpoint=True)
    value[0] = limits.min if op == "max" else limits.max
    result = warp.redux(op, value, members)
    assert result.dtype == dtype
    for w in range(WARPS):
        wanted = functools.reduce(REDUCTIONS[op], (int(v) for v in value[w, members[w]]))
        assert [int(r) % 2**32 for r in result[w]] == [wanted % 2**32] * 32


def test_unknown_modes_are_refused():
    value, members = np.zeros((1, 32), np.uint32), MEMBERS["all"][:1]
    for call in (
        lambda: warp.shuffle("left", value, 1, 31),
        lambda: warp.vote("none", value == 0, members),
        lambda: warp.redux("mul", value, members),
    ):
        with pytest.raises(StateError, match="wanted"):
            call()
