// Planes and the windows of a pooling as kernels need them.
#pragma once

#include "tapegrad/aten/pool/windows.h"
#include "tapegrad/cuda/launch/divide.h"

namespace tapegrad::cuda {

struct Planes {
  pool::Rule rule[3];
  Space in, out;
  Divider by_in, by_out;

  explicit Planes(const pool::Windows& w)
      : rule{w.rule[0], w.rule[1], w.rule[2]},
        in(w.in[0], w.in[1], w.in[2]),
        out(w.out[0], w.out[1], w.out[2]),
        by_in(in.numel(), w.planes * in.numel()),
        by_out(out.numel(), w.planes * out.numel()) {}
};

}  // namespace tapegrad::cuda
