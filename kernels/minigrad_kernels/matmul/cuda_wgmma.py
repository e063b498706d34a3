"""The matrix product on Hopper's own instruction for tensor cores, wgmma: on sm_90a alone.

It runs where its name asks for it, and is never chosen: no GPU has run it yet. It compiles, its machine code holds what
it should, and the interpreter gets right results, reading the descriptors of operands by the rules of the manual. One
type, bfloat16, until hardware has confirmed it.

Source  NVIDIA, "Parallel Thread Execution ISA", wgmma: Shared Memory Matrix Layout, Matrix Descriptor
"""

from ..toolchain.cuda import (
    cp_async,
    cp_async_commit,
    cp_async_wait,
    cuda,
    device,
    f32,
    global_address,
    i32,
    i64,
    kernel,
    offset,
    shared_address,
    u32,
    u64,
    unroll,
)
from ..toolchain.cuda.wgmma import make_wgmma, wgmma_begin, wgmma_commit, wgmma_wait, written
from .cuda_async import LAYOUTS
from .cuda_fragments import CORES
from .cuda_parts import operand, slice_of, steps_of
from .cuda_tensor_parts import make_end, signature_of, tile_of

__all__ = ["ACROSS", "ALONG", "LINE", "SHARED", "STEPS", "TILE", "WGMMA"]

TILE = 128  # rows and columns
STEPS = 64  # of k in a tile: lines of 128 bytes
THREADS = 256  # two groups of four warps, each with 64 rows
STAGES = 4
CHUNK, COUNT = 16, 8  # bytes and elements that travel at once
EACH = TILE * STEPS // COUNT // THREADS  # chunks of a tile for each thread
LINE, BYTES = 2 * STEPS, 2 * TILE * STEPS  # bytes of a line, and of an operand's tile
STAGE = 2 * BYTES
LAST = (STAGES - 1) * STAGE
SHARED = STAGES * STAGE + 1024  # tiles begin at multiples of 1024
SUMS = TILE // 2
# Descriptors: chunks turned within 1024 bytes; how far the next 8 lines lie, and, across k, the next 64 lines
ALONG = (1 << 62) | (1024 // 16 << 32) | (1 << 16)
ACROSS = (1 << 62) | (1024 // 16 << 32) | (BYTES // 2 // 16 << 16)
arrived = cp_async_wait(STAGES - 2)


def make_copy(along_k):
    """Functions that share a tile out and start its copies.

    Lines of 128 bytes, 64 steps of k of a row or column, or 64 rows or columns of one k, have their eight chunks turned
    by the line's number.
    """
    apart = THREADS * CHUNK // LINE if along_k else THREADS * COUNT // TILE  # lines from a thread's chunk to its next

    @device
    def share(thread):
        """(first line, first k, place in shared memory) of this thread's first chunk."""
        if along_k:
            chunk, line = u32(thread & u32(7)), u32(thread >> u32(3))
            return i32(line), i32(chunk * u32(COUNT)), u32(line * u32(LINE) + ((chunk ^ (line & u32(7))) << u32(4)))
        chunk, step = u32(thread & u32(15)), u32(thread >> u32(4))
        place = u32((chunk >> u32(3)) * u32(BYTES // 2) + step * u32(LINE))
        return i32(chunk * u32(COUNT)), i32(step), u32(place + (((chunk & u32(7)) ^ (step & u32(7))) << u32(4)))

    @device
    def copy(source, place, line, step, line_apart, k_apart, lines_left, steps_left):
        """Start copies of a tile that begins at source; steps of k from steps_left on become 0.

        Lines outside the matrix are its last ones: what they give is never written.
        """
        for j in range(EACH):
            unroll(0)
            here = min(i32(line + j * apart), i32(lines_left - 1)) if along_k else min(line, i32(lines_left - COUNT))
            along = step if along_k else i32(step + j * apart)
            chunk = offset(source, here * line_apart + along * k_apart)
            size = u32(CHUNK if along < steps_left else 0)
            cp_async(u32(place + u32(j * apart * LINE)), global_address(chunk, 0), size)

    return share, copy


def _make_wgmma(core, layout):
    a_along_k, b_along_k = layout
    (share_a, copy_a), (share_b, copy_b) = make_copy(a_along_k), make_copy(b_along_k)
    multiply = make_wgmma("bf16", TILE, not a_along_k, not b_along_k)
    a_kind, b_kind = (ALONG if along else ACROSS for along in layout)
    a_ahead, b_ahead = (32 if along else 16 * LINE for along in layout)  # bytes of 16 steps of k
    end = make_end(core, 1, TILE // 8)
    variant = f"{core.name}_{'k' if a_along_k else 'm'}{'k' if b_along_k else 'n'}"

    @kernel(signature_of(core), threads=THREADS, lowest="sm_90a", opcodes=("HGMMA", "LDGSTS"), variant=variant)
    def wgmma(a, b, bias, residual, out, m, n, k, depth, slices, a_m, a_k, b_k, b_n, a_z, b_z, out_z, flags):
        """One idea: four warps multiply 64 x 128 results at once, and read both operands from shared memory themselves.

        Traffic    that of the rung below; no fragment of an operand passes through registers
        Resources  129 KB of shared memory, 64 sums in registers; one barrier for 64 steps of k

        The first tile takes what K leaves over after whole tiles.
        """
        memory = cuda.shared.array(0, u32, alignment=1024)
        total = cuda.local.array(SUMS, f32)
        thread, part = u32(cuda.threadIdx.x), slice_of(slices)
        count = steps_of(k, depth, part)
        tiles_left = i32(i32(max(count, 1) - 1) // STEPS)  # after the one that is multiplied
        here = i32(count - i32(tiles_left * STEPS))
        top, first = tile_of(m, n, TILE, TILE)

        base = u32((shared_address(memory, 0) + u32(1023)) & u32(0xFFFFFC00))
        a_line, a_step, a_place = share_a(thread)
        b_line, b_step, b_place = share_b(thread)
        a_place, b_place = u32(base + a_place), u32(base + u32(BYTES) + b_place)
        a_next = offset(operand(a, part, a_z, i64(depth) * a_k), i64(top) * a_m)
        b_next = offset(operand(b, part, b_z, i64(depth) * b_k), i64(first) * b_n)
        a_left, b_left, ahead = i32(m - top), i32(n - first), tiles_left
        for i in range(STAGES - 1):
            unroll(0)
            if ahead >= 0:
                copy_a(a_next, u32(a_place + u32(i * STAGE)), a_line, a_step, a_m, a_k, a_left, here)
                copy_b(b_next, u32(b_place + u32(i * STAGE)), b_line, b_step, b_n, b_k, b_left, here)
                a_next, b_next = offset(a_next, here * a_k), offset(b_next, here * b_k)
            ahead, here = i32(ahead - 1), i32(STEPS)
            cp_async_commit()

        group = u32(thread >> u32(7))
        for i in range(SUMS):
            unroll(0)
            total[i] = f32(0)
        front, back = u32(0), u32(LAST)  # the stage that is read, and the one to write
        while tiles_left >= 0:
            arrived()
            written()
            cuda.syncthreads()
            wgmma_begin()
            a_from, b_from = u32(base + front + group * u32(BYTES // 2)), u32(base + front + u32(BYTES))
            for i in range(STEPS // 16):
                unroll(0)
                a_tile = u64(a_kind) | u64((u32(a_from + u32(i * a_ahead)) & u32(0x3FFFF)) >> u32(4))
                b_tile = u64(b_kind) | u64((u32(b_from + u32(i * b_ahead)) & u32(0x3FFFF)) >> u32(4))
                multiply(total, a_tile, b_tile)
            wgmma_commit()
            if tiles_left >= STAGES - 1:
                copy_a(a_next, u32(a_place + back), a_line, a_step, a_m, a_k, a_left, i32(STEPS))
                copy_b(b_next, u32(b_place + back), b_line, b_step, b_n, b_k, b_left, i32(STEPS))
                a_next, b_next = offset(a_next, STEPS * a_k), offset(b_next, STEPS * b_k)
            cp_async_commit()
            wgmma_wait()
            back = front
            front = u32(0) if front == u32(LAST) else u32(front + u32(STAGE))
            tiles_left = i32(tiles_left - 1)
        row = i32(top + i32(group * u32(64)) + i32((thread >> u32(5)) & u32(3)) * 16)
        end(total, out, bias, residual, row, first, m, n, out_z, flags)

    return wgmma


WGMMA = {layout: _make_wgmma(CORES["bfloat16"], layout) for layout in LAYOUTS}
