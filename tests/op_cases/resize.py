"""Rows of resizing."""

import numpy as np

from . import Op, classes, real, refusal, sample

IMAGES, SEQUENCES = (2, 3, 4, 5), (2, 3, 5)

OPS = [
    Op(
        "interpolate",
        (
            sample(real(*IMAGES), (8, 10)),
            sample(real(*IMAGES), None, 2),
            sample(real(*IMAGES), (3, 7)),
            sample(real(*IMAGES), 3),
            sample(real(*IMAGES), [1, 2]),
            sample(real(*IMAGES), None, (2.5, 0.7)),
            sample(real(*IMAGES), None, [0.5, 3]),
            sample(real(2, 20, 3, 3), None, 2),
            sample(real(*SEQUENCES), 8),
            sample(real(*SEQUENCES), None, 1.7),
            sample(real(*SEQUENCES), (3,)),
            sample(real(0, 3, 4, 5), 2),
            sample(real(0, 3, 4), 2),
            sample(real(1, 1, 1, 1), 3),
            sample(real(*IMAGES), (8, 3), mode="bilinear"),
            sample(real(*IMAGES), (8, 3), mode="bilinear", align_corners=True),
            sample(real(*IMAGES), None, (1.7, 0.6), "bilinear"),
            sample(real(*IMAGES), None, (1.7, 0.6), "bilinear", False),
            sample(real(*IMAGES), None, 1.7, "bilinear", True),
            sample(real(*IMAGES), 1, None, "bilinear", True),
            sample(real(*IMAGES), 1, None, "bilinear", False),
            sample(real(1, 2, 1, 1), 3, None, "bilinear", True),
            sample(real(0, 2, 2, 3), 3, None, "bilinear"),
            sample(real(*SEQUENCES), 9, mode="linear"),
            sample(real(*SEQUENCES), 9, mode="linear", align_corners=True),
            sample(real(*SEQUENCES), 2, mode="linear"),
            sample(real(*SEQUENCES), None, 1.7, "linear"),
            sample(real(*SEQUENCES), None, 1.7, "linear", True),
            sample(real(1, 1, 1), 4, mode="linear"),
        ),
        (
            refusal(ValueError, "interpolate: size is None and scale_factor None, wanted one", real(*IMAGES)),
            refusal(ValueError, "interpolate: size is 2 and scale_factor 2, wanted one", real(*IMAGES), 2, 2),
            refusal(ValueError, "interpolate: input has shape (4, 5)", real(4, 5), 2),
            refusal(ValueError, "interpolate: input has shape (1, 1, 2, 2, 2)", real(1, 1, 2, 2, 2), 2),
            refusal(ValueError, "wanted (N, C, L) for mode 'linear'", real(*IMAGES), 2, mode="linear"),
            refusal(ValueError, "wanted (N, C, H, W) for mode 'bilinear'", real(*SEQUENCES), 2, mode="bilinear"),
            refusal(ValueError, "no empty dimension but N", real(1, 0, 4, 5), 2),
            refusal(ValueError, "no empty dimension but N", real(1, 2, 0, 5), 2),
            refusal(ValueError, "no empty dimension but N", real(1, 2, 0), 2, mode="linear"),
            refusal(ValueError, "interpolate: size is 0", real(*IMAGES), 0),
            refusal(ValueError, "interpolate: size is -2", real(*IMAGES), -2),
            refusal(ValueError, "size 4294967296", real(*IMAGES), 1 << 32),
            refusal(TypeError, "interpolate: size is (2,), wanted an integer or 2", real(*IMAGES), (2,)),
            refusal(TypeError, "interpolate: size is [2, 2, 2], wanted an integer or 2", real(*IMAGES), [2, 2, 2]),
            refusal(TypeError, "interpolate: size is (2, 2), wanted an integer or 1", real(*SEQUENCES), (2, 2)),
            *(
                refusal(ValueError, "interpolate: scale_factor is", real(*IMAGES), None, wrong)
                for wrong in (0, -1, 0.2, 1e30, float("nan"), float("inf"), (1, 0))
            ),
            *(refusal(TypeError, "interpolate: size is", real(*IMAGES), w) for w in (2.0, True, "2", ((2, 2), 2))),
            refusal(TypeError, "interpolate: scale_factor is 'a'", real(*IMAGES), None, "a"),
            refusal(TypeError, "interpolate: scale_factor is 'list'", real(*IMAGES), None, [[2], 2]),
            refusal(ValueError, "interpolate: mode is 'bicubic'", real(*IMAGES), 2, mode="bicubic"),
            refusal(ValueError, "interpolate: mode is 'x'", real(*IMAGES), 2, mode="x"),
            refusal(ValueError, "interpolate: mode is None", real(*IMAGES), 2, mode=None),
            refusal(ValueError, "interpolate: mode is ['nearest']", real(*IMAGES), 2, mode=["nearest"]),
            refusal(ValueError, "align_corners is False, wanted None", real(*IMAGES), 2, align_corners=False),
            refusal(ValueError, "align_corners is True, wanted None", real(*IMAGES), 2, align_corners=True),
            refusal(TypeError, "interpolate: input has elements int64", classes(9, *IMAGES), 2),
            refusal(TypeError, "interpolate: input is a ndarray", np.ones(IMAGES), 2),
        ),
        linear=(0,),
    ),
]
