"""Rung 3 of the weight gradient: 128-bit loads and stores, and tiles that travel while others are multiplied."""

from ..matmul.cuda_parts import WIDE
from ..matmul.cuda_vector import QUAD, STEPS, make_sums
from ..toolchain.cuda import cuda, device, f32, i32, kernel, load4, offset, store4, u32
from .cuda_weight_parts import SIZES, WALK, advance, lead, origin, output, place_of, split

__all__ = ["HOP", "ROWS", "VECTOR"]

ROWS, HOP = 96, 4  # rows of a tile: those of 32 channels and more under 3x3 taps fill such tiles
THREADS = ROWS // QUAD * HOP  # each gathers a quad of two pixels of a tile, HOP pixels apart
LOADERS = 64  # the threads that load g: a quad of one or two pixels each


@device
def fetch(source, place, inside):
    if inside:
        return load4(source, place)
    return f32(0), f32(0), f32(0), f32(0)


@device
def gather(x, h, w, place, h_end, w_end, step, pixels_left, sizes, walk):
    """This thread's two quads of the next tile of x, and where its walk goes on."""
    in_h, in_w, out_h, out_w, stride_h, stride_w = sizes
    one = fetch(x, place, step < pixels_left and u32(h) < u32(in_h) and u32(w) < u32(in_w))
    h, w, place = advance(h, w, place, h_end, w_end, out_h, out_w, stride_h, stride_w, walk)
    two = fetch(x, place, i32(step + HOP) < pixels_left and u32(h) < u32(in_h) and u32(w) < u32(in_w))
    h, w, place = advance(h, w, place, h_end, w_end, out_h, out_w, stride_h, stride_w, walk)
    return one, two, h, w, place


def _copy_g(tile_columns, pitch):
    """Functions that load g, and put it into shared memory."""
    hop = LOADERS // (tile_columns // QUAD)
    twice = hop < STEPS

    @device
    def load(g, place, step, out_c, pixels_left):
        """This thread's quads of the next tile of g."""
        again = twice and i32(step + hop) < pixels_left
        return fetch(g, place, step < pixels_left), fetch(g, i32(place + hop * out_c), again)

    @device
    def put(tile, place, fours, thread):
        if thread < u32(LOADERS):
            store4(tile, place, fours[0])
            if twice:
                store4(tile, place + hop * pitch, fours[1])

    return load, put


def _vector(tile_columns, column_sums, resident):
    own, multiply, write = make_sums(ROWS, tile_columns, 8, column_sums)
    a_pitch, b_pitch, sums = ROWS + QUAD, tile_columns + QUAD, 8 * column_sums
    a_size, b_size, b_quads = STEPS * a_pitch, STEPS * b_pitch, tile_columns // QUAD
    a_sizes, b_sizes = 2 * a_size, 2 * b_size
    load, put = _copy_g(tile_columns, b_pitch)
    signature, opcodes = f"f32* x, f32* g, f32* out, {SIZES}, {WALK}", ("LDG.E.128", "STG.E.128")

    @kernel(signature, threads=THREADS, blocks=resident, opcodes=opcodes, variant=f"{ROWS}x{tile_columns}")
    def weight_vector(
        x, g, out, pixels, depth, rows, columns, channels, taps_w, in_h, in_w, in_c, out_h, out_w, out_c,
        stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, move_h, move_w, move, back_w, back_h,
    ):  # fmt: skip
        """One idea: four channels travel at once, to registers while the tiles before them are multiplied.

        Traffic    that of the rung below, in a quarter of the instructions
        Resources  two tiles of each in shared memory; one barrier for 8 pixels
        """
        a_tile = cuda.shared.array(a_sizes, f32, alignment=16)
        b_tile = cuda.shared.array(b_sizes, f32, alignment=16)
        total = cuda.local.array(sums, f32)
        thread, group = u32(cuda.threadIdx.x), i32(cuda.blockIdx.z)
        sizes, walk = (in_h, in_w, out_h, out_w, stride_h, stride_w), (move_h, move_w, move, back_w, back_h)
        across, down = split(cuda.blockIdx.x, u32(u32(rows + (ROWS - 1)) // u32(ROWS)))
        top, left = i32(down * ROWS), i32(across * tile_columns)
        first = i32(cuda.blockIdx.y * depth)
        pixels_left = min(depth, i32(pixels - first))

        a_line, a_step = i32(thread % u32(ROWS // QUAD)) * QUAD, i32(thread // u32(ROWS // QUAD))
        below, right, c = lead(min(top + a_line, rows - QUAD), channels, taps_w, dilation_h, dilation_w, pad_h, pad_w)
        n, h, w = origin(i32(first + a_step), out_h, out_w, stride_h, stride_w)
        h, w, h_end, w_end = (
            i32(h + below),
            i32(w + right),
            i32(out_h * stride_h + below),
            i32(out_w * stride_w + right),
        )
        place = place_of(n, h, w, i32(group * channels + c), in_h, in_w, in_c)
        b_line, b_step = i32(thread % u32(b_quads)) * QUAD, i32(thread // u32(b_quads))
        b_place = i32(i32(first + b_step) * out_c + i32(group * columns + min(left + b_line, columns - QUAD)))
        a_put, b_put = i32(a_step * a_pitch + a_line), i32(b_step * b_pitch + b_line)
        b_step = b_step if thread < u32(LOADERS) else i32(pixels)  # past every slice

        one, two, h, w, place = gather(x, h, w, place, h_end, w_end, a_step, pixels_left, sizes, walk)
        fours = load(g, b_place, b_step, out_c, pixels_left)
        store4(a_tile, a_put, one)
        store4(a_tile, a_put + HOP * a_pitch, two)
        put(b_tile, b_put, fours, thread)
        cuda.syncthreads()
        row, column = own(thread)
        for i in range(sums):
            total[i] = f32(0)
        front = i32(0)  # the tiles that are read; the others are written
        while pixels_left > STEPS:
            pixels_left = i32(pixels_left - STEPS)
            b_place = i32(b_place + STEPS * out_c)
            one, two, h, w, place = gather(x, h, w, place, h_end, w_end, a_step, pixels_left, sizes, walk)
            fours = load(g, b_place, b_step, out_c, pixels_left)
            multiply(total, a_tile, b_tile, i32(front * a_size) + row, i32(front * b_size) + column)
            front = i32(1 - front)
            a_next = i32(front * a_size) + a_put
            store4(a_tile, a_next, one)
            store4(a_tile, a_next + HOP * a_pitch, two)
            put(b_tile, i32(front * b_size) + b_put, fours, thread)
            cuda.syncthreads()
        multiply(total, a_tile, b_tile, i32(front * a_size) + row, i32(front * b_size) + column)

        row, column = i32(top + row), i32(left + column)
        start = offset(output(out, rows, out_c), i32(row * out_c + i32(group * columns + column)))
        write(total, start, out, out, column, i32(rows - row), i32(columns - column), out_c, i32(WIDE))

    return weight_vector


# Blocks that share a multiprocessor: four leave each thread 168 registers, for 64 sums; five leave it 128.
VECTOR = {64: _vector(64, 8, 4), 32: _vector(32, 4, 5)}
