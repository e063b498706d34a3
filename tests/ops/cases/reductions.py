"""Rows of reductions, extremes, scans, orders and softmax, defined as in PyTorch."""

from . import away, classes, flags, op, positive, real, refusal, sample, ties

SHAPE = (2, 3, 4)
INF = float("inf")

# ---- sums and what is made of them -----------------------------------------------------------------------------------


def _reduction(name, *rows, draw=real):
    return op(
        name,
        sample(draw(*SHAPE), (0, -1), True),
        sample(draw(*SHAPE), dim=[0, 2]),
        sample(draw(), 0),
        sample(draw(4, 1, 3), dim=(1, 2)),
        *([] if name == "logsumexp" else [sample(draw(*SHAPE)), sample(draw(*SHAPE), ())]),
        *rows,
    )


def _spreads(name):
    return op(
        name,
        sample(real(*SHAPE), (0, 2), correction=0, keepdim=True),
        *(sample(real(*SHAPE)), sample(real(3, 4), 1, False), sample(real(3, 4), None, True, True)),
        *(sample(real(6), correction=1.5), sample(real(), correction=0)),
        refusal(TypeError, f"{name}: unbiased is True and correction 0", real(3), unbiased=True, correction=0),
        refusal(TypeError, f"{name}: input has elements int64, wanted floating", classes(5, 2, 3)),
    )


SUMS = [
    _reduction(
        "sum",
        sample(real(5000, 3), dim=0),
        sample(real(3, 0), 1),
        sample(flags(2, 3), dim=1, keepdim=True),
        sample(classes(5, 2, 3), dim=1, dtype="float32"),
    ),
    _reduction(
        "mean",
        sample(classes(5, 2, 3), dtype="float32"),
        refusal(TypeError, "mean: input has elements int64, wanted floating", classes(5, 2, 3)),
    ),
    *map(_spreads, ("var", "std")),
    _reduction("logsumexp", sample(away(2000), dim=0), sample(real(0, 3), dim=1), sample(classes(5, 2, 3), 0)),
    op(
        "norm",
        sample(away(*SHAPE), 3, (0, 1), True),
        *(sample(away(*SHAPE)), sample(away(), 2, 0)),
        *(sample(positive(*SHAPE), p, 1) for p in (1, 2, 3, INF, "fro")),
        sample(real(2, 3), dim=1, dtype="float64"),
        sample(real(0, 3), 3, 0),
        *(sample(ties(2, 1), p, 1, smooth=False) for p in (1, 2, 3)),
        refusal(ValueError, "norm: p is 0.5, wanted at least 1", real(3), 0.5),
        refusal(ValueError, "norm: input has shape (0, 3), and nothing along", real(0, 3), INF, 0),
    ),
]

# ---- extremes --------------------------------------------------------------------------------------------------------


def _extreme(name):
    return _reduction(
        name,
        *(sample(ties(3, 8), 1, smooth=False), sample(classes(5, 2, 3), dim=1), sample(away(0, 3), dim=1)),
        refusal(ValueError, f"{name}: input has shape (0, 3), and nothing along", real(0, 3), 0),
        draw=away,
    )


def _one_dim(name, *rows, **options):
    return op(
        name,
        *(sample(away(*SHAPE), 1, True), sample(away(*SHAPE), dim=-1), sample(away(3, 4)), sample(away(), 0)),
        sample(classes(5, 2, 3), 0),
        *rows,
        refusal(ValueError, "no extreme", real(0, 3), dim=0),
        **options,
    )


def _of_two(name):
    kinks = [sample(ties(*shape), *dim, smooth=False) for shape, dim in (((3, 8), (1,)), ((9,), ()))]
    return _one_dim(name, sample(away(2, 3), other=away(3)), *kinks)


def _truth(name):
    several = [sample(flags(*SHAPE), dim=dim) for dim in ((0, 2), -1, (), None)]
    rest = sample(flags(2, 3), 1, True), sample(ties(2, 3), 0), sample(flags(0, 3), 0)
    return op(name, *several, *rest, differentiable=False)


EXTREMES = [
    *map(_extreme, ("amax", "amin")),
    *map(_of_two, ("max", "min")),
    *(_one_dim(name, sample(away(3, 4), keepdim=True), differentiable=False) for name in ("argmax", "argmin")),
    *map(_truth, ("any", "all")),
]

# ---- scans, products, orders, softmax --------------------------------------------------------------------------------


def _running(name, *rows):
    return op(
        name,
        *(sample(real(*SHAPE), dim) for dim in (1, 0)),
        *(sample(real(), 0), sample(real(0, 3), dim=1), sample(classes(5, 2, 3), 1, dtype="float32")),
        *rows,
    )


def _order(name):
    return op(
        name,
        sample(away(2, 3, 4), -2, True),
        sample(ties(4, 5), stable=True, smooth=False),
        sample(ties(4, 5), dim=0, descending=True, stable=True, smooth=False),
        *(sample(away(), 0), sample(away(0, 3))),
        differentiable=name == "sort",
    )


def _softmax(name):
    return op(
        name,
        *(sample(real(2, 3, 4), dim) for dim in (1, -1)),
        *(sample(real(), 0), sample(real(2, 0, 3), 2), sample(classes(5, 3, 4), 1, dtype="float64")),
        refusal(TypeError, f"{name}: input has elements int64", classes(3, 2, 3), 1),
    )


OTHERS = [
    _running("cumsum"),
    _running("cumprod", sample(ties(4, 5), 0), sample(ties(3, 1, 12), -1)),
    op(
        "prod",
        sample(real(*SHAPE), 1, True),
        *(sample(real(1, 3, 1), 1), sample(real(), 0), sample(real(0, 3), 1), sample(ties(4, 5))),
        *(sample(real(2, 0), 1), sample(classes(5, 2, 3), 1, dtype="float32")),
        refusal(TypeError, "prod: keepdim is True, which wants", real(2, 3), keepdim=True),
    ),
    *map(_order, ("sort", "argsort")),
    op(
        "topk",
        sample(away(2, 3, 4), 2, 1, largest=False, sorted=True),
        sample(away(4), k=0, dim=0),
        refusal(ValueError, "topk: k is 4, wanted 0 to 3", away(3), 4),
    ),
    *map(_softmax, ("softmax", "log_softmax")),
]

OPS = [*SUMS, *EXTREMES, *OTHERS]
