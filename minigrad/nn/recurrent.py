"""Recurrent layers: RNN, LSTM and GRU over a sequence, and their cells for one step.

Letters     L steps, N batch, I input_size, H hidden_size, D directions
Shapes      input (L, N, I), or (N, L, I) with batch_first, or (L, I) without a batch
            output (L, N, D H) likewise; states (D num_layers, N, H)
            a cell takes (N, I) or (I,) and gives (N, H) or (H,)
Errors      ValueError for shapes that do not fit and options out of range, TypeError for those of another kind
Source      Elman 1990, "Finding structure in time"; Hochreiter and Schmidhuber 1997, "Long short-term memory"; Cho and
            others 2014, "Learning phrase representations using RNN encoder-decoder"; names, order of gates and layout
            of the weights are those of torch.nn
"""

import math
from typing import Any

from minigrad_kernels.errors import ShapeError

from ..core.check import flag_of, integer_of, one_of
from ..core.create import zeros
from ..core.tensor import tensor_of
from . import functional as F
from . import init
from .module import Module
from .parameter import parameter

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell"]


def _rnn(nonlinearity):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu of it."""
    function = getattr(F, one_of("RNN", "nonlinearity", nonlinearity, ("tanh", "relu")))
    return lambda x, h, states: (function(x + h),)


def _lstm(x, h, states):
    """i, f, g, o = the sums of x and h;  c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')."""
    i, f, g, o = (x + h).chunk(4, -1)
    c = F.sigmoid(f) * states[1] + F.sigmoid(i) * F.tanh(g)
    return F.sigmoid(o) * F.tanh(c), c


def _gru(x, h, states):
    """r, z = sigmoid of the sums of x and h;  n = tanh(n_x + r n_h);  h' = (1 - z) n + z h."""
    (rx, zx, nx), (rh, zh, nh) = x.chunk(3, -1), h.chunk(3, -1)
    z, n = F.sigmoid(zx + zh), F.tanh(nx + F.sigmoid(rx + rh) * nh)
    return (n + z * (states[0] - n),)


class _Recurrent(Module):
    """What all have in common. gates: rows of H in a weight; states: how many a step hands on."""

    gates, states = 1, 1
    step: Any = None  # (W_ih x + b_ih, W_hh h + b_hh, states) -> the next states, of which the first is h

    def __init__(self, input_size, hidden_size, bias, device, dtype):
        name = type(self).__name__
        self.input_size = integer_of(name, "input_size", input_size, 0)
        self.hidden_size = integer_of(name, "hidden_size", hidden_size, 1)
        self.bias, self.made_by = flag_of(name, "bias", bias), dict(device=device, dtype=dtype)

    def make(self, suffix, inputs):
        """The weights of one direction of a layer."""
        rows = self.gates * self.hidden_size
        shapes = {"weight_ih": (rows, inputs), "weight_hh": (rows, self.hidden_size)}
        shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if self.bias else {}
        for part, shape in shapes.items():
            self.register_parameter(part + suffix, parameter(type(self).__name__, shape, **self.made_by))

    def reset_parameters(self):
        """Draw all weights anew, evenly from +-1 / sqrt(H)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def product(self, part, suffix, x):
        """W x + b."""
        bias = getattr(self, f"bias_{part}{suffix}") if self.bias else None
        return F.linear(x, getattr(self, f"weight_{part}{suffix}"), bias)

    def started(self, states, shape, x):
        """The states to start from, as a tuple: those given, or zeros."""
        if states is None:
            return (zeros(*shape, dtype=x.dtype, device=x.device),) * self.states
        given = states if isinstance(states, tuple) else (states,)
        if [tensor_of(type(self).__name__, "hx", one).shape for one in given] != [shape] * self.states:
            shapes = [one.shape for one in given]
            raise ShapeError(f"{type(self).__name__}: hx has shapes {shapes}, wanted {self.states} of {shape}")
        return given

    def check_input(self, input, ndims):
        """The input, of so many dimensions, the last of input_size."""
        shape = tensor_of(type(self).__name__, "input", input).shape
        if len(shape) not in ndims or shape[-1] != self.input_size:
            wanted = f"{' or '.join(map(str, ndims))} dimensions, the last of {self.input_size}"
            raise ShapeError(f"{type(self).__name__}: input has shape {shape}, wanted {wanted}")

    def given(self, states):
        """The states as they are handed out: one by itself, two as a pair."""
        return states[0] if self.states == 1 else states

    def extra_repr(self):
        return f"{self.input_size}, {self.hidden_size}"


class _Layers(_Recurrent):
    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        device=None,
        dtype=None,
    ):
        super().__init__(input_size, hidden_size, bias, device, dtype)
        name = type(self).__name__
        self.num_layers = integer_of(name, "num_layers", num_layers, 1)
        self.batch_first = flag_of(name, "batch_first", batch_first)
        self.bidirectional, self.dropout = flag_of(name, "bidirectional", bidirectional), dropout
        directions = ("", "_reverse") if self.bidirectional else ("",)
        self.suffixes = [[f"_l{layer}{direction}" for direction in directions] for layer in range(self.num_layers)]
        for layer, suffixes in enumerate(self.suffixes):
            for suffix in suffixes:
                self.make(suffix, self.hidden_size * len(directions) if layer else self.input_size)
        self.reset_parameters()

    def forward(self, input, hx=None):
        self.check_input(input, (2, 3))
        alone = input.ndim == 2
        x = input.unsqueeze(1) if alone else input.transpose(0, 1) if self.batch_first else input
        count = len(self.suffixes) * len(self.suffixes[0])
        shape = (count, self.hidden_size) if alone else (count, x.shape[1], self.hidden_size)
        states, ends = self.started(hx, shape, x), []
        states = [one.unsqueeze(1) for one in states] if alone else states
        for layer, suffixes in enumerate(self.suffixes):
            if layer and self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            outputs = []
            for suffix in suffixes:
                output, end = self.run(x, suffix, tuple(one[len(ends)] for one in states))
                outputs.append(output)
                ends.append(end)
            x = outputs[0] if len(outputs) == 1 else F.cat(outputs, -1)
        states = tuple(F.stack(list(state)) for state in zip(*ends, strict=True))
        if alone:
            return x.squeeze(1), self.given(tuple(one.squeeze(1) for one in states))
        return (x.transpose(0, 1) if self.batch_first else x), self.given(states)

    def run(self, x, suffix, states):
        """(outputs, last states) of one direction of a layer."""
        inputs, outputs, backwards = self.product("ih", suffix, x).unbind(0), [], suffix.endswith("reverse")
        for gates in reversed(inputs) if backwards else inputs:
            states = self.step(gates, self.product("hh", suffix, states[0]), states)
            outputs.append(states[0])
        return F.stack(outputs[::-1] if backwards else outputs), states


class _Cell(_Recurrent):
    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.make("", self.input_size)
        self.reset_parameters()

    def forward(self, input, hx=None):
        self.check_input(input, (1, 2))
        states = self.started(hx, (*input.shape[:-1], self.hidden_size), input)
        return self.given(self.step(self.product("ih", "", input), self.product("hh", "", states[0]), states))


class RNN(_Layers):
    """A recurrent layer: h' = tanh(W_ih x + b_ih + W_hh h + b_hh); gives (output, h_n).

    num_layers      layers, each of which reads the output of the one below
    dropout         the share of that output that is set to 0 in training
    bidirectional   another set of weights reads the sequence from its end; outputs stand side by side
    nonlinearity    'tanh' or 'relu'
    """

    def __init__(self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", *args, **kwargs):
        super().__init__(input_size, hidden_size, num_layers, *args, **kwargs)
        self.step = _rnn(nonlinearity)


class LSTM(_Layers):
    """A layer with a long memory c beside its output h; takes (h_0, c_0) and gives (output, (h_n, c_n)).

    Math    c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c'), where
            i, f, g, o = W_ih x + b_ih + W_hh h + b_hh
    num_layers, dropout, bidirectional  as in RNN
    """

    gates, states, step = 4, 2, staticmethod(_lstm)


class GRU(_Layers):
    """A layer whose gates say what of its state stays; gives (output, h_n).

    Math    r, z = sigmoid(W_ih x + b_ih + W_hh h + b_hh);  n = tanh(W_in x + b_in + r (W_hn h + b_hn))
            h' = (1 - z) n + z h
    num_layers, dropout, bidirectional  as in RNN
    """

    gates, step = 3, staticmethod(_gru)


class RNNCell(_Cell):
    """One step of an RNN."""

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.step = _rnn(nonlinearity)


class LSTMCell(_Cell):
    """One step of an LSTM: takes and gives (h, c)."""

    gates, states, step = 4, 2, staticmethod(_lstm)


class GRUCell(_Cell):
    """One step of a GRU."""

    gates, step = 3, staticmethod(_gru)
