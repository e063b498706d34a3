"""Rules of pools and of resizing."""

import numpy as np

from .draws import Rule, call, planar, sizes


def _pool(ndim, kind="away", **further):
    def drawn(draws):
        kernel = sizes(draws, ndim, 3)
        settings = {"stride": draws.choice(None, 1, 2, 3), "padding": draws.integer(0, min(kernel) // 2)}
        settings["ceil_mode"] = draws.flag()
        settings |= {name: draws.choice(*values) for name, values in further.items()}
        lead = sizes(draws, 1 if draws.chance(15) else 2, 3)
        x = draws.real((*lead, *(draws.integer(5, 8) for _ in range(ndim))), kind)
        return call(x, tuple(kernel) if draws.flag() or min(kernel) != max(kernel) else kernel[0], **settings)

    return drawn


def _counted(size, kernel, stride, padding, dilation, ceil):
    """The number of windows; the last must begin inside the image or its padding before."""
    free = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-free // stride) if ceil else free // stride) + 1
    return count - 1 if ceil and (count - 1) * stride >= size + padding else count


def _pooled(window):
    """A pool by a function of (elements of the window, area of the window within the padded image)."""

    def reference(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, **rest):
        ndim = len(kernel_size) if isinstance(kernel_size, tuple) else rest.pop("ndim")
        kernel, stride, padding, dilation = (
            planar(kernel_size if value is None else value, ndim) for value in (kernel_size, stride, padding, dilation)
        )
        counts = [
            _counted(n, k, s, p, d, ceil_mode)
            for n, k, s, p, d in zip(x.shape[-ndim:], kernel, stride, padding, dilation, strict=True)
        ]
        out = np.empty((*x.shape[:-ndim], *counts))
        for place in np.ndindex(*counts):
            picked, area = x, 1
            for axis, at in enumerate(place):
                size, begin = x.shape[axis - ndim], at * stride[axis] - padding[axis]
                taps = [begin + dilation[axis] * k for k in range(kernel[axis])]
                area *= sum(tap < size + padding[axis] for tap in taps)
                picked = picked.take([tap for tap in taps if 0 <= tap < size], axis - ndim)
            axes = tuple(range(-ndim, 0))
            out[(..., *place)] = window(picked, axes, area, **rest)
        return out

    return reference


def _mean(x, axes, area, count_include_pad=True):
    inside = int(np.prod([x.shape[axis] for axis in axes]))
    return x.sum(axes) / (area if count_include_pad else inside)


def _of(ndim, reference):
    """The reference of a pool of so many dimensions."""
    return lambda x, kernel_size, **rest: reference(x, planar(kernel_size, ndim), **rest)


largest = _pooled(lambda x, axes, area: x.max(axes))


def _adaptive(draws):
    x = draws.real((*sizes(draws, 1 if draws.chance(15) else 2, 3), draws.integer(1, 7), draws.integer(1, 7)))
    return call(x, draws.choice(1, 2, 3, (2, 3), (None, 2), (3, None)))


def _adapted(x, output_size):
    pair = planar(output_size, 2)
    counts = [n if count is None else count for n, count in zip(x.shape[-2:], pair, strict=True)]
    bounds = [
        [(i * n // count, -(-(i + 1) * n // count)) for i in range(count)]
        for n, count in zip(x.shape[-2:], counts, strict=True)
    ]
    rows = [[x[..., a:b, c:d].mean((-2, -1)) for c, d in bounds[1]] for a, b in bounds[0]]
    return np.stack([np.stack(row, -1) for row in rows], -2)


# ---- resizing ------------------------------------------------------------------------------------------------------


def _resize(draws):
    x = draws.real((*sizes(draws, 2, 3), draws.integer(1, 6), draws.integer(1, 6)))
    mode = draws.choice("nearest", "bilinear")
    corners = draws.choice(None, True, False) if mode == "bilinear" else None
    return call(x, tuple(sizes(draws, 2, 9)), mode=mode, align_corners=corners)


def _resized(x, size, mode, align_corners):
    for axis, count in zip((2, 3), size, strict=True):
        n, out = x.shape[axis], np.arange(count)
        if mode == "nearest":
            x = x.take(out * n // count, axis)
        else:
            at = out * ((n - 1) / max(count - 1, 1)) if align_corners else np.maximum((out + 0.5) * n / count - 0.5, 0)
            low = np.minimum(np.floor(at).astype(int), n - 1)
            share = (at - low).reshape([-1 if d == axis else 1 for d in range(4)])
            x = x.take(low, axis) * (1 - share) + x.take(np.minimum(low + 1, n - 1), axis) * share
    return x


RULES = [
    *(Rule(f"max_pool{n}d", _pool(n, dilation=(1, 1, 2)), _of(n, largest), repeats=False) for n in (1, 2)),
    *(
        Rule(f"avg_pool{n}d", _pool(n, "normal", count_include_pad=(True, False)), _of(n, _pooled(_mean)))
        for n in (1, 2)
    ),
    Rule("adaptive_avg_pool2d", _adaptive, _adapted),
    Rule("interpolate", _resize, _resized),
]
