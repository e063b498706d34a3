"""The top of the matrix product's ladder: tiles that a copy engine brings, Hopper's TMA, multiplied by wgmma.

Four warps multiply 64 rows at once by one instruction, which reads both operands from shared memory. bfloat16, with
a and b along k. It runs on sm_90a alone, where its name asks for it, and is never chosen. The interpreter has, by the
rules of the manual: operands as descriptors and tensor maps say, waits, fences. What it cannot tell is time, the
driver's own form of the maps, and whether registers of sums are left alone until their wait: an H100 gave the results.

setmaxnreg is left out: where the linker joins units of compilation, as it does here, the assembler ignores it. With one
warp beside those that multiply, 288 threads may have 224 registers each, and that is enough.

Source  NVIDIA, "Parallel Thread Execution ISA", wgmma (Matrix Descriptor), mbarrier, cp.async.bulk.tensor; "CUTLASS",
        Efficient GEMM in CUDA, Hopper Warp Specialization
"""

from ..toolchain.cuda import cuda, f32, global_address, i32, i64, kernel, shared_address, u32, u64, unroll
from .cuda_fragments import CORES
from .cuda_hopper import (
    acquire_map,
    arrive,
    expect,
    load_tile,
    make_barrier,
    make_wgmma,
    tables,
    wait,
    wgmma_begin,
    wgmma_commit,
    wgmma_wait,
    wgmma_wait_but_one,
    written,
)
from .cuda_tensor_parts import make_end, signature_of, tile_of

__all__ = ["COLUMNS", "ROWS", "SHARED", "misfit", "tables_of", "tma"]

ROWS, COLUMNS, STEPS = 128, 256, 64  # of a tile; STEPS: of k
LINE = 2 * STEPS  # bytes of a row or column of a tile
WARPS = 8  # that multiply: two groups of four, each with 64 rows
THREADS = 32 * WARPS + 32  # one more warp, of which one thread works
STAGES = 4
A_BYTES, STAGE = ROWS * LINE, (ROWS + COLUMNS) * LINE
GATES = STAGES * STAGE  # where the mbarriers of the stages lie: full, 8 bytes further empty
SHARED = GATES + 16 * STAGES + 1024  # tiles begin at multiples of 1024
PART, HELD = 32, 16  # columns whose results are written together, and how many of them a thread has
SUMS = COLUMNS // 2
KIND = (1 << 62) | (1024 // 16 << 32) | (1 << 16)  # of a descriptor: chunks turned within 1024 bytes, 8 lines of them


# ---- tensor maps -----------------------------------------------------------------------------------------------------


def _operands(p):
    """Of a and of b: (rows, columns, stride, box), see tensor_map.tables."""
    return (p.m, p.k, p.a_m, (ROWS, STEPS)), (p.n, p.k, p.b_n, (COLUMNS, STEPS))


def misfit(p):
    """What the rung wants besides what loads of 128 bits do, in words; None where it fits."""
    if all(rows <= 1 or stride >= columns for rows, columns, stride, _ in _operands(p)):
        return None
    return "rows of a and b that follow each other in memory: positive strides, at least as long as a row"


def tables_of(p):
    """A function (a, b, count): the tables of tensor maps of both for so many matrices of a batch."""
    first, second = _operands(p)
    return lambda a, b, count: (
        tables(a, *first, p.z.a, count),
        tables(b, *second, p.z.b, count),
    )


# ---- the kernel ------------------------------------------------------------------------------------------------------

multiply = make_wgmma(COLUMNS)
end = make_end(CORES["bfloat16"], 1, PART // 8)
SIGNATURE = signature_of(CORES["bfloat16"]).replace("i32 m,", "u64* a_maps, u64* b_maps, i32 m,")


@kernel(SIGNATURE, threads=THREADS, blocks=1, lowest="sm_90a", opcodes=("HGMMA", "UTMALDG"), variant="bfloat16")
def tma(a, b, bias, residual, out, a_maps, b_maps, m, n, k, depth, slices, a_m, a_k, b_k, b_n, a_z, b_z, out_z, flags):
    """One idea: one thread has whole tiles brought, eight warps do nothing but multiply, and no barrier stops all.

    Traffic    a is read ceil(N / 256) times, b ceil(M / 128) times; one thread gives a handful of commands a tile
    Resources  193 KB of shared memory, 128 sums in registers

    A stage is full when its bytes have come, and empty when all eight warps have arrived: each when its products
    of the stage are over, while those of the next one go on. The phase of a stage's n-th use has the parity of n.
    """
    memory, thread = cuda.shared.array(0, u32, alignment=1024), u32(cuda.threadIdx.x)
    total, part = cuda.local.array(SUMS, f32), cuda.local.array(HELD, f32)
    warp, tiles = u32(thread >> u32(5)), i32(u32(u32(k) + u32(STEPS - 1)) // u32(STEPS))
    top, first = tile_of(m, n, ROWS, COLUMNS)
    base = u32((shared_address(memory, 0) + u32(1023)) & u32(0xFFFFFC00))
    gates = u32(base + u32(GATES))
    if thread == u32(0):
        for i in range(STAGES):
            unroll(0)
            make_barrier(u32(gates + u32(16 * i)), u32(1))
            make_barrier(u32(gates + u32(16 * i + 8)), u32(WARPS))
        written()
    cuda.syncthreads()
    stage, parity, tile = u32(0), u32(0), i32(0)
    if warp >= u32(WARPS):
        if thread == u32(32 * WARPS):
            z = i64(cuda.blockIdx.z)
            a_map = global_address(a_maps, z * 16 if a_z != 0 else i64(0))
            b_map = global_address(b_maps, z * 16 if b_z != 0 else i64(0))
            acquire_map(a_map)
            acquire_map(b_map)
            while tile < tiles:
                full, place = u32(gates + u32(stage << u32(4))), u32(base + u32(stage * u32(STAGE)))
                wait(u32(full + u32(8)), u32(parity ^ u32(1)))
                expect(full, u32(STAGE))
                load_tile(place, a_map, i32(tile * STEPS), top, full)
                load_tile(u32(place + u32(A_BYTES)), b_map, i32(tile * STEPS), first, full)
                tile, stage = i32(tile + 1), u32(stage + u32(1))
                if stage == u32(STAGES):
                    stage, parity = u32(0), u32(parity ^ u32(1))
    else:
        row = i32(u32(warp >> u32(2)) * u32(64))  # of the group
        for i in range(SUMS):
            unroll(0)
            total[i] = f32(0)
        before = gates
        if tiles > 0:  # the wait stands in here, so that no move of a sum comes between products and their wait
            while tile < tiles:
                full, place = u32(gates + u32(stage << u32(4))), u32(base + u32(stage * u32(STAGE)))
                wait(full, parity)
                wgmma_begin()
                a_from, b_from = u32(place + u32(row * LINE)), u32(place + u32(A_BYTES))
                for i in range(STEPS // 16):
                    unroll(0)
                    a_tile = u64(KIND) | u64((u32(a_from + u32(32 * i)) & u32(0x3FFFF)) >> u32(4))
                    b_tile = u64(KIND) | u64((u32(b_from + u32(32 * i)) & u32(0x3FFFF)) >> u32(4))
                    multiply(total, a_tile, b_tile)
                wgmma_commit()
                wgmma_wait_but_one()
                if tile > 0 and (thread & u32(31)) == u32(0):
                    arrive(u32(before + u32(8)))
                before, tile, stage = full, i32(tile + 1), u32(stage + u32(1))
                if stage == u32(STAGES):
                    stage, parity = u32(0), u32(parity ^ u32(1))
            wgmma_wait()
        row = i32(top + row + i32(warp & u32(3)) * 16)
        for i in range(COLUMNS // PART):
            unroll(0)
            for j in range(HELD):
                unroll(0)
                part[j] = total[HELD * i + j]
            end(part, out, bias, residual, row, i32(first + PART * i), m, n, out_z, flags)
