"""Images for the loader on the CPU: every thread owns whole images."""

import numpy as np

from ..bias.cpu import TILE, line_of, spread
from ..toolchain import jit, share, shared, stack_array

SMALL = 1 << 14  # numbers; below it a second thread costs more than it brings


@jit
def normalize(image, scale, shift, out):
    """All numbers of an image, a run of memory in which scale and shift repeat themselves: they are laid out as often
    as fits into TILE numbers, so that innermost loops are long whatever the number of channels.

    Places are unsigned, or the compiler would ask at each whether it counts from the end, and use no vectors.
    """
    line = line_of(scale.size)
    wide_scale, wide_shift = stack_array(TILE, scale, line), stack_array(TILE, shift, line)
    spread(scale, 0, wide_scale)
    spread(shift, 0, wide_shift)
    for start in range(0, out.size, line):
        for k in range(min(line, out.size - start)):
            n, place = np.uintp(k), np.uintp(start + k)
            out[place] = np.float32(image[place]) * wide_scale[n] + wide_shift[n]


@jit
def cut_image(image, size, top, left, flip, edge, scale, shift, out):
    """A cut that begins so far below and right of the corner of an image, pixel by pixel."""
    (height, width), channels, at = size, scale.size, 0
    for i in range(height):
        near_row = min(max(i + top, 0), height - 1)
        for j in range(width):
            column = left + (width - 1 - j if flip else j)
            near = min(max(column, 0), width - 1)
            inside = edge or (near == column and near_row == i + top)
            for c in range(channels):
                v = image[(near_row * width + near) * channels + c] if inside else np.uint8(0)
                out[at + c] = np.float32(v) * scale[c] + shift[c]
            at += channels


@shared
def normalize_images(team, images, indices, scale, shift, out):
    for n in share(indices.size, team):
        normalize(images[indices[n]], scale, shift, out[n])


@shared
def cut_images(team, images, size, indices, offsets, flips, padding, edge, scale, shift, out):
    for n in share(indices.size, team):
        top, left = offsets[n, 0] - padding, offsets[n, 1] - padding
        cut_image(images[indices[n]], size, top, left, flips[n] != 0, edge, scale, shift, out[n])


def _start(kernel, images, out, *arguments):
    if out.size:
        rows = images.reshape(len(images), -1), out.reshape(len(out), -1)
        (kernel.alone if out.size < SMALL else kernel)(rows[0], *arguments, rows[1])


def gather_normalize(images, indices, scale, shift, out):
    if scale.size > TILE:
        whole = np.zeros((len(indices), 2), np.int64), np.zeros(len(indices), np.uint8), 0, False
        return pad_crop_normalize(images, indices, *whole, scale, shift, out)
    _start(normalize_images, images, out, indices, scale, shift)


def pad_crop_normalize(images, indices, offsets, flips, padding, edge, scale, shift, out):
    size = images.shape[1:3]
    _start(cut_images, images, out, size, indices, offsets, flips, padding, edge, scale, shift)
