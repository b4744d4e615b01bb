// Recurrent networks by their textbook formulas in double, a sequence and an element at a time, forward and back. No
// code in common with the kernels. Weights are one vector: of each layer and direction the matrices of the input, of
// the state and of the projection, then of each the two biases; within these by gates: LSTM i f g o, GRU r z n.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tapegrad/aten/functions.h"

namespace plain_network {

enum Cell : int { kRelu, kTanh, kLstm, kGru };

struct Place {
  int64_t offset, rows, columns;
};

struct Sizes {
  int cell;
  bool biases;
  int64_t directions, layers, input, hidden, state;

  int64_t gates() const { return cell == kLstm ? 4 : cell == kGru ? 3 : 1; }
  int64_t input_of(int64_t at) const { return at < directions ? input : directions * state; }
  int64_t projection() const { return state == hidden ? 0 : state * hidden; }
  int64_t matrices_of(int64_t at) const { return gates() * hidden * (input_of(at) + state) + projection(); }
  int64_t matrices_before(int64_t at) const {
    int64_t sum = 0;
    for (int64_t k = 0; k < at; ++k) sum += matrices_of(k);
    return sum;
  }
  int64_t matrix_elements() const { return matrices_before(layers * directions); }
  int64_t bias_elements() const { return biases ? layers * directions * 2 * gates() * hidden : 0; }
  // Number `which`: the input's gates, the state's gates, the projection. No rows where there is none.
  Place matrix(int64_t at, int64_t which) const {
    const int64_t g = gates(), before = matrices_before(at), in = input_of(at);
    if (which < g) return {before + which * hidden * in, hidden, in};
    if (which < 2 * g) return {before + g * hidden * in + (which - g) * hidden * state, hidden, state};
    return {before + g * hidden * (in + state), projection() == 0 ? 0 : state, hidden};
  }
  Place bias(int64_t at, int64_t which) const {
    const int64_t g = gates();
    if (!biases || which >= 2 * g) return {0, 0, 1};
    return {matrix_elements() + (at * 2 * g + which) * hidden, hidden, 1};
  }
};

struct Values {
  using Vector = std::vector<double>;

  Sizes s;
  std::vector<int> lengths;
  std::vector<int64_t> start;  // first row of each step
  Vector x, hx, cx, weights, y, hy, cy;
  Vector dx, dhx, dcx, dweights;

  Values(const Sizes& sizes, const std::vector<int>& of) : s(sizes), lengths(of) {
    int64_t at = 0;
    for (int step = 0; step < lengths[0]; ++step) {
      start.push_back(at);
      for (int length : lengths) at += length > step;
    }
    rows_ = at;
  }

  void forward() {
    const size_t count = static_cast<size_t>(s.layers * s.directions);
    const size_t n = lengths.size();
    hy.assign(count * n * static_cast<size_t>(s.state), 0);
    if (s.cell == kLstm) cy.assign(count * n * static_cast<size_t>(s.hidden), 0);
    inputs_.assign(static_cast<size_t>(s.layers), {});
    steps_.assign(count, std::vector<Step>(static_cast<size_t>(rows_)));
    Vector in = x;
    for (int64_t layer = 0; layer < s.layers; ++layer) {
      inputs_[static_cast<size_t>(layer)] = in;
      Vector out(static_cast<size_t>(rows_ * s.directions * s.state));
      for (int64_t d = 0; d < s.directions; ++d)
        for (size_t b = 0; b < n; ++b) run(layer, d, b, out);
      in = out;
    }
    y = in;
  }

  // Sums of the gradients times the given ones.
  void backward(const Vector& dy, const Vector& dhy, const Vector& dcy) {
    dhx.assign(hx.size(), 0);
    dcx.assign(cx.size(), 0);
    dweights.assign(weights.size(), 0);
    Vector dout = dy;
    for (int64_t layer = s.layers; layer-- > 0;) {
      Vector din(inputs_[static_cast<size_t>(layer)].size());
      for (int64_t d = 0; d < s.directions; ++d)
        for (size_t b = 0; b < lengths.size(); ++b) run_back(layer, d, b, dout, dhy, dcy, din);
      dout = din;
    }
    dx = dout;
  }

 private:
  // What a step of a sequence computed: sums of input and state by gate, the states before, the cell after, and the
  // state before its projection.
  struct Step {
    Vector of_input, of_state, h_before, c_before, c, full;
  };

  int64_t row(size_t b, int64_t step) const { return start[static_cast<size_t>(step)] + static_cast<int64_t>(b); }
  int64_t step_of(int64_t d, size_t b, int64_t i) const { return d == 0 ? i : lengths[b] - 1 - i; }
  static double logistic(double v) { return 1 / (1 + std::exp(-v)); }
  double weight(const Place& p, int64_t i, int64_t j) const {
    return weights[static_cast<size_t>(p.offset + i * p.columns + j)];
  }
  double bias(int64_t at, int64_t which, int64_t i) const {
    return s.biases ? weights[static_cast<size_t>(s.bias(at, which).offset + i)] : 0;
  }

  Vector sums(int64_t at, int64_t first, const double* v) const {
    Vector out;
    for (int64_t g = 0; g < s.gates(); ++g) {
      const Place p = s.matrix(at, first + g);
      for (int64_t i = 0; i < s.hidden; ++i) {
        double sum = bias(at, first + g, i);
        for (int64_t j = 0; j < p.columns; ++j) sum += weight(p, i, j) * v[j];
        out.push_back(sum);
      }
    }
    return out;
  }

  void run(int64_t layer, int64_t d, size_t b, Vector& out) {
    const int64_t at = layer * s.directions + d, n = static_cast<int64_t>(lengths.size()), in = s.input_of(at);
    const int64_t state_at = (at * n + static_cast<int64_t>(b));
    Vector h(hx.begin() + state_at * s.state, hx.begin() + (state_at + 1) * s.state), c;
    if (s.cell == kLstm) c.assign(cx.begin() + state_at * s.hidden, cx.begin() + (state_at + 1) * s.hidden);
    for (int64_t i = 0; i < lengths[b]; ++i) {
      const int64_t r = row(b, step_of(d, b, i));
      Step& step = steps_[static_cast<size_t>(at)][static_cast<size_t>(r)];
      step.of_input = sums(at, 0, inputs_[static_cast<size_t>(layer)].data() + r * in);
      step.of_state = sums(at, s.gates(), h.data());
      step.h_before = h;
      step.c_before = c;
      Vector full;
      for (int64_t j = 0; j < s.hidden; ++j) {
        const auto a = [&](int64_t g) { return step.of_input[static_cast<size_t>(g * s.hidden + j)]; };
        const auto q = [&](int64_t g) { return step.of_state[static_cast<size_t>(g * s.hidden + j)]; };
        const size_t k = static_cast<size_t>(j);
        if (s.cell == kLstm) {
          c[k] = logistic(a(1) + q(1)) * c[k] + logistic(a(0) + q(0)) * std::tanh(a(2) + q(2));
          full.push_back(logistic(a(3) + q(3)) * std::tanh(c[k]));
        } else if (s.cell == kGru) {
          const double reset = logistic(a(0) + q(0)), update = logistic(a(1) + q(1));
          full.push_back((1 - update) * std::tanh(a(2) + reset * q(2)) + update * h[k]);
        } else {
          full.push_back(s.cell == kTanh ? std::tanh(a(0) + q(0)) : std::max(0.0, a(0) + q(0)));
        }
      }
      step.c = c;
      step.full = full;
      h = full;
      if (s.projection() != 0) {
        const Place p = s.matrix(at, 2 * s.gates());
        h.assign(static_cast<size_t>(s.state), 0);
        for (int64_t k = 0; k < s.state; ++k)
          for (int64_t j = 0; j < s.hidden; ++j)
            h[static_cast<size_t>(k)] += weight(p, k, j) * full[static_cast<size_t>(j)];
      }
      std::copy(h.begin(), h.end(), out.begin() + (r * s.directions + d) * s.state);
    }
    std::copy(h.begin(), h.end(), hy.begin() + state_at * s.state);
    if (s.cell == kLstm) std::copy(c.begin(), c.end(), cy.begin() + state_at * s.hidden);
  }

  // Spreads the gradients of a layer's sums over weights, biases and what they were made from.
  void spread(int64_t at, int64_t first, const Vector& dsums, const double* v, double* dv) {
    for (int64_t g = 0; g < s.gates(); ++g) {
      const Place p = s.matrix(at, first + g);
      for (int64_t i = 0; i < s.hidden; ++i) {
        const double d = dsums[static_cast<size_t>(g * s.hidden + i)];
        if (s.biases) dweights[static_cast<size_t>(s.bias(at, first + g).offset + i)] += d;
        for (int64_t j = 0; j < p.columns; ++j) {
          dweights[static_cast<size_t>(p.offset + i * p.columns + j)] += d * v[j];
          dv[j] += d * weight(p, i, j);
        }
      }
    }
  }

  void run_back(int64_t layer, int64_t d, size_t b, const Vector& dout, const Vector& dhy, const Vector& dcy,
                Vector& din) {
    const int64_t at = layer * s.directions + d, n = static_cast<int64_t>(lengths.size()), in = s.input_of(at);
    const int64_t state_at = (at * n + static_cast<int64_t>(b)), h = s.hidden;
    Vector dh(dhy.begin() + state_at * s.state, dhy.begin() + (state_at + 1) * s.state), dc;
    if (s.cell == kLstm) dc.assign(dcy.begin() + state_at * h, dcy.begin() + (state_at + 1) * h);
    for (int64_t i = lengths[b]; i-- > 0;) {
      const int64_t r = row(b, step_of(d, b, i));
      const Step& step = steps_[static_cast<size_t>(at)][static_cast<size_t>(r)];
      for (int64_t k = 0; k < s.state; ++k)
        dh[static_cast<size_t>(k)] += dout[static_cast<size_t>((r * s.directions + d) * s.state + k)];
      Vector dfull = dh;
      if (s.projection() != 0) {
        const Place p = s.matrix(at, 2 * s.gates());
        dfull.assign(static_cast<size_t>(h), 0);
        for (int64_t k = 0; k < s.state; ++k)
          for (int64_t j = 0; j < h; ++j) {
            dfull[static_cast<size_t>(j)] += dh[static_cast<size_t>(k)] * weight(p, k, j);
            dweights[static_cast<size_t>(p.offset + k * h + j)] +=
                dh[static_cast<size_t>(k)] * step.full[static_cast<size_t>(j)];
          }
      }
      Vector da(static_cast<size_t>(s.gates() * h)), dq, direct(static_cast<size_t>(s.state));
      dq = da;
      for (int64_t j = 0; j < h; ++j) {
        const size_t k = static_cast<size_t>(j);
        const auto at_gate = [&](int64_t g) { return static_cast<size_t>(g * h + j); };
        const auto sum = [&](int64_t g) { return step.of_input[at_gate(g)] + step.of_state[at_gate(g)]; };
        if (s.cell == kLstm) {
          const double in_ = logistic(sum(0)), forget = logistic(sum(1)), g = std::tanh(sum(2)), o = logistic(sum(3));
          const double t = std::tanh(step.c[k]), e = dc[k] + dfull[k] * o * (1 - t * t);
          da[at_gate(0)] = e * g * in_ * (1 - in_);
          da[at_gate(1)] = e * step.c_before[k] * forget * (1 - forget);
          da[at_gate(2)] = e * in_ * (1 - g * g);
          da[at_gate(3)] = dfull[k] * t * o * (1 - o);
          dc[k] = e * forget;
          for (int64_t gate = 0; gate < 4; ++gate) dq[at_gate(gate)] = da[at_gate(gate)];
        } else if (s.cell == kGru) {
          const double reset = logistic(sum(0)), update = logistic(sum(1)), q = step.of_state[at_gate(2)];
          const double next = std::tanh(step.of_input[at_gate(2)] + reset * q),
                       dn = dfull[k] * (1 - update) * (1 - next * next);
          da[at_gate(0)] = dq[at_gate(0)] = dn * q * reset * (1 - reset);
          da[at_gate(1)] = dq[at_gate(1)] = dfull[k] * (step.h_before[k] - next) * update * (1 - update);
          da[at_gate(2)] = dn;
          dq[at_gate(2)] = dn * reset;
          direct[k] = dfull[k] * update;
        } else {
          const double t = std::tanh(sum(0));
          da[k] = dq[k] = dfull[k] * (s.cell == kTanh ? 1 - t * t : sum(0) > 0 ? 1 : 0);
        }
      }
      spread(at, 0, da, inputs_[static_cast<size_t>(layer)].data() + r * in, din.data() + r * in);
      dh = direct;
      spread(at, s.gates(), dq, step.h_before.data(), dh.data());
    }
    std::copy(dh.begin(), dh.end(), dhx.begin() + state_at * s.state);
    if (s.cell == kLstm) std::copy(dc.begin(), dc.end(), dcx.begin() + state_at * h);
  }

  int64_t rows_ = 0;
  std::vector<Vector> inputs_;            // of each layer
  std::vector<std::vector<Step>> steps_;  // of each layer and direction, by row
};

}  // namespace plain_network
