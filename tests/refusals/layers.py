"""What layers refuse: options when they are made, inputs that do not fit, parts and states that are none."""

import numpy as np

from minigrad import Tensor, nn
from minigrad.nn import functional as F
from tests.refusals import row


def x(*shape, dtype=np.float32):
    return Tensor(np.ones(shape, dtype))


def whole(*values):
    return Tensor(np.array(values))


MADE = [
    row(TypeError, "Linear: in_features is 2.0, wanted an integer", nn.Linear, 2.0, 3),
    row(ValueError, "Linear: out_features is -1, wanted at least 0", nn.Linear, 2, -1),
    row(TypeError, "Linear: dtype is int64, wanted a floating one", nn.Linear, 2, 3, dtype="int64"),
    row(TypeError, "Linear: bias is 'no', wanted True or False", nn.Linear, 2, 3, "no"),
    row(RuntimeError, "device is 'cuda:9'", nn.Linear, 2, 3, device="cuda:9"),
    row(ValueError, "Conv2d: in_channels is 0", nn.Conv2d, 0, 1, 3),
    row(ValueError, "Conv2d: kernel_size is 0", nn.Conv2d, 1, 1, 0),
    row(TypeError, r"Conv2d: kernel_size is \(3, 3, 3\), wanted an integer or 2 of them", nn.Conv2d, 1, 1, (3, 3, 3)),
    row(TypeError, r"Conv1d: kernel_size is \(3, 3\), wanted an integer or 1 of them", nn.Conv1d, 1, 1, (3, 3)),
    row(ValueError, "Conv2d: stride is 0", nn.Conv2d, 1, 1, 3, stride=0),
    row(ValueError, "Conv2d: padding is 'some', wanted 'valid' or 'same'", nn.Conv2d, 1, 1, 3, padding="some"),
    row(ValueError, r"padding is 'same' and stride \(2, 2\), wanted stride 1", nn.Conv2d, 1, 1, 3, 2, "same"),
    row(ValueError, "out_channels is 6, wanted a multiple of groups=4", nn.Conv2d, 4, 6, 3, groups=4),
    row(ValueError, "Conv2d: padding_mode is 'mirror'", nn.Conv2d, 1, 1, 3, padding_mode="mirror"),
    row(TypeError, "ConvTranspose2d: padding is 'same', wanted an", nn.ConvTranspose2d, 1, 1, 3, padding="same"),
    row(TypeError, "MaxPool2d: ceil_mode is 'up', wanted True or False", nn.MaxPool2d, 2, ceil_mode="up"),
    row(ValueError, "BatchNorm2d: eps is -1", nn.BatchNorm2d, 3, eps=-1),
    row(ValueError, "BatchNorm1d: momentum is 2.0, wanted a number from 0 to 1", nn.BatchNorm1d, 3, momentum=2.0),
    row(ValueError, "InstanceNorm1d: num_features is 0", nn.InstanceNorm1d, 0),
    row(ValueError, "LayerNorm: normalized_shape is -1", nn.LayerNorm, (3, -1)),
    row(ValueError, "num_channels is 6, wanted a multiple of num_groups=4", nn.GroupNorm, 4, 6),
    row(ValueError, "Dropout: p is 1.5, wanted a number from 0 to 1", nn.Dropout, 1.5),
    row(TypeError, "Softmax: dim is '1', wanted an integer", nn.Softmax, "1"),
    row(ValueError, "GELU: approximate is 'fast', wanted 'none' or 'tanh'", nn.GELU, "fast"),
    row(TypeError, "LeakyReLU: negative_slope is '0.1'", nn.LeakyReLU, "0.1"),
    row(ValueError, "Embedding: padding_idx is 3, wanted one of 3 rows", nn.Embedding, 3, 2, 3),
    row(ValueError, "embed_dim is 8, wanted a multiple of num_heads=3", nn.MultiheadAttention, 8, 3),
    row(TypeError, "activation is a str, wanted a f", nn.TransformerEncoderLayer, 4, 2, activation="mish"),
    row(ValueError, r"Embedding: embeddings has shape \(3,\)", nn.Embedding.from_pretrained, x(3)),
    row(TypeError, r"ZeroPad2d: padding is \(1, 2\), wanted an integer or 4 of them", nn.ZeroPad2d, (1, 2)),
    row(TypeError, "Flatten: start_dim is 1.0, wanted an integer", nn.Flatten, 1.0),
    row(ValueError, "CrossEntropyLoss: reduction is 'max'", nn.CrossEntropyLoss, reduction="max"),
    row(TypeError, "CrossEntropyLoss: weight is a list, wanted a Tensor", nn.CrossEntropyLoss, weight=[1.0, 2.0]),
    row(TypeError, "CrossEntropyLoss: ignore_index is None", nn.CrossEntropyLoss, ignore_index=None),
]

CONV, LINEAR, TABLE, NORM = nn.Conv2d(4, 4, 3), nn.Linear(4, 3), nn.Embedding(4, 2), nn.BatchNorm2d(4)
CLASSES, FLAT = nn.CrossEntropyLoss(), nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3))
HEADS, WORDS = nn.MultiheadAttention(4, 2), x(3, 2, 4)
GIVEN = [
    row(ValueError, r"attn_mask has shape \(3, 2\), wanted one of", HEADS, WORDS, WORDS, WORDS, attn_mask=x(3, 2)),
    row(ValueError, r"key_padding_mask has shape \(3, 2\)", HEADS, WORDS, WORDS, WORDS, key_padding_mask=x(3, 2)),
    row(TypeError, "query has elements int64", F.scaled_dot_product_attention, *[whole([1, 2], [3, 4])] * 3),
    row(ValueError, "conv2d: x has 3 channels", CONV, x(2, 3, 6, 6)),
    row(TypeError, "conv2d: input has elements uint8.*convert with", CONV, x(2, 4, 6, 6, dtype=np.uint8)),
    row(TypeError, "conv2d: .*float64; convert one, as by x.to", CONV, x(2, 4, 6, 6, dtype=np.float64)),
    row(TypeError, "conv2d: input is a ndarray, wanted a Tensor; wrap it", CONV, np.ones((2, 4, 6, 6))),
    row(ValueError, r"linear: input has 5 features \(shape \(2, 5\)\), weight expects 4", LINEAR, x(2, 5)),
    row(TypeError, "linear: .*float64.*as by input.to", LINEAR, x(2, 4, dtype=np.float64)),
    row(IndexError, "embedding: the indices run from 4 to 4, wanted 0 to 3", TABLE, whole(4)),
    row(TypeError, "embedding: the indices have elements float32, wanted integers", TABLE, x(2)),
    row(ValueError, r"linear: input has 1352 features", FLAT, x(2, 1, 28, 28)),  # the size after flatten
    row(ValueError, r"x.permute\(0, 3, 1, 2\) brings them to the front", FLAT, x(2, 8, 8, 1)),
    row(ValueError, r"wanted \(..., C\) and \(O, C\)", F.linear, x(2, 3), x(1, 3, 3)),
    row(ValueError, "max_pool2d: .*too small", nn.MaxPool2d(3), x(1, 3, 2, 2)),
    row(ValueError, "BatchNorm2d: input has shape", NORM, x(4, 4)),
    row(ValueError, "running_mean has shape .4,., wanted .3,.", NORM, x(2, 3, 6, 6)),
    row(ValueError, "use larger batches, drop_last=True in the loader", NORM, x(1, 4, 1, 1)),
    row(ValueError, r"layer_norm: normalized_shape is \(4,\), wanted the last", nn.LayerNorm(4), x(2, 3)),
    row(ValueError, "group_norm: ", nn.GroupNorm(2, 4), x(2, 3, 5)),
    row(TypeError, "relu: .* a list, wanted", nn.ReLU(), [1.0]),
    row(ValueError, "dropout2d: input has shape", nn.Dropout2d(), x(2, 3)),
    row(ValueError, "pad: pad .* wanted widths", nn.ReflectionPad2d(5), x(1, 1, 3, 3)),
    row(ValueError, "unflatten: ", nn.Unflatten(1, (2, 3)), x(2, 5)),
    row(ValueError, "interpolate: mode is 'cubic', wanted 'nearest' or", nn.Upsample(2, mode="cubic"), x(1, 1, 4, 4)),
    row(ValueError, "mse_loss: ", nn.MSELoss(), x(2, 3), x(2, 4)),
    row(ValueError, "input has elements out of range.*0 to 1", nn.BCELoss(), 2 * x(3), x(3)),
    row(ValueError, "huber_loss: delta is 0", nn.HuberLoss(delta=0), x(3), x(3)),
    row(ValueError, r"target\[2\] = 10, but there are 10 classes \(0..9\)", CLASSES, x(3, 10), whole(0, 1, 10)),
    row(ValueError, r"target has shape \(2, 1\), wanted \(2,\) for an", CLASSES, x(2, 3), whole([0], [1])),
    row(ValueError, r"probabilities are floating: one_hot", CLASSES, x(2, 3), F.one_hot(whole(0, 1), 3)),
    row(ValueError, "do not broadcast", nn.TripletMarginLoss(), x(2, 3), x(2, 3), x(2, 4)),
]

ROW, NAMES, WEIGHTS = nn.Sequential(nn.Linear(2, 2)), nn.ModuleDict({"a": nn.ReLU()}), nn.ParameterList([x(2)])
PARTS = [
    row(TypeError, "Sequential: 0 is a list, .* as in Sequential", nn.Sequential, [nn.ReLU()]),
    row(TypeError, "0 is the class ReLU, .*make one by ReLU", nn.Sequential, nn.ReLU),
    row(TypeError, "Sequential: 1 is a Primitive", nn.Sequential, nn.ReLU(), F.relu),
    row(IndexError, "Sequential: index is 1, but there are 1 layers", ROW.__getitem__, 1),
    row(TypeError, "is a int, wanted a", ROW.append, 3),
    row(TypeError, "ModuleList: 0 is a int, wanted a Module", nn.ModuleList, [3]),
    row(KeyError, "ModuleDict: key is 'b', wanted one of", NAMES.__getitem__, "b"),
    row(ValueError, "the name of a part is 'a.b', wanted", NAMES.__setitem__, "a.b", nn.ReLU()),
    row(ValueError, "'keys' is an attribute already", NAMES.__setitem__, "keys", nn.ReLU()),
    row(TypeError, "ParameterList: element 0 is a int", nn.ParameterList, [3]),
    row(IndexError, "ParameterList: index is 1", WEIGHTS.__getitem__, 1),
    row(TypeError, "requires_grad wants floating elements, got int64", nn.Parameter, [1, 2]),
    row(TypeError, "train: mode is 1, wanted True or False", LINEAR.train, 1),
    row(TypeError, "to: dtype is int64, wanted a floating one", LINEAR.to, "int64"),
    row(RuntimeError, "device is 'cuda:77', but", LINEAR.to, "cuda:77"),
    row(TypeError, "register_forward_hook: hook is a NoneType, wanted a func", LINEAR.register_forward_hook, None),
    row(TypeError, "Linear: w is a Tensor, wanted a Parameter", LINEAR.register_parameter, "w", x(2)),
    row(ValueError, "the name 'weight' is an attribute already", LINEAR.register_buffer, "weight", x(2)),
    row(ValueError, "the name of a part is ''", LINEAR.add_module, "", nn.ReLU()),
    row(TypeError, "weight is a ndarray, wanted a Par", setattr, LINEAR, "weight", np.ones(2)),
    row(ValueError, "load_state_dict: Linear does not fit: missing weight", LINEAR.load_state_dict, {}),
    row(TypeError, "state_dict is a NoneType, wanted a dictionary", LINEAR.load_state_dict, None),
    row(TypeError, "summary: model is <class", nn.summary, nn.ReLU, (1, 3)),
    row(TypeError, "summary: input_shape is 2.5, wanted an integer", nn.summary, nn.ReLU(), 2.5),
]

REFUSALS = [*MADE, *GIVEN, *PARTS]
