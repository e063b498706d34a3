"""Recurrent layers: RNN, LSTM and GRU over a sequence, and their cells for one step.

Letters     L steps, N batch, I input_size, H hidden_size, D directions
Shapes      input (L, N, I), or (N, L, I) with batch_first; output (L, N, D H) likewise; states (D num_layers, N, H)
            a cell takes (N, I) and gives (N, H)
Errors      ValueError for shapes that do not fit and options out of range, TypeError for those of another kind
Source      Elman 1990, "Finding structure in time"; Hochreiter and Schmidhuber 1997, "Long short-term memory"; Cho and
            others 2014, "Learning phrase representations using RNN encoder-decoder"; names, order of gates and layout
            of the weights are those of torch.nn
"""

import math
from dataclasses import KW_ONLY, InitVar
from functools import partial
from types import SimpleNamespace
from typing import Annotated

import numpy as np

from minigrad_kernels.errors import ShapeError

from .. import device
from ..core.check import number_of, one_of
from ..core.create import zeros
from ..core.primitive import primitive
from ..core.tape import grad
from ..core.tensor import tensor_of
from ..ops.matmul import linear_op, product
from ..ops.reduce import column_sums
from . import functional as F
from . import init
from .layer import Layer, Positive, Size
from .parameter import parameter

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell"]

NONLINEAR = ("tanh", "relu")
USUAL = ("num_layers", "bias", "batch_first", "dropout", "bidirectional", "nonlinearity")


ARRAYS = SimpleNamespace(  # what a step takes from F, for arrays
    chunk=lambda x, count, dim: x.reshape(len(x), count, x.shape[-1] // count).swapaxes(0, 1),
    relu=lambda x: np.maximum(x, 0),
    sigmoid=lambda x: 0.5 * np.tanh(0.5 * x) + 0.5,
    tanh=np.tanh,
)


def steps(x, hx, weight, bias, cell):
    """The states of all steps of a direction, those given first: step by step, on any device.

    Math    hidden_t = W h_t + b, where h is the first of the states;  states_t+1 = step(x_t, hidden_t, states_t)
    Shapes  x and hidden (L, N, G H), hx (S, N, H), weight (G H, H), bias (G H,) -> states (S, L + 1, N, H)
    """
    states = [hx.unbind(0)]
    for gates in x.unbind(0):
        states.append(cell.step(F, gates, F.linear(states[-1][0], weight, bias), states[-1]))
    return F.stack([F.stack(list(state)) for state in zip(*states, strict=True)])


@primitive(outputs=("states", "hidden"), fixed=("hidden", "cell"))
def recurrence(x, hx, weight, bias, cell):
    """What `steps` gives, on arrays of the CPU: one op for the sequence in place of several for each of its steps.

    Grads   in one pass back over the steps; dW is one product of all of them
    """
    states = device.empty((len(hx), len(x) + 1, *hx.shape[1:]), x.dtype)
    hidden, states[:, 0] = device.empty(x.shape, x.dtype), hx
    for t, gates in enumerate(x):
        hidden[t] = linear_op.forward(states[0, t], weight, bias)
        states[:, t + 1] = cell.step(ARRAYS, gates, hidden[t], states[:, t])
    return states, hidden


@recurrence.fast_grads
def _gradients(g, x, weight, cell, states, hidden):
    dx, dhidden, d = device.empty(x.shape, x.dtype), device.empty(x.shape, x.dtype), g[:, -1].copy()
    for t in reversed(range(len(x))):
        dx[t], dhidden[t], passed = cell.back(d, x[t], hidden[t], states[:, t], states[:, t + 1])
        d = g[:, t] + passed
        d[0] += product.forward(dhidden[t], weight)
    rows, before = dhidden.reshape(-1, len(weight)), states[0, :-1].reshape(-1, weight.shape[1])
    return {"x": dx, "hx": d, "weight": product.forward(rows.T, before), "bias": column_sums(rows)}


def _by_steps(name):
    """The rule of an argument, where its gradient will be differentiated itself."""

    def rule(g, x, hx, weight, bias, cell):
        values = {"x": x, "hx": hx, "weight": weight, "bias": bias}
        return grad(steps(**values, cell=cell), values[name], g, create_graph=True)[0]

    return rule


recurrence.grads(**{name: _by_steps(name) for name in ("x", "hx", "weight", "bias")})


class _Plain:
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu of it.

    A step takes W_ih x + b_ih, W_hh h + b_hh and the states, and gives the next states, of which the first is h; m has
    the functions, F or ARRAYS. Its way back takes the gradients of the next states and gives those of all three, of the
    states without what comes through W_hh h.
    """

    nonlinearity: str

    def step(self, m, x, h, states):
        return (getattr(m, self.nonlinearity)(x + h),)

    def back(self, d, x, h, states, new):
        dz = d[0] * (1 - new[0] * new[0] if self.nonlinearity == "tanh" else new[0] > 0)
        return dz, dz, np.zeros_like(d)


class _Long:
    """i, f, g, o = the sums of x and h;  c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')."""

    gates, states = 4, 2

    def step(self, m, x, h, states):
        i, f, g, o = m.chunk(x + h, 4, -1)
        c = m.sigmoid(f) * states[1] + m.sigmoid(i) * m.tanh(g)
        return m.sigmoid(o) * m.tanh(c), c

    def back(self, d, x, h, states, new):
        gates = ARRAYS.chunk(x + h, 4, -1)
        (i, f, o), (g, t) = ARRAYS.sigmoid(gates[[0, 1, 3]]), np.tanh((gates[2], new[1]))
        dc = d[1] + d[0] * o * (1 - t * t)
        dz = dc * g * i * (1 - i), dc * states[1] * f * (1 - f), dc * i * (1 - g * g), d[0] * t * o * (1 - o)
        dz = np.concatenate(dz, -1)
        return dz, dz, np.stack((np.zeros_like(dc), dc * f))


class _Gated:
    """r, z = sigmoid of the sums of x and h;  n = tanh(n_x + r n_h);  h' = (1 - z) n + z h."""

    gates = 3

    def step(self, m, x, h, states):
        (rx, zx, nx), (rh, zh, nh) = m.chunk(x, 3, -1), m.chunk(h, 3, -1)
        z, n = m.sigmoid(zx + zh), m.tanh(nx + m.sigmoid(rx + rh) * nh)
        return (n + z * (states[0] - n),)

    def back(self, d, x, h, states, new):
        (rx, zx, nx), (rh, zh, nh) = ARRAYS.chunk(x, 3, -1), ARRAYS.chunk(h, 3, -1)
        r, z = ARRAYS.sigmoid(rx + rh), ARRAYS.sigmoid(zx + zh)
        n = np.tanh(nx + r * nh)
        dz, dn = d[0] * (states[0] - n) * z * (1 - z), d[0] * (1 - z) * (1 - n * n)
        dr = dn * nh * r * (1 - r)
        return np.concatenate((dr, dz, dn), -1), np.concatenate((dr, dz, dn * r), -1), d * z


class _Recurrent(Layer, unnamed=2, usual=USUAL):
    """What all have in common. gates: rows of H in a weight; states: how many a step hands on."""

    gates, states = 1, 1

    input_size: Size
    hidden_size: Positive

    def make(self, suffix, inputs, device, dtype):
        """The weights of one direction of a layer."""
        rows = self.gates * self.hidden_size
        shapes = {"weight_ih": (rows, inputs), "weight_hh": (rows, self.hidden_size)}
        shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if self.bias else {}
        for part, shape in shapes.items():
            self.register_parameter(part + suffix, parameter(type(self).__name__, shape, device, dtype))

    def reset_parameters(self):
        """Draw all weights anew, evenly from +-1 / sqrt(H)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def started(self, states, shape, x):
        """The states to start from, (S, *shape): those given, or zeros."""
        if states is None:
            return zeros(self.states, *shape, dtype=x.dtype, device=x.device)
        given = list(states) if isinstance(states, tuple | list) else [states]
        shapes = [tensor_of(type(self).__name__, "hx", one).shape for one in given]
        if shapes != [shape] * self.states:
            raise ShapeError(f"{type(self).__name__}: hx has shapes {shapes}, wanted {self.states} of {shape}")
        return F.stack(given)

    def check_input(self, input, ndim):
        """Refuse an input that has not so many dimensions, the last of input_size."""
        shape = tensor_of(type(self).__name__, "input", input).shape
        if len(shape) != ndim or shape[-1] != self.input_size:
            wanted = f"{ndim} dimensions, the last of {self.input_size}"
            raise ShapeError(f"{type(self).__name__}: input has shape {shape}, wanted {wanted}")

    def run(self, x, suffix, hx):
        """The states of one direction of a layer at all steps."""
        parts = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
        weight, bias, *hidden = [getattr(self, part + suffix, None) for part in parts]
        x = F.linear(x, weight, bias)
        pays = x.device == "cpu" and x.dtype == hx.dtype and x.dtype.itemsize > 2
        return recurrence(x, hx, *hidden, self)[0] if pays else steps(x, hx, *hidden, self)

    def given(self, states):
        """The states (S, ...) as they are handed out: one by itself, two as a pair."""
        return states[0] if self.states == 1 else states.unbind(0)


class _Layers(_Recurrent):
    num_layers: Positive = 1
    bias: bool = True
    batch_first: bool = False
    dropout: Annotated[float, partial(number_of, least=0, most=1)] = 0.0
    bidirectional: bool = False
    device: InitVar[object] = None
    dtype: InitVar[object] = None

    def __post_init__(self, device, dtype):
        super().__post_init__()
        directions = ("", "_reverse") if self.bidirectional else ("",)
        self.suffixes = [[f"_l{layer}{direction}" for direction in directions] for layer in range(self.num_layers)]
        for layer, suffixes in enumerate(self.suffixes):
            for suffix in suffixes:
                self.make(suffix, self.hidden_size * len(directions) if layer else self.input_size, device, dtype)
        self.reset_parameters()

    def forward(self, input, hx=None):
        self.check_input(input, 3)
        x = input.transpose(0, 1) if self.batch_first else input
        count = len(self.suffixes) * len(self.suffixes[0])
        states, ends = self.started(hx, (count, x.shape[1], self.hidden_size), x), []
        for layer, suffixes in enumerate(self.suffixes):
            if layer and self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            outputs = []
            for suffix in suffixes:
                back = suffix.endswith("reverse")
                run = self.run(x.flip(0) if back else x, suffix, states[:, len(ends)])
                outputs.append(run[0, 1:].flip(0) if back else run[0, 1:])
                ends.append(run[:, -1])
            x = outputs[0] if len(outputs) == 1 else F.cat(outputs, -1)
        return (x.transpose(0, 1) if self.batch_first else x), self.given(F.stack(ends, 1))


class _Cell(_Recurrent):
    bias: bool = True
    _: KW_ONLY
    device: InitVar[object] = None
    dtype: InitVar[object] = None

    def __post_init__(self, device, dtype):
        super().__post_init__()
        self.make("", self.input_size, device, dtype)
        self.reset_parameters()

    def forward(self, input, hx=None):
        self.check_input(input, 2)
        states = self.started(hx, (len(input), self.hidden_size), input)
        return self.given(self.run(input.unsqueeze(0), "", states)[:, 1])


class RNN(_Plain, _Layers):
    """A recurrent layer: h' = tanh(W_ih x + b_ih + W_hh h + b_hh); gives (output, h_n).

    num_layers      layers, each of which reads the output of the one below
    dropout         the share of that output that is set to 0 in training
    bidirectional   another set of weights reads the sequence from its end; outputs stand side by side
    nonlinearity    'tanh' or 'relu'
    """

    def __init__(self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", *args, **kwargs):
        super().__init__(input_size, hidden_size, num_layers, *args, **kwargs)
        self.nonlinearity = one_of("RNN", "nonlinearity", nonlinearity, NONLINEAR)


class LSTM(_Long, _Layers):
    """A layer with a long memory c beside its output h; takes (h_0, c_0) and gives (output, (h_n, c_n)).

    Math    c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c'), where
            i, f, g, o = W_ih x + b_ih + W_hh h + b_hh
    num_layers, dropout, bidirectional  as in RNN
    """


class GRU(_Gated, _Layers):
    """A layer whose gates say what of its state stays; gives (output, h_n).

    Math    r, z = sigmoid(W_ih x + b_ih + W_hh h + b_hh);  n = tanh(W_in x + b_in + r (W_hn h + b_hn))
            h' = (1 - z) n + z h
    num_layers, dropout, bidirectional  as in RNN
    """


class RNNCell(_Plain, _Cell):
    """One step of an RNN."""

    nonlinearity: Annotated[str, partial(one_of, choices=NONLINEAR)] = "tanh"


class LSTMCell(_Long, _Cell):
    """One step of an LSTM: takes and gives (h, c)."""


class GRUCell(_Gated, _Cell):
    """One step of a GRU."""
