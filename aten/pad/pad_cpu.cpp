// Padding: every dimension has a table of source indices (-1: padding by a constant); lines along the last
// dimension are gathered through them.
#include <vector>

#include "tapegrad/aten/copy/bytes.h"
#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/pad/source.h"
#include "tapegrad/aten/pad/value.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/table.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

using padding::Mode;
using padding::parse;
using padding::source;

struct Lines {
  std::vector<Table<int64_t>> table;  // per dimension, for every position of the padded tensor
  DimVector in_strides;               // of the unpadded tensor, contiguous
  int64_t lines = 1;                  // of the padded tensor
  int64_t length = 1;                 // of a padded line
  int64_t in_length = 1;

  Lines(IntSpan in, IntSpan out, IntSpan pad, Mode mode) : in_strides(contiguous_strides(in)) {
    size_t n = in.size();
    for (size_t d = 0; d < n; ++d) {
      size_t i = n - 1 - d;
      int64_t before = 2 * i < pad.size() ? pad[2 * i] : 0;
      table.push_back(make_table(out[d], [&](int64_t j) { return source(j - before, in[d], mode); }));
    }
    for (size_t d = 0; d + 1 < n; ++d) lines *= out[d];
    if (n > 0) {
      length = out[n - 1];
      in_length = in[n - 1];
    }
  }
  // The offset of the source of lines whose places in all dimensions but the last two are those of number `i`, or -1.
  int64_t place_before(int64_t i) const {
    int64_t offset = 0;
    for (size_t d = table.size() < 2 ? 0 : table.size() - 2; d-- > 0;) {
      int64_t n = static_cast<int64_t>(table[d].size());
      int64_t s = table[d][static_cast<size_t>(i % n)];
      if (s < 0) return -1;
      offset += s * in_strides[d];
      i /= n;
    }
    return offset;
  }
  // The offset of the source line of padded line `l`, or -1.
  int64_t line_source(int64_t l) const {
    if (table.size() < 2) return 0;
    const Table<int64_t>& side = table[table.size() - 2];
    const auto n = static_cast<int64_t>(side.size());
    const int64_t place = place_before(l / n), at = side[static_cast<size_t>(l % n)];
    return place < 0 || at < 0 ? -1 : place + at * in_strides[table.size() - 2];
  }
  int64_t grain() const { return 32768 / std::max<int64_t>(length, 1) + 1; }
};

// Elements are moved without looking at them, as T of their size.
template <class T>
void fill_padded(const Tensor& any_input, IntSpan pad, Mode mode, T value, const Tensor& out) {
  if (!out.is_contiguous()) {  // channels innermost: the same with the dimensions in another order
    DimVector turned(pad);
    turned.resize(2 * static_cast<size_t>(out.ndim()), 0);
    const auto channels = turned.end() - 4;  // the pairs run from the last dimension to the first
    std::rotate(turned.begin(), channels, channels + 2);
    return fill_padded<T>(channels_behind(channels_last_or_copy(any_input)), turned, mode, value, channels_behind(out));
  }
  const Tensor input = contiguous_or_copy(any_input);
  const T* x = static_cast<const T*>(input.data_ptr());
  T* y = static_cast<T*>(out.data_ptr());
  if (out.numel() == 0) return;
  if (out.ndim() == 0) {
    *y = *x;
    return;
  }
  Lines m(input.sizes(), out.sizes(), pad, mode);
  const Table<int64_t>& last = m.table.back();
  // The middle of a line is a plain copy.
  int64_t first_inside = 0, n = m.length;
  int64_t before = pad.empty() ? 0 : pad[0];
  first_inside = std::clamp<int64_t>(before, 0, n);
  int64_t end_inside = std::clamp<int64_t>(before + m.in_length, first_inside, n);
  // The lines along the dimension before the last lie side by side, `side` of them; the others' part of a place is the
  // same for all.
  const size_t dims = m.table.size();
  const int64_t side = dims > 1 ? static_cast<int64_t>(m.table[dims - 2].size()) : 1;
  parallel_for(0, m.lines, m.grain(), [&](int64_t from, int64_t to) {
    int64_t row = from % side, place = m.place_before(from / side);
    for (int64_t l = from; l < to; ++l, ++row) {
      if (row == side) row = 0, place = m.place_before(l / side);
      const int64_t at = dims > 1 ? m.table[dims - 2][static_cast<size_t>(row)] : 0;
      T* q = y + l * n;
      if (place < 0 || at < 0) {
        std::fill_n(q, n, value);
        continue;
      }
      const T* p = x + place + (dims > 1 ? at * m.in_strides[dims - 2] : 0);
      auto edge = [&](int64_t j) { q[j] = last[static_cast<size_t>(j)] < 0 ? value : p[last[static_cast<size_t>(j)]]; };
      for (int64_t j = 0; j < first_inside; ++j) edge(j);
      if (first_inside < end_inside)
        copy_bytes(q + first_inside, p + first_inside - before,
                   (end_inside - first_inside) * static_cast<int64_t>(sizeof(T)));
      for (int64_t j = end_inside; j < n; ++j) edge(j);
    }
  });
}

}  // namespace

void constant_pad_cpu(const Tensor& input, IntSpan pad, const Scalar& value, const Tensor& out) {
  padding::with_bits(value, out.dtype(),
                     [&]<class T>(const T& bits) { fill_padded<T>(input, pad, Mode::Constant, bits, out); });
}

void pad_mode_cpu(const Tensor& input, IntSpan pad, std::string_view mode, const Tensor& out) {
  dispatch_bytes(out.dtype(), [&]<class T>() { fill_padded<T>(input, pad, parse(mode), T(), out); });
}

// Every padded element adds its gradient to where it came from. Shared out by the leading dimension that
// padding leaves alone (channels), so no two threads add to one element.
void pad_mode_grad_cpu(const Tensor& output, IntSpan input_size, IntSpan pad, std::string_view mode,
                       const Tensor& out) {
  const Tensor planes = planes_for(out);
  dispatch_floating_complex(out.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    T* x = static_cast<T*>(planes.data_ptr());
    const T* y = static_cast<const T*>(output.data_ptr());
    size_t padded = pad.size() / 2, leading = input_size.size() - padded;
    int64_t outer = 1, inner_in = 1, inner_out = 1;
    for (size_t d = 0; d < input_size.size(); ++d) {
      (d < leading ? outer : inner_in) *= input_size[d];
      if (d >= leading) inner_out *= output.impl()->size(static_cast<int>(d));
    }
    Lines m(IntSpan(input_size.data() + leading, padded), IntSpan(output.sizes().data() + leading, padded), pad,
            parse(mode));
    parallel_for(0, outer, 32768 / std::max<int64_t>(inner_out, 1) + 1, [&](int64_t from, int64_t to) {
      std::vector<C> sum(static_cast<size_t>(inner_in));
      for (int64_t o = from; o < to; ++o) {
        std::fill(sum.begin(), sum.end(), C(0));
        const T* g = y + o * inner_out;
        for (int64_t l = 0; l < m.lines; ++l) {
          C* line = sum.data() + m.line_source(l);
          for (int64_t j = 0; j < m.length; ++j)
            line[m.table.back()[static_cast<size_t>(j)]] += static_cast<C>(g[l * m.length + j]);
        }
        convert_line(x + o * inner_in, sum.data(), inner_in);
      }
    });
  });
  finish_planes(out, planes);
}

}  // namespace tapegrad::cpu::TG_ISA
