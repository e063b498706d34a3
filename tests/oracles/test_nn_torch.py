"""Layers beside PyTorch's of the same name and arguments: values, gradients, state, text and first parameters."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn
from minigrad.core.tape import grad
from tests.ops.cases import Sample, classes, given, probabilities, real
from tests.oracles.beside_torch import close, torch
from tests.oracles.test_surface_torch import LAYERS

IMAGES, IMAGE, SEQUENCES, SEQUENCE = real(4, 6, 9, 8), real(6, 9, 8), real(4, 6, 11), real(6, 11)
NUMBERS, SHARES, WEIGHT = real(4, 3), probabilities(4, 3), np.array([0.5, 1.0, 2.0])
WORDS, OTHERS = real(5, 3, 8), real(4, 3, 8)  # (L, N, E)


def layer(name, *args, of=IMAGES, **kwargs):
    """A row: the name of a layer, its arguments, and its inputs; an array among the arguments becomes a Tensor."""
    return name, args, kwargs, of if isinstance(of, tuple) else (of,)


def loss(name, *args, of=(NUMBERS, NUMBERS), **kwargs):
    """Of its function: tests/oracles/test_ops_torch.py."""
    return layer(name, *args, of=of, **kwargs)


ROWS = [  # the first of a name is fast
    layer("Identity", 1, any=3),
    layer("Flatten"),
    layer("Unflatten", 1, (2, 3)),
    *(layer(name) for name in "ReLU LeakyReLU ELU Hardtanh ReLU6 LogSigmoid SiLU Sigmoid Tanh".split()),
    layer("GELU", "tanh"),
    layer("Softplus", 2.0, 1.5),
    layer("Softmax", 1),
    layer("LogSoftmax", -1, of=real(5, 7)),
    layer("Dropout", 0.0),
    layer("Dropout1d", 0.0, of=SEQUENCES),
    layer("Dropout2d", 0.0, True),
    layer("Linear", 7, 5, False, of=real(3, 7)),
    layer("Embedding", 7, 3, padding_idx=2, of=classes(7, 4, 5)),
    layer("Conv2d", 6, 9, 3, groups=3, padding=2, dilation=2),
    layer("Conv2d", 6, 4, (3, 2), (2, 1), (1, 2), of=IMAGE),
    layer("Conv2d", 6, 4, 3, 2, (2, 1)),
    layer("Conv2d", 6, 4, (4, 3), padding="same"),
    layer("Conv1d", 6, 4, (3,), (2,), (1,), (2,), groups=2, of=SEQUENCES),
    layer("ConvTranspose2d", 6, 4, (3, 2), (2, 3), (1, 0), (1, 2)),
    layer("ConvTranspose1d", 6, 4, 3, 2, 1, 1, groups=2, dilation=2, of=SEQUENCE),
    layer("MaxPool2d", 3, 2, 1, ceil_mode=True),
    layer("MaxPool1d", 3, 2, 1, dilation=2, ceil_mode=True, of=SEQUENCES),
    layer("AvgPool2d", 3, 2, 1, True, False),
    layer("AvgPool1d", 3, 2, 1, True, False, of=SEQUENCES),
    layer("AdaptiveAvgPool2d", (4, None)),
    layer("BatchNorm2d", 6),
    layer("BatchNorm2d", 6, 1e-3, None),
    layer("BatchNorm1d", 6, 1e-3, None, False, of=real(5, 6)),
    layer("LayerNorm", (9, 8), 1e-3),
    layer("GroupNorm", 2, 6),
    layer("InstanceNorm2d", 6, affine=True),
    layer("InstanceNorm1d", 6, affine=True, of=SEQUENCES),
    layer("Upsample", scale_factor=1.7, mode="bilinear"),
    layer("Upsample", 15, mode="linear", align_corners=True, of=SEQUENCES),
    layer("ConstantPad1d", 2, 3.5, of=SEQUENCES),
    layer("ConstantPad2d", (1, 2, 3, 0), -1.0),
    layer("ZeroPad1d", 2, of=SEQUENCE),
    layer("ZeroPad2d", (1, -1, 2, 0), of=IMAGE),
    *(layer(f"{mode}Pad1d", (2, 1), of=SEQUENCES) for mode in ("Reflection", "Replication", "Circular")),
    *(layer(f"{mode}Pad2d", (2, 1, 0, 3), of=IMAGE) for mode in ("Reflection", "Replication", "Circular")),
    layer("MultiheadAttention", 8, 2, of=(WORDS, OTHERS, OTHERS)),
    layer("MultiheadAttention", 8, 4, bias=False, batch_first=True, of=(WORDS, real(5, 4, 8), real(5, 4, 8))),
    *(layer(f"{name}Cell", 8, 6, of=real(5, 8)) for name in ("RNN", "GRU")),
    layer("LSTMCell", 8, 6, False, of=(real(5, 8), [real(5, 6), real(5, 6)])),
    layer("RNNCell", 8, 6, True, "relu", of=(real(5, 8), real(5, 6))),
    layer("RNN", 8, 6, 1, "relu", of=(WORDS, real(1, 3, 6))),
    layer("LSTM", 8, 6, 2, batch_first=True, bidirectional=True, of=(WORDS, [real(4, 5, 6), real(4, 5, 6)])),
    layer("GRU", 8, 6, 2, False, of=(WORDS, real(2, 3, 6))),
    *(layer(name, 8, 6, of=WORDS) for name in ("RNN", "LSTM", "GRU")),
    layer("TransformerEncoderLayer", 8, 2, 16, 0.0, of=WORDS),
    layer("TransformerEncoderLayer", 8, 2, 16, 0.0, "gelu", 1e-3, True, True, False, of=WORDS),
    *(loss(name) for name in ("MSELoss", "L1Loss")),
    loss("SmoothL1Loss", beta=0.4, reduction="none"),
    loss("HuberLoss", delta=0.4),
    loss("BCELoss", weight=WEIGHT, of=(SHARES, SHARES)),
    loss("BCEWithLogitsLoss", weight=WEIGHT, pos_weight=WEIGHT, of=(NUMBERS, SHARES)),
    loss("KLDivLoss", log_target=True, reduction="batchmean"),
    *(
        loss(f"{n}Loss", weight=WEIGHT, ignore_index=1, of=(NUMBERS, given(1, 0, 2, 2)))
        for n in ("CrossEntropy", "NLL")
    ),
    loss("CrossEntropyLoss", label_smoothing=0.2, of=(real(4, 3, 2), classes(3, 4, 2))),
    loss("TripletMarginLoss", 2.0, 1, 1e-3, True, of=(NUMBERS, NUMBERS, NUMBERS)),
    loss("CosineSimilarity", -1, 1e-4),
    loss("PairwiseDistance", 1.5, 1e-3, True),
]
NAMES = [name for name, *_ in ROWS]
PARAMS = [
    pytest.param(*one, id=f"{i}-{one[0]}", marks=[pytest.mark.deep] * (NAMES.index(one[0]) < i))
    for i, one in enumerate(ROWS)
]


def pair_of_layers(name, args, kwargs):
    """Our layer and PyTorch's in float64, with PyTorch's parameters."""
    torch.manual_seed(0)
    mine, its = (
        {key: make(one) if isinstance(one, np.ndarray) else one for key, one in kwargs.items()}
        for make in (Tensor, torch.tensor)
    )
    theirs = getattr(torch.nn, name)(*args, **its).double()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # so that weights of BatchNorm2d differ from 1
    ours = getattr(nn, name)(*args, **mine).double()
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    return ours, theirs


def flat(value):
    """Tensors in nested sequences."""
    return [one for part in value for one in flat(part)] if isinstance(value, tuple | list) else [value]


def called(layer, inputs, grad, make):
    """{what: numbers} of a call: results, and the gradients of inputs and parameters by weights of the results."""
    results = flat(layer(*(tuple(x) if isinstance(x, list) else x for x in inputs)))
    leaves = {f"input {i}": x for i, x in enumerate(flat(inputs))} | dict(layer.named_parameters())
    leaves = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    rng = np.random.default_rng(1)
    weights = [make(rng.standard_normal(tuple(x.shape))) for x in results]
    gradients = zip(leaves, grad(results, list(leaves.values()), weights), strict=True)
    return {f"result {i}": x for i, x in enumerate(results)} | {f"gradient of {name}": g for name, g in gradients}


# PyTorch shows numbers of AvgPool1d as tuples and groups last, and names a class of its own for out_proj.
OTHER_TEXT = ("AvgPool1d", "ConvTranspose1d", "MultiheadAttention", "TransformerEncoderLayer")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name, args, kwargs, inputs", PARAMS)
def test_layer(name, args, kwargs, inputs):
    """Twice in training, as running statistics of one call show in the next, and once in use."""
    ours, theirs = pair_of_layers(name, args, kwargs)
    if name not in OTHER_TEXT:
        assert repr(ours).replace("'", "") == repr(theirs).replace("'", "")
    for seed in range(3):
        ours.train(seed < 2), theirs.train(seed < 2)
        mine, _ = Sample(inputs).draw(Tensor, seed=seed)
        its, _ = Sample(inputs).draw(lambda array, wants: torch.tensor(array, requires_grad=wants), seed=seed)
        found = called(ours, mine, grad, Tensor)
        wanted = called(theirs, its, torch.autograd.grad, torch.tensor)
        assert list(found) == list(wanted)
        for what, one in wanted.items():
            close(found[what], one, what=what)
    state, wanted = ours.state_dict(), theirs.state_dict()
    assert list(state) == list(wanted)
    for key, value in wanted.items():
        close(state[key], value, what=key)


def test_every_layer_has_a_row():
    assert {*NAMES} == {name for name in LAYERS if not name.startswith("Lazy")}


EARLIER = np.triu(np.ones((5, 5), bool), 1)
PADDED = np.array([[False] * 5, [False, False, False, True, True], [False, True, False, False, True]])
FLOATS = np.random.default_rng(0).standard_normal((6, 5, 5))
MASKS = [(EARLIER, None), (EARLIER, PADDED), (FLOATS[0], None), (FLOATS, np.where(PADDED, -np.inf, 0.0))]


@pytest.mark.filterwarnings("ignore:Support for mismatched:UserWarning")
@pytest.mark.parametrize("batch_first", [False, True])
def test_masks_of_attention(batch_first):
    """attn_mask and key_padding_mask in attention and in a layer of a transformer; is_causal is the earlier's mask."""
    attention = pair_of_layers("MultiheadAttention", (8, 2), {"batch_first": batch_first})
    block = pair_of_layers("TransformerEncoderLayer", (8, 2, 16, 0.0), {"batch_first": batch_first})
    x = np.random.default_rng(1).standard_normal((3, 5, 8) if batch_first else (5, 3, 8))
    for masks in MASKS:
        results = []
        for side, make in enumerate((Tensor, torch.tensor)):
            first, second = (None if mask is None else make(mask) for mask in masks)
            options, y = {"attn_mask": first, "key_padding_mask": second}, make(x)
            assert attention[side](y, y, y, need_weights=False, **options)[1] is None
            results.append((*attention[side](y, y, y, need_weights=True, **options), block[side](y, first, second)))
        for mine, wanted, name in zip(*results, ("attention", "weights", "layer"), strict=True):
            close(mine, wanted, what=name)
    causal = block[1](torch.tensor(x), torch.tensor(EARLIER), is_causal=True)
    close(block[0](Tensor(x), is_causal=True), causal, what="causal")


def nested(library):
    block = library.Sequential(library.Conv2d(1, 2, 3, padding="same", bias=False), library.BatchNorm2d(2))
    layers = [library.ReLU(True), library.Sequential(library.Linear(2, 3), library.Tanh())] * 2
    return library.ModuleDict({"list": library.ModuleList([block, *layers]), "none": library.ModuleDict()})


def test_containers():
    ours, theirs = nested(nn), nested(torch.nn)
    assert repr(ours).replace("'", "") == repr(theirs)
    assert list(ours.state_dict("net.")) == list(theirs.state_dict(prefix="net."))
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in ours.state_dict().items()})


DRAWN = {
    "Linear": (300, 200),
    "Conv2d": (30, 300, (3, 5)),
    "ConvTranspose2d": (40, 300, (3, 5)),
    "Embedding": (400, 100),
    "TransformerEncoderLayer": (64, 4, 128),
    "LSTM": (60, 40),
}


@pytest.mark.parametrize("name", DRAWN)
def test_first_parameters_are_drawn_alike(name):
    torch.manual_seed(0), minigrad.manual_seed(0)
    ours, theirs = (getattr(library, name)(*DRAWN[name]) for library in (nn, torch.nn))
    for (key, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        a, b = np.asarray(a.detach()), b.detach().numpy()
        tolerance = (0.1 if b.size < 1000 or name == "Embedding" else 0.02) * max(np.abs(b).max(), np.abs(a).max())
        assert a.dtype == b.dtype and abs(a.std() - b.std()) <= tolerance, key
        assert abs(np.abs(a).max() - np.abs(b).max()) <= tolerance, key


def test_gain():
    for call in [(name,) for name in ("linear", "conv2d", "sigmoid", "tanh", "relu", "selu")] + [("leaky_relu", 0.3)]:
        assert nn.init.calculate_gain(*call) == pytest.approx(torch.nn.init.calculate_gain(*call), rel=1e-15)
