"""Rung 6 of the matrix product: tiles that travel to shared memory by themselves.

One kernel for each way that the operands lie in memory: along k, or along their lines (a line is a row of a or a
column of b). Both along the other axis, a along m and b along k, is left to the rung below: no gradient asks for it.
"""

from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, offset, shared_address, u32, unroll
from ..toolchain.cuda.intrinsics import cp_async, cp_async_commit, cp_async_wait, global_address
from .cuda_buffered import LAYOUTS
from .cuda_register import RESIDENT, operand, signature_of, slice_of, steps_of
from .cuda_tensor import CORES, make_end, make_products, make_tile, tile_of

TILE, THREADS = 128, 256  # rows and columns of a tile; a block, of eight warps
DOWN, ACROSS = 4, 4  # blocks of 16 rows and of 8 columns that a warp owns
STAGES = 4  # tiles in shared memory: one that is read, three under way
CHUNK = 16  # bytes that travel at once
arrived = cp_async_wait(STAGES - 2)


def shared_bytes(kind, layout):
    """The dynamic shared memory of a block."""
    return STAGES * sum(make_tile(CORES[kind], TILE, along).bytes for along in layout)


def make_pipeline(core, a_tile, b_tile, row_blocks, column_blocks, copy):
    """A function that adds the products of tiles to the sums of a warp, see make_products.

    copy: (place of the tiles in shared memory, state, given) starts the copies of a pair of tiles, and gives the state
    of those after it
    """
    a_bytes, stage = a_tile.bytes, a_tile.bytes + b_tile.bytes
    a_first, b_first, last, sums = a_tile.first, b_tile.first, (STAGES - 1) * stage, 4 * row_blocks * column_blocks
    multiply = make_products(core, a_tile, b_tile, row_blocks, column_blocks)

    @device
    def run(total, memory, row, column, tiles, state, given):
        """row, column: where the warp's sums begin in the tile; tiles: how many there are, the first of which travels,
        state: of the second."""
        cp_async_commit()
        for i in range(1, STAGES - 1):
            unroll(0)
            if i < tiles:
                state = copy(i32(i * stage), state, given)
            cp_async_commit()
        lane = i32(cuda.threadIdx.x & 31)
        a_from, b_from = a_first(lane, row), i32(a_bytes + b_first(lane, column))
        for i in range(sums):
            unroll(0)
            total[i] = f32(0)
        front, back = i32(0), i32(last)  # the stage that is read, and the one to write
        while tiles > 0:
            arrived()
            cuda.syncthreads()
            if tiles >= STAGES:
                state = copy(back, state, given)
            cp_async_commit()
            multiply(total, memory, i32(a_from + front), i32(b_from + front))
            back = front
            front = i32(0) if front == last else i32(front + stage)
            tiles = i32(tiles - 1)

    return run


def make_copy(core, tile, along_k):
    """Functions that share a tile out, two chunks to each thread, and start their copies."""
    count, steps, place_of = core.chunk, core.steps, tile.place
    chunks = 4 if along_k else TILE // count  # in a line of the tile, which is one k where it does not lie along k
    far = tile.bytes // 2  # from a thread's first chunk to its second

    @device
    def share(thread):
        """(first line, first k, place in shared memory) of this thread's first chunk."""
        number, chunk = i32(thread // u32(chunks)), i32(thread % u32(chunks))
        place = place_of(number, chunk)
        if along_k:
            return number, i32(chunk * count), place
        return i32(chunk * count), number, place

    @device
    def find(source, first, line, step, line_apart, k_apart, lines_left):
        """Where it lies, and how far from there the second. Lines outside are the last ones: they are never written."""
        if along_k:
            here = min(line, i32(lines_left - 1))
            there = min(i32(line + TILE // 2), i32(lines_left - 1))
            return offset(source, i64(first + here) * line_apart + step), i64(i32(there - here)) * line_apart
        here = min(line, i32(lines_left - count))
        return offset(source, i64(first + here) + step * k_apart), steps // 2 * k_apart

    @device
    def copy(source, apart, place, step, steps_left):
        """Start copies of a tile with steps_left steps of k; the rest of it becomes 0. step 0: of a whole tile."""
        cp_async(place, global_address(source, 0), u32(CHUNK if step < steps_left else 0))
        inside = (step if along_k else i32(step + steps // 2)) < steps_left
        cp_async(u32(place + u32(far)), global_address(source, apart), u32(CHUNK if inside else 0))

    return share, find, copy


def make_async(core, layout):
    """The rung for operands that lie so."""
    (a_along_k, b_along_k), steps = layout, core.steps
    a_tile, b_tile = make_tile(core, TILE, a_along_k), make_tile(core, TILE, b_along_k, of_b=True)
    share_a, find_a, copy_a = make_copy(core, a_tile, a_along_k)
    share_b, find_b, copy_b = make_copy(core, b_tile, b_along_k)
    a_bytes, warps_across, sums = a_tile.bytes, TILE // (8 * ACROSS), 4 * DOWN * ACROSS

    @device
    def copy(put, state, given):
        (a_next, b_next), (a_apart, b_apart, a_place, b_place, a_k, b_k) = state, given
        copy_a(a_next, a_apart, u32(a_place + u32(put)), 0, steps)
        copy_b(b_next, b_apart, u32(b_place + u32(put)), 0, steps)
        return offset(a_next, steps * a_k), offset(b_next, steps * b_k)

    multiply, end = make_pipeline(core, a_tile, b_tile, DOWN, ACROSS, copy), make_end(core, DOWN, ACROSS)

    @kernel(
        signature_of(core.half.pointer, "i64"),
        threads=THREADS,
        blocks=RESIDENT // THREADS,
        lowest="sm_80",
        opcodes=("HMMA", "LDGSTS") + ("LDSM",) * (core.size == 2 or a_along_k),
        variant=f"{core.name}_{'k' if a_along_k else 'm'}{'k' if b_along_k else 'n'}",
    )
    def asynchronous(a, b, bias, residual, out, m, n, k, depth, slices, a_m, a_k, b_k, b_n, a_z, b_z, out_z, flags):
        """One idea: tiles travel to shared memory by themselves, three of them while a fourth is multiplied.

        Traffic    a is read ceil(N / 128) times, b ceil(M / 128) times, in pieces of 128 bits
        Resources  four tiles of each operand in shared memory, 64 sums in registers; one barrier a tile

        Nothing can be rounded on the way, so words of float32 become TF32 when they have been read as fragments. The
        first tile takes what K leaves over after whole tiles: all others are whole, and need no question.
        """
        memory = cuda.shared.array(0, u32, alignment=128)
        total = cuda.local.array(sums, f32)
        thread, part = u32(cuda.threadIdx.x), slice_of(slices)
        count = steps_of(k, depth, part)
        tiles = i32(i32(max(count, 1) + (steps - 1)) // steps)
        first_steps = i32(count - i32((tiles - 1) * steps))
        top, first = tile_of(m, n, TILE, TILE)

        base = shared_address(memory, 0)
        a_line, a_step, a_place = share_a(thread)
        b_line, b_step, b_place = share_b(thread)
        a_next = operand(a, part, a_z, i64(depth) * a_k)
        b_next = operand(b, part, b_z, i64(depth) * b_k)
        a_next, a_apart = find_a(a_next, top, a_line, a_step, a_m, a_k, i32(m - top))
        b_next, b_apart = find_b(b_next, first, b_line, b_step, b_n, b_k, i32(n - first))
        a_place, b_place = u32(base + u32(a_place)), u32(base + u32(a_bytes) + u32(b_place))
        copy_a(a_next, a_apart, a_place, a_step, first_steps)
        copy_b(b_next, b_apart, b_place, b_step, first_steps)
        state = offset(a_next, first_steps * a_k), offset(b_next, first_steps * b_k)
        warp = i32(thread >> u32(5))
        row, column = i32(warp // warps_across * (16 * DOWN)), i32(warp % warps_across * (8 * ACROSS))
        multiply(total, memory, row, column, tiles, state, (a_apart, b_apart, a_place, b_place, a_k, b_k))
        end(total, out, bias, residual, i32(top + row), i32(first + column), m, n, out_z, flags)

    return asynchronous


# Few rows or columns take these tiles, too: tensor cores multiply so fast that it matters little how many of the
# products are wanted.
ASYNC = {(name, *layout): make_async(core, layout) for name, core in CORES.items() for layout in LAYOUTS}
