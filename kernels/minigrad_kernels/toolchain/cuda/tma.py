"""Words for kernels of Hopper alone (sm_90a): tiles that the tensor memory accelerator brings, and how warps wait.

An mbarrier, 8 bytes of shared memory, has phases: one is over when as many threads have arrived as it was made for, and
all bytes that they said to expect have come. Who waits gives the parity of the phase: 0 for the first one, then 1, ...

Source  NVIDIA, "Parallel Thread Execution ISA", mbarrier, cp.async.bulk.tensor, Proxies
"""

from .intrinsics import i32, inline_ptx, u32, u64

__all__ = ["acquire_map", "arrive", "expect", "load_tile", "make_barrier", "wait"]

_text = "mbarrier.init.shared::cta.b64 [$0], $1;"
make_barrier = inline_ptx("make_barrier", _text, None, [u32, u32], effects=True)  # (address, arrivals of a phase)
_text = "mbarrier.arrive.shared::cta.b64 _, [$0];"
arrive = inline_ptx("arrive", _text, None, [u32], effects=True)
_text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
expect = inline_ptx("expect", _text, None, [u32, u32], effects=True)  # (address, bytes): arrive, and expect them
_text = "{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @p bra OVER; bra AGAIN; OVER: }"
wait = inline_ptx("wait", _text, None, [u32, u32], effects=True)  # (address, parity)
# (shared address, tensor map, first column, first row, mbarrier): the tile travels; outside of the matrix it is zero
_text = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {$2, $3}], [$4];"
load_tile = inline_ptx("load_tile", _text, None, [u32, u64, i32, i32, u32], effects=True)
# (tensor map): what the host wrote into it is there for the accelerator, too; once in a block
_text = "fence.proxy.tensormap::generic.acquire.sys [$0], 128;"
acquire_map = inline_ptx("acquire_map", _text, None, [u64], effects=True)
