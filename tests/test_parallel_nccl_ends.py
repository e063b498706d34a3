"""What GPUs' ranks agree on before NCCL is called, and that none of them waits for ever."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from minigrad import device
from minigrad.parallel import nccl_watch
from minigrad.parallel.communicator import Communicator
from minigrad.parallel.errors import CommunicationError, DisagreementError
from minigrad.parallel.local import LocalTransport, run_local
from minigrad.parallel.rank import FAILED

from .cli_runs import environment
from .nccl_ranks import calls, machine, own_gpu
from .standin.nccl import state

assert machine  # a fixture


# ---- what ranks agree on ---------------------------------------------------------------------------------------------


def words(monkeypatch):
    """Counts the words between ranks."""
    from minigrad.parallel import nccl

    told = []
    compare = nccl.NcclCollectives._compare
    monkeypatch.setattr(nccl.NcclCollectives, "_compare", lambda self, what: (told.append(what), compare(self, what)))
    return told


def test_steps_that_repeat_need_no_words(machine, monkeypatch):
    told = words(monkeypatch)

    def run(world):
        x, y = (own_gpu(world)(np.ones(n, np.float32)) for n in (10, 20))
        for _ in range(50):
            world.all_reduce(x, order="native", label="x")
            world.all_reduce(y, order="native", label="y")

    run_local(run, 2)
    assert len(told) == 2 * 3, "the first of all, x after y, y after x"


def test_every_so_often_the_ranks_compare_in_any_case(machine, monkeypatch):
    monkeypatch.setattr("minigrad.parallel.nccl.OFTEN", 10)
    told = words(monkeypatch)
    run_local(lambda world: [world.broadcast(own_gpu(world)(np.ones(4))) for _ in range(40)], 2)
    assert len(told) == 2 * (2 + 4)


@pytest.mark.parametrize(
    "other, said",
    [
        (lambda world, to: world.all_reduce(to(np.ones(11)), label="w"), "all_reduce(float64(11,), sum, fixed"),
        (lambda world, to: world.all_reduce(to(np.ones(10, np.float32)), label="w"), "all_reduce(float32(10,), sum"),
        (lambda world, to: world.all_reduce(to(np.ones(10)), order="native", label="w"), "sum, native, wire=None"),
        (lambda world, to: world.broadcast(to(np.ones(10)), label="w"), "broadcast(float64(10,), root=0, label=w)"),
        (lambda world, to: world.all_reduce(np.ones(10), label="w"), "sum, fixed, wire=None, label=w),"),
    ],
    ids=["size", "type", "order", "call", "device"],
)
def test_every_rank_hears_that_calls_differ(machine, other, said):
    heard = {}

    def run(world):
        call = other if world.rank == 1 else lambda world, to: world.all_reduce(to(np.ones(10)), label="w")
        try:
            call(world, own_gpu(world))
        except CommunicationError as error:
            heard[world.rank] = str(error)

    run_local(run, 3)
    assert heard.keys() == {0, 1, 2}
    for message in heard.values():
        assert "rank 1 does " in message and said in message + "," and "label=w) by NCCL" in message


def test_ranks_that_differ_after_steps_they_know_hear_of_it_later(machine):
    """Each pair of calls was agreed on, but the ranks choose different ones of them."""

    def run(world):
        x, y = (own_gpu(world)(np.ones(8)) for _ in "xy")
        both = lambda *labels: [world.all_reduce(x, order="native", label=label) for label in labels]
        both(*"aabba")
        both("a" if world.rank == 0 else "b")
        world.broadcast(y, label="after")

    with pytest.raises(DisagreementError, match="did other collectives on their GPUs before it"):
        run_local(run, 2)


def test_two_ranks_on_one_gpu_are_refused(machine, monkeypatch):
    def run(world):
        try:
            world.all_reduce(device.move(np.ones(10), "cuda:2"), label="w")
        except RuntimeError as error:
            return str(error)

    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    for message in run_local(run, 3):
        assert "label=w): ranks 0 and 1 are both on GPU " in message and "0000:02:00.0" in message
        assert "or take backend='host'" in message
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    assert run_local(run, 3) == [None] * 3
    state(machine).version = 22999
    assert "are both on GPU" in run_local(run, 2)[0]


def test_nccl_that_is_missing_or_old(machine, monkeypatch):
    from minigrad.parallel import nccl

    world, x = Communicator(LocalTransport()), device.move(np.ones(3), "cuda:0")
    state(machine).version = 21700
    with pytest.raises(RuntimeError, match="NCCL is 21700, wanted 21801 .* pip install -U nvidia-nccl-cu13"):
        world.all_reduce(x)
    monkeypatch.setattr(nccl.nccl, "available", False)
    with pytest.raises(RuntimeError, match="not installed; pip install nvidia-nccl-cu13, or take backend='host'"):
        world.all_reduce(x)
    by_host = Communicator(LocalTransport(), backend="host")
    assert device.host(by_host.all_reduce(x)).tolist() == [1, 1, 1]


def test_nccl_fails(machine):
    world, x = Communicator(LocalTransport()), device.move(np.ones(3), "cuda:0")
    world.all_reduce(x)
    world.collectives(x).nccl.group.destroy()
    with pytest.raises(CommunicationError, match=r"label=\): rank 0: NCCL failed: NCCL_ERROR_INVALID_ARGUMENT"):
        world.all_reduce(x, order="native")


def test_sums_in_order_are_not_captured(machine, monkeypatch):
    from minigrad.parallel import nccl

    monkeypatch.setattr(nccl.Nccl, "is_captured", lambda self: True)

    def run(world):
        x = own_gpu(world)(np.ones(10))
        world.all_reduce(x, order="native")
        world.all_reduce(x)

    with pytest.raises(RuntimeError, match="within one take order='native'"):
        run_local(run, 2)


# ---- ends ------------------------------------------------------------------------------------------------------------


def watched(machine, monkeypatch, capsys, timeout, spoil):
    """(exit code, what was said, names of calls) of a process whose collective does not end."""
    codes, ended = [], threading.Event()
    monkeypatch.setattr(os, "_exit", lambda code: (codes.append(code), ended.set()))
    world, x = Communicator(LocalTransport(), timeout=timeout), device.move(np.ones(3, np.float32), "cuda:0")
    world.all_reduce(x, order="native")
    world.collectives(x)._watch.drain()
    spoil(world)
    begun = time.monotonic()
    world.all_reduce(x, order="native", label="late", asynchronous=True)
    assert ended.wait(20)
    return codes, capsys.readouterr().err, [call.name for call in calls(machine)], time.monotonic() - begun


def test_a_collective_that_is_late_ends_the_process(machine, monkeypatch, capsys):
    codes, said, names, seconds = watched(machine, monkeypatch, capsys, 0.5, lambda _: setattr(state(), "absent", True))
    assert codes == [FAILED] and names[-1] == "abort" and 0.5 <= seconds < 5
    assert said == "all_reduce(float32(3,), sum, native, wire=None, label=late): rank 0: not done after 0.5 s\n"


def test_a_call_that_does_not_come_back_ends_the_process(machine, monkeypatch, capsys):
    """As the first ones, in which NCCL connects the ranks."""
    codes, ended = [], threading.Event()
    monkeypatch.setattr(os, "_exit", lambda code: (codes.append(code), ended.set()))
    monkeypatch.setattr(nccl_watch.Calling, "mercy", 0.1)
    world, x = Communicator(LocalTransport(), timeout=0.3), device.move(np.ones(3, np.float32), "cuda:0")
    from minigrad.parallel import nccl

    connect = nccl.Nccl.connect
    monkeypatch.setattr(nccl.Nccl, "connect", lambda self, *words: (ended.wait(20), connect(self, *words)))
    world.all_reduce(x, label="first")
    assert codes == [FAILED]
    assert capsys.readouterr().err.endswith("label=first): rank 0: not done after 0.3 s\n")


def test_an_error_of_nccl_ends_the_process(machine, monkeypatch, capsys):
    def spoil(world):
        state().absent, state().error = True, 6

    codes, said, names, seconds = watched(machine, monkeypatch, capsys, 60, spoil)
    assert codes == [FAILED] and names[-1] == "abort" and seconds < 5
    assert "label=late): rank 0: the GPU or NCCL failed: NCCL_ERROR_REMOTE_ERROR" in said


def test_an_error_of_the_gpu_ends_the_process(machine, monkeypatch, capsys):
    """CuPy's Event.done says no more than that its work has not ended."""
    spoil = lambda world: setattr(machine, "failed", 700)
    codes, said, _, seconds = watched(machine, monkeypatch, capsys, 60, spoil)
    assert codes == [FAILED] and seconds < 5
    assert "label=late): rank 0: the GPU or NCCL failed: cudaErrorIllegalAddress" in said


def test_a_collective_to_which_the_gpu_does_not_come_ends_the_process(machine, monkeypatch, capsys):
    codes, said, _, seconds = watched(machine, monkeypatch, capsys, 0.1, lambda world: machine.endless.add(0))
    assert codes == [FAILED] and 1 <= seconds < 5 and said.endswith("rank 0: the GPU did not come to it\n")


def test_the_reason_of_another_rank_ends_a_process_that_waits_for_its_gpu(machine, monkeypatch, capsys):
    def spoil(world):
        state().absent = True
        world.transport.abort("rank 1 ended: KeyError: a mistake")

    codes, said, names, seconds = watched(machine, monkeypatch, capsys, 60, spoil)
    assert codes == [FAILED] and names[-1] == "abort" and nccl_watch.GRACE <= seconds < 10
    assert said.endswith("label=late): rank 0: rank 1 ended: KeyError: a mistake\n")


def test_threads_of_a_rank_use_its_gpu_alone(machine):
    """A thread that chooses none would make a context on GPU 0."""
    world, x = Communicator(LocalTransport()), device.move(np.ones(3), "cuda:2")
    world.all_reduce(x, order="native")
    world.close()
    assert {number for _, number in machine.asked} == {2} and calls(machine)[-1].name == "destroy"
    assert len({thread for thread, _ in machine.asked}) == 2


STUCK = """
import time
import numpy as np
from minigrad import device
from minigrad.parallel.communicator import Communicator
from minigrad.parallel.local import LocalTransport
from tests.stand_in_gpus import gpus
from tests.standin.nccl import state

with gpus(1):
    world, x = Communicator(LocalTransport(), timeout=0.3, backend="nccl"), device.move(np.ones(3), "cuda:0")
    world.all_reduce(x, order="native")
    state().absent = True
    world.all_reduce(x, order="native", label="late")
    time.sleep(60)  # as a host does that waits for its GPU
"""


def test_a_process_that_waits_for_its_gpu_ends():
    done = subprocess.run([sys.executable, "-c", STUCK], env=environment(), capture_output=True, text=True, timeout=50)
    assert done.returncode == FAILED and "label=late): rank 0: not done after 0.3 s" in done.stderr


def test_an_abort_ends_what_waits_on_the_gpu(machine):
    world, x = Communicator(LocalTransport()), device.move(np.ones(3), "cuda:0")
    world.all_reduce(x, order="native")
    state(machine).absent = True
    work = world.all_reduce(x, order="native", asynchronous=True)
    assert not work.done
    with pytest.raises(KeyError), world:
        raise KeyError("a mistake")
    assert [call.name for call in calls(machine)][-1] == "abort"


def test_an_abort_that_takes_time_is_the_only_end(machine, monkeypatch):
    """Two calls that end one group at once would free it twice, which the stand-in refuses."""
    from minigrad.parallel import nccl

    monkeypatch.setattr(nccl, "GRACE", 0.2)
    world, x = Communicator(LocalTransport()), device.move(np.ones(3), "cuda:0")
    world.all_reduce(x, order="native")
    graphs = world.collectives(x).nccl.group.graphs
    graphs.add(graph := threading.Event())  # as one that captured a call
    world.abort("a mistake")
    world.close()
    assert "abort" not in [call.name for call in calls(machine)]
    del graph
    while [call.name for call in calls(machine)][-1] != "abort":
        time.sleep(0.01)
    assert "destroy" not in [call.name for call in calls(machine)]
    with pytest.raises(CommunicationError, match="the group of GPUs has ended"):
        world.all_reduce(x, order="native")


def test_groups_end_with_their_world_and_share_its_stream(machine):
    def run(world):
        group, x = world.split(world.rank % 2), own_gpu(world)(np.full(5, world.rank))
        for one in (world, group, world):
            one.all_reduce(x, order="native")
        with pytest.raises(KeyError), group.split(0) as inner:
            inner.all_reduce(x, order="native")
            world.barrier()
            raise KeyError("all groups of the rank end")

    run_local(run, 4)
    for number in range(4):
        own = [call for call in state(machine).calls if call.device == number]
        assert [call.name for call in own if not call.stream] == ["abort"] * 3
        assert len({call.stream for call in own if call.stream}) == 1


def test_groups_have_communicators_of_their_own(machine):
    def run(world):
        group = world.split(world.rank % 2)
        return device.host(group.all_reduce(own_gpu(world)(np.full(5, world.rank)), order="native"))[0]

    assert run_local(run, 4) == [2, 4, 2, 4]
    assert [call.name for call in state(machine).calls].count("destroy") == 4


def test_the_package_alone_imports_no_cupy():
    code = "import sys, minigrad.parallel; assert 'cupy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True)
