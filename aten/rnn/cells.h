// One element of a step of a recurrent cell, and its gradient, in the compute type; for host and device. F gives the
// curves, which the loops of whole layers on the CPU compute faster (gates.h).
#pragma once

#include "tapegrad/aten/functors/math.h"

namespace tapegrad::rnn::cells {

struct Curves {
  template <class C>
  TG_HD static C logistic(C x) {
    return C(1) / (C(1) + math::exp(-x));
  }
  template <class C>
  TG_HD static C tanh(C x) {
    return math::tanh(x);
  }
};

// The gates of an LSTM: input, forget, cell, output.
template <class C, class F = Curves>
struct Lstm {
  C in, forget, cell, out;

  // From the gates' sums.
  TG_HD static Lstm from_sums(C i, C f, C g, C o) {
    return {F::logistic(i), F::logistic(f), F::tanh(g), F::logistic(o)};
  }
  TG_HD C next(C before) const { return forget * before + in * cell; }
  TG_HD C hidden(C next_cell) const { return out * F::tanh(next_cell); }
};
// Gradients of the gates' sums and of the cell's state before, by those of h and of the new state.
template <class C, class F = Curves>
struct LstmGrad {
  C in, forget, cell, out, before;
  TG_HD LstmGrad(const Lstm<C, F>& g, C before_cell, C next_cell, C dh, C dc) {
    const C t = F::tanh(next_cell), e = dc + dh * g.out * (C(1) - t * t);
    in = e * g.cell * g.in * (C(1) - g.in);
    forget = e * before_cell * g.forget * (C(1) - g.forget);
    cell = e * g.in * (C(1) - g.cell * g.cell);
    out = dh * t * g.out * (C(1) - g.out);
    before = e * g.forget;
  }
};

// The gates of a GRU: reset, update, new, and the state's part of the new value.
template <class C, class F = Curves>
struct Gru {
  C reset, update, next, part;

  // From the input's sums and the state's.
  TG_HD static Gru from_sums(C xr, C xu, C xn, C hr, C hu, C hn) {
    Gru g;
    g.reset = F::logistic(xr + hr);
    g.update = F::logistic(xu + hu);
    g.part = hn;
    g.next = F::tanh(xn + g.reset * hn);
    return g;
  }
  TG_HD C hidden(C before) const { return next + update * (before - next); }
};
// Gradients of the input's sums, of the state's part of the new value, and of the state before, by that of h.
template <class C, class F = Curves>
struct GruGrad {
  C reset, update, next, part, before;
  TG_HD GruGrad(const Gru<C, F>& g, C before_state, C d) {
    next = d * (C(1) - g.update) * (C(1) - g.next * g.next);
    reset = next * g.part * g.reset * (C(1) - g.reset);
    update = d * (before_state - g.next) * g.update * (C(1) - g.update);
    part = next * g.reset;
    before = d * g.update;
  }
};

}  // namespace tapegrad::rnn::cells
