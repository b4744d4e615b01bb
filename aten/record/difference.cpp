// Two recordings of one step, call by call.
#include <algorithm>
#include <cstring>

#include "tapegrad/aten/record/chain/chain.h"
#include "tapegrad/aten/record/passes/passes.h"

namespace tapegrad::record {

namespace {

class Comparison {
 private:
  // Without what a plan has added.
  template <class R>
  static auto made_by_program(R& r) {
    std::vector<decltype(r.calls.data())> calls;
    for (auto& c : r.calls)
      if (c.kind == Call::Kind::Chain) {
        for (auto& member : c.chain->calls)
          if (!member.again) calls.push_back(&member);
      } else if (c.kind != Call::Kind::Allocate && c.kind != Call::Kind::Restore && !c.again) {
        calls.push_back(&c);
      }
    std::stable_sort(calls.begin(), calls.end(), [](auto* a, auto* b) { return a->number < b->number; });
    return calls;
  }

 public:
  Comparison(const Recording& a, Recording& b) : a_(a), b_(b) {}

  bool alike(const Call& x, const Call& y) const {
    auto lie_alike = [](const Use& p, const Use& q) {
      return p.written == q.written && p.offset == q.offset && p.begin == q.begin && p.end == q.end &&
             (p.written ? p.slot >= 0 && q.slot >= 0 : p.slot == q.slot);
    };
    return x.kind == y.kind && x.entry == y.entry && x.kernel == y.kernel && x.invoke == y.invoke &&
           x.given == y.given && x.arguments.size() == y.arguments.size() &&
           std::equal(x.uses.begin(), x.uses.end(), y.uses.begin(), y.uses.end(), lie_alike) && arguments(x, y).empty();
  }

  std::string run() {
    const std::vector<const Call*> before = made_by_program(a_);
    const std::vector<Call*> now = made_by_program(b_);
    for (size_t i = 0; i < std::min(before.size(), now.size()); ++i) {
      if (std::string what = call(*before[i], *now[i]); !what.empty())
        return fmt::format("call {} of {} ({}): {}", i + 1, now.size(), name_of(*now[i]), what);
      now[i]->seconds = std::min(now[i]->seconds, before[i]->seconds);
    }
    if (a_.two_parts != b_.two_parts || a_.first_outputs != b_.first_outputs || a_.first_feeds != b_.first_feeds)
      return "it ran in other parts";
    if (before.size() != now.size()) return fmt::format("it made {} calls, {} before", now.size(), before.size());
    const size_t slots = b_.slots.size();
    if (a_.slots.size() - a_.copies != slots || a_.outputs.size() != b_.outputs.size()) return "other results";
    for (size_t i = 0; i < slots; ++i)
      if (std::string what = slot(a_.slots[i], b_.slots[i]); !what.empty()) return what;
    auto same_draws = [](const DrawnFrom& x, const DrawnFrom& y) {
      return x.generator == y.generator && std::equal(x.end, x.end + 2, y.end);
    };
    if (!std::equal(a_.generators.begin(), a_.generators.end(), b_.generators.begin(), b_.generators.end(), same_draws))
      return "other random numbers";
    for (size_t i = 0; i < a_.outputs.size(); ++i) {
      const Output& x = a_.outputs[i];
      Output& y = b_.outputs[i];
      if (x.slot != y.slot || x.needs_grad != y.needs_grad) return fmt::format("result {} is another tensor", i);
      if (!tensor(x.tensor, y.tensor, x.slot)) return fmt::format("result {} has another shape", i);
      if (!x.same.defined() || !x.same.is_same(y.same)) y.same.reset();  // made anew in each run: a view
    }
    return {};
  }

 private:
  static Slot::Kind kind(const Slot& slot) {
    return slot.kind == Slot::Kind::Constant ? Slot::Kind::Temporary : slot.kind;
  }
  // The slot that the program used.
  int recorded(const Use& use) const { return use.was >= 0 ? use.was : recorded(use.slot); }
  int recorded(int slot) const {
    const int original = slot < 0 ? -1 : a_.slots[static_cast<size_t>(slot)].copy_of;
    return original < 0 ? slot : original;
  }
  static std::string name_of(const Call& c) {
    return c.entry != nullptr ? c.entry->name : !c.name.empty() ? c.name : "gradient";
  }
  static ptrdiff_t base(const Recording& r, int slot) {
    const int feed = slot < 0 ? -1 : r.slots[static_cast<size_t>(slot)].feed;
    return feed < 0 ? 0 : r.feeds[static_cast<size_t>(feed)].offset;
  }

  bool tensor(const Tensor& x, const Tensor& y, int slot) const {
    if (x.defined() != y.defined()) return false;
    if (!x.defined()) return true;
    const auto item = static_cast<ptrdiff_t>(x.itemsize());
    return x.dtype() == y.dtype() && x.sizes() == y.sizes() && x.impl()->strides() == y.impl()->strides() &&
           x.is_wrapped_number() == y.is_wrapped_number() &&
           (x.is_wrapped_number()
                ? std::memcmp(x.data_ptr(), y.data_ptr(), x.itemsize()) == 0
                : x.impl()->offset() * item - base(a_, slot) == y.impl()->offset() * item - base(b_, slot));
  }
  std::string slot(const Slot& x, const Slot& y) const {
    if (kind(x) != kind(y) || x.feed != y.feed || x.born != y.born || x.written != y.written) return "other tensors";
    if (x.kind == Slot::Kind::Weight && x.real != y.real) return "it uses another tensor in the place of one";
    if (x.kind != Slot::Kind::Feed && x.nbytes != y.nbytes) return "tensors of other sizes";
    if (x.initial != y.initial) {
      const size_t first = static_cast<size_t>(std::max(y.first, 0));
      return fmt::format("a tensor that the program made, which {} reads, has other values: pass it as an argument",
                         first < b_.calls.size() ? name_of(b_.calls[first]) : "nobody");
    }
    return {};
  }
  bool use(const Use& x, const Use& y) const {
    const ptrdiff_t p = base(a_, x.slot), q = base(b_, y.slot);
    return recorded(x) == y.slot && x.offset - p == y.offset - q && x.begin - p == y.begin - q &&
           x.end - p == y.end - q && x.written == y.written;
  }

  // The i-th argument; `at` is the position among the uses.
  std::string value(const Call& x, const Call& y, size_t i, size_t& at) const {
    const Value &v = x.values[i], &w = y.values[i];
    if (v.index() != w.index() || x.arguments[i].type() != y.arguments[i].type()) return "another kind of argument";
    auto next = [&](const Tensor& t) { return t.defined() ? recorded(x.uses[at++]) : -1; };
    const char* kShape = "a tensor of another shape";
    return std::visit(
        [&]<class T>(const T& p) -> std::string {
          const T& q = std::get<T>(w);
          if constexpr (std::is_same_v<T, std::monostate> || std::is_same_v<T, PhiloxState>) {
            return {};
          } else if constexpr (std::is_same_v<T, Tensor>) {
            return tensor(p, q, next(p)) ? "" : kShape;
          } else if constexpr (std::is_same_v<T, Operand>) {
            return tensor(p.tensor(), q.tensor(), next(p.tensor())) ? ""
                   : p.tensor().is_wrapped_number()                 ? number(p.tensor().item(), q.tensor().item())
                                                                    : kShape;
          } else if constexpr (std::is_same_v<T, ListValue>) {
            if (p.tensors.size() != q.tensors.size()) return "a longer or shorter list of tensors";
            for (size_t k = 0; k < p.tensors.size(); ++k)
              if (!tensor(p.tensors[k], q.tensors[k], next(p.tensors[k]))) return kShape;
            return {};
          } else if constexpr (requires { p.values; }) {
            bool same =
                p.values.size() == q.values.size() && std::equal(p.values.begin(), p.values.end(), q.values.begin());
            if constexpr (requires { p.optional; }) same = same && p.optional.has_value() == q.optional.has_value();
            return same ? "" : "other sizes or numbers";
          } else if constexpr (std::is_same_v<T, Scalar>) {
            return number(p, q);
          } else if constexpr (std::is_same_v<T, double>) {
            return number(Scalar(p), Scalar(q));
          } else {
            return p == q ? "" : "another value";
          }
        },
        v);
  }
  static std::string number(const Scalar& p, const Scalar& q) {
    if (same_number(p, q)) return {};
    return fmt::format("a number was {} and is {}: pass it as a tensor", to_string(p), to_string(q));
  }

  std::string call(const Call& x, const Call& y) const {
    if (x.kind != y.kind || x.entry != y.entry || x.kernel != y.kernel || x.key != y.key)
      return fmt::format("was {} before", name_of(x));
    if (x.uses.size() != y.uses.size() || x.arguments.size() != y.arguments.size() ||
        x.inputs.size() != y.inputs.size() || x.function != y.function || x.given != y.given)
      return "other arguments";
    for (size_t i = 0; i < x.uses.size(); ++i)
      if (!use(x.uses[i], y.uses[i])) return "another tensor";
    if (x.draw.has_value() != y.draw.has_value() ||
        (x.draw && (x.draw->from != y.draw->from || x.draw->n != y.draw->n || x.draw->part != y.draw->part ||
                    x.draw->delta != y.draw->delta)))
      return "other random numbers";
    if (std::string what = arguments(x, y); !what.empty()) return what;
    if (x.kind == Call::Kind::Gradient)
      return x.leaf.is_same(y.leaf) && tensor(x.grad, y.grad, x.uses.empty() ? -1 : recorded(x.uses[0]))
                 ? ""
                 : "another gradient";
    if (!(x.condition == y.condition)) return "it went on in another way";
    for (size_t i = 0; i < x.inputs.size() + x.results.size(); ++i) {
      const size_t k = i - x.inputs.size();
      if (i < x.inputs.size() ? !tensor(x.inputs[i], y.inputs[i], x.uses[i].slot)
                              : !tensor(x.results[k], y.results[k], x.uses[i].slot))
        return "a tensor of another shape";
    }
    return {};
  }
  // What kernels are given.
  std::string arguments(const Call& x, const Call& y) const {
    size_t at = 0;
    const auto is_read = [&](size_t i) {
      return std::any_of(x.given.begin(), x.given.end(), [&](const auto& g) { return g.first == i; });
    };
    for (size_t i = 0; i < x.arguments.size(); ++i)
      if (is_read(i))
        at += std::holds_alternative<Operand>(x.values[i]);
      else if (std::string what = value(x, y, i, at); !what.empty())
        return what;
    for (size_t i = 0; i < x.numbers.size(); ++i)
      if (std::string what = number(x.numbers[i].item(), y.numbers[i].item()); !what.empty()) return what;
    if (x.pointwise) return same(*x.pointwise, *y.pointwise);
    if (x.reduce) return same(*x.reduce, *y.reduce);
    return {};
  }
  static bool ints(const int64_t* p, const int64_t* q, int n) { return std::equal(p, p + n, q); }
  static std::string same(const pointwise::Iterator& x, const pointwise::Iterator& y) {
    bool same = x.ndim == y.ndim && x.num_inputs == y.num_inputs && x.compute == y.compute && x.result == y.result &&
                x.numel == y.numel && ints(x.shape, y.shape, x.ndim);
    for (int k = 0; same && k <= x.num_inputs; ++k)
      same = x.dtype[k] == y.dtype[k] && ints(x.strides[k], y.strides[k], x.ndim);
    if (!same) return "a tensor of another shape";
    for (int k = 0; k < pointwise::kMaxParams; ++k)
      if (std::string what = number(x.params[k], y.params[k]); !what.empty()) return what;
    return {};
  }
  static std::string same(const reduce::Iterator& x, const reduce::Iterator& y) {
    const bool same = x.compute == y.compute && x.input_dtype == y.input_dtype && x.output_dtype == y.output_dtype &&
                      x.outer_ndim == y.outer_ndim && x.reduced_ndim == y.reduced_ndim &&
                      x.outer_numel == y.outer_numel && x.reduced_numel == y.reduced_numel &&
                      ints(x.outer_shape, y.outer_shape, x.outer_ndim) &&
                      ints(x.reduced_shape, y.reduced_shape, x.reduced_ndim) &&
                      ints(x.outer_strides, y.outer_strides, x.outer_ndim) &&
                      ints(x.reduced_strides, y.reduced_strides, x.reduced_ndim);
    if (!same) return "a tensor of another shape";
    for (int k = 0; k < 4; ++k)
      if (std::string what = number(x.params[k], y.params[k]); !what.empty()) return what;
    return {};
  }

  const Recording& a_;
  Recording& b_;
};

}  // namespace

bool are_alike(Recording& r, const Call& a, const Call& b) { return Comparison(r, r).alike(a, b); }

std::string Recording::compare(const Recording& earlier) { return Comparison(earlier, *this).run(); }

}  // namespace tapegrad::record
