"""Samples of the normalisations."""


def batch_norm(make):
    def case(shape, running=True, affine=True, **kwargs):
        c = shape[1]
        state = (make((c,)), make((c,), low=0.5, high=2)) if running else (None, None)
        return (make(shape), *state, *((make((c,)), make((c,))) if affine else ())), kwargs

    return [case((4, 3)), case((4, 3), running=False, training=True), case((2, 3, 5), running=False, training=True, eps=1e-3), case((2, 3, 2, 2), affine=False),
            case((3, 2, 2, 3), running=False, affine=False, training=True), case((2, 2, 2, 2, 2)), case((2, 5, 33), running=False, training=True)]


def instance_norm(make):
    return [((make((2, 3, 5)),), {}), ((make((2, 3, 4, 2)),), {"weight": make((3,)), "bias": make((3,))}),
            ((make((2, 3, 4)), make((3,)), make((3,), low=0.5, high=2)), {"use_input_stats": False, "eps": 1e-3})]


def group_norm(make):
    return [((make((2, 4, 3)), 2), {}), ((make((2, 4, 3, 2)), 4, make((4,)), make((4,))), {}), ((make((3, 6)), 3, make((6,))), {"eps": 1e-3}), ((make((0, 4, 2)), 2), {}),
            ((make((2, 6, 5, 7)), 1, make((6,)), make((6,))), {})]


def layer_norm(make):
    return [((make((3, 4)), (4,)), {}), ((make((2, 3, 4)), (3, 4), make((3, 4)), make((3, 4))), {"eps": 1e-3}), ((make((4, 3)).t(), (4,), make((4,))), {}),
            ((make((0, 4)), (4,)), {}), ((make((2, 67)), (67,), make((67,)), make((67,))), {}), ((make((2, 3, 4)), [4], None, make((4,))), {})]


def rms_norm(make):
    return [((make((3, 4)), (4,)), {}), ((make((2, 3, 4)), (3, 4), make((3, 4))), {"eps": 1e-3}), ((make((2, 67)), (67,), make((67,))), {}), ((make((0, 4)), (4,)), {})]


def local_response_norm(make):
    return [((make((2, 5, 3)), 3), {}), ((make((2, 4, 3, 2)), 2), {"alpha": 0.5, "beta": 0.5, "k": 2.0})]


def normalize(make):
    return [((make((3, 4)),), {}), ((make((3, 4)),), {"p": 1.0, "dim": 0}), ((make((2, 3, 4)),), {"dim": -1, "p": 3.0})]


def _batch_norm_train(make):
    return [((make((3, 2, 4)), make((2,)), make((2,)), 1e-5), {}), ((make((3, 2)), None, None, 1e-3), {})]


def _batch_norm_train_grad(make):
    return [((make((3, 2, 4)), make((3, 2, 4)), make((2,)), make((2,)), make((2,), low=0.5, high=2), 1e-5), {})]


def _batch_norm_eval(make):
    return [((make((3, 2, 4)), make((2,)), make((2,)), make((2,)), make((2,), low=0.5, high=2), 1e-5), {})]


def _group_norm(make):
    return [((make((2, 4, 3)), 2, 4, 2, make((4,)), make((4,)), 1e-5, True), {}), ((make((2, 4, 3)), 2, 4, 1, None, None, 1e-5, False), {})]


def _group_norm_grad(make):
    return [((make((2, 4, 3)), make((2, 4, 3)), 2, 4, 2, make((4,)), make((2, 2)), make((2, 2), low=0.5, high=2), 1e-5, True), {})]
