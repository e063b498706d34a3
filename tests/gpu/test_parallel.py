"""What the checks of ranks on a GPU would do there, as far as it can be seen without one."""

import pytest

from minigrad import manual_seed, nn
from minigrad.parallel.local import LocalTransport, run_local
from tests.device.stand_in_gpus import gpus
from tests.standin.nccl import state

from .test_checks import part

pytestmark = pytest.mark.deep
assert part  # a fixture


def small_network():
    manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10)).to("cuda:0")


@pytest.fixture
def parallel(part):
    """The part, with little to do."""
    with gpus(1):
        found = part("parallel", network=small_network, ELEMENTS=64, BATCH=4, STEPS=1, ROUNDS=1)
        few = [row for row in found.ROWS if row.size in (7, 20_001)]
        yield part("parallel", ROWS=few, BURST=1, OVERHEAD=1e9)


def test_parallel(parallel):
    state().version, found = 22903, {}
    parallel.run(found)
    assert not found["failed"] and found["wrong"] == [], found
    assert found["replicas"] == {"same_bits_as_one_rank": True} and found["collectives"]["cases"] > 100
    assert found["several"] == "not run: NCCL 2.29.3, wants 2.30"


def test_several_ranks_on_a_gpu(parallel, monkeypatch, capsys):
    """Threads in place of processes; none of them is missing, so what is said then is made up."""

    def as_threads(size, what):
        if what == "absent":
            return 75, "label=late): rank 0: not done after 8 s"
        run_local(lambda world: parallel.as_rank(what), size)
        return 0, capsys.readouterr().out

    monkeypatch.setattr(LocalTransport, "backend", "nccl")
    monkeypatch.setattr(parallel, "processes", as_threads)
    for name, value in parallel.SETTINGS.items():
        monkeypatch.setenv(name, value)
    found = parallel.several()
    assert found["2 ranks"] == [str(len(parallel.ROWS[:: parallel.FEWER]))] * 2 and found["same_bits_as_one_rank"]
