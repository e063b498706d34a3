"""Images for the loader on CUDA: each thread owns a number of `out` and gathers the byte that belongs there."""

from ..toolchain.cuda import cuda, f32, index_of, kernel

THREADS = 256


@kernel(
    "u8[:,:,:,:] images, i64[:] indices, i64[:,:] offsets, i64[:] flips, f32[:] scale, f32[:] shift, "
    "f32[:,:,:,:] out, i32 padding",
    threads=THREADS,
)
def cut(images, indices, offsets, flips, scale, shift, out, padding):
    """A byte is read and a number written once. Products are rounded before they are added to, as on the CPU."""
    number = cuda.grid(1)
    if number < out.size:
        n, i, j, c = index_of(number, out.shape[1], out.shape[2], out.shape[3])
        height, width = images.shape[1], images.shape[2]
        h, w = i + offsets[0, n] - padding, (width - 1 - j if flips[n] else j) + offsets[1, n] - padding
        inside = 0 <= h < height and 0 <= w < width
        x = f32(images[indices[n], h, w, c]) if inside else f32(0)
        out[n, i, j, c] = cuda.libdevice.fadd_rn(cuda.libdevice.fmul_rn(x, scale[c]), shift[c])


def pad_crop_normalize(images, indices, offsets, flips, padding, scale, shift, out):
    if out.size:
        blocks = -(-out.size // THREADS)
        cut((blocks,), (THREADS,), (images, indices, offsets, flips, scale, shift, out, padding))
