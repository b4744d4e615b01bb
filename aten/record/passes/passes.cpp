#include "tapegrad/aten/record/passes/passes.h"

#include <algorithm>
#include <atomic>

namespace tapegrad::record {

namespace {
std::atomic<uint32_t> enabled{kAllPasses};
}

uint32_t set_passes(uint32_t passes) noexcept { return enabled.exchange(passes); }
bool pass_enabled(Pass pass) noexcept { return (enabled & pass) != 0; }

void set_aside_dead(Recording& r) {
  const auto boundary = r.calls.begin() + static_cast<ptrdiff_t>(r.two_parts ? r.first_calls : r.calls.size());
  const auto lives = [](const Call& call) { return !call.dead; };
  std::stable_partition(r.calls.begin(), boundary, lives);
  std::stable_partition(boundary, r.calls.end(), lives);
}

}  // namespace tapegrad::record
