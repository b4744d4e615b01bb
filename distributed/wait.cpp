#include "tapegrad/distributed/wait.h"

#include <algorithm>
#include <cstdio>

#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::distributed {

void Failure::set(const std::string& why, std::chrono::milliseconds grace) noexcept {
  const int64_t from = (Clock::now() + grace).time_since_epoch().count();
  const std::lock_guard lock(mutex_);
  if (from >= from_.load(std::memory_order_relaxed)) return;
  if (why_.empty() || grace.count() == 0) {
    try {
      why_ = why;
    } catch (const std::bad_alloc&) {  // without words, then
    }
  }
  from_.store(from, std::memory_order_release);
}

std::string Failure::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

void Failure::raise_if_set() const {
  if (is_set()) fail(DistError::Part::Backend, "{}", why());
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  constexpr size_t kShown = 16;
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += fmt::format("{}{}", i ? ", " : "", ranks[i]);
  if (ranks.size() > kShown) text += fmt::format(" and {} others", ranks.size() - kShown);
  return text;
}

void Wait::poll(Clock::time_point since, const std::function<std::vector<int>()>& missing) const {
  if (failure != nullptr && failure->is_set()) fail(DistError::Part::Backend, "{}: {}", what, failure->why());
  if (may_be_interrupted) check_interrupt();
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - since).count();
  if (now >= deadline)
    fail(DistError::Part::Backend, "{}: timed out after {:.1f} s of waiting for {}", what, seconds,
         describe(missing()));
  if (ask) {
    if (asked == Clock::time_point{}) asked = now;
    if (now - asked >= pause) {
      ask(*this, missing());
      asked = Clock::now();
      pause = std::min(pause * 2, std::chrono::milliseconds(8000));
    }
  }
  const double patient = std::chrono::duration<double>(patience).count();
  if (patient > 0 && seconds >= told + patient) {
    told = seconds;
    std::fputs(fmt::format("tapegrad: {}: has waited {:.0f} s for {}\n", what, seconds, describe(missing())).c_str(),
               stderr);
  }
}

}  // namespace tapegrad::distributed
