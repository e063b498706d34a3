"""What the package promises to have, name by name, and how much of it the tables of rows cover."""

import inspect

import pytest

from minigrad import Tensor, nn, ops, optim
from tests.op_cases import all_ops

OPS = """
add sub mul div pow neg abs exp log log1p expm1 sqrt rsqrt sin cos tanh erf sigmoid relu leaky_relu elu gelu silu
softplus clamp maximum minimum where masked_fill sign square reciprocal eq ne lt le gt ge
sum mean var std max min amax amin prod logsumexp argmax argmin cumsum cumprod norm
reshape view flatten squeeze unsqueeze transpose permute expand cat stack split chunk tile repeat flip roll pad getitem
gather scatter_add index_select one_hot embedding tril triu
matmul linear mm bmm einsum
conv1d conv2d conv_transpose2d max_pool2d avg_pool2d adaptive_avg_pool2d batch_norm layer_norm group_norm instance_norm
dropout interpolate
cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits kl_div softmax
log_softmax
""".split()
METHODS = """
add sub mul div pow neg abs exp log log1p expm1 sqrt rsqrt sin cos tanh erf sigmoid relu clamp maximum minimum where
masked_fill sign square reciprocal eq ne lt le gt ge sum mean var std max min amax amin prod logsumexp argmax argmin
cumsum cumprod norm
reshape view flatten squeeze unsqueeze transpose permute expand split chunk tile repeat flip roll gather
scatter_add index_select tril triu matmul mm bmm softmax log_softmax
""".split()
MODULES = """
Module Sequential ModuleList Identity Flatten Linear Embedding Conv1d Conv2d ConvTranspose2d MaxPool2d AvgPool2d
AdaptiveAvgPool2d BatchNorm1d BatchNorm2d LayerNorm GroupNorm InstanceNorm2d Dropout Upsample ReLU LeakyReLU ELU
GELU SiLU Softplus Sigmoid Tanh Softmax LogSoftmax CrossEntropyLoss NLLLoss MSELoss L1Loss SmoothL1Loss HuberLoss
BCEWithLogitsLoss KLDivLoss
""".split()
OPTIMIZERS = "SGD Adam AdamW RMSprop Adagrad".split()
SCHEDULES = """
StepLR MultiStepLR ExponentialLR ConstantLR LinearLR CosineAnnealingLR LambdaLR OneCycleLR SequentialLR
ReduceLROnPlateau
""".split()


@pytest.mark.parametrize("name", OPS)
def test_ops(name):
    assert name in ops.__all__ and getattr(nn.functional, name) is getattr(ops, name)


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    assert callable(getattr(Tensor, name))


@pytest.mark.parametrize(
    "home, name",
    [(nn, name) for name in MODULES]
    + [(optim, name) for name in OPTIMIZERS]
    + [(optim.lr_scheduler, name) for name in SCHEDULES],
)
def test_classes(home, name):
    assert name in home.__all__ and inspect.isclass(getattr(home, name))


def test_rows_are_many():
    rows = all_ops()
    assert sum(len(op.samples) for op in rows) >= 800
    assert sum(len(op.refusals) for op in rows) >= 150


@pytest.mark.parametrize("name", ops.__all__)
def test_every_argument_stands_in_a_row(name):
    signature = inspect.signature(getattr(ops, name))
    samples = [sample for op in all_ops() if op.name == name for sample in op.samples]
    used = set().union(*(signature.bind(*sample.args, **sample.kwargs).arguments for sample in samples))
    assert used == set(signature.parameters), f"{name}: no sample gives {set(signature.parameters) - used}"
