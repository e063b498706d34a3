"""A training on two hosts whose link is cut: it is back when the link is, or without the host, with the same bits."""

import time

import pytest

from .namespaces import two_hosts  # noqa: F401
from .test_parallel_recovery import delays, finished, launched, started, unbroken  # noqa: F401

HEARTBEAT = 2  # seconds


def steps(folder):
    """(moment, step, ranks) of each step that rank 0 has done."""
    lines = (folder / "times").read_text().splitlines() if (folder / "times").exists() else []
    found = [line.split() for line in lines]
    return [(float(moment), int(step), int(ranks)) for moment, _, step, _, ranks in found]


def wait_for_step(folder, number):
    limit = time.monotonic() + 60
    while not any(step >= number for _, step, _ in steps(folder)):
        assert time.monotonic() < limit, "no step was done"
        time.sleep(0.05)


@pytest.fixture
def job(two_hosts, tmp_path):
    """(a training on two ranks a host that takes a while, its folder)."""
    hosts = ",".join(f"{address}:2" for address in two_hosts.addresses)
    options = ["--hosts", hosts, "--rsh", two_hosts.rsh, "--heartbeat", HEARTBEAT, "--min-ranks", 2]
    folder = tmp_path / "job"
    process = launched(folder, "none:-1:-1", "sgd", 0.4, options=options)
    yield process, folder
    process.kill()
    process.wait()


def test_on_two_hosts(job, unbroken):
    code, out, err = finished(job[0])
    assert (code, out.splitlines()[-1]) == (0, unbroken["sgd"]), err


def test_a_host_that_is_lost_is_done_without(job, two_hosts, unbroken, delays):
    process, folder = job
    wait_for_step(folder, 7)
    two_hosts.cut(1)
    cut = time.time()
    code, out, err = finished(process)
    assert (code, out.splitlines()[-1]) == (0, unbroken["sgd"]), err
    later = [moment for moment, _, ranks in steps(folder) if ranks == 2]
    delays["a cut link"] = later[0] - cut
    assert delays["a cut link"] < HEARTBEAT + 20 + 20, "the launcher waits for the host before it goes on without"
    assert "starting again with 2 ranks" in err
