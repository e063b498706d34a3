"""Communicator: what collectives compute, in which order, on which arrays. See test_parallel_communicator_errors."""

import struct
import threading

import numpy as np
import pytest
from minigrad.parallel.sums import decoded, encoded

from minigrad import Tensor, device
from minigrad.core.errors import KindError
from minigrad.parallel import DeadlineError
from minigrad.parallel.collectives import SMALL
from minigrad.parallel.local import run_local

from .collective_table import ROWS, check_row, run_row
from .parallel_runs import on_ranks
from .stand_in_gpus import gpus

UFUNCS = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}


def numbers(count, rank, dtype="float32"):
    """Of many magnitudes, so that every order of a sum has bits of its own."""
    rng = np.random.default_rng([rank, count])
    return (rng.standard_normal(count) * 2.0 ** rng.integers(-6, 6, count)).astype(dtype)


def in_pairs(parts, add=np.add):
    """The sum of the first 2^k terms, and that of the rest, added: what `pairwise` promises, said in another way."""
    if len(parts) == 1:
        return parts[0]
    middle = 1 << ((len(parts) - 1).bit_length() - 1)
    return add(in_pairs(parts[:middle], add), in_pairs(parts[middle:], add))


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 4, 5])
def test_collectives_have_the_values_of_numpy_and_one_set_of_bits(size):
    found = on_ranks(lambda world: [run_row(world, row) for row in ROWS], size)
    for rank, rows in enumerate(found):
        for row, got, first in zip(ROWS, rows, found[0], strict=True):
            check_row(row, rank, size, got, first if row.alike else got)


EDGE = SMALL // 4  # float32 numbers up to which whole arrays are exchanged


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_sums_are_taken_in_pairs_in_the_order_of_ranks(size):
    cases = [(n, "float32") for n in (0, 1, EDGE - 1, EDGE, EDGE + 1, 3 * EDGE + 2)] + [(9, "float64"), (9, "float16")]

    def run(world):
        found = [world.all_reduce(numbers(n, world.rank, t), op) for n, t in cases for op in UFUNCS]
        whole = numbers(size * EDGE, world.rank)
        part = whole[world.rank * EDGE :][:EDGE]  # in place
        return found, world.reduce_scatter(part, whole, "mean", order="fixed")

    wanted = []
    for n, t in cases:
        for op, add in UFUNCS.items():
            total = in_pairs([numbers(n, rank, t) for rank in range(size)], add)
            wanted.append((total / np.dtype(t).type(size)).astype(t) if op == "mean" else total)
    scattered = in_pairs([numbers(size * EDGE, rank) for rank in range(size)]) / np.float32(size)
    plain = sum(numbers(3 * EDGE + 2, rank) for rank in range(size))
    assert size < 4 or plain.tobytes() != wanted[20].tobytes()  # the order matters at all
    for rank, (found, part) in enumerate(on_ranks(run, size)):
        for case, got, right in zip(range(len(wanted)), found, wanted, strict=True):
            assert got.tobytes() == right.tobytes(), (case, rank)
        assert part.tobytes() == scattered[rank * EDGE :][:EDGE].tobytes()


def test_a_place_in_an_array_changes_no_bit():
    """The same terms at other places, in larger and smaller arrays, have the same sum."""
    run = lambda world: [world.all_reduce(np.resize(numbers(7, world.rank), n)) for n in (7, 7 * EDGE + 3)]
    for short, long in on_ranks(run, 3):
        assert long.tobytes() == np.resize(short, long.size).tobytes()


def test_gathers_may_lie_in_their_own_result():
    def run(world):
        whole = np.full(6, -1.0)
        own = whole[2 * world.rank :][:2]
        own[:] = world.rank
        world.all_gather(whole, own)
        return whole.tolist()

    assert on_ranks(run, 3) == [[0, 0, 1, 1, 2, 2]] * 3


# ---- 16 bits on the wire ---------------------------------------------------------------------------------------------


def half(x):
    """The float16 next to a number, ties to even, by Python's own conversion."""
    try:
        return np.frombuffer(struct.pack("<e", x), np.float16)[0]
    except OverflowError:
        return np.float16(np.copysign(np.inf, x))


def brain(x):
    """The bits of the bfloat16 next to a number: of its two neighbours the nearer, of equals the even one."""
    low = int(np.float32(x).view(np.uint32)) >> 16
    near = [
        abs(float(np.float64(np.uint32(bits << 16).view(np.float32))) - float(x)) if bits & 0x7F80 != 0x7F80 else None
        for bits in (low, low + 1)
    ]
    if near[1] is None:  # the next one would be infinity, which stands for 2^128 here
        near[1] = 2.0**128 - abs(float(x))
    return low + (near[1] < near[0] or (near[0] == near[1] and low & 1))


def test_rounding_on_the_wire():
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 1 << 32, 3000, np.uint64).astype(np.uint32)
    ties = (bits[:500] & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    special = np.array([0.0, -0.0, 65504, 65519.99, 65520, -65520, 3.4e38, 1e-8, 2.0**-25], np.float32)
    halves = (rng.integers(1024, 2048, 300) + 0.5).astype(np.float32)  # halfway between two float16
    values = np.concatenate([bits.view(np.float32), ties.view(np.float32), special, halves])
    values = values[np.isfinite(values)]
    assert encoded(values, "float16").tobytes() == np.array([half(x) for x in values.tolist()]).tobytes()
    assert encoded(values, "bfloat16").tolist() == [brain(x) for x in values]
    odd = np.array([np.inf, -np.inf, np.nan, -np.nan], np.float32)
    odd = np.concatenate([odd, np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)])  # NaN whatever its bits
    for wire in ("float16", "bfloat16"):
        assert decoded(encoded(odd, wire), wire)[:2].tolist() == [np.inf, -np.inf]
        assert np.isnan(decoded(encoded(odd, wire), wire)[2:]).all()


@pytest.mark.parametrize("wire, epsilon", [("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
def test_sums_by_a_narrow_wire_are_within_their_rounding(wire, epsilon):
    sizes = (100, EDGE, 2 * EDGE + 1)
    run = lambda world: [world.all_reduce(numbers(n, world.rank), wire=wire) for n in sizes]
    found = on_ranks(run, 4)
    for n, *rows in zip(sizes, *found, strict=True):
        terms = np.array([numbers(n, rank) for rank in range(4)], np.float64)
        assert len({row.tobytes() for row in rows}) == 1
        # Terms and total are rounded once each, and two float32 sums lie between.
        bound = 1.01 * epsilon * (np.abs(terms).sum(0) + np.abs(terms.sum(0))) + 1e-6
        assert (np.abs(rows[0] - terms.sum(0)) <= bound).all()
        assert not np.array_equal(rows[0], in_pairs(list(terms.astype(np.float32))))


# ---- kinds of arrays -------------------------------------------------------------------------------------------------


def test_tensors_and_layouts():
    values = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 4, 5, 3)

    def run(world):
        last = Tensor((values + world.rank).transpose(0, 3, 1, 2), requires_grad=True)  # channels last
        strides, version = last.data.strides, last.version[0]
        assert world.all_reduce(last) is last and last.data.strides == strides
        assert last.version[0] > version and last.requires_grad
        scalar = world.all_reduce(np.array(2.0), "mean")
        given = Tensor(np.ones(2))
        version = given.version[0]
        world.all_gather(out := np.empty(2 * world.size), given)
        assert given.version[0] == version and out.sum() == 2 * world.size
        return last.detach().numpy(), scalar

    for found, scalar in on_ranks(run, 2):
        assert np.array_equal(found, (2 * values + 1).transpose(0, 3, 1, 2)) and scalar == 2.0 and scalar.shape == ()


def test_arrays_of_another_device_go_by_way_of_the_host():
    def run(world):
        x = device.move(numbers(5, world.rank), "interpreter")
        world.all_reduce(x, asynchronous=True).wait()
        world.broadcast(y := device.move(np.full(3, world.rank), "interpreter"), 1)
        assert {device.device_of(a) for a in (x, y)} == {"interpreter"}
        return device.host(x), device.host(y).tolist()

    for x, y in on_ranks(run, 2):
        assert x.tobytes() == (numbers(5, 0) + numbers(5, 1)).tobytes() and y == [1, 1, 1]


# ---- beside the caller -----------------------------------------------------------------------------------------------


def test_works_end_in_order_and_calls_that_wait_come_after_them():
    def run(world):
        arrays = [np.full(n, 1.0 + world.rank) for n in (3, 5000, 1, 20_000)]
        works = [world.all_reduce(a, label=f"{i}", asynchronous=True) for i, a in enumerate(arrays)]
        total = world.all_reduce(np.full(2, 1.0))  # in the order of the calls: after the works
        assert all(work.done for work in works)
        assert [work.ended for work in works] == sorted(work.ended for work in works)
        assert all(work.wait() is array for work, array in zip(works, arrays, strict=True))
        world.barrier()
        return total.tolist(), [set(a.tolist()) for a in arrays]

    assert on_ranks(run, 3) == [([3.0, 3.0], [{6.0}] * 4)] * 3


def test_a_call_comes_back_before_the_others_are_there():
    begun = threading.Event()

    def run(world):
        if world.rank:
            assert begun.wait(10)
        work = world.all_reduce(np.ones(1), asynchronous=True)
        if not world.rank:
            assert not work.done
            with pytest.raises(DeadlineError, match=r"not done after 0\.01 s"):
                work.wait(0.01)
            begun.set()
        return work.wait().item()

    assert on_ranks(run, 2) == [2.0, 2.0]


def test_the_end_waits_for_what_was_begun():
    left = threading.Event()

    def run(world):
        x = np.full(20_000, 1.0 + world.rank)
        if world.rank:
            assert not left.wait(0.2)  # rank 0 does not end before
        world.all_reduce(x, asynchronous=True)
        world.close()
        left.set()
        return set(x.tolist())

    assert on_ranks(run, 2) == [{3.0}] * 2


def test_messages_of_a_tag_keep_their_order_and_tags_do_not_wait_for_one_another():
    def run(world):
        if world.rank == 0:
            first = np.array([1.0, 2.0])
            sent = [world.send(first, 1), world.send(np.array([3, 4], np.int8), 1, tag=7)]
            assert sent[0].wait() is first and sent[0].done
            first[:] = 9
            world.send(first, 1).wait()
            return None
        small, out = np.zeros(2, np.int8), Tensor(np.zeros(2))
        assert world.recv(small, 0, tag=7) is small and small.tolist() == [3, 4]
        assert world.recv(out, 0) is out and out.tolist() == [1.0, 2.0] and out.version[0] == 1
        assert world.recv(out, 0).tolist() == [9.0, 9.0]

    on_ranks(run, 2)


def test_bytes_of_any_length():
    run = lambda world: (world.all_gather_bytes(b"x" * world.rank * 3000), world.broadcast_bytes(b"root", 2))
    assert on_ranks(run, 3) == [([b"", b"x" * 3000, b"x" * 6000], b"root")] * 3


# ---- groups ----------------------------------------------------------------------------------------------------------


def test_groups():
    def run(world):
        half = world.split(world.rank // 2, key=-world.rank)
        none = world.split(None if world.rank else "alone")
        assert (none is None) == bool(world.rank)
        inner = half.split("inner")
        outer = world.split("outer")
        # Two groups of overlapping ranks at the same time, in other orders on other ranks.
        x, y = np.full(3, 1.0 + world.rank), np.full(3, 10.0 + world.rank)
        pair = [(inner, x), (outer, y)]
        works = [group.all_reduce(a, asynchronous=True) for group, a in (pair if world.rank % 2 else reversed(pair))]
        for work in works:
            work.wait()
        half.close()
        assert world.all_reduce(np.ones(1)).item() == 4
        return half.rank, half.size, x[0], y[0]

    assert on_ranks(run, 4) == [(1, 2, 3.0, 46.0), (0, 2, 3.0, 46.0), (1, 2, 7.0, 46.0), (0, 2, 7.0, 46.0)]
    with pytest.raises(KindError, match=r"split: key is 'a', wanted an integer or None"):
        on_ranks(lambda world: world.split(0, key="a"), 1)


# ---- arrays of GPUs by way of the host -------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_copies_of_a_thread_beside_go_on_the_callers_stream(asynchronous):
    """Arrays of GPUs by way of the host: what the caller's stream wrote is there, and what comes is there for it."""

    def run(world):
        import cupy

        with cupy.cuda.Device(world.rank):
            x = device.move(np.ones(5000), f"cuda:{world.rank}")
            stream = cupy.cuda.Stream(non_blocking=True)
            stream.wait_event(cupy.cuda.get_current_stream().record())
            with stream:
                x *= 2
                work = world.all_reduce(x, asynchronous=asynchronous)
                x = work.wait() if asynchronous else work
                x *= 3
                return device.host(x)[0]

    with gpus(2):
        assert run_local(run, 2) == [12, 12]
