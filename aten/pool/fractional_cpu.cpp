// Fractional maximum pooling: windows of one size at places that a random number per plane and dimension decides
// (Graham, Fractional max-pooling, 2014).
#include "tapegrad/aten/pool/fractional.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/table.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

// Where the windows of one dimension begin.
template <class C>
void places(C sample, int64_t in, int64_t out, int64_t kernel, Table<int64_t>& start) {
  start.resize(static_cast<size_t>(out));
  for (int64_t i = 0; i < out; ++i) start[static_cast<size_t>(i)] = pool::fractional_start(sample, i, in, out, kernel);
}

}  // namespace

void fractional_max_pool_cpu(const Tensor& input, IntSpan kernel_size, IntSpan output_size,
                             const Tensor& random_samples, const Tensor& values, const Tensor& indices) {
  if (values.numel() == 0) return;
  const size_t spatial = kernel_size.size(), extra = 3 - spatial;
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  for (size_t d = 0; d < spatial; ++d) {
    in[extra + d] = input.sizes()[input.sizes().size() - spatial + d];
    out[extra + d] = output_size[d];
    kernel[extra + d] = kernel_size[d];
  }
  const int64_t in_plane = in[0] * in[1] * in[2], out_plane = out[0] * out[1] * out[2];
  const int64_t planes = values.numel() / out_plane, work = out_plane * kernel[0] * kernel[1] * kernel[2];
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    parallel_for(0, planes, 16384 / work + 1, [&](int64_t begin, int64_t end) {
      Table<int64_t> start[3];
      WorkCount done;
      for (int64_t p = begin; p < end; ++p) {
        for (size_t d = 0; d < 3; ++d) {
          if (d < extra) {
            start[d] = {0};
            continue;
          }
          const C sample = static_cast<C>(data_of<T>(
              random_samples)[pool::fractional_sample(p, static_cast<int64_t>(d), static_cast<int64_t>(spatial))]);
          places<C>(sample, in[d], out[d], kernel[d], start[d]);
        }
        const T* x = data_of<T>(input) + p * in_plane;
        int64_t to = p * out_plane;
        for (int64_t z0 : start[0])
          for (int64_t y0 : start[1])
            for (int64_t x0 : start[2]) {
              done(kernel[0] * kernel[1] * kernel[2]);
              int64_t at = (z0 * in[1] + y0) * in[2] + x0;
              C best = static_cast<C>(x[at]);
              for (int64_t z = z0; z < z0 + kernel[0]; ++z)
                for (int64_t y = y0; y < y0 + kernel[1]; ++y)
                  for (int64_t xx = x0; xx < x0 + kernel[2]; ++xx) {
                    const int64_t i = (z * in[1] + y) * in[2] + xx;
                    const C v = static_cast<C>(x[i]);
                    if (v > best || v != v) {
                      best = v;
                      at = i;
                    }
                  }
              target_of<T>(values)[to] = T(best);
              target_of<int64_t>(indices)[to++] = at;
            }
      }
    });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
