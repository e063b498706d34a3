"""Rung 3 of the matrix product: a block of sums in the registers of each thread.

From here on kernels see pointers and strides. blockIdx.x counts tiles down the rows of out (y and z end at 65535, x
does not), y tiles across its columns. z counts the slices of K of the first matrix of a batch, then those of the next
one; the last slice of each may be shorter.

Below, a line is a row of a or a column of b: both operands are copied by the same code.
"""

from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, offset, u32, unroll
from .cuda_end import BIAS, RESIDUAL, finish, least_of

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


def make_copy(lines, steps, threads, element, stride, place_of):
    """Functions that share a tile of so many lines and steps of k out among threads, and copy it to shared memory.

    Neighbouring threads take neighbours in memory: they count along k, or along the lines. That is chosen at
    run time, as it only sets the distances between the elements of a thread.

    element, stride: their types; place_of: (line, step) -> where an element lies in the tile
    """
    count, lines_apart, steps_apart = lines * steps // threads, threads // steps, threads // lines

    @device
    def share(source, first, thread, line_apart, k_apart):
        """Where this thread's first element lies in memory, its line and its k in the tile, and how far the next one
        lies: in memory, in lines, in k."""
        along_k = abs(k_apart) <= abs(line_apart)
        line = i32(thread // u32(steps)) if along_k else i32(thread % u32(lines))
        step = i32(thread % u32(steps)) if along_k else i32(thread // u32(lines))
        down, along = (i32(lines_apart), i32(0)) if along_k else (i32(0), i32(steps_apart))
        start = offset(source, i64(first + line) * line_apart + step * k_apart)
        return start, (line, step, stride(down * line_apart + along * k_apart), down, along)

    @device
    def inside(own, lines_left, steps_left):
        """How many of this thread's elements, its first ones, lie inside the matrix."""
        line, step, _, down, _ = own
        lines_left, steps_left = i32(lines_left - line), i32(steps_left - step)
        if down:
            many = i32(u32(max(lines_left, 0) + (lines_apart - 1)) // u32(lines_apart))
            return many if steps_left > 0 else i32(0)
        many = i32(u32(max(steps_left, 0) + (steps_apart - 1)) // u32(steps_apart))
        return many if lines_left > 0 else i32(0)

    @device
    def copy(source, own, many, tile, start):
        """To the tile that begins at `start`."""
        line, step, apart, down, along = own
        for j in range(count):
            unroll(0)
            place = place_of(i32(line + j * down), i32(step + j * along))
            tile[u32(start + place)] = source[0] if i32(j) < many else element(0)  # u32: not counted from the end
            source = offset(source, apart)

    return share, inside, copy


def make_register(tile, steps, own):
    """The rung for tiles of so many rows and columns, of which each thread owns own x own results."""
    across, sums = tile // own, own * own
    threads = across * across
    pitch = tile + 32 // steps  # from one k to the next; lines that lie along k then go to 32 different banks
    size = steps * pitch
    resident = 2 * RESIDENT if sums <= 16 else RESIDENT  # few sums leave registers for more threads

    @device
    def place(line, step):
        return i32(step * pitch + line)

    share, inside, copy = make_copy(tile, steps, threads, f32, i32, place)

    @kernel(signature_of("f32*"), threads=threads, blocks=resident // threads, variant=f"{tile}x{tile}")
    def register(a, b, bias, residual, out, m, n, k, depth, slices, a_m, a_k, b_k, b_n, a_z, b_z, out_z, flags):
        """One idea: a thread owns several rows and columns, so each float from shared memory serves several sums.

        Traffic    a is read ceil(N / tile) times, b ceil(M / tile) times; of each step of k, a warp reads 2 * own words
                   of shared memory a thread, for own * own products
        Resources  two tiles in shared memory, own * own sums in registers; two barriers a tile

        The first tile takes what K leaves over after whole tiles: so only lines matter to all others.
        """
        a_tile, b_tile = cuda.shared.array(size, f32), cuda.shared.array(size, f32)
        total = cuda.local.array(sums, f32)
        thread, part = u32(cuda.threadIdx.x), slice_of(slices)
        left_over = steps_of(k, depth, part)
        top, left = i32(cuda.blockIdx.x * tile), i32(cuda.blockIdx.y * tile)
        here = i32(i32(left_over - 1) % steps + 1)  # steps of this tile

        a_next, a_own = share(operand(a, part, a_z, i64(depth) * a_k), top, thread, a_m, a_k)
        b_next, b_own = share(operand(b, part, b_z, i64(depth) * b_k), left, thread, b_n, b_k)
        a_many, b_many = inside(a_own, i32(m - top), here), inside(b_own, i32(n - left), here)
        a_whole, b_whole = inside(a_own, i32(m - top), steps), inside(b_own, i32(n - left), steps)

        row, column = i32(thread // u32(across)), i32(thread % u32(across))
        for i in range(sums):
            total[i] = f32(0)
        while left_over > 0:
            copy(a_next, a_own, a_many, a_tile, 0)
            copy(b_next, b_own, b_many, b_tile, 0)
            cuda.syncthreads()
            for step in range(steps):
                unroll(0)
                for i in range(own):
                    unroll(0)
                    value = a_tile[row + (step * pitch + i * across)]
                    for j in range(own):
                        unroll(0)
                        other = b_tile[column + (step * pitch + j * across)]
                        total[i * own + j] += value * other
            cuda.syncthreads()
            a_next, b_next = offset(a_next, here * a_k), offset(b_next, here * b_k)
            left_over = i32(left_over - here)
            here, a_many, b_many = i32(steps), a_whole, b_whole
        place = i64(cuda.blockIdx.z) * out_z + i64(top + row) * i64(n) + i64(left + column)
        start, beside = offset(out, place), offset(residual, place)
        rows_left, columns_left, least = i32(m - top - row), i32(n - left - column), least_of(flags)
        added = cuda.local.array(own, f32)
        for j in range(own):
            unroll(0)
            added[j] = bias[left + column + j * across] if flags & BIAS and j * across < columns_left else f32(0)
        for i in range(own):
            unroll(0)
            for j in range(own):
                unroll(0)
                if i * across < rows_left and j * across < columns_left:
                    more = beside[j * across] if flags & RESIDUAL else f32(0)
                    start[j * across] = finish(total[i * own + j] + added[j], more, least)
            start, beside = offset(start, across * n), offset(beside, across * n)

    return register


# Tiles for large layers, and for smaller ones, which would leave most multiprocessors without a 128x128 tile.
REGISTER = {(128, 128): make_register(128, 8, 8), (64, 64): make_register(64, 16, 4)}
