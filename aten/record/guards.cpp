#include "tapegrad/aten/record/guards.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/record/memory.h"

namespace tapegrad::record {

std::string Condition::find(const Tensor& t) const {
  if (kind == Kind::Bits) {
    const Tensor values = t.is_contiguous() ? t : raw::contiguous(t);
    return {static_cast<const char*>(values.data_ptr()), static_cast<size_t>(values.nbytes())};
  }
  const Scalar value = t.item();
  if (kind == Kind::Truth) return value.to<bool>() ? "1" : "0";
  const double x = value.to<double>(), y = std::bit_cast<double>(other);
  const bool truths[] = {x<y, x <= y, x == y, x != y, x> y, x >= y, std::isfinite(x), std::isinf(x), std::isnan(x)};
  return truths[static_cast<int>(kind) - static_cast<int>(Kind::Less)] ? "1" : "0";
}

namespace {

bool overlap(const Use& a, const Use& b) {
  return a.slot >= 0 && a.slot == b.slot && a.begin < b.end && b.begin < a.end;
}
bool any_overlaps(const std::vector<Use>& uses, const Use& use) {
  return std::any_of(uses.begin(), uses.end(), [&](const Use& u) { return overlap(u, use); });
}

// Code above the kernels, whose writes no use tells: it may write to what was there before the step, and to gradients.
bool is_opaque(const Call& call) {
  return call.kind == Call::Kind::Host || call.kind == Call::Kind::Gradient || call.kind == Call::Kind::Nested;
}
std::vector<bool> exposed_slots(const Recording& r) {
  std::vector<bool> exposed;
  for (const Slot& slot : r.slots) exposed.push_back(!slot.born);
  for (const Call& call : r.calls)
    if (call.kind == Call::Kind::Gradient)
      for (const Use& use : call.uses) exposed[static_cast<size_t>(use.slot)] = true;
  return exposed;
}

// Moves the calls from `fixed` on that make these bytes before it: how many, or none where one cannot be moved.
std::optional<size_t> bring_forward(Recording& r, const Use& read, size_t fixed, const std::vector<bool>& exposed) {
  const auto is_exposed = [&](const Use& use) { return use.slot >= 0 && exposed[static_cast<size_t>(use.slot)]; };
  std::vector<Use> needed{read}, written;  // by the calls that are moved
  std::vector<size_t> moved;
  for (size_t i = r.calls.size(); i-- > fixed;) {
    const Call& call = r.calls[i];
    const bool makes = std::any_of(call.uses.begin(), call.uses.end(),
                                   [&](const Use& use) { return use.written && any_overlaps(needed, use); });
    if (makes) {
      if (!is_kernel(call) || call.draw || may_raise(r, i)) return std::nullopt;
      moved.push_back(i);
      for (const Use& use : call.uses) {
        needed.push_back(use);
        if (use.written) written.push_back(use);
      }
    } else if (is_opaque(call) && (std::any_of(needed.begin(), needed.end(), is_exposed))) {
      return std::nullopt;
    } else if (std::any_of(call.uses.begin(), call.uses.end(),
                           [&](const Use& use) { return any_overlaps(written, use); })) {
      return std::nullopt;  // it needs what was there before
    }
  }
  std::vector<Call> rest;
  size_t place = fixed;
  for (size_t i = fixed; i < r.calls.size(); ++i) {
    const bool first = std::find(moved.begin(), moved.end(), i) != moved.end();
    if (!first)
      rest.push_back(std::move(r.calls[i]));
    else if (place++ != i)
      r.calls[place - 1] = std::move(r.calls[i]);
  }
  std::move(rest.begin(), rest.end(), r.calls.begin() + static_cast<ptrdiff_t>(place));
  return moved.size();
}

}  // namespace

std::optional<size_t> GuardPlaces::find(Recording& r, const Use& read) {
  for (; seen_ < r.calls.size() && !fixed_; ++seen_)
    if (const Call& call = r.calls[seen_];
        (call.kind == Call::Kind::Host && !call.repeatable) || call.kind == Call::Kind::Nested)
      fixed_ = seen_;
  if (!fixed_) return r.calls.size();
  const std::vector<bool> exposed = exposed_slots(r);
  const bool is_exposed = read.slot >= 0 && exposed[static_cast<size_t>(read.slot)];
  size_t place = r.calls.size();
  for (; place > after_guards_; --place) {
    const Call& call = r.calls[place - 1];
    if (is_exposed && is_opaque(call)) break;
    if (std::any_of(call.uses.begin(), call.uses.end(),
                    [&](const Use& use) { return use.written && overlap(use, read); }))
      break;
  }
  if (place <= *fixed_) return place;
  const std::optional<size_t> moved = bring_forward(r, read, *fixed_, exposed);
  if (!moved) return std::nullopt;
  *fixed_ += *moved;
  return *fixed_;
}

void GuardPlaces::placed(size_t at) noexcept {
  after_guards_ = at + 1;
  if (fixed_) ++*fixed_;
}

}  // namespace tapegrad::record
