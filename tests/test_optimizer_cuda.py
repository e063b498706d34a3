"""Update rules as CUDA kernels: against their references and the CPU's kernels, over lists of parameters."""

from types import SimpleNamespace

import numpy as np
import pytest

from minigrad_kernels import interpreter, optimizer
from minigrad_kernels.optimizer import SGD, Adagrad, Adam, RMSprop, reference
from minigrad_kernels.optimizer.cuda_kernels import CHUNK
from minigrad_kernels.toolchain.cuda import memory

from .kernel_runs import DEVICE, moved, on_host
from .test_kernels_optimizer import CANARY, EDGE, RULES, arguments, copies, hyper, within_rounding

SHAPES = [(), (0,), (5,), (3, 4), (CHUNK - 1,), (CHUNK,), (CHUNK + 1,), (3, 4, 2, 5), (2, 3, 4, 5)]
each_type = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f4", "f8"])
each_rule = pytest.mark.parametrize(
    "rule", RULES, ids=lambda rule: f"{rule[0]}-{''.join('ny'[s] for s in rule[1])}-{rule[2].tolist()}"
)
TOGETHER = hyper(Adam, RATE=0.01, BETA1=0.9, BETA2=0.999, EPS=1e-8, STEP=3)
# One setting of each rule in which every number matters, and the states that it has.
FULL = {
    "sgd": (hyper(SGD, RATE=0.1, MOMENTUM=0.9, DAMPENING=0.25, WEIGHT_DECAY=0.1, NESTEROV=1), 1),
    "adam": (hyper(Adam, RATE=0.1, BETA1=0.9, BETA2=0.99, EPS=1e-3, WEIGHT_DECAY=0.1, STEP=2), 3),
    "rmsprop": (hyper(RMSprop, RATE=0.1, ALPHA=0.9, EPS=1e-3, WEIGHT_DECAY=0.1, MOMENTUM=0.5), 3),
    "adagrad": (hyper(Adagrad, RATE=0.1, LR_DECAY=0.1, EPS=1e-3, WEIGHT_DECAY=0.1, STEP=2), 1),
}


def upload(lists):
    return [None if arrays is None else [moved(array, DEVICE) for array in arrays] for arrays in lists]


def download(lists):
    return [None if arrays is None else [on_host(array) for array in arrays] for arrays in lists]


def guarded(lists):
    """The lists on the device, and the memory around their arrays, which begins and ends with canaries."""
    there, wholes = [], []
    for arrays in lists:
        pairs = [moved(array, DEVICE, whole_of(array)) for array in arrays or ()]
        there.append(None if arrays is None else [array for array, _ in pairs])
        wholes += [whole for _, whole in pairs]
    return there, wholes


def whole_of(array):
    while array.base is not None:
        array = array.base
    return array


def intact(whole):
    edges = on_host(whole)
    return (edges[:EDGE] == CANARY).all() and (edges[-EDGE:] == CANARY).all()


def random(name, sizes, dtype=np.float32):
    """Lists for a rule with all its states, of one sign, the averages of squares above the squares of averages."""
    rng = np.random.default_rng(4)
    lows = [1, 1, *([9, 1, 1] if name == "rmsprop" else [1, 1, 1])][: 2 + FULL[name][1]]
    return [[rng.uniform(low, low + 1, size).astype(dtype) for size in sizes] for low in lows]


# ---- values ----------------------------------------------------------------------------------------------------------


@each_type
@each_rule
def test_rule_within_rounding_of_its_reference(rule, dtype):
    before = arguments(rule, dtype, [(), (0,), (5,), (3, 4, 2, 5), (333,)])
    host, (lists, wholes) = copies(before), guarded(before)
    getattr(optimizer, rule[0])(*lists, rule[2])
    within_rounding(rule, before, download(lists))
    assert all(map(intact, wholes))
    getattr(optimizer, rule[0])(*host, rule[2])
    for mine, theirs in zip(host, download(lists), strict=True):
        for one, two in zip(mine or (), theirs or (), strict=True):
            assert (np.abs(one - two) <= 2 * np.finfo(dtype).eps * np.abs(one)).all()


@each_type
@pytest.mark.parametrize("name", FULL)
def test_chunks_of_all_sizes(name, dtype):
    """In memory that lies in any order, between canaries."""
    settings, states = FULL[name]
    rule = name, (True,) * states, settings, 0
    before = arguments(rule, dtype, SHAPES)
    lists, wholes = guarded(before)
    getattr(optimizer, name)(*lists, settings)
    within_rounding(rule, before, download(lists))
    assert all(map(intact, wholes))


@each_type
def test_the_bits_of_the_cpu_where_products_are_exact(dtype):
    """Then it does not matter whether they are rounded before they are added; roots and quotients are rounded alike."""
    rng = np.random.default_rng(3)
    lists = [[rng.integers(1, 9, size).astype(dtype) for size in (3, 70, 1030)] for _ in range(5)]
    settings = hyper(Adam, RATE=1, BETA1=0.5, BETA2=0.75, EPS=0, STEP=5000, WEIGHT_DECAY=2)
    there = upload(lists)
    optimizer.adam(*there, settings)
    optimizer.adam(*lists, settings)
    for mine, theirs in zip(lists, download(there), strict=True):
        for one, two in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "name, spoilt", [(name, k) for name, (_, states) in FULL.items() for k in range(1, 2 + states)]
)
def test_nan_reaches_every_state_behind_it(name, spoilt):
    """As in the reference, on both devices: the greatest square so far stays NaN, too."""
    lists = random(name, [6])
    lists[spoilt][0][1] = np.nan
    wanted = getattr(reference, name)(*(arrays[0] for arrays in lists), FULL[name][0])
    there, host = upload(lists), copies(lists)
    for run in (there, host):
        getattr(optimizer, name)(*run, FULL[name][0])
    for updated in (download(there), host):
        for want, (got,) in zip(wanted, (updated[0], *updated[2:]), strict=True):
            np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


@pytest.mark.parametrize("name", FULL)
def test_an_infinite_parameter_meets_no_weight_decay_of_0(name):
    lists = random(name, [6])
    lists[0][0][:2] = np.inf, -np.inf
    places = {"sgd": SGD, "adam": Adam, "rmsprop": RMSprop, "adagrad": Adagrad}[name]
    settings = FULL[name][0].copy()
    settings[places.WEIGHT_DECAY] = 0
    there = upload(lists)
    getattr(optimizer, name)(*there, settings)
    p, _, *states = (arrays[0] for arrays in download(there))
    assert p[0] == np.inf and p[1] == -np.inf and np.isfinite(p[2:]).all()
    assert all(np.isfinite(state).all() for state in states)


def test_the_first_step_reads_no_momentum_buffer():
    lists = upload([[np.ones(6, np.float32)], [np.full(6, 2, np.float32)], [np.full(6, np.nan, np.float32)]])
    optimizer.sgd(*lists, hyper(SGD, RATE=1, MOMENTUM=0.5, FIRST=1))
    (p,), _, (buffer,) = download(lists)
    assert (p == -1).all() and (buffer == 2).all()


@pytest.mark.parametrize("shifted", range(5))
def test_a_chunk_may_begin_anywhere(shifted):
    """One of its arrays begins 4 bytes late; the result has the same bits."""
    results = []
    values = random("adam", [64])
    for late in (False, True):
        arrays = [moved(np.zeros(65, "f4"), DEVICE)[late and k == shifted :][:64] for k in range(5)]
        for array, (value,) in zip(arrays, values, strict=True):
            array[...] = moved(value, DEVICE)
        optimizer.adam(*([array] for array in arrays), TOGETHER)
        results.append([on_host(array) for array in arrays])
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


def test_addresses_of_all_kinds_of_arrays():
    host = np.ones(8, np.float32)
    there, gpu = interpreter.array(host), SimpleNamespace(data=SimpleNamespace(ptr=0x7F0000000010))
    assert memory.address(host[1:]) == host.ctypes.data + 4
    assert memory.address(there[1:]) == interpreter.address(there) + 4
    assert memory.address(gpu) == 0x7F0000000010
    assert memory.aligned(there, gpu, there[4:]) and not memory.aligned(there, there[1:])
