"""Two hosts on one machine: network namespaces joined by a bridge, whose links can be cut. It needs root on Linux."""

import contextlib
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

__all__ = ["Hosts", "two_hosts"]


@dataclass
class Hosts:
    """What a test sees of them.

    names      of the namespaces
    addresses  of the hosts, as they and this one reach them
    bridge     the address under which they reach this one
    rsh        RSH ADDRESS COMMAND... runs a command on a host
    """

    folder: Path
    token: str = field(default_factory=lambda: f"mg{os.getpid()}")

    def __post_init__(self):
        # Tests that run at the same time have other process ids, and so other networks.
        network = f"10.{64 + os.getpid() % 64}.{os.getpid() // 64 % 256}"
        self.names = [f"{self.token}a", f"{self.token}b"]
        self.addresses = [f"{network}.1", f"{network}.2"]
        self.bridge = f"{network}.254"
        self.rsh = str(self.folder / "rsh")

    def make(self):
        _ip("link", "add", self.token, "type", "bridge")
        _ip("addr", "add", f"{self.bridge}/24", "dev", self.token)
        _ip("link", "set", self.token, "up")
        for name, address in zip(self.names, self.addresses, strict=True):
            _ip("netns", "add", name)
            _ip("link", "add", f"{name}v", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", f"{name}v", "master", self.token, "up")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        cases = "".join(f"{address}) name={name};; " for name, address in zip(self.names, self.addresses, strict=True))
        Path(self.rsh).write_text(
            f'#!/bin/sh\ncase $1 in {cases}*) exit 255;; esac\nshift\nexec ip netns exec $name "$@"\n'
        )
        Path(self.rsh).chmod(0o755)

    def remove(self):
        """Undo what was made, as far as it was, and end what still runs there."""
        for name in self.names:
            for process in self.processes(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=20)
            subprocess.run(["ip", "link", "del", f"{name}v"], capture_output=True, timeout=20)
        subprocess.run(["ip", "link", "del", self.token], capture_output=True, timeout=20)

    def cut(self, number):
        """Cut the link of a host, 0 or 1."""
        _ip("link", "set", f"{self.names[number]}v", "down")

    def mend(self, number):
        _ip("link", "set", f"{self.names[number]}v", "up")

    def processes(self, name):
        """The numbers of the processes in a namespace."""
        found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, timeout=20)
        return [int(word) for word in found.stdout.split()]


@pytest.fixture
def two_hosts(tmp_path):
    """Hosts; the test is skipped where they cannot be made."""
    if not hasattr(os, "geteuid") or os.geteuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program ip")
    hosts = Hosts(tmp_path)
    try:
        try:
            hosts.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not allowed here: {error.stderr.strip()}")
        yield hosts
    finally:
        hosts.remove()


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)
