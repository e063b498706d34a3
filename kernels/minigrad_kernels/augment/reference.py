"""Picked, cut and normalised images by definition: NumPy, float64. See the launchers for the meaning of arguments."""

import numpy


def _channels(values, xp):
    return xp.reshape(xp.array(values, dtype=float), (1, -1, 1, 1))


def gather_normalize(images, indices, scale, shift, xp=numpy):
    picked = numpy.array(images, dtype=float)[numpy.array(indices)]
    return picked * _channels(scale, xp) + _channels(shift, xp)


def pad_crop_normalize(images, indices, offsets, flips, padding, edge, scale, shift, xp=numpy):
    picked = numpy.array(images, dtype=float)[numpy.array(indices)]
    around = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    height, width = picked.shape[2:]
    padded = numpy.pad(picked, around, mode="edge" if edge else "constant")
    cuts = numpy.zeros(picked.shape)
    for n, (a, b) in enumerate(numpy.array(offsets)):
        cut = padded[n, :, a : a + height, b : b + width]
        cuts[n] = cut[:, :, ::-1] if flips[n] else cut
    return cuts * _channels(scale, xp) + _channels(shift, xp)
