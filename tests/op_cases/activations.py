"""Rows of the activations."""

from . import Op, away, classes, flags, real, refusal, sample, ties

INF = float("inf")
SHAPES = ((3, 4), (), (0, 3), (1,), (2, 1, 3), (2, 3, 4, 5), (3, 5, 7, 11))


def _activation(name, samples, refusals, inplace=True):
    """A row; torch changes no leaf in place, so its counterpart is told nothing of it."""
    drawn = (*(sample(away(*shape)) for shape in SHAPES), sample(real(5, 1000)), *samples)
    refused = (
        refusal(TypeError, f"{name}: input is a str, wanted a Tensor", "x"),
        refusal(TypeError, f"{name}: input is a float, wanted a Tensor", 1.5),
        refusal(TypeError, f"{name}: input is a NoneType, wanted a Tensor", None),
        refusal(TypeError, f"{name}: input has elements bool, wanted floating ones", flags(3)),
        refusal(TypeError, f"{name}: input has elements int64, wanted floating ones", classes(3, 2)),
    )
    if inplace:
        drawn += (sample(away(3), inplace=True),)

    def counterpart(torch):
        function = getattr(torch.nn.functional, name)
        return lambda x, *rest, inplace=False, **options: function(x, *rest, **options)

    return Op(name, drawn, (*refused, *refusals), torch=counterpart)


def _no_number(op, name):
    return (
        refusal(TypeError, f"{op}: {name} is 'a', wanted a number", real(3), **{name: "a"}),
        refusal(TypeError, f"{op}: {name} is 'NoneType', wanted a number", real(3), **{name: None}),
        refusal(TypeError, f"{op}: {name} is 'ndarray', wanted a number", real(3), **{name: real(1)}),
        refusal(ValueError, f"{op}: {name} is 1000", real(3), **{name: 10**400}),
    )


OPS = [
    _activation("relu", (sample(ties(9), smooth=False),), ()),
    _activation(
        "leaky_relu",
        (
            sample(ties(9), smooth=False),
            sample(ties(9), 0.3, smooth=False),
            sample(away(3, 4), 0.3),
            sample(away(3, 4), -1),
            sample(away(3, 4), 0),
            sample(away(3, 4), negative_slope=1.5),
            sample(away(3, 4), True),
        ),
        _no_number("leaky_relu", "negative_slope"),
    ),
    _activation(
        "elu",
        (
            sample(ties(9), smooth=False),
            sample(ties(9), 0.5, smooth=False),
            sample(away(3, 4), 0.3),
            sample(away(3, 4), alpha=2),
            sample(away(3, 4), -1.5),
            sample(away(3, 4), 0),
        ),
        _no_number("elu", "alpha"),
    ),
    _activation(
        "hardtanh",
        (
            sample(ties(9), smooth=False),
            sample(ties(9), -1, 0, smooth=False),
            sample(away(90), -2.02, 3.03),
            sample(away(9), min_val=-0.33, max_val=0.22),
            sample(ties(9), 1, 1, smooth=False),
            sample(away(3), -INF, INF),
        ),
        (
            refusal(ValueError, "hardtanh: min_val is 2.0 and max_val 1.0, wanted min", real(3), 2, 1),
            refusal(TypeError, "hardtanh: min_val is 'a', wanted a number", real(3), "a"),
            refusal(TypeError, "hardtanh: max_val is 'NoneType', wanted a number", real(3), 0, None),
        ),
    ),
    _activation("relu6", (sample(ties(9), smooth=False), sample(away(200))), ()),
    _activation("logsigmoid", (sample(ties(9)), sample(away(900))), (), inplace=False),
    _activation("silu", (sample(ties(9)), sample(away(90))), ()),
    _activation(
        "gelu",
        (
            sample(ties(9)),
            sample(away(90)),
            sample(away(90), approximate="none"),
            sample(away(90), approximate="tanh"),
            sample(ties(9), approximate="tanh"),
            sample(real(), approximate="tanh"),
            sample(real(0, 3), approximate="tanh"),
            sample(real(2, 3, 4, 5), approximate="tanh"),
        ),
        (
            refusal(ValueError, "gelu: approximate is 'erf', wanted 'none' or 'tanh'", real(3), approximate="erf"),
            refusal(ValueError, "gelu: approximate is None, wanted 'none' or 'tanh'", real(3), approximate=None),
            refusal(TypeError, "gelu: input has elements int64", classes(3, 2), approximate="tanh"),
        ),
        inplace=False,
    ),
    _activation(
        "softplus",
        (
            sample(ties(9)),
            sample(away(90)),
            sample(away(90), 2.0),
            sample(away(90), 2.03, 1.0),
            sample(away(90), beta=0.5, threshold=3),
            sample(away(90), -1.5),
            sample(away(90), threshold=-1.03, smooth=False),
            sample(away(9), 1, 1000),
        ),
        (*_no_number("softplus", "beta"), *_no_number("softplus", "threshold")),
        inplace=False,
    ),
]
