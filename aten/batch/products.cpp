#include "tapegrad/aten/batch/products.h"

#include "tapegrad/aten/batch/part.h"
#include "tapegrad/aten/batch/rules.h"
#include "tapegrad/aten/functions_conv.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_view.h"

namespace tapegrad::batch {
namespace {

DimVector scaled(IntSpan sizes, size_t d, int64_t n) {
  DimVector result(sizes);
  result[d] *= n;
  return result;
}

}  // namespace

Tensor matmul(const Tensor& first, const Tensor& second) {
  const auto [n, samples, a, b] = parts_of(first, second);
  TG_CHECK(first.ndim() == second.ndim() && first.ndim() >= 2 && first.ndim() <= 3 &&
               first.size(-1) == second.size(-2) && (first.ndim() == 2 || first.size(0) == second.size(0)),
           Runtime, "{}: shapes {} and {} cannot be multiplied", first.ndim() == 3 ? "bmm" : "mm",
           format_ints(first.sizes()), format_ints(second.sizes()));
  return at_level(n, a.has_dim || b.has_dim, [&] {
    return !a.has_dim && !b.has_dim && a.t.ndim() == 3 ? tapegrad::bmm(a.t, b.t) : tapegrad::matmul(a.t, b.t);
  });
}

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const auto [n, samples, x, w, b] = parts_of(input, weight, bias);
  const bool has_dim = x.has_dim || w.has_dim || b.has_dim;
  return at_level(n, has_dim, [&] {
    if (!w.has_dim && !b.has_dim) return tapegrad::linear(x.t, w.t, b.t);
    if (!w.has_dim) {
      Tensor product = tapegrad::linear(x.led(samples), w.t);
      DimVector sizes(static_cast<size_t>(product.ndim()), 1);
      sizes[0] = samples;
      if (b.t.ndim() > 1) sizes[sizes.size() - 1] = b.t.size(-1);
      return tapegrad::add(product, tapegrad::reshape(b.t, sizes));
    }
    const bool vector = weight.ndim() == 1;
    const Tensor matrix = vector ? tapegrad::unsqueeze(w.t, 1) : w.t;
    TG_CHECK(input.ndim() > 0 && input.size(-1) == matrix.size(-1), Runtime,
             "linear: input of shape {} does not fit weight of shape {}", format_ints(input.sizes()),
             format_ints(weight.sizes()));
    // (samples, rows, in) by (samples, in, out)
    DimVector rows = x.has_dim ? DimVector{samples, -1, x.t.size(-1)} : DimVector{-1, x.t.size(-1)};
    if (product(input.sizes()) == 0 && x.t.size(-1) == 0)
      rows[rows.size() - 2] = product(input.sizes().subspan(0, input.sizes().size() - 1));
    Tensor y = tapegrad::matmul(tapegrad::reshape(x.t, rows), tapegrad::transpose(matrix, 1, 2));
    if (bias.defined())
      y = tapegrad::add(y,
                        b.has_dim ? tapegrad::reshape(b.t, {samples, 1, bias.ndim() == 0 ? 1 : bias.size(-1)}) : b.t);
    DimVector sizes = led_by(samples, input.sizes());
    if (vector)
      sizes.resize(sizes.size() - 1);
    else
      sizes[sizes.size() - 1] = matrix.size(1);
    return tapegrad::reshape(y, sizes);
  });
}

Tensor conv(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride, IntSpan padding,
            IntSpan dilation, int64_t groups) {
  const auto [n, samples, x, w, b] = samples_of("conv", input, weight, bias);
  return at_level(n, x.has_dim || w.has_dim || b.has_dim, [&] {
    auto run = [&](const Tensor& in, const Tensor& by, const Tensor& plus, int64_t g) {
      return tapegrad::_conv(in, by, plus, stride, padding, dilation, g);
    };
    if (!x.has_dim && !w.has_dim && !b.has_dim) return run(x.t, w.t, b.t, groups);
    if (!w.has_dim) {
      const Tensor plus = b.has_dim ? Tensor() : b.t;
      Tensor y = x.has_dim ? unfolded(run(x.folded(samples, 0), w.t, plus, groups), samples, 0)
                           : Part{run(x.t, w.t, plus, groups), false}.led(samples);
      if (!b.has_dim) return y;
      DimVector sizes(static_cast<size_t>(y.ndim()), 1);
      sizes[0] = samples;
      sizes[2] = b.t.size(1);
      return tapegrad::add(y, tapegrad::reshape(b.t, sizes));
    }
    const Tensor plus = bias.defined() ? b.folded(samples, 0) : Tensor();
    const bool shared = !x.has_dim && groups == 1;
    return unfolded(run(shared ? x.t : x.folded(samples, 1), w.folded(samples, 0), plus, shared ? 1 : groups * samples),
                    samples, 1);
  });
}

Tensor conv_grad_input(const Tensor& output, const Tensor& weight, IntSpan input_size, IntSpan stride, IntSpan padding,
                       IntSpan dilation, int64_t groups) {
  const auto [n, samples, y, w] = samples_of("conv_transpose", output, weight);
  return at_level(n, y.has_dim || w.has_dim, [&] {
    auto run = [&](const Tensor& out, const Tensor& by, IntSpan size, int64_t g) {
      return tapegrad::_conv_grad_input(out, by, size, stride, padding, dilation, g);
    };
    if (!y.has_dim && !w.has_dim) return run(y.t, w.t, input_size, groups);
    if (!w.has_dim) return unfolded(run(y.folded(samples, 0), w.t, scaled(input_size, 0, samples), groups), samples, 0);
    return unfolded(run(y.folded(samples, 1), w.folded(samples, 0), scaled(input_size, 1, samples), groups * samples),
                    samples, 1);
  });
}

Tensor conv_grad_weight(const Tensor& output, const Tensor& input, IntSpan weight_size, IntSpan stride, IntSpan padding,
                        IntSpan dilation, int64_t groups) {
  const auto [n, samples, y, x] = samples_of("conv_grad_weight", output, input);
  return at_level(n, y.has_dim || x.has_dim, [&] {
    if (!y.has_dim && !x.has_dim)
      return tapegrad::_conv_grad_weight(y.t, x.t, weight_size, stride, padding, dilation, groups);
    return unfolded(
        tapegrad::_conv_grad_weight(y.folded(samples, 1), x.folded(samples, 1), scaled(weight_size, 0, samples), stride,
                                    padding, dilation, groups * samples),
        samples, 0);
  });
}

Tensor roll(const Tensor& input, IntSpan shifts, IntSpan dims) {
  const auto [n, samples, x] = parts_of(input);
  return at_level(n, x.has_dim, [&] {
    if (!x.has_dim) return tapegrad::roll(x.t, shifts, dims);
    if (dims.empty() && shifts.size() == 1)
      return tapegrad::reshape(tapegrad::roll(x.rows(level(n).size), shifts, IntSpan{1}), x.t.sizes());
    DimVector behind;
    for (int64_t d : dims) {
      TG_CHECK(d >= -x.ndim() && d < x.ndim(), Index,
               "roll: Dimension out of range (expected to be in range of [{}, {}], but got {})", -x.ndim(),
               x.ndim() - 1, d);
      behind.push_back(d < 0 ? d : d + 1);
    }
    return tapegrad::roll(x.t, shifts, behind);
  });
}

Tensor repeat(const Tensor& input, IntSpan repeats) {
  const auto [n, samples, x] = parts_of(input);
  const auto count = static_cast<int64_t>(repeats.size());
  return at_level(n, x.has_dim, [&] {
    if (!x.has_dim || count < x.ndim()) return tapegrad::repeat(x.t, repeats);
    return tapegrad::repeat(x.behind(level(n).size, count + 1), led_by(1, repeats));
  });
}

Tensor embed_view(const Tensor& grad, IntSpan sizes, IntSpan view_size, IntSpan view_stride, int64_t offset) {
  const auto [n, samples, g] = parts_of(grad);
  return at_level(n, g.has_dim, [&] {
    if (!g.has_dim) return tapegrad::_embed_view(g.t, sizes, view_size, view_stride, offset);
    return tapegrad::_embed_view(g.t, led_by(samples, sizes), led_by(samples, view_size),
                                 led_by(product(sizes), view_stride), offset);
  });
}

Tensor read_view(const Tensor& input, IntSpan view_size, IntSpan view_stride, int64_t offset) {
  const auto [n, samples, x] = parts_of(input);
  return at_level(n, x.has_dim, [&] {
    if (!x.has_dim) return tapegrad::_read_view(x.t, view_size, view_stride, offset);
    return tapegrad::_read_view(tapegrad::contiguous(x.t), led_by(samples, view_size),
                                led_by(product(input.sizes()), view_stride), offset);
  });
}

}  // namespace tapegrad::batch
