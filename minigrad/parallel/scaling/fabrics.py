"""Fabrics: what joins the GPUs of a machine and the machines, as few numbers as the model needs.

Bandwidths are what NCCL reaches, not what the wire could carry: about 90 % of a network's wire, and for NVLink the
20.6 GB/s of each of its 18 links that NCCL reckons with. Nothing here was measured by this project.

Units   bytes a second, seconds
Source  NVIDIA, NCCL 2.28, src/graph/topo.h (speed of links) and src/graph/tuning.cc (cost of a network message);
        H100's data sheet; PCI Express 4.0 (16 lanes carry 31.5 GB/s, through the host about 20)
"""

from dataclasses import dataclass

from .network import check_known

__all__ = ["FABRICS", "Fabric", "fabric"]

OF_THE_WIRE = 0.9


@dataclass(frozen=True)
class Fabric:
    """How GPUs are joined.

    gpus        of one machine
    inside      bytes a second between the GPUs of a machine, each way
    between     bytes a second of all network ports of a machine together, each way
    links       "nvlink" or "pcie": what joins the GPUs of a machine
    switched    bytes a second of all-reduces that the NVLink switch adds up itself (NVLS); 0 where it cannot
    post        seconds to hand one message to the network
    latency     seconds that a message takes on the network beyond NCCL's own figure
    launch      seconds to start one exchange
    channels    rings (and trees) that NCCL runs side by side, each with buffers of its own
    """

    title: str
    gpus: int
    inside: float
    between: float
    links: str
    switched: float = 0.0
    post: float = 1e-6
    latency: float = 0.0
    launch: float = 8e-6
    channels: int = 16

    def machines(self, gpus):
        """How many machines so many GPUs are."""
        return -(-gpus // self.gpus)


def _network(gigabits, ports=1):
    return OF_THE_WIRE * ports * gigabits * 1e9 / 8


NVLINK = 18 * 20.6e9
SWITCHED = 470e9  # about what nccl-tests shows on eight H100

FABRICS = {
    "nvlink-8x400": Fabric("8 GPUs by NVLink, 8 x 400 Gb/s", 8, NVLINK, _network(400, 8), "nvlink", SWITCHED),
    "nvlink-1x400": Fabric("8 GPUs by NVLink, 1 x 400 Gb/s", 8, NVLINK, _network(400), "nvlink", SWITCHED),
    "pcie-1x100": Fabric("8 GPUs by PCIe 4, 1 x 100 Gb/s", 8, 20e9, _network(100), "pcie", channels=4),
    "tcp-25": Fabric(
        "1 GPU a machine, 25 Gb/s TCP", 1, 20e9, _network(25), "pcie", post=10e-6, latency=15e-6, channels=2
    ),
}


def fabric(name):
    """A Fabric by its name. Errors: ValueError for an unknown one."""
    check_known("fabric", name, FABRICS)
    return FABRICS[name]
