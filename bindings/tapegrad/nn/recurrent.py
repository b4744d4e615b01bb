"""Recurrent networks: RNN, LSTM, GRU. A layer in one direction is one native kernel over all of its steps, or cuDNN does the whole network."""

import math
import numbers

from .. import _C, empty, zeros
from .._warn import warn
from ..amp._state import is_autocast_enabled
from . import init
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence

__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_ops = _C._functions["_C._ops"]
_KERNELS = {"LSTM": (_ops["_lstm_input"], _ops["_lstm_data"]), "GRU": (_ops["_gru_input"], _ops["_gru_data"]),
            "RNN_TANH": (_ops["_rnn_tanh_input"], _ops["_rnn_tanh_data"]),
            "RNN_RELU": (_ops["_rnn_relu_input"], _ops["_rnn_relu_data"])}


def _permuted(tensor, permutation, dim: int = 1):
    return tensor if permutation is None else tensor.index_select(dim, permutation)


def _check_options(mode: str, input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size) -> None:
    if not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1 or isinstance(dropout, bool):
        raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being zeroed")
    if dropout > 0 and num_layers == 1:
        warn("dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
             f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}")
    for name, value, kind in (("bias", bias, bool), ("batch_first", batch_first, bool), ("input_size", input_size, int),
                              ("hidden_size", hidden_size, int)):
        if not isinstance(value, kind):
            raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(value).__name__}")
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        if value <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")
    if mode not in _GATES:
        raise ValueError("Unrecognized RNN mode: " + mode)


def _refuse(module, unknown: dict) -> None:
    """Projections are the LSTM's alone."""
    if "proj_size" in unknown:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
    for name in unknown:
        raise TypeError(f"{type(module).__name__}.__init__() got an unexpected keyword argument '{name}'")


class RNNBase(Module):
    """Base of the recurrent networks: parameters by layer and direction, and checks of what forward is given."""

    def __init__(self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device=None,
                 dtype=None) -> None:
        super().__init__()
        _check_options(mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        gates, width = _GATES[mode] * hidden_size, proj_size or hidden_size
        directions = ("", "_reverse") if bidirectional else ("",)
        self._all_weights = []
        for layer in range(num_layers):
            for suffix in directions:
                inputs = input_size if layer == 0 else width * len(directions)
                shapes = {"weight_ih": (gates, inputs), "weight_hh": (gates, width)}
                if bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                names = {f"{kind}_l{layer}{suffix}": shape for kind, shape in shapes.items()}
                for name, shape in names.items():
                    setattr(self, name, Parameter(empty(shape, device=device, dtype=dtype)))
                self._all_weights.append(list(names))
        self._flat_weights_names = [name for names in self._all_weights for name in names]
        self.reset_parameters()

    def __setstate__(self, state) -> None:
        super().__setstate__(state)
        self.__dict__.pop("_flat_weights", None)  # PyTorch keeps the weights here, too: they would not follow a move to another dtype
        self.__dict__.setdefault("proj_size", 0)  # files from before 1.8
        weights = self.__dict__.pop("all_weights", self._all_weights)
        if not isinstance(weights[0][0], str):  # files from before 0.4 have the parameters themselves
            names = {id(p): name for name, p in self._parameters.items()}
            weights = [[names[id(p)] for p in layer] for layer in weights]
        self._all_weights = weights
        self._flat_weights_names = [name for names in weights for name in names]

    @property
    def _flat_weights(self) -> list:
        """What forward takes, in the order of _flat_weights_names: the attributes, or what a program has put in their place (dropped weights),
        until an attribute is set again."""
        now = [getattr(self, name) for name in self._flat_weights_names]
        then, given = self.__dict__.get("_flat_weights", (None, None))
        return given if then is not None and all(a is b for a, b in zip(then, now)) else now

    @_flat_weights.setter
    def _flat_weights(self, weights) -> None:
        weights = list(weights)
        if len(weights) != len(self._flat_weights_names):
            raise ValueError(f"_flat_weights: expected {len(self._flat_weights_names)} weights: got {len(weights)}")
        self.__dict__["_flat_weights"] = [getattr(self, name) for name in self._flat_weights_names], weights

    def _apply(self, fn, recurse: bool = True):
        self.__dict__.pop("_flat_weights", None)
        return super()._apply(fn, recurse)

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters, a list per layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Without effect: the kernels take the weights where they are, and a call of cuDNN gets them as one vector."""

    def reset_parameters(self) -> None:
        """Uniform between -1 and 1 divided by the root of hidden_size."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    # Checks of forward's arguments.
    def check_input(self, input, batch_sizes) -> None:
        dtype = getattr(self, self._flat_weights_names[0]).dtype
        if input.dtype != dtype and not is_autocast_enabled(input.device.type):  # which casts both
            raise ValueError(f"RNN input dtype ({input.dtype}) does not match weight dtype ({dtype}). Convert input: "
                             f"input.to({dtype}), or convert model: model.to({input.dtype})")
        expected = 2 if batch_sizes is not None else 3
        if input.dim() != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}")

    def _sequences(self, input, batch_sizes) -> int:
        if batch_sizes is not None:
            return int(batch_sizes[0])
        return input.size(0) if self.batch_first else input.size(1)

    def _num_states(self) -> int:
        return self.num_layers * (2 if self.bidirectional else 1)

    def get_expected_hidden_size(self, input, batch_sizes) -> tuple[int, int, int]:
        return (self._num_states(), self._sequences(input, batch_sizes), self.proj_size or self.hidden_size)

    def check_hidden_size(self, hx, expected_hidden_size, msg: str = "Expected hidden size {}, got {}") -> None:
        if tuple(hx.size()) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(tuple(expected_hidden_size), list(hx.size())))

    def check_forward_args(self, input, hidden, batch_sizes) -> None:
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx, permutation):
        return _permuted(hx, permutation)

    def _run(self, input, hx, batch_sizes):
        options = (self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        padded, packed = _KERNELS[self.mode]
        if batch_sizes is None:
            output, *state = padded(input, hx, *options, self.batch_first)
        else:
            output, *state = packed(input, batch_sizes, hx, *options)
        return output, state[0] if len(state) == 1 else tuple(state)

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        for name, default in (("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0),
                              ("bidirectional", False)):
            if getattr(self, name) != default:
                parts.append(f"{name}={getattr(self, name)}")
        return ", ".join(parts)

    # What the forward of each class does.
    def _forward(self, input, hx):
        packed = input if isinstance(input, PackedSequence) else None
        batched = True
        batch_sizes = sorted_indices = unsorted_indices = None
        if packed is not None:
            input, batch_sizes, sorted_indices, unsorted_indices = packed
        else:
            if input.dim() not in (2, 3):
                raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.dim()}D instead")
            batched = input.dim() == 3
            if not batched:
                input = input.unsqueeze(0 if self.batch_first else 1)
            if hx is not None:
                self._check_dims(hx, batched)
                if not batched:
                    hx = self._each(lambda state: state.unsqueeze(1), hx)
        if hx is None:
            hx = self._zero_state(input, batch_sizes)
        else:
            hx = self.permute_hidden(hx, sorted_indices)
        self.check_forward_args(input, hx, batch_sizes)
        output, hidden = self._run(input, hx, batch_sizes)
        if packed is not None:
            output = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
        elif not batched:
            output, hidden = output.squeeze(0 if self.batch_first else 1), self._each(lambda state: state.squeeze(1), hidden)
        return output, self.permute_hidden(hidden, unsorted_indices)

    # What follows knows that the state is one tensor; LSTM, whose state is a pair, has its own.
    @staticmethod
    def _each(change, hx):
        return change(hx)

    @staticmethod
    def _check_dims(hx, batched: bool) -> None:
        if isinstance(hx, (tuple, list)):
            raise TypeError(f"hx must be a Tensor: got {type(hx).__name__}\nonly an LSTM's state is a pair")
        if batched and hx.dim() != 3:
            raise RuntimeError(f"For batched 3-D input, hx should also be 3-D but got {hx.dim()}-D tensor")
        if not batched and hx.dim() != 2:
            raise RuntimeError(f"For unbatched 2-D input, hx should also be 2-D but got {hx.dim()}-D tensor")

    def _zero_state(self, input, batch_sizes):
        return zeros(self._num_states(), self._sequences(input, batch_sizes), self.hidden_size, dtype=input.dtype,
                     device=input.device)


class RNN(RNNBase):
    """Elman networks: h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu with nonlinearity='relu'.

    Input (L, N, I), (N, L, I) with batch_first, (L, I), or a PackedSequence; returns the last layer's output of every step and
    the last state of every layer and direction.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device=None, dtype=None, **unknown) -> None:
        _refuse(self, unknown)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__("RNN_TANH" if nonlinearity == "tanh" else "RNN_RELU", input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        return self._forward(input, hx)


class GRU(RNNBase):
    """Gated recurrent units (Cho et al., 2014). Input and results as RNN's."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
                 dropout: float = 0.0, bidirectional: bool = False, device=None, dtype=None, **unknown) -> None:
        _refuse(self, unknown)
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype)

    def forward(self, input, hx=None):
        return self._forward(input, hx)


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997, with forget gate; projections after Sak et al., 2014).

    Input as RNN's; the state is the pair (h, c). Returns the output and the last (h, c).
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
                 dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device=None, dtype=None) -> None:
        super().__init__("LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype)

    def get_expected_cell_size(self, input, batch_sizes) -> tuple[int, int, int]:
        return (self._num_states(), self._sequences(input, batch_sizes), self.hidden_size)

    def check_forward_args(self, input, hidden, batch_sizes) -> None:
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden[0], self.get_expected_hidden_size(input, batch_sizes),
                               "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(hidden[1], self.get_expected_cell_size(input, batch_sizes),
                               "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx, permutation):
        return hx if permutation is None else (_permuted(hx[0], permutation), _permuted(hx[1], permutation))

    def forward(self, input, hx=None):
        return self._forward(input, hx)

    @staticmethod
    def _each(change, hx):
        return change(hx[0]), change(hx[1])

    @staticmethod
    def _check_dims(hx, batched: bool) -> None:
        if not isinstance(hx, (tuple, list)):
            raise TypeError(f"hx must be the pair of tensors (h, c): got {type(hx).__name__}")
        wanted = 3 if batched else 2
        if hx[0].dim() != wanted or hx[1].dim() != wanted:
            raise RuntimeError(f"For {'batched 3' if batched else 'unbatched 2'}-D input, hx and cx should also be "
                               f"{wanted}-D but got ({hx[0].dim()}-D, {hx[1].dim()}-D) tensors")

    def _zero_state(self, input, batch_sizes):
        c = super()._zero_state(input, batch_sizes)
        h = c if not self.proj_size else zeros(*c.shape[:2], self.proj_size, dtype=input.dtype, device=input.device)
        return h, c
