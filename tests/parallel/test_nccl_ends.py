"""What GPUs' ranks agree on before NCCL is called, and that none of them waits for ever."""

import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from minigrad import deterministic, device
from minigrad.parallel import nccl_watch
from minigrad.parallel.communicator import Communicator
from minigrad.parallel.errors import CommunicationError, DisagreementError
from minigrad.parallel.local import LocalTransport, run_local
from minigrad.parallel.rank import FAILED
from tests.cli_runs import environment
from tests.parallel.launch_runs import wait_for
from tests.parallel.nccl_ranks import ended, machine, names, own_gpu, world_of_one
from tests.parallel_runs import outcomes
from tests.standin.nccl import state

assert machine and ended  # fixtures


@pytest.fixture
def native():
    """The sums are NCCL's own."""
    with deterministic(False):
        yield


# ---- what ranks agree on ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("often, words", [(256, 3), (10, 3 + 10)])
def test_steps_that_repeat_need_no_words_but_every_so_often(machine, monkeypatch, often, words):
    """The first of all, x after y, y after x; and each tenth of 100 calls."""
    from minigrad.parallel import nccl

    told = []
    compare = nccl.NcclCollectives._compare
    monkeypatch.setattr(nccl.NcclCollectives, "_compare", lambda self, what: (told.append(what), compare(self, what)))
    monkeypatch.setattr(nccl, "OFTEN", often)

    def run(world):
        x, y = (own_gpu(world)(np.ones(n, np.float32)) for n in (10, 20))
        for _ in range(50):
            world.broadcast(x, label="x")
            world.broadcast(y, label="y")

    run_local(run, 2)
    assert len(told) == 2 * words


OTHERS = {  # what rank 1 does: what is said of it
    "size": (lambda world, x: world.all_reduce(x[:9], label="w"), "all_reduce(float64(9,), sum, "),
    "call": (lambda world, x: world.broadcast(x, label="w"), "broadcast(float64(10,), root=0, label=w)"),
    "mode": (lambda world, x: deterministic(False)(world.all_reduce)(x, label="w"), "all_reduce(float64(10,), sum, "),
    "device": (lambda world, x: world.all_reduce(device.host(x), label="w"), "label=w),"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_every_rank_hears_that_calls_differ(machine, other):
    call, said = OTHERS[other]

    def run(world):
        x = own_gpu(world)(np.ones(10))
        call(world, x) if world.rank == 1 else world.all_reduce(x, label="w")

    for error in outcomes(run, 3):
        assert isinstance(error, CommunicationError) and "rank 1 does " in str(error), error
        assert said in f"{error}," and "label=w) by NCCL" in str(error), error


def test_ranks_that_differ_after_steps_they_know_hear_of_it_later(machine):
    """Each pair of calls was agreed on, but the ranks choose different ones of them."""

    def run(world):
        x = own_gpu(world)(np.ones(8))
        for label in ("a", "a", "b", "b", "a", "a" if world.rank == 0 else "b"):
            world.broadcast(x, label=label)
        world.broadcast(x, label="after")

    with pytest.raises(DisagreementError, match="did other collectives on their GPUs before it"):
        run_local(run, 2)


def test_two_ranks_on_one_gpu_are_refused(machine, monkeypatch):
    def said(size):
        run = lambda world: world.all_reduce(device.move(np.ones(10), "cuda:2"), label="w")
        return [isinstance(found, RuntimeError) and str(found) for found in outcomes(run, size)]

    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    message = r"label=w\): ranks 0 and 1 are both on GPU .*0000:02:00.0.* or take backend='host'"
    assert all(re.search(message, found) for found in said(3))
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    assert said(3) == [False] * 3
    state(machine).version = 22999
    assert "are both on GPU" in said(2)[0]


def test_nccl_that_is_missing_or_old_or_fails(machine, monkeypatch, native):
    from minigrad.parallel import nccl

    world, x = world_of_one()
    world.collectives(x).nccl.group.destroy()
    with pytest.raises(CommunicationError, match=r"label=\): rank 0: NCCL failed: NCCL_ERROR_INVALID_ARGUMENT"):
        world.all_reduce(x)
    world = Communicator(LocalTransport())
    state(machine).version = 21700
    with pytest.raises(RuntimeError, match="NCCL is 21700, wanted 21801 .* pip install -U nvidia-nccl-cu13"):
        world.all_reduce(x)
    monkeypatch.setattr(nccl.nccl, "available", False)
    with pytest.raises(RuntimeError, match="not installed; pip install nvidia-nccl-cu13, or take backend='host'"):
        world.all_reduce(x)
    by_host = Communicator(LocalTransport(), backend="host")
    assert device.host(by_host.all_reduce(x)).tolist() == [1, 1, 1]


def test_sums_in_order_are_not_captured_by_others(machine, monkeypatch):
    from minigrad.parallel import nccl

    monkeypatch.setattr(nccl.Nccl, "is_captured", lambda self: True)

    def run(world):
        x = own_gpu(world)(np.ones(10))
        with deterministic(False):
            world.all_reduce(x)
        world.all_reduce(x)

    with pytest.raises(RuntimeError, match=r"capture it by minigrad\.graph\.capture"):
        run_local(run, 2)


# ---- ends ------------------------------------------------------------------------------------------------------------


def absent(world, machine):
    state(machine).absent = True


def failing(world, machine):
    state(machine).absent, state(machine).error = True, 6


def told(world, machine):
    absent(world, machine)
    world.transport.abort("rank 1 ended: KeyError: a mistake")


SPOILT = {  # name: (timeout, what is done before, seconds at least, what is said)
    "late": (0.5, absent, 0.5, "not done after 0.5 s\n"),
    "an error of NCCL": (60, failing, 0, "the GPU or NCCL failed: NCCL_ERROR_REMOTE_ERROR"),
    # CuPy's Event.done says no more than that its work has not ended.
    "an error of the GPU": (60, lambda world, machine: setattr(machine, "failed", 700), 0, "cudaErrorIllegalAddress"),
    "not begun": (0.1, lambda world, machine: machine.endless.add(0), 1, "the GPU did not come to it\n"),
    "the reason of another": (60, told, nccl_watch.GRACE, "rank 1 ended: KeyError: a mistake\n"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_collective_that_does_not_end_ends_the_process(machine, ended, capsys, native, name):
    timeout, spoil, least, why = SPOILT[name]
    world, x = world_of_one(timeout)
    world.collectives(x)._watch.drain()
    spoil(world, machine)
    begun = time.monotonic()
    world.all_reduce(x, label="late", asynchronous=True)
    assert ended.wait(20) and least <= time.monotonic() - begun < least + 5
    said = capsys.readouterr().err
    assert said.startswith("all_reduce(float32(3,), sum, ") and "label=late): rank 0: " in said and why in said
    assert ended.codes == [FAILED] and names(machine)[-1] == "abort"


def test_a_call_that_does_not_come_back_ends_the_process(machine, ended, monkeypatch, capsys):
    """As the first ones, in which NCCL connects the ranks."""
    from minigrad.parallel import nccl

    monkeypatch.setattr(nccl_watch.Calling, "mercy", 0.1)
    connect = nccl.Nccl.connect
    monkeypatch.setattr(nccl.Nccl, "connect", lambda self, *words: (ended.wait(20), connect(self, *words)))
    world = Communicator(LocalTransport(), timeout=0.3)
    world.all_reduce(device.move(np.ones(3), "cuda:0"), label="first")
    assert ended.codes == [FAILED]
    assert capsys.readouterr().err.endswith("label=first): rank 0: not done after 0.3 s\n")


def test_threads_of_a_rank_use_its_gpu_alone(machine):
    """A thread that chooses none would make a context on GPU 0."""
    world, _ = world_of_one(gpu=2)
    world.close()
    assert {number for _, number in machine.asked} == {2} and names(machine)[-1] == "destroy"
    assert len({thread for thread, _ in machine.asked}) == 2


def test_an_abort_ends_what_waits_on_the_gpu_and_is_the_only_end_also_where_it_takes_time(machine, monkeypatch, native):
    """Two calls that end one group at once would free it twice, which the stand-in refuses."""
    from minigrad.parallel import nccl

    monkeypatch.setattr(nccl, "GRACE", 0.2)
    world, x = world_of_one()
    world.collectives(x).nccl.group.graphs.add(graph := threading.Event())  # as one that captured a call
    state(machine).absent = True
    assert not world.all_reduce(x, asynchronous=True).done
    with pytest.raises(KeyError), world:
        raise KeyError("a mistake")
    assert "abort" not in names(machine)
    del graph
    wait_for(lambda: names(machine)[-1] == "abort")
    assert names(machine)[-1] == "abort" and "destroy" not in names(machine)
    with pytest.raises(CommunicationError, match="the group of GPUs has ended"):
        world.all_reduce(x)


def test_the_package_alone_imports_neither_mpi_nor_cupy():
    code = "import sys, minigrad.parallel.mpi, minigrad.parallel.communicator, minigrad.parallel.launch"
    code += "; assert not {'mpi4py', 'cupy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True)
