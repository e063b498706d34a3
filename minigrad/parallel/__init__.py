"""Training on many: ranks that are processes or threads, and what they do together.

init() gives the Communicator of all ranks; DataParallel averages gradients over them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .communicator import Communicator
    from .data_parallel import DataParallel
    from .errors import CommunicationError, DeadlineError, DisagreementError, PeerLost
    from .local import run_local
    from .pipeline import Pipeline
    from .sampler import Shards, ShardSampler
    from .sharded import ShardedOptimizer
    from .sync_batch_norm import SyncBatchNorm
    from .transfer import all_reduce, recv, send
    from .work import Work
    from .world import init

_PLACES = {
    "communicator": ("Communicator",),
    "data_parallel": ("DataParallel",),
    "errors": ("CommunicationError", "DeadlineError", "DisagreementError", "PeerLost"),
    "local": ("run_local",),
    "pipeline": ("Pipeline",),
    "sampler": ("ShardSampler", "Shards"),
    "sharded": ("ShardedOptimizer",),
    "sync_batch_norm": ("SyncBatchNorm",),
    "transfer": ("all_reduce", "recv", "send"),
    "work": ("Work",),
    "world": ("init",),
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "CommunicationError",
    "Communicator",
    "DataParallel",
    "DeadlineError",
    "DisagreementError",
    "PeerLost",
    "Pipeline",
    "ShardSampler",
    "ShardedOptimizer",
    "Shards",
    "SyncBatchNorm",
    "Work",
    "all_reduce",
    "init",
    "recv",
    "run_local",
    "send",
]


def __getattr__(name):
    """Each name comes from its module when it is first asked for, so that what trains alone loads no MPI."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
