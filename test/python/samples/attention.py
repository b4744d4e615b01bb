"""Samples of attention."""

import tapegrad


def scaled_dot_product_attention(make):
    def qkv(lead, rows=3, keys=4, width=2, value_width=None, shared=None):
        lead_k = lead if shared is None else (*lead[:-1], shared)
        return make((*lead, rows, width)), make((*lead_k, keys, width)), make((*lead_k, keys, value_width or width))

    seen = make((3, 4)) > -0.5
    seen[:, 0] = True
    return [(qkv((2, 2)), {}), (qkv((2, 1), value_width=3), {"scale": 0.3}), (qkv((1, 2), rows=4), {"is_causal": True}), (qkv((2,), rows=3, keys=5), {"is_causal": True}), (qkv(()), {}),
            ((*qkv((1, 2)), seen), {}), ((*qkv((2, 2)), make((2, 1, 3, 4))), {}), ((*qkv((2, 2)), make((3, 4))), {}), (qkv((1, 4), shared=2), {"enable_gqa": True}),
            (qkv((0, 2)), {}), (qkv((1, 2), rows=70, keys=300, width=9), {}), (qkv((1, 1), rows=130, keys=270, width=5), {"is_causal": True}),
            ((make((2, 2, 3, 4)).transpose(1, 2), make((2, 2, 3, 4)).transpose(1, 2), make((2, 2, 3, 4)).transpose(1, 2)), {})]


def _qkv(make):
    return make((1, 2, 3, 2)), make((1, 2, 4, 2)), make((1, 2, 4, 2))


def _attention(make):
    return [((*_qkv(make), None, False, 0.5), {}), ((*_qkv(make), tapegrad.ones(1, 2, 3, 4, dtype=tapegrad.bool), False, 0.5), {}),
            ((*_qkv(make), None, True, 0.5, make((1, 2, 3, 4)) > -0.5, 1.25), {}), ((make((2, 2, 70, 5)), *(make((2, 1, 300, 5)) for _ in range(2)), None, False, 0.5, make((2, 2, 300, 70)).mT > 0, 2.0), {})]


def _attention_grad(make):
    return [((make((1, 2, 3, 2)), *_qkv(make), None, make((1, 2, 3, 2)), make((1, 2, 3)), False, 0.5), {}),
            ((make((1, 2, 3, 2)), *_qkv(make), None, make((1, 2, 3, 2)), make((1, 2, 3)), True, 0.5, make((1, 2, 3, 4)) > -0.5, 1.25), {})]


def _attention_plain(make):
    return [((*_qkv(make), None, True, 0.5), {}), ((*_qkv(make), make((1, 2, 3, 4)), False, 0.5, make((1, 2, 3, 4)) > -0.5, 1.25), {})]
