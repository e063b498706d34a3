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
from typing import Annotated

from minigrad_kernels.errors import ShapeError

from ..core.check import number_of, one_of
from ..core.create import zeros
from ..core.tensor import tensor_of
from . import functional as F
from . import init
from .layer import Layer, Positive, Size
from .parameter import parameter

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell"]

NONLINEAR = ("tanh", "relu")
USUAL = ("num_layers", "bias", "batch_first", "dropout", "bidirectional", "nonlinearity")


class _Plain:
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu of it.

    A step takes W_ih x + b_ih, W_hh h + b_hh and the states, and gives the next states, of which the first is h.
    """

    nonlinearity: str

    def step(self, x, h, states):
        return (getattr(F, self.nonlinearity)(x + h),)


class _Long:
    """i, f, g, o = the sums of x and h;  c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')."""

    gates, states = 4, 2

    def step(self, x, h, states):
        i, f, g, o = (x + h).chunk(4, -1)
        c = F.sigmoid(f) * states[1] + F.sigmoid(i) * F.tanh(g)
        return F.sigmoid(o) * F.tanh(c), c


class _Gated:
    """r, z = sigmoid of the sums of x and h;  n = tanh(n_x + r n_h);  h' = (1 - z) n + z h."""

    gates = 3

    def step(self, x, h, states):
        (rx, zx, nx), (rh, zh, nh) = x.chunk(3, -1), h.chunk(3, -1)
        z, n = F.sigmoid(zx + zh), F.tanh(nx + F.sigmoid(rx + rh) * nh)
        return (n + z * (states[0] - n),)


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

    def product(self, part, suffix, x):
        """W x + b."""
        bias = getattr(self, f"bias_{part}{suffix}") if self.bias else None
        return F.linear(x, getattr(self, f"weight_{part}{suffix}"), bias)

    def started(self, states, shape, x):
        """The states to start from, as a tuple: those given, or zeros."""
        if states is None:
            return (zeros(*shape, dtype=x.dtype, device=x.device),) * self.states
        given = states if isinstance(states, tuple) else (states,)
        shapes = [tensor_of(type(self).__name__, "hx", one).shape for one in given]
        if shapes != [shape] * self.states:
            raise ShapeError(f"{type(self).__name__}: hx has shapes {shapes}, wanted {self.states} of {shape}")
        return given

    def check_input(self, input, ndim):
        """Refuse an input that has not so many dimensions, the last of input_size."""
        shape = tensor_of(type(self).__name__, "input", input).shape
        if len(shape) != ndim or shape[-1] != self.input_size:
            wanted = f"{ndim} dimensions, the last of {self.input_size}"
            raise ShapeError(f"{type(self).__name__}: input has shape {shape}, wanted {wanted}")

    def given(self, states):
        """The states as they are handed out: one by itself, two as a pair."""
        return states[0] if self.states == 1 else states


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
                output, end = self.run(x, suffix, tuple(one[len(ends)] for one in states))
                outputs.append(output)
                ends.append(end)
            x = outputs[0] if len(outputs) == 1 else F.cat(outputs, -1)
        states = tuple(F.stack(list(state)) for state in zip(*ends, strict=True))
        return (x.transpose(0, 1) if self.batch_first else x), self.given(states)

    def run(self, x, suffix, states):
        """(outputs, last states) of one direction of a layer."""
        inputs, outputs, backwards = self.product("ih", suffix, x).unbind(0), [], suffix.endswith("reverse")
        for gates in reversed(inputs) if backwards else inputs:
            states = self.step(gates, self.product("hh", suffix, states[0]), states)
            outputs.append(states[0])
        return F.stack(outputs[::-1] if backwards else outputs), states


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
        return self.given(self.step(self.product("ih", "", input), self.product("hh", "", states[0]), states))


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
