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


def _flat(make, gates, layers, directions, inputs, hidden, bias=True, proj=0):
    params = []
    for layer in range(layers):
        for _ in range(directions):
            width = inputs if layer == 0 else directions * (proj or hidden)
            params += [make((gates * hidden, width)), make((gates * hidden, proj or hidden))]
            if bias:
                params += [make((gates * hidden,)), make((gates * hidden,))]
            if proj:
                params.append(make((proj, hidden)))
    return params


def _layers(make, gates, state):
    """Inputs of one length, several layers, both directions; and packed ones."""
    from tapegrad import tensor
    hidden = 2
    return [((make((3, 2, 3)), state(1, 2), _flat(make, gates, 1, 1, 3, hidden), True, 1, 0.0, True, False, False), {}),
            ((make((2, 5, 3)), state(2, 2), _flat(make, gates, 1, 2, 3, hidden), True, 1, 0.0, True, True, True), {}),
            ((make((7, 4)), tensor([3, 2, 1, 1]), state(2, 3), _flat(make, gates, 1, 2, 4, hidden), True, 1, 0.0, False, True), {}),
            ((make((4, 9, 2)), state(4, 9), _flat(make, gates, 2, 2, 2, hidden, bias=False), False, 2, 0.0, False, True, False), {}),
            ((make((6, 1, 3)), state(2, 1), _flat(make, gates, 2, 1, 3, hidden), True, 2, 0.0, False, False, False), {}),
            ((make((8, 3)), tensor([2, 2, 2, 1, 1]), state(2, 2), _flat(make, gates, 2, 1, 3, hidden), True, 2, 0.0, False, False), {})]


def lstm_layers(make):
    def state(n, batch):
        return [make((n, batch, 2)), make((n, batch, 2))]
    projected = ((make((5, 3, 2)), [make((2, 3, 2)), make((2, 3, 3))], _flat(make, 4, 1, 2, 2, 3, proj=2), True, 1, 0.0, True, True, False), {})
    return [*_layers(make, 4, state), projected]


def gru_layers(make):
    return _layers(make, 3, lambda n, batch: make((n, batch, 2)))


def rnn_tanh_layers(make):
    return _layers(make, 1, lambda n, batch: make((n, batch, 2)))


def rnn_relu_layers(make):
    return rnn_tanh_layers(make)


def _rnn_layer(make):
    return [((make((6, 3)), make((2, 2)), make((2, 2)), make((8, 3)), make((8, 2)), make((8,)), make((8,)), None, (2, 2, 1, 1), 2, False), {})]
