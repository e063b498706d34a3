"""Rows of the ops that put elements in order."""

from . import Op, away, refusal, sample, ties

OPS = [
    *(
        Op(
            name,
            (
                sample(away(5)),
                sample(away(3, 4)),
                sample(away(3, 4), 0),
                sample(away(3, 4), dim=0, descending=True),
                sample(away(2, 3, 4), -2, True),
                sample(ties(4, 5), stable=True, smooth=False),
                sample(ties(4, 5), dim=0, descending=True, stable=True, smooth=False),
                sample(away()),
                sample(away(), 0, True),
                sample(away(0, 3)),
                sample(away(2, 0)),
                sample(away(1)),
            ),
            (
                refusal(IndexError, f"{name}: dim is 2", away(3, 4), 2),
                refusal(IndexError, f"{name}: dim is 1", away(), 1),
                refusal(TypeError, "wanted an integer", away(3, 4), 0.0),
                refusal(TypeError, f"{name}: descending is 'a'", away(3), 0, "a"),
                refusal(TypeError, f"{name}: stable is None", away(3), stable=None),
                refusal(TypeError, f"{name}: descending is 2", away(), descending=2),
            ),
            differentiable=name == "sort",
        )
        for name in ("sort", "argsort")
    ),
    Op(
        "topk",
        (
            sample(away(5), 2),
            sample(away(3, 4), 2),
            sample(away(3, 4), k=2, dim=0),
            sample(away(3, 4), 3, -1, False),
            sample(away(2, 3, 4), 2, 1, largest=False, sorted=True),
            sample(away(4), 4),
            sample(away(4), 0),
            sample(away(), 1),
            sample(away(0, 3), 2),
            sample(away(2, 0), 0),
            sample(away(4), 1, sorted=False),
        ),
        (
            refusal(ValueError, "topk: k is 4, wanted 0 to 3", away(3), 4),
            refusal(ValueError, "topk: k is -1", away(3), -1),
            refusal(ValueError, "topk: k is 2, wanted 0 to 1", away(), 2),
            refusal(IndexError, "topk: dim is 1", away(3), 1, 1),
            refusal(TypeError, "topk: k is 1.0", away(3), 1.0),
            refusal(TypeError, "topk: largest is 'a'", away(3), 1, 0, "a"),
            refusal(TypeError, "topk: sorted is None", away(3), 1, sorted=None),
        ),
    ),
]
