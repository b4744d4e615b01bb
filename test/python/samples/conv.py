"""Samples of the convolutions."""


def _conv_case(make, n, spatial, batch=2, channels=2, out=3, kernel=2, groups=1, bias=True, **kwargs):
    spatial, shape = tuple(spatial), (kernel,) * n if isinstance(kernel, int) else kernel
    lead = (batch,) if batch is not None else ()
    args = (make((*lead, channels, *spatial)), make((out, channels // groups, *shape)), make((out,)) if bias else None)
    return args, {**kwargs, **({"groups": groups} if groups != 1 else {})}


def conv1d(make):
    return [_conv_case(make, 1, (5,)), _conv_case(make, 1, (7,), stride=2, padding=1, kernel=3), _conv_case(make, 1, (6,), groups=2, out=4, dilation=2),
            _conv_case(make, 1, (5,), batch=None, bias=False), _conv_case(make, 1, (5,), batch=0), _conv_case(make, 1, (5,), batch=1, kernel=1),
            _conv_case(make, 1, (40,), batch=3, channels=17, out=19, kernel=5, padding=2)]


def conv1d_named(make):
    return [_conv_case(make, 1, (5,), padding="same", kernel=3), _conv_case(make, 1, (5,), padding="same"), _conv_case(make, 1, (5,), padding="valid"),
            _conv_case(make, 1, (7,), padding="same", kernel=3, dilation=2)]


def conv2d(make):
    return [_conv_case(make, 2, (4, 5)), _conv_case(make, 2, (5, 4), stride=(2, 1), padding=(1, 0), kernel=(3, 2)), _conv_case(make, 2, (4, 4), groups=2, out=4),
            _conv_case(make, 2, (5, 5), dilation=2, bias=False), _conv_case(make, 2, (4, 4), batch=None), _conv_case(make, 2, (4, 4), batch=0),
            _conv_case(make, 2, (9, 11), batch=3, channels=16, out=17, kernel=3, padding=1), _conv_case(make, 2, (6, 6), channels=4, out=4, groups=4, kernel=3),
            _conv_case(make, 2, (4, 4), channels=1, out=2, kernel=1)]


def conv2d_named(make):
    return [_conv_case(make, 2, (4, 5), padding="same", kernel=3), _conv_case(make, 2, (4, 5), padding="same"), _conv_case(make, 2, (4, 4), padding="valid")]


def conv3d(make):
    return [_conv_case(make, 3, (3, 3, 2)), _conv_case(make, 3, (3, 4, 3), stride=2, padding=1, channels=1, out=2), _conv_case(make, 3, (2, 3, 2), batch=None, bias=False),
            _conv_case(make, 3, (3, 3, 3), groups=2, out=2)]


def conv3d_named(make):
    return [_conv_case(make, 3, (3, 3, 2), padding="same", channels=1), _conv_case(make, 3, (2, 2, 2), padding="valid", channels=1)]


def _transposed(make, n, spatial, batch=2, channels=2, out=3, kernel=2, groups=1, bias=True, **kwargs):
    lead = (batch,) if batch is not None else ()
    args = (make((*lead, channels, *spatial)), make((channels, out // groups, *(kernel,) * n)), make((out,)) if bias else None)
    return args, {**kwargs, **({"groups": groups} if groups != 1 else {})}


def conv_transpose1d(make):
    return [_transposed(make, 1, (4,)), _transposed(make, 1, (4,), stride=2, padding=1, output_padding=1, kernel=3), _transposed(make, 1, (3,), groups=2, out=4),
            _transposed(make, 1, (4,), batch=None, bias=False, dilation=2), _transposed(make, 1, (4,), batch=0)]


def conv_transpose2d(make):
    return [_transposed(make, 2, (3, 4)), _transposed(make, 2, (3, 2), stride=2, padding=1, output_padding=1, kernel=3), _transposed(make, 2, (3, 3), groups=2, out=2),
            _transposed(make, 2, (3, 3), batch=None, bias=False), _transposed(make, 2, (7, 6), batch=3, channels=17, out=16, kernel=3, padding=1)]


def conv_transpose3d(make):
    return [_transposed(make, 3, (2, 2, 2), out=1), _transposed(make, 3, (2, 2, 2), stride=2, channels=1, out=1, output_padding=1), _transposed(make, 3, (2, 2, 2), batch=None, bias=False, out=1)]


_PLAIN = ((1, 1), (0, 0), (1, 1), 1)


def _conv(make):
    return [((make((2, 2, 4, 4)), make((3, 2, 2, 2)), make((3,)), *_PLAIN), {}), ((make((1, 2, 4, 4)), make((2, 1, 3, 3)), None, (1, 1), (1, 1), (1, 1), 2), {})]


def _conv_grad_input(make):
    return [((make((2, 3, 3, 3)), make((3, 2, 2, 2)), (2, 2, 4, 4), *_PLAIN), {})]


def _conv_grad_weight(make):
    return [((make((2, 3, 3, 3)), make((2, 2, 4, 4)), (3, 2, 2, 2), *_PLAIN), {})]


def fold(make):
    return [((make((2, 8, 12)), (4, 5), 2), {}), ((make((9, 9)), 5, 3), {"stride": 2, "padding": 1}), ((make((0, 4, 4)), 3, 2), {}),
            ((make((1, 12, 6)), (4, 6), (2, 3)), {"dilation": (1, 2)})]


def _im2col(make):
    return [((make((2, 2, 4, 5)), (2, 3), (1, 1), (1, 0), (1, 2)), {})]


def _col2im(make):
    return [((make((2, 8, 12)), (4, 5), (2, 2), (1, 1), (0, 0), (1, 1)), {})]
