// Batching rules of searching, counting, and selection by the order of elements.
#include <algorithm>

#include "tapegrad/aten/batch/part.h"
#include "tapegrad/aten/batch/rules.h"
#include "tapegrad/aten/functions.h"

namespace tapegrad::batch {
namespace {

using One = std::tuple<Tensor>;

bool is_true(const Tensor& t) { return t.item().to<bool>(); }

// A number beside a sequence takes its dtype, as it does without samples.
Tensor beside(const Tensor& value, const Tensor& sequence) {
  return value.is_wrapped_number() && is_floating_point(sequence.dtype()) ? tapegrad::to(value, sequence.dtype())
                                                                          : value;
}

Tensor search(const Part& sequence, Part values, bool out_int32, bool right, const Part& sorter, int64_t n) {
  values.t = beside(values.t, sequence.t);
  if (sequence.ndim() != 1)
    return tapegrad::searchsorted(sequence.led(n), values.led(n), out_int32, right, {}, sorter.led(n));
  const Tensor found = tapegrad::searchsorted(sequence.led(n), values.rows(n), out_int32, right, {}, sorter.led(n));
  return tapegrad::reshape(found, led_by(n, values.sizes()));
}

[[noreturn]] void throw_sizes(const char* op, int64_t least, int64_t most) {
  throw NeedsValues(ErrorKind::Runtime,
                    fmt::format("{}: vmap: the results of samples have different sizes: [{}] and [{}]\nwhat depends on "
                                "values in its size cannot be mapped over",
                                op, least, most));
}

}  // namespace

Tensor searchsorted(const Tensor& sequence, const Operand& input, bool out_int32, bool right,
                    std::optional<std::string_view> side, const Tensor& sorter) {
  const auto [here, n, s, v, o] = parts_of(sequence, input.tensor(), sorter);
  return at_level(here, any_has_dim({&s, &v, &o}), [&] {
    const bool one_sequence = !s.has_dim && !o.has_dim && s.t.ndim() <= 1;
    if (one_sequence || !any_has_dim({&s, &v, &o}) || (side && *side != "left" && *side != "right") ||
        (side && right && *side != "right"))
      return tapegrad::searchsorted(s.t, v.t, out_int32, right, side, o.t);
    return search(s, v, out_int32, right || (side && *side == "right"), o, n);
  });
}

Tensor bucketize(const Operand& input, const Tensor& boundaries, bool out_int32, bool right) {
  const auto [here, samples, v, b] = parts_of(input.tensor(), boundaries);
  TG_CHECK(boundaries.ndim() == 1, Runtime, "bucketize: expected boundaries with 1 dimension: got {}",
           format_ints(boundaries.sizes()));
  return at_level(here, v.has_dim || b.has_dim, [&] {
    return b.has_dim ? search(b, v, out_int32, right, {}, level(here).size)
                     : tapegrad::bucketize(v.t, b.t, out_int32, right);
  });
}

Tensor isin(const Operand& elements, const Operand& test_elements, bool assume_unique, bool invert) {
  const int here = highest_level({&elements.tensor(), &test_elements.tensor()});
  const int64_t n = level(here).size;
  Part e = part(elements.tensor(), here);
  const Part t = part(test_elements.tensor(), here);
  return at_level(here, e.has_dim || t.has_dim, [&] {
    if (!t.has_dim || product(t.sizes()) == 0)  // nothing is among nothing: of any sample
      return tapegrad::isin(e.led(n), t.has_dim ? tapegrad::reshape(t.t, {0}) : t.t, assume_unique, invert);
    e.t = beside(e.t, t.t);
    DType dtype = promote_types(e.t.dtype(), t.t.dtype());
    if (dtype == DType::bool_) dtype = DType::uint8;  // which has an order
    const Tensor values = tapegrad::to(e.rows(n), dtype);
    const Tensor tests = std::get<0>(tapegrad::sort(tapegrad::to(t.rows(n), dtype), 1));
    const Tensor places = tapegrad::clamp_max(tapegrad::searchsorted(tests, values), Scalar(tests.size(1) - 1));
    const Tensor found = tapegrad::eq(tapegrad::gather(tests, 1, places), values);
    return tapegrad::reshape(invert ? tapegrad::logical_not(found) : found, led_by(n, e.sizes()));
  });
}

Tensor bincount(const Tensor& input, const Tensor& weights, int64_t minlength) {
  const auto [here, n, x, w] = samples_of("bincount", input, weights);
  return at_level(here, x.has_dim || w.has_dim, [&] {
    // Refused without samples, too: the sentence of that.
    if ((!x.has_dim && !w.has_dim) || input.ndim() != 1 || !is_integral(x.t.dtype()) || minlength < 0 ||
        (weights.defined() && weights.sizes() != input.sizes()))
      return std::get<0>(each_sample<One>(
          n, {x, w}, [&](const std::vector<Tensor>& a) { return One(tapegrad::bincount(a[0], a[1], minlength)); }));
    const Tensor values = tapegrad::to(x.led(n), DType::int64);
    int64_t width = minlength;
    if (values.numel() > 0) {
      const Tensor largest = tapegrad::amax(values, IntSpan{1});
      const int64_t least = std::max(minlength, tapegrad::amin(largest).item().to<int64_t>() + 1);
      width = std::max(minlength, tapegrad::amax(largest).item().to<int64_t>() + 1);
      if (tapegrad::amin(values).item().to<int64_t>() < 0) return tapegrad::bincount(tapegrad::reshape(values, {-1}));
      if (least != width) throw_sizes("bincount", least, width);
    }
    const Tensor counts =
        tapegrad::bincount(tapegrad::reshape(tapegrad::add(values, first_places(n, width, 2, values.device())), {-1}),
                           weights.defined() ? tapegrad::reshape(w.led(n), {-1}) : Tensor(), n * width);
    return tapegrad::reshape(counts, {n, width});
  });
}

Tensor repeat_indices(const Tensor& repeats, std::optional<int64_t> output_size) {
  const auto [here, n, r] = samples_of("repeat_interleave", repeats);
  return at_level(here, r.has_dim, [&] {
    const bool counts = r.t.ndim() == 2 && (r.t.dtype() == DType::int64 || r.t.dtype() == DType::int32);
    if (!r.has_dim || !counts || r.t.numel() == 0 || is_true(tapegrad::lt(tapegrad::amin(r.t), Scalar(0))))
      return r.has_dim ? std::get<0>(each_sample<One>(n, {r},
                                                      [&](const std::vector<Tensor>& a) {
                                                        return One(tapegrad::_repeat_indices(a[0], output_size));
                                                      }))
                       : tapegrad::_repeat_indices(r.t, output_size);
    const Tensor ends = tapegrad::cumsum(tapegrad::to(r.t, DType::int64), 1);
    const Tensor totals = tapegrad::select(ends, 1, -1);
    const int64_t least = tapegrad::amin(totals).item().to<int64_t>(),
                  most = tapegrad::amax(totals).item().to<int64_t>();
    if (least != most) throw_sizes("repeat_interleave", least, most);
    TG_CHECK(!output_size || *output_size == most, Runtime,
             "repeat_interleave: expected output_size to be the sum of the repeats {}: got {}", most,
             output_size.value_or(0));
    const Tensor places =
        tapegrad::expand(tapegrad::arange(Scalar(most), DType::int64, host_device(ends.device())), {n, most});
    return tapegrad::searchsorted(ends, places, false, true);
  });
}

Tensor masked_scatter(const Tensor& input, const Tensor& mask, const Tensor& source) {
  const auto [here, n, x, m, s] = samples_of("masked_scatter", input, mask, source);
  return at_level(here, any_has_dim({&x, &m, &s}), [&] {
    if (!any_has_dim({&x, &m, &s}) || mask.dtype() != DType::bool_ || input.dtype() != source.dtype())
      return tapegrad::masked_scatter(x.t, m.t, s.t);
    const DimVector sizes = led_by(n, broadcast_sizes(input.sizes(), mask.sizes(), "masked_scatter"));
    const Tensor target = tapegrad::expand(x.behind(n, static_cast<int64_t>(sizes.size())), sizes);
    const Tensor chosen = tapegrad::expand(m.behind(n, static_cast<int64_t>(sizes.size())), sizes);
    if (chosen.numel() == 0) return tapegrad::clone(target);
    const Tensor from = s.rows(n);
    // The k-th element that is chosen in a sample takes the k-th of the source.
    const Tensor counts = tapegrad::cumsum(Part{chosen, true}.rows(n), 1, DType::int64);
    const int64_t wanted = tapegrad::amax(counts).item().to<int64_t>();
    TG_CHECK(wanted <= from.size(1), Runtime, "masked_scatter: the mask has {} true elements, the source only {}",
             wanted, from.size(1));
    if (wanted == 0) return tapegrad::clone(target);
    const Tensor places = tapegrad::clamp_min(tapegrad::sub(counts, Scalar(1)), Scalar(0));
    return tapegrad::where(chosen, tapegrad::reshape(tapegrad::gather(from, 1, places), sizes), target);
  });
}

Tensor median_all(const Tensor& input, bool ignore_nan) {
  const auto [here, n, x] = samples_of("median", input);
  return at_level(here, x.has_dim, [&] {
    const auto all = [&](const Tensor& t) {
      return ignore_nan ? tapegrad::_nanmedian_all(t) : tapegrad::_median_all(t);
    };
    if (!x.has_dim) return all(x.t);
    if (input.numel() == 0) return tapegrad::expand(tapegrad::reshape(all(tapegrad::select(x.t, 0, 0)), {1}), {n});
    const Tensor rows = x.rows(n);
    return std::get<0>(ignore_nan ? tapegrad::_nanmedian_dim(rows, 1) : tapegrad::_median_dim(rows, 1));
  });
}

}  // namespace tapegrad::batch
