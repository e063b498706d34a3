"""Rules of convolutions."""

from minigrad_kernels.conv2d import reference as convolution

from .draws import Rule, call, planar, sizes


def _geometry(draws, ndim):
    names = {"stride": draws.choice(1, 1, 2, 3), "padding": draws.integer(0, 2), "dilation": draws.choice(1, 1, 2)}
    return {name: value if draws.flag() else (value,) * ndim for name, value in names.items()}


def _convolution(ndim, transposed=False):
    def drawn(draws):
        geometry, groups = _geometry(draws, ndim), draws.choice(1, 1, 2, 3)
        inner, outer, batch = sizes(draws, 3, 3)
        taps = tuple(sizes(draws, ndim, 3))
        size = tuple(draws.integer(1, 5) + (2 if transposed else 4) for _ in range(ndim))
        if transposed:  # padding takes away from what comes out
            geometry["padding"] = 0 if min(taps) == 1 else 1
            w = (groups * inner, outer, *taps)
        else:
            w = (groups * outer, inner, *taps)
        bias = draws.real((groups * outer,)) if draws.flag() else None
        lead = () if draws.chance(15) else (batch,)
        x = draws.real((*lead, groups * inner, *size))
        return call(x, draws.real(w), bias, groups=groups, **geometry)

    return drawn


def _lifted(x, ndim, batched):
    """(N, C, H, W) of any input."""
    x = x if batched else x[None]
    return x if ndim == 2 else x[:, :, None]


def _settings(ndim, stride, padding, dilation):
    pairs = [planar(value, ndim) for value in (stride, padding, dilation)]
    return pairs if ndim == 2 else [(1, *pairs[0]), (0, *pairs[1]), (1, *pairs[2])]


def _convolved(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1):
    ndim, batched = w.ndim - 2, x.ndim == w.ndim
    geometry = _settings(ndim, stride, padding, dilation)
    out = convolution.forward(
        _lifted(x, ndim, batched), w if ndim == 2 else w[:, :, None], bias, False, *geometry, groups
    )
    out = out if ndim == 2 else out[:, :, 0]
    return out if batched else out[0]


def _transposed(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1):
    ndim, batched = w.ndim - 2, x.ndim == w.ndim
    pairs = _settings(ndim, stride, padding, dilation)
    g, filters = _lifted(x, ndim, batched), w if ndim == 2 else w[:, :, None]
    sizes = zip(g.shape[2:], filters.shape[2:], *pairs, strict=True)
    size = tuple((n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in sizes)
    out = convolution.input_grad(g, filters, *pairs, groups, size)
    out = out if bias is None else out + bias[:, None, None]
    out = out if ndim == 2 else out[:, :, 0]
    return out if batched else out[0]


def _trio(draws):
    """(shape of x, of w, of the result, keywords)"""
    geometry = _geometry(draws, 2)
    inner, outer, batch = sizes(draws, 3, 3)
    taps, size = sizes(draws, 2, 3), [draws.integer(5, 8) for _ in range(2)]
    settings = _settings(2, **geometry)
    out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(size, taps, *settings, strict=True)]
    return (batch, inner, *size), (outer, inner, *taps), (batch, outer, *out), geometry


def _input_grad(draws):
    x, w, out, geometry = _trio(draws)
    return call(draws.real(out), draws.real(w), x, **geometry)


def _weight_grad(draws):
    x, w, out, geometry = _trio(draws)
    return call(draws.real(out), draws.real(x), w, **geometry)


RULES = [
    *(Rule(f"conv{n}d", _convolution(n), _convolved) for n in (1, 2)),
    *(Rule(f"conv_transpose{n}d", _convolution(n, True), _transposed) for n in (1, 2)),
    Rule(
        "conv2d_input_grad",
        _input_grad,
        lambda g, w, shape, **how: convolution.input_grad(g, w, *_settings(2, **how), 1, shape[2:]),
    ),
    Rule(
        "conv2d_weight_grad",
        _weight_grad,
        lambda g, x, shape, **how: convolution.weight_grad(g, x, *_settings(2, **how), 1, shape[2:]),
    ),
]
