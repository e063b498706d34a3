"""Rows of pooling."""

from . import Op, away, real, refusal, sample, ties

POOLS = (
    sample(away(2, 3, 6, 6), 2),
    sample(away(2, 3, 7, 5), 3, 2, 1),
    sample(away(1, 2, 7, 7), (3, 2), (2, 1), (1, 0)),
    sample(away(2, 3, 7, 7), 3, 2, 1, ceil_mode=True),
    sample(away(2, 20, 5, 5), 3, 1),
    sample(away(0, 3, 4, 4), 2),
)
POOL_REFUSALS = lambda name: (
    refusal(ValueError, f"{name}: x has shape", away(6, 6), 2),
    refusal(ValueError, f"{name}:", away(1, 1, 3, 3), 4),
    refusal(ValueError, f"{name}:", away(1, 1, 6, 6), 2, 2, 2),
    refusal(ValueError, f"{name}:", away(1, 1, 6, 6), 0),
    refusal(TypeError, f"{name}:", away(1, 1, 6, 6), 2.5),
)

OPS = [
    Op(
        "max_pool2d",
        (
            *POOLS,
            sample(away(2, 3, 9, 9), 3, 2, 1, 2),
            sample(ties(2, 3, 6, 6), 2, smooth=False),
        ),
        POOL_REFUSALS("max_pool2d"),
    ),
    Op(
        "avg_pool2d",
        (
            *POOLS,
            sample(real(2, 3, 7, 7), 3, 2, 1, count_include_pad=False),
            sample(real(2, 3, 7, 7), 3, 2, 1, True, False),
            sample(real(2, 3, 6, 6), 2, divisor_override=3),
        ),
        (
            *POOL_REFUSALS("avg_pool2d"),
            refusal(ValueError, "divisor_override is 0", away(1, 1, 4, 4), 2, divisor_override=0),
            refusal(TypeError, "divisor_override is 2.0", away(1, 1, 4, 4), 2, divisor_override=2.0),
            refusal(TypeError, "divisor_override is 'a'", away(1, 1, 4, 4), 2, divisor_override="a"),
        ),
        linear=(0,),
    ),
    Op(
        "adaptive_avg_pool2d",
        (
            sample(real(2, 3, 6, 6), 1),
            sample(real(2, 3, 7, 5), (3, 2)),
            sample(real(2, 3, 4, 5), (None, 2)),
            sample(real(2, 3, 3, 3), 5),
        ),
        (
            refusal(ValueError, "adaptive_avg_pool2d: input has shape", real(3, 3), 1),
            refusal(ValueError, "adaptive_avg_pool2d: output_size", real(1, 1, 3, 3), 0),
            refusal(ValueError, "no empty dimension", real(1, 1, 0, 3), 1),
            refusal(TypeError, "adaptive_avg_pool2d: output_size is (1, 2, 3)", real(1, 1, 3, 3), (1, 2, 3)),
            refusal(TypeError, "adaptive_avg_pool2d: output_size", real(1, 1, 3, 3), 1.5),
        ),
        linear=(0,),
    ),
]
