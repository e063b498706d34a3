"""Inputs without dimensions or without elements, for every op: a result or a refusal in words, and this says which."""

import dataclasses

import pytest

from minigrad.core.errors import MinigradError
from tests.op_cases import Draw, all_ops
from tests.test_ops import results, wrap

OPS = {op.name: op for op in reversed(all_ops())}
REFUSED = {
    "no dimensions": """
        adaptive_avg_pool2d all amax amin any avg_pool1d avg_pool2d batch_norm bmm cat chunk conv1d conv2d
        conv2d_input_grad conv2d_weight_grad conv_transpose1d conv_transpose2d cosine_similarity cross_entropy
        diagonal dropout1d dropout2d einsum embedding gather getitem group_norm index_select instance_norm
        interpolate layer_norm linear log_softmax logsumexp matmul max max_pool1d max_pool2d min mm movedim
        nll_loss norm normalize pad permute reshape scatter scatter_add softmax split topk
        transpose tril triu unbind unflatten view
    """,
    "no elements": """
        amax amin argmax argmin broadcast_to conv2d_input_grad cross_entropy expand getitem index_select
        nll_loss reshape scatter topk view
    """,
}


def scalar(draw, first):
    """All Draws without dimensions."""
    return dataclasses.replace(draw, shape=())


def emptied(draw, first):
    """The first Draw, and those as long and of as many dimensions, with no elements in their first dimension."""
    alike = draw.shape[:1] == first.shape[:1] and len(draw.shape) == len(first.shape) > 0
    return dataclasses.replace(draw, shape=(0, *draw.shape[1:])) if alike else draw


def changed(sample, change):
    """The sample with its Draws, but those of given numbers, changed."""
    given = [one for value in sample.args for one in (value if isinstance(value, list) else [value])]
    first = next(filter(is_free, given), None)

    def walk(value):
        if is_free(value):
            return change(value, first)
        return [walk(one) for one in value] if isinstance(value, list) else value

    kwargs = {key: walk(value) for key, value in sample.kwargs.items()}
    return dataclasses.replace(sample, args=tuple(map(walk, sample.args)), kwargs=kwargs)


def is_free(value):
    return isinstance(value, Draw) and not value.values


@pytest.mark.parametrize("kind, change", [("no dimensions", scalar), ("no elements", emptied)])
def test_nothing_is_taken_or_refused_in_words(kind, change):
    refused = set()
    for name, op in OPS.items():
        sample = changed(op.samples[0], change)
        try:
            results(op, *sample.draw(wrap))
        except (MinigradError, ValueError) as error:  # of NumPy where it comes first
            words = str(error).partition(":")[0].replace(" ", "_")
            assert words.isidentifier() or not isinstance(error, MinigradError), error
            refused.add(name)
    assert refused == set(REFUSED[kind].split())
