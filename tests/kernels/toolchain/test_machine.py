"""What a container grants, and how threads wait."""

import os

import pytest

from minigrad_kernels.toolchain.cpu import cpu_quota, crowded


@pytest.mark.parametrize(
    "files, cpus",
    [
        ({}, None),
        ({"cpu.max": "400000 100000"}, 4),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "nonsense"}, None),
        ({"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "0"}, None),
    ],
)
def test_quota_of_a_container(tmp_path, files, cpus):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert cpu_quota(tmp_path) == cpus


def test_crowded_where_others_run(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)
    load = tmp_path / "loadavg"
    for running, expected in ((1, False), (2, True), (9, True)):
        load.write_text(f"0.10 0.20 0.30 {running}/200 4711\n")
        assert crowded(load) is expected
    load.write_text("0.10 0.20 0.30 3/200 4711\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    assert not crowded(load)  # two of four CPUs are ours, two others run
    load.write_text("no such numbers")
    assert not crowded(load)
    assert not crowded(tmp_path / "nothing")
