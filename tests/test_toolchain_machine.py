"""What a container grants, and how threads wait."""

import os

import pytest

from minigrad_kernels.toolchain.machine import cpu_quota, crowded


def tree(root, membership, **files):
    """A folder of control groups with these files, __ for /, and the file that says which are those of the process."""
    groups, own = root / "cgroup", root / "self"
    groups.mkdir()
    own.write_text(membership)
    for name, content in files.items():
        *folders, file = name.split("__")
        (groups / "/".join(folders)).mkdir(parents=True, exist_ok=True)
        (groups / "/".join(folders) / file.replace("_dot_", ".")).write_text(content)
    return groups, own


V2, V1 = "0::/a/b\n", "5:devices:/\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/\n"


@pytest.mark.parametrize(
    "membership, files, cpus",
    [
        (V2, {}, None),
        ("", {"cpu_dot_max": "400000 100000"}, 4),  # seen from inside a container
        ("no control groups", {"cpu_dot_max": "max 100000"}, None),
        (V2, {"a__b__cpu_dot_max": "300000 100000"}, 3),
        (V2, {"a__b__cpu_dot_max": "max 100000", "a__cpu_dot_max": "200000 100000"}, 2),  # of the group above
        (V2, {"a__b__cpu_dot_max": "800000 100000", "a__cpu_dot_max": "200000 100000"}, 2),
        (V2, {"a__b__cpu_dot_max": "150000 100000"}, 2),
        (V2, {"a__b__cpu_dot_max": "50000 100000"}, 1),
        (V2, {"a__b__cpu_dot_max": "nonsense"}, None),
        (V2, {"other__cpu_dot_max": "100000 100000"}, None),
        (V1, {"cpu,cpuacct__docker__x__cpu_dot_cfs_quota_us": "250000",
              "cpu,cpuacct__docker__x__cpu_dot_cfs_period_us": "100000"}, 3),
        (V1, {"cpu,cpuacct__cpu_dot_cfs_quota_us": "200000", "cpu,cpuacct__cpu_dot_cfs_period_us": "100000"}, 2),
        (V1, {"cpu__cpu_dot_cfs_quota_us": "100000", "cpu__cpu_dot_cfs_period_us": "100000"}, 1),
        (V1, {"cpu__cpu_dot_cfs_quota_us": "-1", "cpu__cpu_dot_cfs_period_us": "100000"}, None),
        (V1, {"cpu__cpu_dot_cfs_quota_us": "100000", "cpu__cpu_dot_cfs_period_us": "0"}, None),
    ],
)  # fmt: skip
def test_quota_of_a_container(tmp_path, membership, files, cpus):
    assert cpu_quota(*tree(tmp_path, membership, **files)) == cpus


def test_quota_where_there_are_no_control_groups(tmp_path):
    assert cpu_quota(tmp_path / "nothing", tmp_path / "neither") is None


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
