"""The first rung of the matrix product on tensor cores. Operands of 16 bits, which may lie in memory in any way."""

from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, offset, u16, u32, unroll
from .cuda_fragments import CORES, make_products, make_tile
from .cuda_parts import operand, slice_of, steps_of
from .cuda_register import make_copy
from .cuda_tensor_parts import make_end, signature_of, tile_of

__all__ = ["TENSOR", "TILE"]

TILE = 64  # rows and columns
THREADS = 128  # four warps, each with 32 x 32 sums
ROW_BLOCKS, COLUMN_BLOCKS = 2, 4  # of 16 rows and of 8 columns of a warp


def _make_put(core, tile):
    """A function that carries this thread's elements of a tile to shared memory, those outside as zeros."""
    count, chunk, place_of = TILE * core.steps // THREADS, core.chunk, tile.place

    @device
    def put(memory, first, source, apart, many, line, step, lines_apart, steps_apart):
        for j in range(count):
            unroll(0)
            here, along = i32(line + j * lines_apart), i32(step + j * steps_apart)
            place = i32(place_of(here, along // chunk) // 2 + along % chunk)
            memory[u32(first + place)] = source[0] if i32(j) < many else u16(0)
            source = offset(source, apart)

    return put


def _make_tensor(core):
    steps, sums = core.steps, 4 * ROW_BLOCKS * COLUMN_BLOCKS
    tile = make_tile(core, TILE, True)
    place_rows, place_columns, place_b = tile.rows, tile.columns, tile.bytes
    elements, words = tile.bytes, tile.bytes // 2  # of two tiles, and of one
    share, _, inside, _, _ = make_copy(TILE, steps, THREADS)
    put, multiply = _make_put(core, tile), make_products(core, tile, tile, ROW_BLOCKS, COLUMN_BLOCKS)
    end = make_end(core, ROW_BLOCKS, COLUMN_BLOCKS)
    lines, along = THREADS // steps, THREADS // TILE  # how far a thread's elements lie apart

    @kernel(
        signature_of(core),
        threads=THREADS,
        blocks=3,  # a fourth would leave 128 registers a thread, too few on sm_120
        lowest="sm_80",
        opcodes=("HMMA", "LDSM"),
        variant=core.name,
    )
    def tensor(a, b, bias, residual, out, m, n, k, depth, slices, a_m, a_k, b_k, b_n, a_z, b_z, out_z, flags):
        """One idea: warps multiply on tensor cores, 16 x 8 results and 32 bytes of k in one instruction.

        Traffic    a is read ceil(N / 64) times, b ceil(M / 64) times, one element at a time
        Resources  8 KB of shared memory, 32 sums in registers; two barriers a tile

        What K leaves over after whole tiles comes first.
        """
        memory = cuda.shared.array(elements, u16, alignment=128)
        total = cuda.local.array(sums, f32)
        thread, part = u32(cuda.threadIdx.x), slice_of(slices)
        left_over = steps_of(k, depth, part)
        top, first = tile_of(m, n, TILE, TILE)
        here = i32(i32(left_over - 1) % steps + 1)  # steps of this tile

        a_along_k, b_along_k = abs(a_k) <= abs(a_m), abs(b_k) <= abs(b_n)
        a_line, a_step = share(thread, a_along_k)
        b_line, b_step = share(thread, b_along_k)
        a_lines, a_steps = (i32(lines), i32(0)) if a_along_k else (i32(0), i32(along))
        b_lines, b_steps = (i32(lines), i32(0)) if b_along_k else (i32(0), i32(along))
        a_apart, b_apart = a_lines * a_m + a_steps * a_k, b_lines * b_n + b_steps * b_k
        a_next = offset(operand(a, part, a_z, i64(depth) * a_k), i64(top + a_line) * a_m + a_step * a_k)
        b_next = offset(operand(b, part, b_z, i64(depth) * b_k), i64(first + b_line) * b_n + b_step * b_k)
        a_left, b_left = i32(m - top - a_line), i32(n - first - b_line)

        warp, lane = i32(thread >> u32(5)), i32(thread & u32(31))
        row, column = i32((warp >> 1) * 32), i32((warp & 1) * 32)
        a_from, b_from = place_rows(lane, row), i32(place_b + place_columns(lane, column))
        for i in range(sums):
            unroll(0)
            total[i] = f32(0)
        while left_over > 0:
            a_many, b_many = inside(a_along_k, a_left, here - a_step), inside(b_along_k, b_left, here - b_step)
            put(memory, 0, a_next, a_apart, a_many, a_line, a_step, a_lines, a_steps)
            put(memory, words, b_next, b_apart, b_many, b_line, b_step, b_lines, b_steps)
            cuda.syncthreads()
            multiply(total, memory, a_from, b_from)
            cuda.syncthreads()
            a_next, b_next = offset(a_next, here * a_k), offset(b_next, here * b_k)
            left_over, here = i32(left_over - here), i32(steps)
        end(total, out, bias, residual, i32(top + row), i32(first + column), m, n, out_z, flags)

    return tensor


TENSOR = {name: _make_tensor(CORES[name]) for name in ("float16", "bfloat16")}
