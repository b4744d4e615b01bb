#include <algorithm>

#include "tapegrad/aten/batch/part.h"
#include "tapegrad/aten/batch/rules.h"
#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"

namespace tapegrad::batch {
namespace {

// With dimensions of size 1 behind the first, `ndim` in all.
Tensor padded(const Tensor& t, int64_t ndim) {
  DimVector sizes{t.size(0)};
  sizes.resize(static_cast<size_t>(ndim - t.ndim() + 1), 1);
  for (int64_t d = 1; d < t.ndim(); ++d) sizes.push_back(t.size(d));
  return tapegrad::reshape(t, sizes);
}

// The indices of a call, below the level, and where their dimensions stand in the result of one sample.
struct Indices {
  Indices(TensorSpan indices, int here) : number(level(here).size) {
    for (size_t i = 0; i < indices.size(); ++i) {
      parts.push_back(part(indices[i], here));
      if (!indices[i].defined()) continue;
      batched |= parts[i].has_dim;
      ndim = std::max(ndim, parts[i].ndim());
      together &= count == 0 || last + 1 == i;
      if (count++ == 0) first = static_cast<int64_t>(i);
      last = i;
    }
  }

  // Their dimensions begin the result of one sample.
  bool in_front() const { return first == 0 || !together; }

  // The indices, preceded by one for the samples' dimension: `lead`, or none.
  std::vector<Tensor> behind(Tensor lead) const {
    std::vector<Tensor> all{std::move(lead)};
    for (const Part& p : parts) all.push_back(p.has_dim ? padded(p.t, ndim + 1) : p.t);
    return all;
  }
  // The numbers of the samples, as an index beside the others.
  Tensor samples() const {
    DimVector sizes(static_cast<size_t>(ndim) + 1, 1);
    sizes[0] = number;
    const Device device = host_device(parts[last].t.device());
    return tapegrad::reshape(tapegrad::arange(Scalar(number), DType::int64, device), sizes);
  }

  int64_t number;
  std::vector<Part> parts;
  bool batched = false;  // one of them has samples
  bool together = true;  // those that are there are neighbours
  int64_t first = 0, ndim = 0, count = 0;
  size_t last = 0;
};

Tensor moved(const Tensor& t, int64_t from, int64_t to) {
  return from == to ? t : tapegrad::movedim(t, IntSpan{from}, IntSpan{to});
}

// `count` neighbouring dimensions, from and to.
Tensor moved(const Tensor& t, int64_t from, int64_t to, int64_t count) {
  DimVector source, destination;
  for (int64_t i = 0; i < count; ++i) {
    source.push_back(from + i);
    destination.push_back(to + i);
  }
  return from == to || count == 0 ? t : tapegrad::movedim(t, source, destination);
}

}  // namespace

Tensor index_tensor(const Tensor& input, TensorSpan indices) {
  const int here = highest_level({&input}, {indices});
  const Part x = part(input, here);
  const Indices by(indices, here);
  return at_level(here, x.has_dim || by.batched, [&] {
    if (!by.batched) {
      std::vector<Tensor> all = by.behind(Tensor());
      if (!x.has_dim) all.erase(all.begin());
      const Tensor result = _index_tensor(x.t, all);
      return x.has_dim && !by.together ? moved(result, by.ndim, 0) : result;
    }
    if (!x.has_dim) {  // the samples are the first dimension of the indices
      std::vector<Tensor> all = by.behind(Tensor());
      all.erase(all.begin());
      return moved(_index_tensor(x.t, all), by.in_front() ? 0 : by.first, 0);
    }
    const Tensor result = _index_tensor(x.t, by.behind(by.samples()));
    return by.in_front() ? result : moved(result, 1, 1 + by.first, by.ndim);
  });
}

Tensor index_put(const Tensor& input, TensorSpan indices, const Tensor& values, bool accumulate) {
  const int here = highest_level({&input, &values}, {indices});
  const Part x = part(input, here), v = part(values, here);
  const Indices by(indices, here);
  const int64_t ndim = input.ndim() - by.count + by.ndim;  // of what is written to, in one sample
  TG_CHECK(v.ndim() <= ndim, Runtime, "index_put: values of shape {} for {} dimensions", format_ints(values.sizes()),
           ndim);
  return at_level(here, x.has_dim || v.has_dim || by.batched, [&] {
    if (!x.has_dim && !v.has_dim && !by.batched) {
      std::vector<Tensor> all = by.behind(Tensor());
      all.erase(all.begin());
      return _index_put(x.t, all, v.t, accumulate);
    }
    const Tensor target = x.led(by.number);
    if (!by.batched && by.together)
      return _index_put(target, by.behind(Tensor()), v.has_dim ? padded(v.t, ndim + 1) : v.t, accumulate);
    Tensor written = v.has_dim ? padded(v.t, ndim + 1) : padded(tapegrad::unsqueeze(v.t, 0), ndim + 1);
    if (!by.in_front()) written = moved(written, 1 + by.first, 1, by.ndim);
    return _index_put(target, by.behind(by.samples()), written, accumulate);
  });
}

namespace {

// index + number of the sample * size, flat; checked, as a wrong one would name another sample's slice.
Tensor offset(const char* op, const Part& index, int64_t n, int64_t size) {
  const Tensor wide = tapegrad::to(index.led(n), DType::int64);
  if (wide.numel() > 0) {
    const Tensor wrong = tapegrad::any(
        tapegrad::logical_or(tapegrad::lt(wide, Operand(Scalar(0))), tapegrad::ge(wide, Operand(Scalar(size)))));
    TG_CHECK(!wrong.item().to<bool>(), Index, "{}: an index is out of bounds for dimension of size {}", op, size);
  }
  DimVector ones(static_cast<size_t>(wide.ndim()), 1);
  ones[0] = n;
  const Tensor base =
      tapegrad::reshape(tapegrad::arange(Scalar(0), Scalar(n * size), Scalar(std::max<int64_t>(size, 1)), DType::int64,
                                         host_device(wide.device())),
                        ones);
  return tapegrad::reshape(tapegrad::add(wide, base), {-1});
}

// op(target, dim, index, source) where tensors have samples.
template <class F>
Tensor along(const char* op, const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source, F&& f) {
  const auto [here, n, x, i, s] = parts_of(input, index, source);
  const int64_t ndim = x.ndim();
  return at_level(here, x.has_dim || i.has_dim || s.has_dim, [&] {
    if (!x.has_dim && !i.has_dim && !s.has_dim) return f(x.t, dim, i.t, s.t);
    check_samples(op, n);
    if (ndim == 0 || s.ndim() != ndim || i.ndim() != 1)
      return std::get<0>(each_sample<std::tuple<Tensor>>(
          n, {x, i, s}, [&](const std::vector<Tensor>& a) { return std::tuple(f(a[0], dim, a[1], a[2])); }));
    TG_CHECK(dim >= -ndim && dim < ndim, Index,
             "{}: Dimension out of range (expected to be in range of [{}, {}], but got {})", op, -ndim, ndim - 1, dim);
    const int64_t d = dim < 0 ? dim + ndim : dim;
    const Tensor target = x.led(n), from = s.led(n);
    if (!i.has_dim) return f(target, d + 1, i.t, from);
    const int64_t size = target.size(d + 1);
    TG_CHECK(from.size(d + 1) == i.t.size(1), Runtime, "{}: {} indices for {} slices", op, i.t.size(1),
             from.size(d + 1));
    auto flat = [&](const Tensor& t) {
      const Tensor front = moved(t, d + 1, 1);
      DimVector sizes{n * front.size(1)};
      for (int64_t k = 2; k < front.ndim(); ++k) sizes.push_back(front.size(k));
      return tapegrad::reshape(front, sizes);
    };
    const Tensor result = f(flat(target), 0, offset(op, i, n, size), flat(from));
    DimVector sizes{n, size};
    for (int64_t k = 1; k < result.ndim(); ++k) sizes.push_back(result.size(k));
    return moved(tapegrad::reshape(result, sizes), 1, d + 1);
  });
}

// As offset, and negative ones count from the end. Of the index's shape, samples in front.
Tensor places(const char* op, const Part& index, int64_t n, int64_t size) {
  const Tensor wide = tapegrad::to(index.led(n), DType::int64);
  const Tensor behind =
      tapegrad::where(tapegrad::lt(wide, Operand(Scalar(0))), tapegrad::add(wide, Scalar(size)), wide);
  return tapegrad::reshape(offset(op, {behind, true}, n, size), wide.sizes());
}

// `dim` counted from the front; of one sample.
int64_t front_dim(const char* op, const Part& x, int64_t dim) {
  TG_CHECK(dim >= -x.ndim() && dim < x.ndim(), Index,
           "{}: Dimension out of range (expected to be in range of [{}, {}], but got {})", op, -x.ndim(), x.ndim() - 1,
           dim);
  return dim < 0 ? dim + x.ndim() : dim;
}

bool is_index(const Tensor& t) { return t.dtype() == DType::int64 || t.dtype() == DType::int32; }

}  // namespace

Tensor index_select(const Tensor& input, int64_t dim, const Tensor& index) {
  const auto [here, n, x, i] = parts_of(input, index);
  return at_level(here, x.has_dim || i.has_dim, [&] {
    if (!x.has_dim && !i.has_dim) return tapegrad::index_select(x.t, dim, i.t);
    check_samples("index_select", n);
    if (x.ndim() == 0 || i.ndim() > 1 || !is_index(i.t))
      return std::get<0>(each_sample<std::tuple<Tensor>>(n, {x, i}, [&](const std::vector<Tensor>& a) {
        return std::tuple(tapegrad::index_select(a[0], dim, a[1]));
      }));
    const int64_t d = front_dim("index_select", x, dim);
    if (!i.has_dim) return tapegrad::index_select(x.t, d + 1, i.t);
    if (!x.has_dim) return unfolded(tapegrad::index_select(x.t, d, tapegrad::reshape(i.t, {-1})), n, d);
    const int64_t size = x.t.size(d + 1);
    const Tensor front = moved(x.t, d + 1, 1);
    DimVector sizes(front.sizes());
    sizes.erase(0);
    sizes[0] *= n;
    const Tensor rows = tapegrad::index_select(tapegrad::reshape(front, sizes), 0, offset("index_select", i, n, size));
    return moved(unfolded(rows, n, 0), 1, d + 1);
  });
}

Tensor index_fill(const Tensor& input, int64_t dim, const Tensor& index, const Operand& value) {
  const auto [here, n, x, i, v] = parts_of(input, index, value.tensor());
  return at_level(here, any_has_dim({&x, &i, &v}), [&] {
    if (!any_has_dim({&x, &i, &v})) return tapegrad::index_fill(x.t, dim, i.t, v.t);
    check_samples("index_fill", n);
    if (x.ndim() == 0 || i.ndim() > 1 || v.ndim() > 0 || !is_index(i.t))
      return std::get<0>(each_sample<std::tuple<Tensor>>(n, {x, i, v}, [&](const std::vector<Tensor>& a) {
        return std::tuple(tapegrad::index_fill(a[0], dim, a[1], a[2]));
      }));
    const int64_t d = front_dim("index_fill", x, dim);
    if (!i.has_dim && !v.has_dim) return tapegrad::index_fill(x.t, d + 1, i.t, v.t);
    const int64_t size = input.size(d);
    const Tensor filled =
        tapegrad::index_fill(tapegrad::zeros({n * size}, DType::bool_, host_device(i.t.device())), 0,
                             tapegrad::reshape(places("index_fill", i, n, size), {-1}), Operand(Scalar(true)));
    DimVector along(static_cast<size_t>(x.ndim()) + 1, 1);
    along[0] = n;
    along[static_cast<size_t>(d) + 1] = size;
    return tapegrad::where(tapegrad::reshape(filled, along),
                           tapegrad::to(v.has_dim ? v.behind(n, x.ndim() + 1) : v.t, x.t.dtype()), x.led(n));
  });
}

Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx, bool scale_grad_by_freq,
                 bool sparse) {
  const auto [here, n, w, i] = parts_of(weight, indices);
  return at_level(here, w.has_dim || i.has_dim, [&] {
    if (!w.has_dim) return tapegrad::_embedding(w.t, i.t, padding_idx, scale_grad_by_freq, sparse);
    check_samples("embedding", n);
    if (w.ndim() != 2 || !is_index(i.t))
      return std::get<0>(each_sample<std::tuple<Tensor>>(n, {w, i}, [&](const std::vector<Tensor>& a) {
        return std::tuple(tapegrad::_embedding(a[0], a[1], padding_idx, scale_grad_by_freq, sparse));
      }));
    // One table of the rows of all samples, none of which is the padding of all: below, its gradient stops here.
    Tensor rows =
        tapegrad::_embedding(w.folded(n, 0), offset("embedding", i, n, weight.size(0)), -1, scale_grad_by_freq);
    DimVector sizes = led_by(n, i.sizes());
    sizes.push_back(weight.size(1));
    rows = tapegrad::reshape(rows, sizes);
    if (padding_idx < 0) return rows;
    const Tensor is_padding = tapegrad::unsqueeze(tapegrad::eq(i.led(n), Operand(Scalar(padding_idx))), -1);
    return tapegrad::where(is_padding, rows.detach(), rows);
  });
}

Tensor embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                     const Tensor& per_sample_weights, bool mean, int64_t padding_idx, bool scale_grad_by_freq,
                     bool sparse) {
  const auto [here, n, w, i, o, f] = samples_of("embedding_bag", weight, indices, offsets, per_sample_weights);
  return at_level(here, any_has_dim({&w, &i, &o, &f}), [&] {
    const auto run = [&](const Tensor& table, const Tensor& rows, const Tensor& bounds, const Tensor& factors) {
      return tapegrad::_embedding_bag(table, rows, bounds, factors, mean, padding_idx, scale_grad_by_freq, sparse);
    };
    if (!any_has_dim({&w, &i, &o, &f})) return run(w.t, i.t, o.t, f.t);
    const bool fits =
        w.ndim() == 2 && i.ndim() == 1 && o.ndim() == 1 && i.t.dtype() == DType::int64 && o.t.dtype() == DType::int64;
    // How often a row occurs is counted within a sample; of tables of all samples more than one row is padding.
    if (!fits || scale_grad_by_freq || (w.has_dim && padding_idx >= 0))
      return std::get<0>(each_sample<std::tuple<Tensor>>(
          n, {w, i, o, f}, [&](const std::vector<Tensor>& a) { return std::tuple(run(a[0], a[1], a[2], a[3])); }));
    const int64_t length = indices.size(0), bounds = offsets.size(0);
    // The bags of all samples one after the other. Behind the last of a sample comes one up to the next sample's
    // first, which is left out.
    const Tensor starts[] = {tapegrad::reshape(tapegrad::add(o.led(n), first_places(n, length, 2, o.t.device())), {-1}),
                             tapegrad::full({1}, Scalar(n * length), DType::int64, host_device(o.t.device()))};
    const Tensor rows = w.has_dim ? offset("embedding_bag", i, n, weight.size(0)) : tapegrad::reshape(i.led(n), {-1});
    const Tensor factors = per_sample_weights.defined() ? tapegrad::reshape(f.led(n), {-1}) : f.t;
    const Tensor bags = run(w.has_dim ? w.folded(n, 0) : w.t, rows, tapegrad::cat(starts, 0), factors);
    return tapegrad::narrow(unfolded(bags, n, 0), 1, 0, bounds - 1);
  });
}

Tensor take(const Tensor& input, const Tensor& index) {
  const auto [here, n, x, i] = parts_of(input, index);
  return at_level(here, x.has_dim || i.has_dim, [&] {
    if (!x.has_dim || !is_index(i.t)) return tapegrad::take(x.t, i.t);
    check_samples("take", n);
    return tapegrad::take(x.t, places("take", i, n, input.numel()));
  });
}

Tensor put(const Tensor& input, const Tensor& index, const Tensor& source, bool accumulate) {
  const auto [here, n, x, i, s] = parts_of(input, index, source);
  return at_level(here, any_has_dim({&x, &i, &s}), [&] {
    if (!any_has_dim({&x, &i, &s}) || !is_index(i.t) || index.numel() != source.numel())
      return tapegrad::put(x.t, i.t, s.t, accumulate);
    check_samples("put", n);
    return tapegrad::put(x.led(n), tapegrad::reshape(places("put", i, n, input.numel()), {-1}),
                         tapegrad::reshape(s.led(n), {-1}), accumulate);
  });
}

Tensor index_add(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha) {
  return along("index_add", input, dim, index, source,
               [&](const Tensor& x, int64_t d, const Tensor& i, const Tensor& s) {
                 return tapegrad::index_add(x, d, i, s, alpha);
               });
}

Tensor index_copy(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source) {
  return along(
      "index_copy", input, dim, index, source,
      [](const Tensor& x, int64_t d, const Tensor& i, const Tensor& s) { return tapegrad::index_copy(x, d, i, s); });
}

Tensor embedding_backward(const Tensor& grad_output, const Tensor& indices, int64_t num_weights, int64_t padding_idx,
                          bool scale_grad_by_freq) {
  const auto [here, n, g, i] = samples_of("embedding", grad_output, indices);
  return at_level(here, true, [&] {
    const Tensor grad = g.led(n);
    const int64_t width = grad.size(-1);
    if (!i.has_dim) {  // wider rows: those of all samples side by side
      const Tensor rows = tapegrad::movedim(grad, IntSpan{0}, IntSpan{-2});
      DimVector sizes(i.t.sizes());
      sizes.push_back(n * width);
      const Tensor sums =
          _embedding_backward(tapegrad::reshape(rows, sizes), i.t, num_weights, padding_idx, scale_grad_by_freq);
      return moved(tapegrad::reshape(sums, {num_weights, n, width}), 1, 0);
    }
    const Tensor sums = tapegrad::reshape(
        _embedding_backward(tapegrad::reshape(grad, {-1, width}), offset("embedding", i, n, num_weights),
                            n * num_weights, -1, scale_grad_by_freq),
        {n, num_weights, width});
    if (padding_idx < 0) return sums;
    return tapegrad::index_fill(sums, 1,
                                tapegrad::full({1}, Scalar(padding_idx), DType::int64, host_device(sums.device())),
                                Operand(Scalar(0)));
  });
}

}  // namespace tapegrad::batch
