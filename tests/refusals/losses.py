"""What layers refuse that compute losses, and those that hold other layers or parameters."""

import re
from functools import partial

import numpy as np

from minigrad import Tensor, nn
from minigrad.nn import functional as F
from tests.refusals import described
from tests.refusals.layers import given, made, x

LABELS = Tensor(np.array([0, 1]))
PAIRS = {
    "MSELoss": "mse_loss", "L1Loss": "l1_loss", "SmoothL1Loss": "smooth_l1_loss", "HuberLoss": "huber_loss",
    "BCELoss": "binary_cross_entropy", "BCEWithLogitsLoss": "binary_cross_entropy_with_logits", "KLDivLoss": "kl_div",
}  # fmt: skip
REDUCED = [*PAIRS, "CrossEntropyLoss", "NLLLoss", "TripletMarginLoss"]


def whole(*values):
    return Tensor(np.array(values))


def pairs():
    for name in REDUCED:
        for wrong in ("avg", None, 1):
            yield made(name, ValueError, f"reduction is {wrong!r}, wanted", reduction=wrong)
    for name, op in PAIRS.items():
        layer = getattr(nn, name)(reduction="sum")
        yield given(layer, TypeError, f"{op}: .*NoneType", x(2, 3), None)
        yield given(layer, TypeError, f"{op}: .*list", [0.5], x(1))
        yield given(layer, ValueError, f"{op}: ", x(2, 3), x(2, 4))
        yield given(layer, TypeError, f"{op}: .*int64", x(2, 3, dtype=np.int64), x(2, 3, dtype=np.int64))
    yield given(
        nn.BCELoss(), ValueError, "binary_cross_entropy: input has elements out of range.*0 to 1", 2 * x(3), x(3)
    )
    yield given(nn.BCELoss(), ValueError, "binary_cross_entropy: .*wanted equal shapes", x(3), x(3, 1))
    yield given(nn.SmoothL1Loss(beta=-1), ValueError, "smooth_l1_loss: beta is -1, wanted at least 0", x(3), x(3))
    yield given(nn.HuberLoss(delta=0), ValueError, "huber_loss: delta is 0", x(3), x(3))
    yield named("BCELoss", TypeError, "weight is a list, wanted a Tensor", nn.BCELoss, weight=[1.0])


def classes():
    ten = nn.CrossEntropyLoss()
    far = "cross_entropy: target[17] = 10, but there are 10 classes (0..9)"
    yield given(ten, ValueError, re.escape(far), x(20, 10), whole(*[0] * 17, 10, 0, 0))
    for name, op in (("CrossEntropyLoss", "cross_entropy"), ("NLLLoss", "nll_loss")):
        loss, shape = getattr(nn, name)(), rf"{op}: target has shape \(2, 1\), wanted \(2,\) for an input of shape"
        yield given(loss, ValueError, rf"{op}: target\[1\] = -1, but there are 3 classes", x(2, 3), whole(0, -1))
        yield given(loss, ValueError, rf"{op}: target\[0\] = 3, but there are 3 classes", x(2, 3), whole(3, 7))
        yield given(loss, ValueError, shape, x(2, 3), whole([0], [1]))
        yield given(loss, ValueError, f"{op}: target has shape .3,., wanted", x(2, 3), whole(0, 1, 2))
        yield given(loss, TypeError, f"{op}: target has elements float32, wanted integers", x(2, 3), x(2))
        yield given(loss, TypeError, f"{op}: target has elements bool, wanted integers", x(2, 3), whole(True, False))
        yield given(loss, TypeError, f"{op}: target is a list, wanted a Tensor", x(2, 3), [0, 1])
        yield given(loss, TypeError, f"{op}: input .*int64", x(2, 3, dtype=np.int64), LABELS)
        yield given(getattr(nn, name)(weight=x(4)), ValueError, f"{op}: weight has shape", x(2, 3), LABELS)
        yield made(name, TypeError, "ignore_index is None, wanted an integer", ignore_index=None)
    one_hot = (
        r"cross_entropy: target .*of a class for each; class probabilities are floating: one_hot\(...\).float\(\)$"
    )
    yield given(ten, ValueError, one_hot, x(2, 3), F.one_hot(LABELS, 3))
    for wrong in (2, float("nan")):
        smooth = nn.CrossEntropyLoss(label_smoothing=wrong)
        yield given(smooth, ValueError, f"cross_entropy: label_smoothing is {wrong}", x(2, 3), LABELS)


def distances():
    for layer in (nn.CosineSimilarity(), nn.PairwiseDistance()):
        yield given(layer, ValueError, "do not broadcast", x(2, 3), x(2, 4))
    yield given(nn.CosineSimilarity(), TypeError, "cosine_similarity: x1 is a list", [[1.0, 2.0]], x(1, 2))
    yield given(nn.CosineSimilarity(), TypeError, "cosine_similarity: x2 is a list", x(1, 2), [[1.0, 2.0]])
    yield given(nn.CosineSimilarity(dim=2), IndexError, "dim is 2", x(2, 3), x(2, 3))
    yield given(nn.PairwiseDistance(), TypeError, "pairwise_distance: x1 is a NoneType", None, x(2, 3))
    yield given(nn.TripletMarginLoss(), ValueError, "do not broadcast", x(2, 3), x(2, 3), x(2, 4))


def named(name, error, pattern, function, *args, **options):
    return f"{name}: {described(*args, **options)}", partial(function, *args, **options), error, pattern


def containers():
    row, layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.ModuleList([nn.Linear(2, 2)])
    names, weights = nn.ModuleDict({"a": nn.Linear(2, 2)}), nn.ParameterList([x(2)])
    yield named("Sequential", TypeError, "Sequential: 0 is a list, .* as in Sequential", nn.Sequential, [nn.ReLU()])
    yield named("Sequential", TypeError, "0 is the class ReLU, .*make one by ReLU", nn.Sequential, nn.ReLU)
    yield named("Sequential", TypeError, "Sequential: 1 is a Primitive", nn.Sequential, nn.ReLU(), F.relu)
    for held, count in ((row, 2), (layers, 1), (weights, 1)):
        name = type(held).__name__
        pop = f"index is {count}, but there are {count} layers"
        yield named(f"{name}[]", IndexError, f"{name}: {pop}", held.__getitem__, count)
        yield named(f"{name}[]", TypeError, f"{name}: index is 'a', wanted an integer", held.__getitem__, "a")
        yield named(f"{name}.append", TypeError, "is a int, wanted a", held.append, 3)
    yield named("Sequential.del", IndexError, "Sequential: index is -3", row.__delitem__, -3)
    yield named("ModuleList", TypeError, "ModuleList: 0 is a int, wanted a Module", nn.ModuleList, [3])
    yield named("ModuleDict", TypeError, "ModuleDict: a is the class ReLU", nn.ModuleDict, {"a": nn.ReLU})
    yield named("ModuleDict[]", KeyError, "ModuleDict: key is 'b', wanted one of", names.__getitem__, "b")
    yield named("ModuleDict[]=", TypeError, "ModuleDict: b is a float", names.__setitem__, "b", 1.0)
    yield named("ModuleDict[]=", ValueError, "the name of a part is 'a.b', wanted", names.__setitem__, "a.b", nn.ReLU())
    yield named("ParameterList", TypeError, "ParameterList: element 0 is a int", nn.ParameterList, [3])
    yield named("Parameter", TypeError, "requires_grad wants floating elements, got int64", nn.Parameter, [1, 2])
    yield named("Parameter", TypeError, "data is or holds None", nn.Parameter, None)


def modules():
    layer = nn.Linear(2, 2)
    yield named("Module.train", TypeError, "train: mode is 1, wanted True or False", layer.train, 1)
    yield named("Module.to", TypeError, "to: dtype is int64, wanted a floating one", layer.to, "int64")
    yield named("Module.to", TypeError, "dtype: got 3", layer.to, 3)
    yield named("Module.apply", TypeError, "apply: function is a int, wanted a function", layer.apply, 3)
    hook = "register_forward_hook: hook is a NoneType, wanted a function"
    yield named("Module.register_forward_hook", TypeError, hook, layer.register_forward_hook, None)
    parameter = "Linear: w is a Tensor, wanted a Parameter or None"
    yield named("Module.register_parameter", TypeError, parameter, layer.register_parameter, "w", x(2))
    taken = "Linear: the name 'weight' is an attribute already"
    yield named("Module.register_buffer", ValueError, taken, layer.register_buffer, "weight", x(2))
    yield named("Module.register_buffer", TypeError, "b is a list, wanted a Tensor", layer.register_buffer, "b", [1])
    yield named("Module.add_module", ValueError, "the name of a part is ''", layer.add_module, "", nn.ReLU())
    yield named("Module.add_module", TypeError, "Linear: a is a int", layer.add_module, "a", 3)
    yield named("Module.weight=", TypeError, "weight is a ndarray, wanted a Par", setattr, layer, "weight", np.ones(2))
    load = layer.load_state_dict
    yield named("Module.load_state_dict", ValueError, "load_state_dict: Linear does not fit: missing weight", load, {})
    yield named("Module.load_state_dict", TypeError, "state_dict is a int, wanted a dictionary", load, 3)
    wrong = {"weight": x(3, 3), "bias": x(2)}
    yield named("Module.load_state_dict", ValueError, r"weight has shape \(3, 3\), wanted \(2, 2\)", load, wrong)
    yield named("summary", TypeError, "summary: ", nn.summary, 3, (1, 2))
    yield named("summary", ValueError, "summary: input_shape .* does not fit", nn.summary, layer, (1, 3))


REFUSALS = [*pairs(), *classes(), *distances(), *containers(), *modules()]
