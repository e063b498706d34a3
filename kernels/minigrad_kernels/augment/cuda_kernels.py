"""Images for the loader, both rungs: each thread owns numbers of `out` and gathers the bytes that belong there.

The place of an image among all is 64-bit, since data sets are large; places inside it are 32-bit. Products are
rounded before they are added to, as on the CPU.
"""

from ..elementwise.cuda_plain import thread
from ..pool2d.cuda_plain import left_over, quotient, split
from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, offset, store4, u32

__all__ = ["cut_plain", "cut_vector", "gather_plain", "gather_vector"]

CUT = (
    "u8* images, i64* indices, i64* offsets, u8* flips, f32* scale, f32* shift, f32* out, i32 size, "  # of out
    "i32 height, i32 width, i32 channels, i32 padding, i32 edge"
)


@device
def normal(x, scale, shift):
    return cuda.libdevice.fadd_rn(cuda.libdevice.fmul_rn(f32(x), scale), shift)


@kernel("u8* images, i64* indices, f32* scale, f32* shift, f32* out, i32 size, i32 image, u32 channels", threads=256)
def gather_plain(images, indices, scale, shift, out, size, image, channels):
    """Thread k owns number k: a byte is read and a number written once; an index, scale and shift each time."""
    k = thread()
    if k < size:
        n = quotient(k, image)
        r = i32(k - n * image)
        c = left_over(r, channels)
        out[k] = normal(images[indices[n] * i64(image) + i64(r)], scale[c], shift[c])


@device
def following(c, channels):
    """The channel of the next number."""
    return i32(0) if i32(c + 1) == channels else i32(c + 1)


@device
def byte(word, n):
    return u32(u32(word >> u32(8 * n)) & u32(255))


@kernel(
    "u32* images, i64* indices, f32* scale, f32* shift, f32* out, i32 size, i32 image, i32 channels",
    threads=256,
    opcodes=("STG.E.128",),
)
def gather_vector(images, indices, scale, shift, out, size, image, channels):
    """Thread t owns four numbers: their four bytes are read at once, and all four are written at once. Wants images
    of whole groups of four bytes, `image` groups each; size counts groups, too."""
    t = thread()
    if t < size:
        n = quotient(t, image)
        r = i32(t - n * image)
        word = images[indices[n] * i64(image) + i64(r)]
        c0 = left_over(i32(4 * r), channels)
        c1 = following(c0, channels)
        c2 = following(c1, channels)
        c3 = following(c2, channels)
        low = normal(byte(word, 0), scale[c0], shift[c0]), normal(byte(word, 1), scale[c1], shift[c1])
        high = normal(byte(word, 2), scale[c2], shift[c2]), normal(byte(word, 3), scale[c3], shift[c3])
        store4(out, i32(4 * t), (*low, *high))


@device
def pixel(image, i, j, c, top, left, flip, height, width, channels, edge):
    """The byte of a cut, which begins at (top, left) of the image, or of what lies around the image."""
    h, w = i32(i + top), i32((i32(width - 1 - j) if flip else j) + left)
    near_h, near_w = min(max(h, i32(0)), i32(height - 1)), min(max(w, i32(0)), i32(width - 1))
    v = u32(image[i32(i32(near_h * width + near_w) * channels + c)])  # read in any case, so that no load waits
    return v if edge or (near_h == h and near_w == w) else u32(0)


@kernel(CUT, threads=256)
def cut_plain(images, indices, offsets, flips, scale, shift, out, size, height, width, channels, padding, edge):
    """Thread k owns number k: a byte is read, also for what lies outside, and a number written once."""
    k = thread()
    if k < size:
        n, i, j, c = split(k, height, width, channels)
        top, left = i32(i32(offsets[2 * n]) - padding), i32(i32(offsets[2 * n + 1]) - padding)
        image = offset(images, indices[n] * i64(i32(height * width) * channels))
        v = pixel(image, i, j, c, top, left, flips[n], height, width, channels, edge)
        out[k] = normal(v, scale[c], shift[c])


@device
def place_after(i, j, c, width, channels):
    """(row, column, channel) of the next number in memory."""
    j, c = (i32(j + 1), i32(0)) if i32(c + 1) == channels else (j, i32(c + 1))
    return (i32(i + 1), i32(0), c) if j == width else (i, j, c)


@kernel(CUT, threads=256, opcodes=("STG.E.128",))
def cut_vector(images, indices, offsets, flips, scale, shift, out, size, height, width, channels, padding, edge):
    """Thread t owns four numbers, which it writes at once; their bytes may lie anywhere, so they are read one by one,
    from the sectors that the plain rung reads. Wants images of whole groups of four numbers."""
    k = i32(4 * thread())
    if k < size:
        n, i0, j0, c0 = split(k, height, width, channels)
        top, left = i32(i32(offsets[2 * n]) - padding), i32(i32(offsets[2 * n + 1]) - padding)
        image, flip = offset(images, indices[n] * i64(i32(height * width) * channels)), flips[n]
        i1, j1, c1 = place_after(i0, j0, c0, width, channels)
        i2, j2, c2 = place_after(i1, j1, c1, width, channels)
        i3, j3, c3 = place_after(i2, j2, c2, width, channels)
        v0 = pixel(image, i0, j0, c0, top, left, flip, height, width, channels, edge)
        v1 = pixel(image, i1, j1, c1, top, left, flip, height, width, channels, edge)
        v2 = pixel(image, i2, j2, c2, top, left, flip, height, width, channels, edge)
        v3 = pixel(image, i3, j3, c3, top, left, flip, height, width, channels, edge)
        low = normal(v0, scale[c0], shift[c0]), normal(v1, scale[c1], shift[c1])
        store4(out, k, (*low, normal(v2, scale[c2], shift[c2]), normal(v3, scale[c3], shift[c3])))
