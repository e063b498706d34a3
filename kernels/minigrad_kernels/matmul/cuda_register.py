"""Rung 3 of the matrix product: a block of sums in the registers of each thread.

From here on kernels see pointers and strides. blockIdx.x counts tiles down the rows of out (y and z end at 65535, x
does not), y tiles across its columns. z counts the slices of K of the first matrix of a batch, then those of the next
one; the last slice of each may be shorter.

Below, a line is a row of a or a column of b: both operands are copied by the same code.
"""

from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, offset, u32, unroll
from .cuda_end import BIAS, RESIDUAL, finish, least_of

__all__ = ["REGISTER", "RESIDENT", "make_copy", "operand", "signature_of", "slice_of", "steps_of"]

RESIDENT = 512  # threads that a multiprocessor has room for at least: 128 of its 65536 registers for each


def signature_of(pointer, stride="i32"):
    """The arguments of all tile rungs.

    k: the length of all sums; depth: of a slice of them, at most; slices: how many there are
    a_m ... b_n: strides in elements; a_z, b_z: from one matrix of the batch to the next; out_z: from one z to the next
    flags: a sum of those in cuda_end.py
    """
    arrays = ", ".join(f"{pointer} {name}" for name in ("a", "b", "bias", "residual", "out"))
    strides = ", ".join(f"{stride} {name}" for name in ("a_m", "a_k", "b_k", "b_n"))
    return f"{arrays}, i32 m, i32 n, i32 k, i32 depth, i32 slices, {strides}, i64 a_z, i64 b_z, i64 out_z, i32 flags"


@device
def slice_of(slices):
    """The matrix of this block in the batch, and the slice of its sums."""
    z, count = u32(cuda.blockIdx.z), u32(slices)
    if count == u32(1):  # as mostly, and a division takes long
        return i32(z), i32(0)
    matrix = u32(z // count)
    return i32(matrix), i32(z - u32(matrix * count))


@device
def operand(first, place, apart, slice_apart):
    """Where this block's part of a or b begins; place: what slice_of gives."""
    return offset(first, i64(place[0]) * apart + i64(place[1]) * slice_apart)


@device
def steps_of(k, depth, place):
    """How many terms of each sum this block adds."""
    return min(depth, i32(k - i32(place[1] * depth)))


def make_copy(lines, steps, threads):
    """Functions that share a tile of so many lines and steps of k out among threads, and copy it to shared memory.

    Neighbouring threads take neighbours in memory: they count along k, or along the lines. That is chosen at
    run time, as it only sets the distances between the elements of a thread.
    """
    count = lines * steps // threads
    pitch = lines + 32 // steps  # from one k to the next; lines that lie along k then go to 32 different banks
    lines_apart, steps_apart = threads // steps, threads // lines

    @device
    def share(thread, along_k):
        """This thread's first line and first k."""
        line = i32(thread // u32(steps)) if along_k else i32(thread % u32(lines))
        step = i32(thread % u32(steps)) if along_k else i32(thread // u32(lines))
        return line, step

    @device
    def distances(along_k, line_apart, k_apart):
        """How far this thread's elements lie apart in memory, and in the tile."""
        apart = i32(lines_apart * line_apart) if along_k else i32(steps_apart * k_apart)
        return apart, i32(lines_apart) if along_k else i32(steps_apart * pitch)

    @device
    def inside(along_k, lines_left, steps_left):
        """How many of this thread's elements, its first ones, lie inside the matrix."""
        if along_k:
            many = i32(u32(max(lines_left, 0) + (lines_apart - 1)) // u32(lines_apart))
            return many if steps_left > 0 else i32(0)
        many = i32(u32(max(steps_left, 0) + (steps_apart - 1)) // u32(steps_apart))
        return many if lines_left > 0 else i32(0)

    @device
    def copy(source, apart, many, tile, place, place_apart):
        for j in range(count):
            unroll(0)
            tile[u32(place)] = source[0] if i32(j) < many else f32(0)  # unsigned: no subscript counts from the end
            source, place = offset(source, apart), i32(place + place_apart)

    return share, distances, inside, copy, pitch


def make_register(rows, columns, steps, row_sums, column_sums):
    """The rung for tiles of rows x columns, in each thread a block of row_sums x column_sums of them."""
    down, across = rows // row_sums, columns // column_sums
    threads = down * across
    share_a, distances_a, inside_a, copy_a, a_pitch = make_copy(rows, steps, threads)
    share_b, distances_b, inside_b, copy_b, b_pitch = make_copy(columns, steps, threads)
    a_size, b_size, sums = steps * a_pitch, steps * b_pitch, row_sums * column_sums
    resident = 2 * RESIDENT if sums <= 16 else RESIDENT  # few sums leave registers for more threads

    @kernel(signature_of("f32*"), threads=threads, blocks=resident // threads, variant=f"{rows}x{columns}")
    def register(a, b, bias, residual, out, m, n, k, depth, slices, a_m, a_k, b_k, b_n, a_z, b_z, out_z, flags):
        """One idea: a thread owns several rows and columns, so each float from shared memory serves several sums.

        Traffic    a is read ceil(N / columns) times, b ceil(M / rows) times; of each step of k, a warp reads
                   row_sums + column_sums words of shared memory a thread, for row_sums * column_sums products
        Resources  two tiles in shared memory, row_sums * column_sums sums in registers; two barriers a tile

        The first tile takes what K leaves over after whole tiles: so only lines matter to all others.
        """
        a_tile, b_tile = cuda.shared.array(a_size, f32), cuda.shared.array(b_size, f32)
        total = cuda.local.array(sums, f32)
        thread, part = u32(cuda.threadIdx.x), slice_of(slices)
        left_over = steps_of(k, depth, part)
        top, left = i32(cuda.blockIdx.x * rows), i32(cuda.blockIdx.y * columns)
        here = i32(i32(left_over - 1) % steps + 1)  # steps of this tile

        a_along_k, b_along_k = abs(a_k) <= abs(a_m), abs(b_k) <= abs(b_n)
        a_line, a_step = share_a(thread, a_along_k)
        b_line, b_step = share_b(thread, b_along_k)
        a_apart, a_places = distances_a(a_along_k, a_m, a_k)
        b_apart, b_places = distances_b(b_along_k, b_n, b_k)
        a_next = offset(operand(a, part, a_z, i64(depth) * a_k), i64(top + a_line) * a_m + a_step * a_k)
        b_next = offset(operand(b, part, b_z, i64(depth) * b_k), i64(left + b_line) * b_n + b_step * b_k)
        a_place, b_place = i32(a_step * a_pitch + a_line), i32(b_step * b_pitch + b_line)
        a_lines, b_lines = i32(m - top - a_line), i32(n - left - b_line)
        a_many, b_many = inside_a(a_along_k, a_lines, here - a_step), inside_b(b_along_k, b_lines, here - b_step)
        a_whole, b_whole = inside_a(a_along_k, a_lines, steps), inside_b(b_along_k, b_lines, steps)

        row, column = i32(thread // u32(across)), i32(thread % u32(across))
        for i in range(sums):
            total[i] = f32(0)
        while left_over > 0:
            copy_a(a_next, a_apart, a_many, a_tile, a_place, a_places)
            copy_b(b_next, b_apart, b_many, b_tile, b_place, b_places)
            cuda.syncthreads()
            for step in range(steps):
                unroll(0)
                for i in range(row_sums):
                    unroll(0)
                    value = a_tile[row + (step * a_pitch + i * down)]
                    for j in range(column_sums):
                        unroll(0)
                        other = b_tile[column + (step * b_pitch + j * across)]
                        total[i * column_sums + j] += value * other
            cuda.syncthreads()
            a_next, b_next = offset(a_next, here * a_k), offset(b_next, here * b_k)
            left_over = i32(left_over - here)
            here, a_many, b_many = i32(steps), a_whole, b_whole
        place = i64(cuda.blockIdx.z) * out_z + i64(top + row) * i64(n) + i64(left + column)
        start, beside = offset(out, place), offset(residual, place)
        rows_left, columns_left, least = i32(m - top - row), i32(n - left - column), least_of(flags)
        added = cuda.local.array(column_sums, f32)
        for j in range(column_sums):
            unroll(0)
            added[j] = bias[left + column + j * across] if flags & BIAS and j * across < columns_left else f32(0)
        for i in range(row_sums):
            unroll(0)
            for j in range(column_sums):
                unroll(0)
                if i * down < rows_left and j * across < columns_left:
                    more = beside[j * across] if flags & RESIDUAL else f32(0)
                    start[j * across] = finish(total[i * column_sums + j] + added[j], more, least)
            start, beside = offset(start, down * n), offset(beside, down * n)

    return register


# Tiles for large layers, and for smaller ones, which would leave most multiprocessors without a 128x128 tile.
REGISTER = {(128, 128): make_register(128, 128, 8, 8, 8), (64, 64): make_register(64, 64, 16, 4, 4)}
