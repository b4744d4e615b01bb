// Call sites: where in the user's program an operator was called, as a small id that is cheap to take (only when a node
// is made or an in-place write happens) and is turned into `file:line` only for a message. The Python bindings install
// `capture_site`; C++ callers get id 0 ("unknown"). On a thread that runs backward, the site is that of the forward
// call whose node is running.
#pragma once

#include <cstdint>
#include <string>

#include "tapegrad/c10/macros.h"

namespace tapegrad::autograd {

TG_API extern uint32_t (*capture_site)() noexcept;               // null: no bindings loaded
TG_API extern std::string (*describe_site_hook)(uint32_t site);  // "train.py:31"
TG_API extern uint32_t (*capture_stack)() noexcept;              // all lines of the program that lead here, interned

namespace detail {
struct FixedSite {
  uint32_t site;
  bool active;
};
TG_API extern constinit thread_local FixedSite fixed_site __attribute__((tls_model("initial-exec")));
}  // namespace detail

inline uint32_t current_site() noexcept {
  if (capture_site == nullptr) return 0;
  return TG_UNLIKELY(detail::fixed_site.active) ? detail::fixed_site.site : capture_site();
}
// For the profiler: the current call stack, innermost line first; 0 in backward, where the forward call has recorded
// it.
inline uint32_t current_stack() noexcept {
  return capture_stack == nullptr || detail::fixed_site.active ? 0 : capture_stack();
}
TG_API std::string describe_site(uint32_t site);  // "" for 0
// " at train.py:31", or "" for 0: how messages append a site.
TG_API std::string at_site(uint32_t site);

// Fixes the site of this thread for a scope, or makes it follow the program again (user code called from backward).
class SiteGuard {
 public:
  SiteGuard() noexcept : saved_(detail::fixed_site) { detail::fixed_site.active = false; }
  explicit SiteGuard(uint32_t site) noexcept : saved_(detail::fixed_site) { detail::fixed_site = {site, true}; }
  ~SiteGuard() { detail::fixed_site = saved_; }
  SiteGuard(const SiteGuard&) = delete;
  SiteGuard& operator=(const SiteGuard&) = delete;

 private:
  detail::FixedSite saved_;
};

}  // namespace tapegrad::autograd
