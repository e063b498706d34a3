"""Images for the loader: each thread owns a number of `out`, (B, H, W, C), and gathers the byte that belongs there.

Products are rounded before they are added to, as on the CPU.
"""

from ..toolchain.cuda import cuda, device, f32, index_of, kernel

__all__ = ["cut", "gather"]


@device
def normal(x, scale, shift):
    return cuda.libdevice.fadd_rn(cuda.libdevice.fmul_rn(f32(x), scale), shift)


@kernel("u8[:,:,:,:] images, i64[:] indices, f32[:] scale, f32[:] shift, f32[:,:,:,:] out", threads=256)
def gather(images, indices, scale, shift, out):
    """A byte is read and a number written once; an index, scale and shift each time."""
    number = cuda.grid(1)
    if number < out.size:
        n, i, j, c = index_of(number, out.shape[1], out.shape[2], out.shape[3])
        out[n, i, j, c] = normal(images[indices[n], i, j, c], scale[c], shift[c])


@kernel(
    "u8[:,:,:,:] images, i64[:] indices, i64[:,:] offsets, u8[:] flips, f32[:] scale, f32[:] shift, "
    "f32[:,:,:,:] out, i32 padding, i32 edge",
    threads=256,
)
def cut(images, indices, offsets, flips, scale, shift, out, padding, edge):
    """A byte is read, also for what lies outside, and a number written once."""
    number = cuda.grid(1)
    if number < out.size:
        n, i, j, c = index_of(number, out.shape[1], out.shape[2], out.shape[3])
        height, width = images.shape[1], images.shape[2]
        h, w = i + offsets[n, 0] - padding, (width - 1 - j if flips[n] else j) + offsets[n, 1] - padding
        near_h, near_w = min(max(h, 0), height - 1), min(max(w, 0), width - 1)
        v = f32(images[indices[n], near_h, near_w, c])
        inside = edge or (near_h == h and near_w == w)
        out[n, i, j, c] = normal(v if inside else f32(0), scale[c], shift[c])
