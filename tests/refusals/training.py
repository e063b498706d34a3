"""What refuses around a training: data, loaders, optimisers, schedules, fit and evaluate, drawings."""

import numpy as np

import minigrad
from minigrad import Tensor, data, draw, nn, optim, profile, train
from minigrad.amp import GradScaler
from minigrad.data import Dataset, Flip, Loader, Normalize
from minigrad.export import export_onnx
from minigrad.optim import lr_scheduler as schedules
from minigrad.parallel import ShardSampler
from minigrad.train import History, confusion_matrix
from tests.refusals import row

# ---- data ------------------------------------------------------------------------------------------------------------

IMAGES, LABELS = np.zeros((6, 1, 4, 4), np.uint8), np.arange(6) % 3
DATA = Dataset(IMAGES, LABELS, tuple("abc"))


def loader(**options):
    return Loader(**{"dataset": DATA, "batch_size": 2} | options)


SETS = [
    row(TypeError, "images are float64, wanted uint8, pixels 0..255", Dataset, IMAGES / 255, LABELS, "abc"),
    row(TypeError, r"int64, .* 0..255: x.astype\('uint8'\)$", Dataset, IMAGES.astype("int64"), LABELS, "abc"),
    row(ValueError, r"images have shape \(6, 16\), wanted", Dataset, IMAGES.reshape(6, 16), LABELS, "abc"),
    row(ValueError, r"labels\[2\] = 2, but there are 2 classes \(0..1\)", Dataset, IMAGES, LABELS, "ab"),
    row(ValueError, "mean has 2 numbers, wanted 1, one a", Dataset, IMAGES, LABELS, "abc", "", "", (0.1, 0.2)),
    row(TypeError, "transform is called with .images, generator.: too", loader, transform=lambda images: images),
    row(TypeError, r"transform is the class Flip, wanted a function or Flip\(\.", loader, transform=Flip),
    row(ValueError, "batch_size is 0, wanted at least 1", loader, batch_size=0),
    row(ValueError, r"Normalize: std is \(0.0,\), wanted numbers a", Normalize, (0,), (0,)),
    row(ValueError, "Flip: p is 1.5, wanted a number from 0 to 1", Flip, 1.5),
    row(ValueError, "digits: split is 'test', wanted 'random' or 'writer", data.digits, "test"),
    row(ValueError, "shards is 3, wanted a multiple of the 2", ShardSampler, 3, 0, 2),
]

# ---- optimisers, clipping, loss scaling ------------------------------------------------------------------------------

KINDS = optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.Adagrad


def weights(count=2):
    found = [nn.Parameter(np.arange(3.0)) for _ in range(count)]
    for parameter in found:
        parameter.grad = Tensor(np.ones(3))
    return found


SHARED, NANS = weights(1), weights()
NANS[0].grad = Tensor(np.full(3, np.nan))
OPTIMIZERS = [
    *(row(ValueError, "lr is -0.1, wanted at least 0", kind, weights(), lr=-0.1) for kind in KINDS),
    *(row(TypeError, "weight_decay is 'no', wanted a n", kind, weights(), 0.1, weight_decay="no") for kind in KINDS),
    row(ValueError, "momentum is 0, dampening 0; nesterov wants above 0", optim.SGD, weights(), 0.1, nesterov=True),
    row(ValueError, r"Muon: params\[0\] has shape \(3,\), wanted a matrix", optim.Muon, weights()),
    row(TypeError, r"SGD: params is a Linear, wanted Tensors; give model.parameters\(\)", optim.SGD, nn.Linear(2, 2)),
    row(TypeError, "SGD: params is a method, wanted Tensors; give", optim.SGD, nn.Linear(2, 2).parameters),
    row(TypeError, "clip_grad_norm_: parameters is a Linear, wanted", optim.clip_grad_norm_, nn.Linear(2, 2), 1.0),
    row(
        TypeError,
        r"Adam: got the options \['momentum'\], wanted some of \['am",
        optim.Adam,
        weights(),
        momentum=1,
    ),
    row(ValueError, "params is empty, wanted at least one parameter", optim.SGD, []),
    row(RuntimeError, r"params\[0\] was made by mul, wanted a leaf; use .detach", optim.SGD, [weights()[0] * 2]),
    row(TypeError, r"params\[0\] has elements int64, wanted floating", optim.SGD, [Tensor([1, 2])]),
    row(ValueError, r"params\[1\] \(shape \(3,\)\) is there twice", optim.SGD, SHARED * 2),
    row(ValueError, r"options \['learning_rate'\]", optim.SGD, [{"params": weights(), "learning_rate": 1}]),
    row(ValueError, "max_norm is -1.0, wanted at least 0", optim.clip_grad_norm_, weights(), -1.0),
    row(RuntimeError, "the gradients is nan", optim.clip_grad_norm_, NANS, 1.0, error_if_nonfinite=True),
    row(ValueError, r"GradScaler: .*are \[0.0, 2.0, 0.5\], wanted", GradScaler, init_scale=0),
    row(RuntimeError, "update: no gradients were checked since the last update", GradScaler().update),
    row(ValueError, r"got \['scale'\], wanted \['_growth_tracker'", GradScaler().load_state_dict, {"scale": 1}),
]

# ---- schedules -------------------------------------------------------------------------------------------------------


def sgd():
    return optim.SGD(weights(), lr=0.1)


def ended():
    schedule = schedules.OneCycleLR(sgd(), 0.1, 2)
    schedule.step(), schedule.step()
    return schedule


OTHER = [schedules.StepLR(sgd(), 2)]
SCHEDULES = [
    row(ValueError, "StepLR: .*step_size is 0, wanted at least 1", schedules.StepLR, sgd(), 0),
    row(ValueError, "T_max is 0, wanted at least 1", schedules.CosineAnnealingLR, sgd(), 0),
    row(ValueError, "lr_lambda has 2 values, wanted one for each of 1 groups", schedules.LambdaLR, sgd(), [abs, abs]),
    row(ValueError, "factor is 1.0, wanted at least 0 and below 1", schedules.ReduceLROnPlateau, sgd(), "min", 1.0),
    row(TypeError, "StepLR: optimizer is a int, wanted an Optimizer", schedules.StepLR, 5, 2),
    row(ValueError, r"milestones \[3, 1\], wanted -1 in", schedules.SequentialLR, sgd(), [], [3, 1]),
    row(TypeError, r"schedulers\[0\] is a StepLR, wanted a schedule of this", schedules.SequentialLR, sgd(), OTHER, []),
    row(ValueError, r"got \{\}, wanted such as", OTHER[0].load_state_dict, {}),
    row(RuntimeError, "step 3 of 2; make it with more total_steps", ended().step),
]

# ---- fit, evaluate, predict ------------------------------------------------------------------------------------------


def model():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


def fit(network=None, batches=None, optimizer=None, epochs=1, **options):
    """fit whose parts are good but for those that are given."""
    network = model() if network is None else network
    optimizer = optim.SGD(network.parameters(), 0.1) if optimizer is None else optimizer
    return train.fit(network, Loader(DATA, 3) if batches is None else batches, optimizer, epochs, **options)


PIXELS, ENDED, HISTORY = minigrad.zeros(2, 16), profile.Profile(), History([{"loss": 1.0}])
TWO = minigrad.tensor([0, 1])
OTHERS = optim.SGD(model().parameters(), 0.1)
FIT = [
    row(TypeError, "fit: loader is a Dataset, wanted batches: data.Loader", fit, batches=DATA),
    row(ValueError, "fit: epochs is 0, wanted at least 1", fit, epochs=0),
    row(ValueError, "fit: optimizer has no parameter of the model, wanted", fit, optimizer=OTHERS),
    row(TypeError, "fit: loss is the class CrossEntropyLoss, wanted a", fit, loss=nn.CrossEntropyLoss),
    row(TypeError, "fit: callbacks is a Progress, wanted a list", fit, callbacks=train.Progress(6, 1)),
    row(TypeError, "export_onnx: model is <function .*>, wanted an instance", export_onnx, model, "m", (1, 16)),
    row(ValueError, "fit: clip is 0, wanted at least", fit, clip=0),
    row(ValueError, "fit: precision is 'half', wanted 'float32' or 'tf32' or", fit, precision="half"),
    row(ValueError, "fit: schedule belongs to another optimiser", fit, schedule=schedules.StepLR(OTHERS, 2)),
    row(ValueError, "fit: loss gave 0.5, wanted a Tensor of one", fit, loss=lambda scores, labels: 0.5),
    row(ValueError, "fit: loader has no images in epoch 1", fit, batches=[]),
    row(TypeError, r"is ndarray\(2, 4\), ndarray\(2,\), wanted a pair", fit, batches=[(np.zeros((2, 4)), np.zeros(2))]),
    row(ValueError, "wanted .* at least one", fit, batches=[(PIXELS[:0], minigrad.zeros(0, dtype="int64"))]),
    row(ValueError, r"target\[1\] = 3, but there are 3 classes", fit, batches=[(PIXELS, minigrad.tensor([0, 3]))]),
    row(ValueError, "confusion_matrix: classes is 0, wanted at least 1", confusion_matrix, TWO, TWO, 0),
    row(ValueError, "confusion_matrix: got array.*wanted two of shape", confusion_matrix, TWO, TWO[:1], 2),
    row(ValueError, "quantity is 'speed', wanted 'loss' o", draw.learning_curve, HISTORY, None, "speed"),
    row(RuntimeError, "Profile: it has not ended yet; ask aft", ENDED.table),
]

# ---- drawings --------------------------------------------------------------------------------------------------------

DRAWN = [
    row(ValueError, r"weight has shape \(3, 3\), wanted \(O, C, p, q\)", draw.filters, np.ones((3, 3))),
    row(ValueError, r"wanted \(C, H, W\)", draw.feature_maps, np.ones((1, 2, 3, 3))),
    row(TypeError, "graph: ", draw.graph, [1.0]),
]

REFUSALS = [*SETS, *OPTIMIZERS, *SCHEDULES, *FIT, *DRAWN]
