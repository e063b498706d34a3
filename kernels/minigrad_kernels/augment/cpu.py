"""Images for the loader on the CPU: every thread owns whole images, and vectors hold neighbouring numbers of a row.

A row of pixels is one run of memory, in which scale and shift repeat themselves: they are laid out as often as fits
into TILE numbers, so that innermost loops are long whatever the number of channels.
"""

import numpy as np

from ..bias.cpu import TILE, line_of
from ..toolchain import jit, share, shared, stack_array

SMALL = 1 << 14  # numbers; below it a second thread costs more than it brings


@jit
def normalize_run(x, source, scale, shift, out, at, count):
    """`count` numbers of whole pixels, from x[source] to out[at] on; scale and shift repeat themselves.

    Places are unsigned, or the compiler would ask at each whether it counts from the end, and use no vectors.
    """
    line = scale.size
    for start in range(0, count, line):
        read, write = np.uintp(source + start), np.uintp(at + start)
        for k in range(min(line, count - start)):
            n = np.uintp(k)
            out[write + n] = np.float32(x[read + n]) * scale[n] + shift[n]


@jit
def spread(vector, wide, line):
    """The vector itself, or copies of it one behind the other in `wide`, as many as make a line."""
    if line > wide.size:
        return vector
    for start in range(0, line, vector.size):
        for c in range(vector.size):
            wide[start + c] = vector[c]
    return wide[:line]


@jit
def pixel_run(x, source, step, black, scale, shift, out, at, count):
    """As normalize_run, pixel by pixel, each `step` numbers behind the one before, or all of them black.

    scale and shift have one number for each channel.
    """
    for start in range(0, count, scale.size):
        read, write = np.uintp(source), np.uintp(at + start)
        for c in range(scale.size):
            n = np.uintp(c)
            v = np.uint8(0) if black else x[read + n]
            out[write + n] = np.float32(v) * scale[n] + shift[n]
        source += step


@jit
def cut_row(image, source, width, left, flip, edge, scale, shift, wide, out, at):
    """One row of a cut that begins `left` pixels behind the start, at `source`, of the row of the image."""
    channels = scale.size
    first = min(max(-left, 0), width)  # of the columns that lie inside the image
    last = max(first, min(width, width - left))
    begin, count = source + (first + left) * channels, (last - first) * channels
    near, far = source, source + (width - 1) * channels  # the pixels that lie next to the columns outside
    if flip:
        first, last, near, far = width - last, width - first, far, near
        pixel_run(image, begin + count - channels, -channels, False, scale, shift, out, at + first * channels, count)
    else:
        normalize_run(image, begin, wide[0], wide[1], out, at + first * channels, count)
    if first:
        pixel_run(image, near, 0, not edge, scale, shift, out, at, first * channels)
    if last < width:
        pixel_run(image, far, 0, not edge, scale, shift, out, at + last * channels, (width - last) * channels)


@jit
def cut_image(image, height, width, top, left, flip, edge, scale, shift, out):
    line, row = line_of(scale.size), width * scale.size
    room_scale, room_shift = stack_array(TILE, scale), stack_array(TILE, shift)
    wide = spread(scale, room_scale, line), spread(shift, room_shift, line)
    for i in range(height):
        near = min(max(i + top, 0), height - 1)
        # A row above or below the image is one whose columns all lie outside.
        start = left if edge or near == i + top else width
        cut_row(image, near * row, width, start, flip, edge, scale, shift, wide, out, i * row)


@shared
def cut_images(team, images, size, indices, offsets, flips, padding, edge, scale, shift, out):
    for n in share(indices.size, team):
        top, left = offsets[n, 0] - padding, offsets[n, 1] - padding
        image, cut = images[indices[n]], out[n]
        cut_image(image, size[0], size[1], top, left, flips[n] != 0, edge, scale, shift, cut)


def _cut(images, size, indices, offsets, flips, padding, edge, scale, shift, out):
    if out.size:
        kernel = cut_images.alone if out.size < SMALL else cut_images
        rows = images.reshape(len(images), -1), out.reshape(len(out), -1)
        kernel(rows[0], size, indices, offsets, flips, padding, edge, scale, shift, rows[1])


def gather_normalize(images, indices, scale, shift, out):
    """Each image is one long row, of which nothing is cut."""
    size, offsets = (1, images.shape[1] * images.shape[2]), np.zeros((len(indices), 2), np.int64)
    _cut(images, size, indices, offsets, np.zeros(len(indices), np.uint8), 0, False, scale, shift, out)


def pad_crop_normalize(images, indices, offsets, flips, padding, edge, scale, shift, out):
    _cut(images, images.shape[1:3], indices, offsets, flips, padding, edge, scale, shift, out)
