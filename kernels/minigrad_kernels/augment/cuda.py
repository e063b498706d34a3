"""Images for the loader on CUDA: each thread owns a number of `out` and gathers the byte that belongs there."""

from ..toolchain.cuda import cuda, device, f32, index_of, kernel

THREADS = 256


@device
def normal(x, scale, shift):
    """Products are rounded before they are added to, as on the CPU."""
    return cuda.libdevice.fadd_rn(cuda.libdevice.fmul_rn(f32(x), scale), shift)


@kernel(
    "u8[:,:,:,:] images, i64[:] indices, i64[:,:] offsets, u8[:] flips, f32[:] scale, f32[:] shift, "
    "f32[:,:,:,:] out, i32 padding, i32 edge",
    threads=THREADS,
)
def cut(images, indices, offsets, flips, scale, shift, out, padding, edge):
    """A byte is read, also for what lies outside, and a number written once. Without offsets nothing is cut."""
    number = cuda.grid(1)
    if number < out.size:
        n, i, j, c = index_of(number, out.shape[1], out.shape[2], out.shape[3])
        height, width = images.shape[1], images.shape[2]
        h, w = i, j
        if offsets.size:
            h, w = i + offsets[n, 0] - padding, (width - 1 - j if flips[n] else j) + offsets[n, 1] - padding
        near_h, near_w = min(max(h, 0), height - 1), min(max(w, 0), width - 1)
        v = f32(images[indices[n], near_h, near_w, c])
        inside = edge or (near_h == h and near_w == w)
        out[n, i, j, c] = normal(v if inside else f32(0), scale[c], shift[c])


def _cut(images, indices, offsets, flips, scale, shift, out, *how):
    if out.size:
        blocks = -(-out.size // THREADS)
        cut((blocks,), (THREADS,), (images, indices, offsets, flips, scale, shift, out, *how))


def gather_normalize(images, indices, scale, shift, out):
    _cut(images, indices, None, None, scale, shift, out, 0, 0)


def pad_crop_normalize(images, indices, offsets, flips, padding, edge, scale, shift, out):
    _cut(images, indices, offsets, flips, scale, shift, out, padding, edge)
