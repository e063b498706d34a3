"""Rows of softmax and its logarithm."""

from . import Op, classes, flags, real, refusal, sample

SHAPES = (((3, 4), 1), ((3, 4), 0), ((2, 3, 4), -2), ((5,), 0), ((), 0), ((), -1), ((2, 0), 1), ((0, 3), 1))
SHAPES += (((0,), 0), ((1,), -1), ((1, 4), 0), ((2, 0, 3), 2), ((65, 10), 1), ((2, 3, 4, 5), 1), ((2, 3, 4, 5), 3))


def _op(name):
    def double(torch):
        return lambda input, dim, dtype: getattr(torch, name)(input, dim, dtype=getattr(torch, dtype))

    counterpart = lambda torch: (
        lambda *args, **kwargs: (
            double(torch) if "dtype" in kwargs and kwargs["dtype"] else getattr(torch.nn.functional, name)
        )(*args, **kwargs)
    )
    samples = (
        *(sample(real(*shape), dim) for shape, dim in SHAPES),
        sample(real(3, 4), 1, dtype=None),
        sample(classes(5, 3, 4), 1, dtype="float64", smooth=False),
        sample(flags(3, 4), 0, dtype="float32", smooth=False),
    )
    refusals = (
        refusal(IndexError, f"{name}: dim is 2", real(2, 3), 2),
        refusal(IndexError, f"{name}: dim is -3", real(2, 3), -3),
        refusal(IndexError, f"{name}: dim is 1, wanted -1 to 0", real(), 1),
        refusal(TypeError, f"{name}: dim is None", real(2, 3), None),
        refusal(TypeError, f"{name}: dim is (0, 1)", real(2, 3), (0, 1)),
        refusal(TypeError, f"{name}: x has type int64", classes(3, 2, 3), 1),
        refusal(TypeError, f"{name}: x has type int64", real(2, 3), 1, dtype="int64"),
        refusal(TypeError, "'number'", real(2, 3), 1, dtype="number"),
    )
    return Op(name, samples, refusals, counterpart)


OPS = [_op("softmax"), _op("log_softmax")]
