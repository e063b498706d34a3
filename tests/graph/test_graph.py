"""Captured functions on GPUs of the stand-in: replays equal eager calls bit for bit, and Python starts nothing."""

import gc

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, graph, nn, no_grad, optim
from minigrad.core.tape import grad
from minigrad.graph import CaptureError, capture
from minigrad.nn import functional as F
from minigrad_kernels.errors import StateError
from tests.device.stand_in_gpus import gpus
from tests.ops.test_ops import OPS, drawn, floating, results, tensors

RNG = np.random.default_rng(5)


@pytest.fixture
def machine():
    with gpus(1) as found:
        yield found


def there(*shape):
    return Tensor(RNG.standard_normal(shape).astype(np.float32)).to("cuda")


def state_of(model, optimizer=None):
    """All that training changes, as bytes and numbers."""
    found = [tensor.detach().numpy().tobytes() for tensor in (*model.parameters(), *model.buffers())]
    return found, optimizer and str(optimizer.state_dict())


# ---- training --------------------------------------------------------------------------------------------------------


def small():
    return nn.Sequential(nn.BatchNorm2d(1), nn.ReLU(), nn.Flatten(), nn.Dropout(0.4), nn.Linear(9, 3))


def training(machine, wrap):
    """(losses, state, launches from Python in each step) of steps on two batches each, whose gradients are clipped."""
    minigrad.manual_seed(3)
    model = small().to("cuda")
    optimizer = optim.Adam(model.parameters(), lr=0.05, amsgrad=True)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.8)

    @wrap
    def step(*batches):
        optimizer.zero_grad()
        losses = []
        for x, y in batches:
            losses.append(F.cross_entropy(model(x), y))
            losses[-1].backward()
        optim.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        schedule.step()
        return sum(losses)

    rng, losses, launches = np.random.default_rng(1), [], []
    for _ in range(5):
        images, labels = rng.standard_normal((2, 2, 1, 3, 3), np.float32), rng.integers(0, 3, (2, 2))
        batches = [(Tensor(x).to("cuda"), Tensor(y).to("cuda")) for x, y in zip(images, labels, strict=True)]
        before = len(machine.launches) + sum(machine.functions.values())
        loss = step(*batches)
        launches.append(len(machine.launches) + sum(machine.functions.values()) - before)
        losses.append(loss.item())
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05 * 0.8**5)
    return losses, state_of(model, optimizer), launches


def test_replayed_steps_equal_eager_ones_bit_for_bit(machine):
    *eager, launches = training(machine, lambda function: function)
    *replayed, fewer = training(machine, capture)
    assert replayed == eager and all(launches) and all(fewer[:3])
    assert fewer[3:] == [0, 0] and len(machine.graph_launches) == 3  # nothing is started from Python


def test_options_and_draws_from_outside_enter_replays_on_any_stream(machine):
    """A rate, draws and a seed of between: what the host writes for a replay waits for the launch before."""
    import cupy

    def run(wrap, count):
        minigrad.manual_seed(0)
        model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2)).to("cuda")
        optimizer = optim.Adam(model.parameters(), lr=0.1)

        @wrap
        def step(x):
            optimizer.zero_grad()
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
            return loss

        streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(count)]
        batches = [Tensor(np.full((3, 4), number + 1.0, np.float32)).to("cuda") for number in range(8)]
        cupy.cuda.Device().synchronize()
        for number, x in enumerate(batches):
            if number == 5:
                optimizer.param_groups[0]["lr"] = 0.01
                F.dropout(minigrad.ones(3))
            if number == 6:
                minigrad.manual_seed(9)
            with streams[max(number - 3, 0) % count]:
                loss = step(x)
        cupy.cuda.Device().synchronize()
        found = loss.item(), state_of(model, optimizer)
        optimizer.load_state_dict(optimizer.state_dict())  # puts other arrays in the place of those that a graph knows
        for _ in range(4):
            step(x)
        return found, state_of(model, optimizer), step

    *replayed, step = run(capture, 2)
    assert replayed == [*run(lambda function: function, 1)[:2]]
    assert step.graphs == 1
    step.reset()
    assert not step.graphs


def test_gradients_stay_where_they_are_and_sums_go_on(machine):
    w = nn.Parameter(minigrad.ones(3, device="cuda"))

    @capture
    def add(x):
        (w * x).sum().backward()

    for number in range(5):
        add(Tensor(np.full(3, number + 1.0, np.float32)).to("cuda"))
    array = w.grad.array
    assert w.grad.tolist() == [15.0] * 3 and add.graphs == 1
    w.grad = None
    add(minigrad.ones(3, device="cuda"))  # there is nothing to add to: it runs
    assert w.grad.tolist() == [1.0] * 3 and w.grad.array is not array and not add.graphs


def test_a_replay_raises_the_versions_of_what_it_writes(machine):
    w = nn.Parameter(minigrad.ones(3, device="cuda"))
    optimizer = optim.SGD([w], lr=1)

    @capture(device="cuda")
    def step():
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    kept = (w * w).sum()
    step()
    with pytest.raises(StateError, match="changed"):
        kept.backward()


# ---- inference -------------------------------------------------------------------------------------------------------


def test_inference_by_a_graph(machine):
    model = small().to("cuda").eval()

    @capture
    def scores(x, scale=1):
        return {"scores": model(x) * scale, "shape": x.shape}

    with no_grad():
        for _ in range(4):
            x = there(2, 1, 3, 3)
            found = scores(x, scale=2)
            np.testing.assert_array_equal(found["scores"].numpy(), (model(x) * 2).numpy())
            assert found["shape"] == (2, 1, 3, 3) and not found["scores"].requires_grad
            again = scores(x, scale=2)["scores"]
        assert again.array is found["scores"].array  # a result lies where the next call writes
        transposed = Tensor(np.ones((3, 3, 1, 2), np.float32).T).to("cuda")
        scores(transposed, scale=2)
        scores(x, scale=3)
    assert scores.graphs == 1


def test_memory_that_is_free_while_a_graph_is_captured_stays_its_own():
    """Without room CuPy's pool gives free blocks back and asks again: here those of captured work, so it may not."""

    def work(x):
        first = x * 2
        total = first.sum()
        del first
        return minigrad.cat([x, x, x]).sum() + total

    with gpus(1, capacity=1300 << 10):
        x = Tensor(np.ones(1 << 16, np.float32)).to("cuda")
        assert work(x).item() == 5 << 16
        step = capture(work)
        for _ in range(2):
            assert step(x).item() == 5 << 16
        with pytest.raises(MemoryError, match="cuda:0 is out of memory"):
            step(x)
        assert work(x).item() == 5 << 16


def test_at_most_so_many_graphs_are_kept(machine):
    double = capture(lambda x, k: x * k)
    x = minigrad.ones(2, device="cuda")
    for k in range(graph.KEPT + 1):
        for _ in range(3):
            assert double(x, k).tolist() == [k, k]
    assert double.graphs == graph.KEPT


def test_without_a_gpu_it_is_the_function():
    calls = []

    @capture
    def double(x):
        calls.append(x.device)
        return x + x

    x = Tensor([1.0, 2.0], requires_grad=False)
    assert [double(x).tolist() for _ in range(5)] == [[2, 4]] * 5 and calls == ["cpu"] * 5
    assert double.__name__ == "double" and double.graphs == 0


# ---- what cannot be captured -----------------------------------------------------------------------------------------

REFUSED = {
    "item": (lambda x: x.sum().item(), "item reads values on the host"),
    "mask": (lambda x: x[x > 0], "getitem cannot become part of a graph: .*StreamCaptureUnsupported"),
    "upload": (lambda x: x + Tensor(np.ones(3, np.float32)).to("cuda"), "to sends data of the host"),
    "wait": (lambda x: minigrad.cuda.synchronize(), "synchronize waits for the GPU"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_waits_for_the_host_is_refused_with_its_line_and_changes_nothing(name, machine):
    function, message = REFUSED[name]
    minigrad.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.2), nn.Linear(3, 1)).to("cuda")
    optimizer = optim.Adam(model.parameters())
    schedule = optim.lr_scheduler.StepLR(optimizer, 1)

    @capture
    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        schedule.step()
        return function(x)

    x = there(3)
    for _ in range(graph.WARM):
        step(x)
    state, gradient = state_of(model, optimizer), model[1].weight.grad
    draws, epoch = minigrad.default_generator.get_state(), schedule.last_epoch
    with pytest.raises(CaptureError, match=f"test_graph.py:\\d+, in <lambda>: {message}"):
        step(x)
    assert state_of(model, optimizer) == state and model[1].weight.grad is gradient
    assert minigrad.default_generator.get_state() == draws and schedule.last_epoch == epoch
    assert not machine.captures and step.graphs == 0


def test_errors_of_the_function_are_its_own(machine):
    calls, x = [], minigrad.ones(2, device="cuda")

    @capture
    def step(x):
        calls.append(1)
        return x / 1 if len(calls) != graph.WARM + 1 else 1 // 0

    for _ in range(graph.WARM):
        step(x)
    with pytest.raises(ZeroDivisionError):
        step(x)
    assert step(x).tolist() == [1, 1] and not machine.captures


# ---- operands --------------------------------------------------------------------------------------------------------

# Of kernels of ours, and of CuPy in each of its ways: the other ops go the ways of these.
QUICK = "add batch_norm cat conv2d cross_entropy getitem linear max_pool2d pad softmax sum".split()
ROWS = [  # but "to", whose rows name devices
    pytest.param(op, id=op.name, marks=[pytest.mark.deep] * (op.name not in QUICK)) for op in OPS if op.name != "to"
]


@pytest.mark.parametrize("op", ROWS)
def test_a_graph_keeps_what_an_op_reads(op, machine):
    """The operands go after the capture; the stand-in refuses a launch that would use memory given back."""
    given = [drawn(op.samples[0], "cuda")]

    def work():
        args, kwargs = given[0]
        out = [x for x in results(op, args, kwargs) if isinstance(x, Tensor)]
        heads, wanted = ([x for x in some if x.requires_grad] for some in (floating(out), tensors(args, kwargs)))
        if not (heads and wanted):
            return out
        found = grad(heads, wanted, [minigrad.ones_like(x) for x in heads], allow_unused=True)
        return out + [x for x in found if x is not None]

    minigrad.manual_seed(0)
    step = capture(work, device="cuda")
    for _ in range(2):
        step()
    try:
        wanted = [x.detach().numpy().copy() for x in step()]
    except CaptureError:  # the host would have to wait, or a library of NVIDIA computes it
        assert op.name not in QUICK
        return
    given.clear()
    gc.collect()
    for one, other in zip(wanted, step(), strict=True):
        if not op.name.startswith("dropout"):  # which draws anew
            np.testing.assert_array_equal(one, other.detach().numpy())
