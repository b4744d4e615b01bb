"""Softmax, normalisations, pooling, resampling, attention and recurrent cells, forward and with backward, in float32; recurrent layers in bfloat16, too."""

from functools import partial

from ..harness import Case


def _functions(lib):
    f = lib.nn.functional

    def randn(*shape):
        return lib.randn(*shape, requires_grad=True)

    image, rows = randn(16, 32, 56, 56), randn(4096, 512)
    channel = [randn(32) for _ in range(4)]
    running = [lib.zeros(32), lib.ones(32)]
    scale, shift = randn(512), randn(512)
    heads = [randn(2, 8, 512, 64) for _ in range(3)]
    small = randn(8, 32, 28, 28)
    x, h, c = randn(64, 128), randn(64, 256), randn(64, 256)
    lstm = [randn(1024, 128), randn(1024, 256), randn(1024), randn(1024)]
    sequence, states = randn(35, 32, 128), (lib.zeros(1, 32, 256), lib.zeros(1, 32, 256))
    recurrent = [[randn(gates * 256, 128), randn(gates * 256, 256), randn(gates * 256), randn(gates * 256)] for gates in (4, 3)]
    return {
        "softmax 4096x512": (lambda: f.softmax(rows, -1), [rows]),
        "log_softmax 4096x512 over rows": (lambda: f.log_softmax(rows, 0), [rows]),
        "softmax 16384x32": (lambda x=randn(16384, 32): f.softmax(x, -1), []),
        "layer_norm 4096x512": (lambda: f.layer_norm(rows, (512,), scale, shift), [rows, scale, shift]),
        "group_norm 16x32x56x56, 8 groups": (lambda: f.group_norm(image, 8, channel[0], channel[1]), [image, *channel[:2]]),
        "batch_norm 16x32x56x56, training": (lambda: f.batch_norm(image, *running, channel[2], channel[3], True), [image, *channel[2:]]),
        "max_pool2d 16x32x56x56, 2": (lambda: f.max_pool2d(image, 2), [image]),
        "max_pool2d 16x32x56x56, 3 stride 2": (lambda: f.max_pool2d(image, 3, 2, 1), [image]),
        "avg_pool2d 16x32x56x56, 2": (lambda: f.avg_pool2d(image, 2), [image]),
        "adaptive_avg_pool2d 16x32x56x56, 1": (lambda: f.adaptive_avg_pool2d(image, 1), [image]),
        "interpolate 8x32x28x28, nearest x2": (lambda: f.interpolate(small, scale_factor=2), [small]),
        "interpolate 8x32x28x28, bilinear x2": (lambda: f.interpolate(small, scale_factor=2, mode="bilinear"), [small]),
        "attention 2x8x512x64": (lambda: f.scaled_dot_product_attention(*heads), heads),
        "attention 2x8x512x64, causal": (lambda: f.scaled_dot_product_attention(*heads, is_causal=True), heads),
        "attention 2x8x512x64, padded": (lambda m=(lib.arange(512) < lib.tensor([[512], [300]]))[:, None, None]: f.scaled_dot_product_attention(*heads, m), heads),
        "attention 2x8x512x64, dropout": (lambda: f.scaled_dot_product_attention(*heads, None, 0.1), heads),
        "lstm 35x32x128 -> 256": (lambda: lib.lstm(sequence, states, recurrent[0], True, 1, 0.0, True, False, False)[0], [sequence, *recurrent[0]]),
        "gru 35x32x128 -> 256": (lambda: lib.gru(sequence, states[0], recurrent[1], True, 1, 0.0, True, False, False)[0], [sequence, *recurrent[1]]),
        "lstm cell 64x128 -> 256": (lambda: lib.lstm_cell(x, (h, c), *lstm)[0], [x, h, c, *lstm]),
        "cross_entropy 4096x512": (lambda t=lib.arange(4096) % 512: f.cross_entropy(rows, t), [rows]),
    }


def _in_bfloat16(lib, width, sequences):
    def randn(*shape):
        return lib.randn(*shape).mul_(width**-0.5).to(lib.bfloat16).requires_grad_()

    def weights(gates):
        return [randn(gates * width, width), randn(gates * width, width), randn(gates * width), randn(gates * width)]

    x, lstm, gru, states = randn(35, sequences, width), weights(4), weights(3), [lib.zeros(1, sequences, width).to(lib.bfloat16)] * 2
    label = f"35x{sequences}x{width} -> {width}, bfloat16"
    return {
        f"lstm {label}": (lambda: lib.lstm(x, states, lstm, True, 1, 0.0, True, False, False)[0], [x, *lstm]),
        f"gru {label}": (lambda: lib.gru(x, states[0], gru, True, 1, 0.0, True, False, False)[0], [x, *gru]),
        f"lstm cell {label[3:]}": (lambda: lib.lstm_cell(x[0], (states[0][0], states[1][0]), *lstm)[0], [x, *lstm]),
    }


def _with_backward(run, leaves):
    def both():
        for leaf in leaves:
            leaf.grad = None
        run().sum().backward()

    return both


def without_tape(lib, run):
    def forward():
        with lib.no_grad():
            return run()

    return forward


def cases(libraries):
    for make in [_functions, *[partial(_in_bfloat16, width=width, sequences=n) for width in (256, 1024) for n in (1, 16, 64)]]:
        functions = {name: (lib, make(lib)) for name, lib in libraries.items() if name != "numpy"}
        for label in functions["tapegrad"][1]:
            yield Case("layers", f"{label}: forward", {n: without_tape(lib, table[label][0]) for n, (lib, table) in functions.items()})
            if functions["tapegrad"][1][label][1]:
                yield Case("layers", f"{label}: forward and backward", {n: _with_backward(*table[label]) for n, (lib, table) in functions.items()})
