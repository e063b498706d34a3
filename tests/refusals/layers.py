"""What layers refuse: options when they are made, inputs that do not fit, parts and states that are none."""

import numpy as np

from minigrad import Tensor, models, nn
from tests.refusals import row


def x(*shape, dtype=np.float32):
    return Tensor(np.ones(shape, dtype))


MADE = [
    row(TypeError, "requires_grad wants floating elements, got int64", nn.Linear, 2, 3, dtype="int64"),
    row(TypeError, r"Conv2d: kernel_size is \(3, 3, 3\), wanted an integer or 2 of them", nn.Conv2d, 1, 1, (3, 3, 3)),
    row(ValueError, "out_channels is 6, wanted a multiple of groups=4", nn.Conv2d, 4, 6, 3, groups=4),
    row(ValueError, "BatchNorm2d: eps is -1", nn.BatchNorm2d, 3, eps=-1),
    row(ValueError, "num_groups is 4, wanted a divisor of 6 channels", nn.GroupNorm(4, 6), x(2, 6)),
    row(ValueError, "dropout: p is 1.5, wanted a number from 0 to 1", nn.Dropout(1.5), x(2)),
    row(ValueError, "unflatten: .*8", nn.MultiheadAttention(8, 3), x(2, 8), x(2, 8), x(2, 8)),
    row(TypeError, r"ZeroPad2d: padding is \(1, 2\), wanted an integer or 4 of them", nn.ZeroPad2d, (1, 2)),
]

CONV, LINEAR, TABLE, NORM = nn.Conv2d(4, 4, 3), nn.Linear(4, 3), nn.Embedding(4, 2), nn.BatchNorm2d(4)
FLAT = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3))
HEADS, WORDS = nn.MultiheadAttention(4, 2), x(3, 2, 4)
GIVEN = [
    row(ValueError, r"attn_mask has shape \(3, 2\), wanted one of", HEADS, WORDS, WORDS, WORDS, attn_mask=x(3, 2)),
    row(TypeError, "conv2d: input has elements uint8.*convert with", CONV, x(2, 4, 6, 6, dtype=np.uint8)),
    row(TypeError, "conv2d: .*float64; convert one, as by x.to", CONV, x(2, 4, 6, 6, dtype=np.float64)),
    row(TypeError, "conv2d: input is a ndarray, wanted a Tensor; wrap it", CONV, np.ones((2, 4, 6, 6))),
    row(ValueError, r"linear: input has 1352 features", FLAT, x(2, 1, 28, 28)),  # the size after flatten
    row(ValueError, r"x.permute\(0, 3, 1, 2\) brings them to the front", FLAT, x(2, 8, 8, 1)),
    row(ValueError, "BatchNorm2d: input has shape", NORM, x(4, 4)),
    row(ValueError, r"input has 3 channels \(shape \(2, 3, 6, 6\)\), running_mean is for 4", NORM, x(2, 3, 6, 6)),
    row(
        ValueError,
        r"has 2 .*\(2, 8, 8\), taken as one image.*, weight takes 1 \(",
        nn.Conv2d(1, 4, 3),
        x(2, 8, 8),
    ),
    row(ValueError, r"conv1d: input has 2 .*\(2, 8\), taken as one sequence.*, groups=1", nn.Conv1d(1, 4, 3), x(2, 8)),
    row(ValueError, "use larger batches, drop_last=True in the loader", NORM, x(1, 4, 1, 1)),
]

ROW, NAMES = nn.Sequential(nn.Linear(2, 2)), nn.ModuleDict({"a": nn.ReLU()})
PARTS = [
    row(TypeError, "Sequential: 0 is a list, .* as in Sequential", nn.Sequential, [nn.ReLU()]),
    row(KeyError, "ModuleDict: key is 'b', wanted one of", NAMES.__getitem__, "b"),
    row(ValueError, "the name of a part is 'a.b', wanted", NAMES.__setitem__, "a.b", nn.ReLU()),
    row(ValueError, "'keys' is an attribute already", NAMES.__setitem__, "keys", nn.ReLU()),
    row(ValueError, "the name 'weight' is an attribute already", LINEAR.register_buffer, "weight", x(2)),
    row(ValueError, r"build: shape is \(28, 28\), want \(C, H, W\)", models.build, "mlp", (28, 28)),
    row(ValueError, "'vgg', wanted 'digits-cnn' or ", models.build, "vgg", (1, 28, 28)),
]

REFUSALS = [*MADE, *GIVEN, *PARTS]
