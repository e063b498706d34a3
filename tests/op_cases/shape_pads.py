"""Rows of the borders."""

from . import Op, classes, real, refusal, sample


def _refused(mode, message, x, pad):
    return refusal(ValueError, message, x, pad, mode)


OPS = [
    Op(
        "pad",
        (
            sample(real(2, 3), (1, 2)),
            sample(real(2, 3), (1, 0, 0, 2), value=1.5),
            sample(real(2, 3, 4, 5), (1, 1, 2, 0)),
            sample(real(4, 5), [-1, 2, 1, -2]),
            sample(real(3), (0, 0)),
            sample(real(3), (2, 1), value=None),
            sample(real(3), (-2, -1)),
            sample(real(3), ()),
            sample(real(3), (1, 1), "constant", 2),
            sample(real(), ()),
            sample(real(0, 3), (1, 1, 1, 0)),
            *(
                sample(real(*shape), pad, mode=mode)
                for mode in ("reflect", "replicate", "circular")
                for shape, pad in (
                    ((2, 4), (1, 2)),
                    ((2, 3, 4), (3, 0)),
                    ((2, 3, 4), (1, 3, 2, 0)),
                    ((2, 3, 4, 5), (1, 2, 0, 3)),
                    ((2, 3, 4), (0, 0)),
                    ((2, 2, 3, 4), (1, 1, 1, 1)),
                    ((2, 2, 3, 2), (1, 1, 2, 0, 0, 1)),
                    ((1, 2, 2, 3, 2), (1, 0, 1, 1, 0, 1)),
                    ((0, 2, 4), (1, 1)),
                    ((2, 2, 1), (0, 0)),
                )
            ),
            *(
                sample(real(*shape), pad, mode=mode)
                for mode in ("reflect", "replicate")
                for shape, pad in (
                    ((2, 3, 4), (-1, 2)),
                    ((2, 3, 4), (2, -1)),
                    ((2, 3, 4), (-1, -2)),
                    ((2, 3, 4, 5), (-1, 1, 2, -1)),
                )
            ),
            sample(real(1, 3), (7, 4), "replicate"),
            sample(real(1, 4), (4, 4), "circular"),
            sample(real(2, 0), (0, 0), "circular"),
            sample(real(2, 3, 2, 4), (1, 1, 0, -2), "replicate"),
        ),
        (
            refusal(ValueError, "pad: pad has 3 widths", real(2, 3), (1, 1, 1)),
            refusal(ValueError, "pad: pad has 4 widths", real(3), (1, 1, 1, 1)),
            refusal(ValueError, "pad: pad has 2 widths", real(), (1, 1)),
            refusal(ValueError, "pad: mode is 'other'", real(3), (1, 1), mode="other"),
            refusal(ValueError, "pad: mode is 1", real(3), (1, 1), mode=1),
            refusal(ValueError, "cuts more than there is", real(3), (-2, -2)),
            refusal(ValueError, "cuts more than there is", real(3), (-4, 5)),
            refusal(TypeError, "pad: pad is 1.0, wanted an integer", real(3), (1.0, 1)),
            refusal(TypeError, "pad: value is 'a', wanted a number", real(3), (1, 1), value="a"),
            refusal(TypeError, "pad: value is 'Tensor', wanted a number", real(3), (1, 1), value=real()),
            refusal(TypeError, "pad: value is 0.5, wanted a number that int64", classes(5, 3), (1, 1), value=0.5),
            _refused("reflect", "pad: pad is (1, 3) along dimension 1 of size 3, wanted widths", real(1, 3), (1, 3)),
            _refused("reflect", "wanted widths from -1 to 0", real(2, 3, 1, 4), (1, 1, 1, 0)),
            _refused("circular", "wanted widths from 0 to 4 for mode 'circular'", real(1, 4), (5, 0)),
            _refused("circular", "wanted widths from 0 to 4", real(1, 4), (-1, 3)),
            _refused("circular", "wanted widths from 0 to 0", real(2, 2, 0), (1, 1)),
            _refused("replicate", "cuts more", real(1, 3), (-2, -2)),
            _refused("reflect", "cuts more", real(1, 3), (-2, -2)),
            _refused("replicate", "wanted widths from 0 to 0", real(2, 0), (1, 1)),
        ),
        linear=(0,),
    ),
]
