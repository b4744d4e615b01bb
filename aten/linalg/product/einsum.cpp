// einsum: the equation is turned into one label per dimension; operands are contracted two at a time, left to
// right, each step being one bmm over (shared and kept) x (own left) x (summed) x (own right) labels, or one mul where
// nothing is summed.
#include <algorithm>
#include <array>

#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_linalg.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad::composite {
namespace {

// Labels: 0..51 letters, kEllipsis + i the i-th dimension (from the right) under an ellipsis.
constexpr int kEllipsis = 52;
using Labels = std::vector<int>;

struct Term {
  Tensor tensor;
  Labels labels;  // one per dimension of the tensor
};

int letter(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  return -1;
}

// "a...b" as letters before and after the ellipsis.
struct Subscript {
  Labels before, after;
  bool ellipsis = false;
};

Subscript parse_subscript(std::string_view text, std::string_view equation) {
  Subscript s;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text[i] == '.') {
      TG_CHECK(!s.ellipsis && text.substr(i, 3) == "...", Runtime, "einsum: misplaced '.': '{}'", equation);
      s.ellipsis = true;
      i += 2;
      continue;
    }
    int l = letter(text[i]);
    TG_CHECK(l >= 0, Runtime, "einsum: subscripts are letters: got '{}' in '{}'", text[i], equation);
    (s.ellipsis ? s.after : s.before).push_back(l);
  }
  return s;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  size_t from = 0;
  for (size_t i = 0; i <= text.size(); ++i)
    if (i == text.size() || text[i] == at) {
      parts.push_back(text.substr(from, i - from));
      from = i + 1;
    }
  return parts;
}

Labels expand_labels(const Subscript& s, int hidden) {
  Labels r = s.before;
  for (int i = hidden - 1; i >= 0; --i) r.push_back(kEllipsis + i);
  r.insert(r.end(), s.after.begin(), s.after.end());
  return r;
}

bool has(const Labels& labels, int l) { return std::find(labels.begin(), labels.end(), l) != labels.end(); }

// A label that a term names twice stands for its diagonal.
Term take_diagonals(Term t) {
  for (size_t i = 0; i < t.labels.size(); ++i)
    for (size_t j = i + 1; j < t.labels.size();) {
      if (t.labels[i] != t.labels[j]) {
        ++j;
        continue;
      }
      t.tensor = diagonal(t.tensor, 0, static_cast<int64_t>(i), static_cast<int64_t>(j));
      int l = t.labels[i];  // diagonal puts its dimension last
      t.labels.erase(t.labels.begin() + static_cast<long>(j));
      t.labels.erase(t.labels.begin() + static_cast<long>(i));
      t.labels.push_back(l);
      j = i + 1;
      if (i >= t.labels.size()) break;
    }
  return t;
}

// Sums away the labels that `keep` refuses.
template <class Keep>
Term sum_labels(Term t, Keep keep) {
  DimVector dims;
  Labels rest;
  for (size_t i = 0; i < t.labels.size(); ++i) {
    if (keep(t.labels[i]))
      rest.push_back(t.labels[i]);
    else
      dims.push_back(static_cast<int64_t>(i));
  }
  if (!dims.empty()) t.tensor = sum(t.tensor, OptionalInts(dims), false);
  t.labels = rest;
  return t;
}

Tensor permute_to(const Term& t, const Labels& order) {
  DimVector dims;
  bool same = true;
  for (size_t i = 0; i < order.size(); ++i) {
    auto at = std::find(t.labels.begin(), t.labels.end(), order[i]) - t.labels.begin();
    dims.push_back(at);
    same = same && static_cast<size_t>(at) == i;
  }
  return same ? t.tensor : permute(t.tensor, dims);
}

int64_t size_of(const Term& t, int label) {
  auto at = std::find(t.labels.begin(), t.labels.end(), label) - t.labels.begin();
  return at < static_cast<long>(t.labels.size()) ? t.tensor.size(at) : 1;
}

// The product of two terms; labels that are not in `needed` are summed.
template <class Needed>
Term contract(Term a, Term b, Needed needed) {
  a = sum_labels(std::move(a), [&](int l) { return needed(l) || has(b.labels, l); });
  b = sum_labels(std::move(b), [&](int l) { return needed(l) || has(a.labels, l); });
  // A size of 1 broadcasts against the other's: drop it from the side that has it, unless both do.
  auto drop_ones = [](Term& x, const Term& other) {
    for (size_t i = 0; i < x.labels.size();) {
      if (x.tensor.size(static_cast<int64_t>(i)) == 1 && size_of(other, x.labels[i]) != 1 &&
          has(other.labels, x.labels[i])) {
        x.tensor = squeeze(x.tensor, IntSpan{static_cast<int64_t>(i)});
        x.labels.erase(x.labels.begin() + static_cast<long>(i));
      } else {
        ++i;
      }
    }
  };
  drop_ones(a, b);
  drop_ones(b, a);
  a = sum_labels(std::move(a), [&](int l) { return needed(l) || has(b.labels, l); });
  b = sum_labels(std::move(b), [&](int l) { return needed(l) || has(a.labels, l); });
  Labels batch, left, summed, right;
  int64_t nb = 1, nl = 1, ns = 1, nr = 1;
  for (int l : a.labels) {
    int64_t n = size_of(a, l);
    if (!has(b.labels, l)) {
      left.push_back(l);
      nl *= n;
    } else if (needed(l)) {
      batch.push_back(l);
      nb *= n;
    } else {
      summed.push_back(l);
      ns *= n;
    }
  }
  for (int l : b.labels)
    if (!has(a.labels, l)) {
      right.push_back(l);
      nr *= size_of(b, l);
    }
  auto join = [](const Labels& x, const Labels& y, const Labels& z) {
    Labels r = x;
    r.insert(r.end(), y.begin(), y.end());
    r.insert(r.end(), z.begin(), z.end());
    return r;
  };
  Term r;
  r.labels = join(batch, left, right);
  DimVector sizes;
  for (int l : batch) sizes.push_back(size_of(a, l));
  for (int l : left) sizes.push_back(size_of(a, l));
  for (int l : right) sizes.push_back(size_of(b, l));
  Tensor pa = permute_to(a, join(batch, left, summed)), pb = permute_to(b, join(batch, summed, right));
  if (summed.empty()) {  // a product element by element, in the dtype of both as mul has it
    DimVector wide_a(pa.sizes()), wide_b(sizes);
    wide_a.resize(sizes.size(), 1);
    std::fill_n(wide_b.begin() + static_cast<long>(batch.size()), left.size(), 1);
    r.tensor = mul(reshape(pa, wide_a), reshape(pb, wide_b));
  } else if (batch.empty()) {
    r.tensor = reshape(mm(reshape(pa, {nl, ns}), reshape(pb, {ns, nr})), sizes);
  } else {
    r.tensor = reshape(bmm(reshape(pa, {nb, nl, ns}), reshape(pb, {nb, ns, nr})), sizes);
  }
  return r;
}

}  // namespace

Tensor einsum(std::string_view equation, TensorSpan operands) {
  TG_CHECK(!operands.empty(), Runtime, "einsum: at least one operand is needed: '{}'", equation);
  std::string_view inputs = equation, output;
  size_t arrow = equation.find("->");
  if (arrow != std::string_view::npos) {
    inputs = equation.substr(0, arrow);
    output = equation.substr(arrow + 2);
  }
  std::vector<std::string_view> parts = split(inputs, ',');
  TG_CHECK(parts.size() == operands.size(), Runtime, "einsum: '{}' has {} subscripts for {} operands", equation,
           parts.size(), operands.size());

  std::vector<Term> terms;
  std::array<int64_t, kEllipsis + kMaxDims> size;
  std::array<int, kEllipsis + kMaxDims> count{};
  size.fill(-1);
  int widest = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    Subscript s = parse_subscript(parts[i], equation);
    const Tensor& t = operands[i];
    int named = static_cast<int>(s.before.size() + s.after.size());
    TG_CHECK(s.ellipsis ? named <= t.ndim() : named == t.ndim(), Runtime,
             "einsum: subscript '{}' names {} dimensions of operand {}, which has {}", parts[i], named, i, t.ndim());
    int hidden = t.ndim() - named;
    widest = std::max(widest, hidden);
    Term term{t, expand_labels(s, hidden)};
    for (size_t d = 0; d < term.labels.size(); ++d) {
      size_t l = static_cast<size_t>(term.labels[d]);
      int64_t n = t.size(static_cast<int64_t>(d));
      TG_CHECK(size[l] < 0 || size[l] == 1 || n == 1 || size[l] == n, Runtime,
               "einsum: dimension {} of operand {} has size {}, which does not broadcast with {} seen "
               "before: '{}'",
               d, i, n, size[l], equation);
      size[l] = size[l] < 0 || size[l] == 1 ? n : size[l];
      ++count[l];
    }
    for (size_t x = 0; x < term.labels.size(); ++x)
      for (size_t y = x + 1; y < term.labels.size(); ++y)
        TG_CHECK(term.labels[x] != term.labels[y] || t.size(static_cast<int64_t>(x)) == t.size(static_cast<int64_t>(y)),
                 Runtime, "einsum: operand {} has different sizes under one repeated subscript: '{}' and shape {}", i,
                 parts[i], format_ints(t.sizes()));
    terms.push_back(take_diagonals(std::move(term)));
  }

  Labels wanted;
  if (arrow != std::string_view::npos) {
    Subscript s = parse_subscript(output, equation);
    wanted = expand_labels(s, s.ellipsis ? widest : 0);
    for (size_t i = 0; i < wanted.size(); ++i) {
      TG_CHECK(size[static_cast<size_t>(wanted[i])] >= 0, Runtime,
               "einsum: an output subscript names no dimension of any operand: '{}'", equation);
      TG_CHECK(std::count(wanted.begin(), wanted.end(), wanted[i]) == 1, Runtime,
               "einsum: an output subscript appears more than once: '{}'", equation);
    }
  } else {  // implicit: the ellipsis, then every letter that appears once, in alphabetical order
    for (int i = widest - 1; i >= 0; --i) wanted.push_back(kEllipsis + i);
    for (int l = 0; l < kEllipsis; ++l)
      if (count[static_cast<size_t>(l)] == 1) wanted.push_back(l);
  }

  Term result = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    auto needed = [&](int l) {
      if (has(wanted, l)) return true;
      for (size_t j = i + 1; j < terms.size(); ++j)
        if (has(terms[j].labels, l)) return true;
      return false;
    };
    result = contract(std::move(result), terms[i], needed);
  }
  result = sum_labels(std::move(result), [&](int l) { return has(wanted, l); });
  return permute_to(result, wanted);
}

}  // namespace tapegrad::composite
