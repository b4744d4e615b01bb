"""Samples of the recurrent cells."""


def _weights(make, gates, inputs=3, hidden=2, bias=True):
    weights = (make((gates * hidden, inputs)), make((gates * hidden, hidden)))
    return (*weights, make((gates * hidden,)), make((gates * hidden,))) if bias else weights


def lstm_cell(make):
    return [((make((4, 3)), [make((4, 2)), make((4, 2))], *_weights(make, 4)), {}), ((make((1, 3)), [make((1, 2)), make((1, 2))], *_weights(make, 4, bias=False)), {}),
            ((make((0, 3)), [make((0, 2)), make((0, 2))], *_weights(make, 4)), {}), ((make((2, 5)), [make((2, 37)), make((2, 37))], *_weights(make, 4, 5, 37)), {})]


def gru_cell(make):
    return [((make((4, 3)), make((4, 2)), *_weights(make, 3)), {}), ((make((1, 3)), make((1, 2)), *_weights(make, 3, bias=False)), {}), ((make((0, 3)), make((0, 2)), *_weights(make, 3)), {}),
            ((make((2, 5)), make((2, 37)), *_weights(make, 3, 5, 37)), {})]


def rnn_cell(make):
    return [((make((4, 3)), make((4, 2)), *_weights(make, 1)), {}), ((make((1, 3)), make((1, 2)), *_weights(make, 1, bias=False)), {})]


def _lstm_gates(make):
    return [((make((3, 8)), make((3, 2))), {})]


def _lstm_gates_grad(make):
    return [((make((3, 2)), make((3, 2)), make((3, 8)), make((3, 2))), {})]


def _gru_gates(make):
    return [((make((3, 6)), make((3, 6)), make((3, 2))), {})]


def _gru_gates_grad(make):
    return [((make((3, 2)), make((3, 6)), make((3, 6)), make((3, 2))), {})]
