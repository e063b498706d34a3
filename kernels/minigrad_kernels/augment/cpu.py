"""Images for the loader on the CPU: every thread owns whole images."""

import numpy as np

from ..bias.cpu import TILE, line_of, spread
from ..toolchain import share, shared, stack_array

SMALL = 1 << 14  # numbers; below it a second thread costs more than it brings


@shared
def normalize_images(team, images, indices, scale, shift, out):
    """An image is one run of memory in which scale and shift repeat themselves: they are laid out as often as fits into
    TILE numbers, so that innermost loops are long whatever the number of channels.

    Places are unsigned, or the compiler would ask at each whether it counts from the end, and use no vectors.
    """
    line = line_of(scale.size)
    wide_scale, wide_shift = stack_array(TILE, scale, line), stack_array(TILE, shift, line)
    spread(scale, 0, wide_scale)
    spread(shift, 0, wide_shift)
    for number in share(indices.size, team):
        image, result = images[indices[number]], out[number]
        for start in range(0, result.size, line):
            for k in range(min(line, result.size - start)):
                n, place = np.uintp(k), np.uintp(start + k)
                result[place] = np.float32(image[place]) * wide_scale[n] + wide_shift[n]


@shared
def cut_images(team, images, size, indices, offsets, flips, padding, edge, scale, shift, out):
    """Pixel by pixel."""
    (height, width), channels = size, scale.size
    for n in share(indices.size, team):
        image, cut, at = images[indices[n]], out[n], 0
        top, left, flip = offsets[n, 0] - padding, offsets[n, 1] - padding, flips[n] != 0
        for i in range(height):
            near_row = min(max(i + top, 0), height - 1)
            for j in range(width):
                column = left + (width - 1 - j if flip else j)
                near = min(max(column, 0), width - 1)
                inside = edge or (near == column and near_row == i + top)
                for c in range(channels):
                    v = image[(near_row * width + near) * channels + c] if inside else np.uint8(0)
                    cut[at + c] = np.float32(v) * scale[c] + shift[c]
                at += channels


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
