"""Training on many: ranks that are processes or threads, and what they do together.

init() gives the Communicator of all ranks; DataParallel averages gradients over them.
"""

from .communicator import Communicator
from .data_parallel import DataParallel
from .errors import CommunicationError, DeadlineError, DisagreementError, PeerLost
from .local import run_local
from .pipeline import Pipeline
from .sampler import Shards, ShardSampler
from .sharded import ShardedOptimizer
from .sync_batch_norm import SyncBatchNorm
from .transfer import all_reduce, recv, send
from .world import init

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
    "all_reduce",
    "init",
    "recv",
    "run_local",
    "send",
]
