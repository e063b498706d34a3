"""Picked, cut and normalised images by definition: NumPy, float64. See the launcher for the meaning of arguments."""

import numpy


def pad_crop_normalize(images, indices, offsets, flips, padding, scale, shift, xp=numpy):
    picked = numpy.array(images, dtype=float)[numpy.array(indices)]
    height, width = picked.shape[2:]
    padded = numpy.pad(picked, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    cuts = numpy.zeros(picked.shape)
    for n, (a, b) in enumerate(numpy.array(offsets).T):
        cut = padded[n, :, a : a + height, b : b + width]
        cuts[n] = cut[:, :, ::-1] if flips[n] else cut
    scale, shift = (xp.reshape(xp.array(values, dtype=float), (1, -1, 1, 1)) for values in (scale, shift))
    return cuts * scale + shift
