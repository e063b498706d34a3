"""Recurrent and lazy layers: what they refuse, and what a first batch makes of a lazy one."""

import pytest

import minigrad
from minigrad import nn
from minigrad.nn.recurrent import recurrence, steps


def test_wrong_inputs_and_states_are_refused():
    lstm, x = nn.LSTM(3, 4), minigrad.zeros(5, 2, 3)
    with pytest.raises(ValueError, match=r"LSTM: input has shape \(5, 2, 2\), wanted 3 dimensions, the last of 3"):
        lstm(x[:, :, :2])
    start = minigrad.ones(1, 2, 4)
    assert minigrad.allclose(lstm(x, (start, start))[0], lstm(x, [start, start])[0])
    with pytest.raises(ValueError, match=r"LSTM: hx has shapes \[\(1, 2, 4\)\], wanted 2 of \(1, 2, 4\)"):
        lstm(x, minigrad.zeros(1, 2, 4))
    with pytest.raises(ValueError, match="RNN: nonlinearity is 'sin'"):
        nn.RNN(3, 4, nonlinearity="sin")


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_all_steps_at_once_give_what_single_steps_give(name):
    """Values, gradients and second gradients; in 16 bits it goes step by step."""
    minigrad.manual_seed(0)
    cell = getattr(nn, f"{name}Cell")(2, 3).double()
    x, hx = minigrad.randn(3, 2, 3 * cell.gates), minigrad.randn(cell.states, 2, 3)
    given = [x.double().requires_grad_(), hx.double().requires_grad_(), cell.weight_hh, cell.bias_hh]
    together, apart = (lambda *given, op=op: op(*given, cell) for op in (lambda *given: recurrence(*given)[0], steps))
    assert minigrad.allclose(together(*given), apart(*given), 1e-12)
    assert minigrad.gradcheck(together, given) and minigrad.gradgradcheck(together, given)
    assert minigrad.allclose(cell.half()(x[0, :, :2].half())[0].float(), cell.float()(x[0, :, :2])[0], atol=3e-3)


def test_dropout_lies_between_layers_and_rests_in_evaluation():
    minigrad.manual_seed(0)
    gru, x = nn.GRU(3, 4, num_layers=2, dropout=0.5), minigrad.randn(5, 2, 3)
    assert not minigrad.allclose(gru(x)[0], gru(x)[0])
    assert minigrad.allclose(gru.eval()(x)[0], gru(x)[0])


def test_a_lazy_layer_becomes_what_the_first_batch_asks_for():
    minigrad.manual_seed(0)
    layers = nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(5, bias=False), nn.LazyBatchNorm1d()
    network, seen = nn.Sequential(*layers), []
    assert not list(network.parameters())
    network[3].register_forward_hook(lambda layer, inputs, out: seen.append(out.shape))
    network.eval()(minigrad.randn(2, 1, 6, 6, dtype="float64"))
    assert network.float()[0].weight.dtype == minigrad.float32  # it was that of the batch
    assert [type(layer) for layer in network] == [nn.Conv2d, nn.BatchNorm2d, nn.Flatten, nn.Linear, nn.BatchNorm1d]
    assert network[3].weight.shape == (5, 64) and network[3].bias is None and not network[1].training
    network(minigrad.randn(3, 1, 6, 6))
    assert seen == [(2, 5), (3, 5)] and len(network.state_dict()) == 13
