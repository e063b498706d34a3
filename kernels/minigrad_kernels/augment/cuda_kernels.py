"""Images for the loader: each thread owns a number of `out` and gathers the byte that belongs there.

The place of an image among all is 64-bit, since data sets are large; places inside it are 32-bit. Products are
rounded before they are added to, as on the CPU.
"""

from ..elementwise.cuda_kernels import thread
from ..pool2d.cuda_plain import left_over, quotient, split
from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, offset, u32

__all__ = ["cut", "gather"]

CUT = (
    "u8* images, i64* indices, i64* offsets, u8* flips, f32* scale, f32* shift, f32* out, i32 size, "  # of out
    "i32 height, i32 width, i32 channels, i32 padding, i32 edge"
)


@device
def normal(x, scale, shift):
    return cuda.libdevice.fadd_rn(cuda.libdevice.fmul_rn(f32(x), scale), shift)


@kernel("u8* images, i64* indices, f32* scale, f32* shift, f32* out, i32 size, i32 image, u32 channels", threads=256)
def gather(images, indices, scale, shift, out, size, image, channels):
    """Thread k owns number k: a byte is read and a number written once; an index, scale and shift each time."""
    k = thread()
    if k < size:
        n = quotient(k, image)
        r = i32(k - n * image)
        c = left_over(r, channels)
        out[k] = normal(images[indices[n] * i64(image) + i64(r)], scale[c], shift[c])


@device
def pixel(image, i, j, c, top, left, flip, height, width, channels, edge):
    """The byte of a cut, which begins at (top, left) of the image, or of what lies around the image."""
    h, w = i32(i + top), i32((i32(width - 1 - j) if flip else j) + left)
    near_h, near_w = min(max(h, i32(0)), i32(height - 1)), min(max(w, i32(0)), i32(width - 1))
    v = u32(image[i32(i32(near_h * width + near_w) * channels + c)])  # read in any case, so that no load waits
    return v if edge or (near_h == h and near_w == w) else u32(0)


@kernel(CUT, threads=256)
def cut(images, indices, offsets, flips, scale, shift, out, size, height, width, channels, padding, edge):
    """Thread k owns number k: a byte is read, also for what lies outside, and a number written once."""
    k = thread()
    if k < size:
        n, i, j, c = split(k, height, width, channels)
        top, left = i32(i32(offsets[2 * n]) - padding), i32(i32(offsets[2 * n + 1]) - padding)
        image = offset(images, indices[n] * i64(i32(height * width) * channels))
        v = pixel(image, i, j, c, top, left, flips[n], height, width, channels, edge)
        out[k] = normal(v, scale[c], shift[c])
