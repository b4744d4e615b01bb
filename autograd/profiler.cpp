#include "tapegrad/autograd/profiler.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <unordered_set>

#include "tapegrad/autograd/call_site.h"
#include "tapegrad/autograd/node.h"
#include "tapegrad/c10/allocator.h"
#include "tapegrad/c10/error.h"

namespace tapegrad::autograd::profiler {

namespace {

constexpr size_t kMostEvents = size_t{1} << 24;  // 1.2 GB per thread; what comes later is counted only

struct Log final : ThreadRecord {
  std::atomic<bool> locked{false};
  bool ended = false;  // under the lock
  uint64_t session = 0;
  Options options;
  std::vector<uint32_t> open;
  std::unordered_set<std::string> names;  // of what has no static name; addresses stay
};

struct Session {
  std::mutex mutex;
  std::vector<std::shared_ptr<Log>> logs;
  Options options;
};
Session& session() {
  static auto* one = new Session;
  return *one;
}
std::atomic<uint64_t> current{0};  // the number of the running session; 0: none
uint64_t started = 0;              // under the mutex

struct ThreadState {
  std::shared_ptr<Log> log;
};
ThreadState& state() {
  static thread_local ThreadState mine;
  return mine;
}
constinit thread_local bool passing = false;

int64_t now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The calling thread's log of the running session, or null; forgets a session that has ended.
Log* my_log() noexcept {
  Log* log = state().log.get();
  if (TG_LIKELY(log && log->session == current.load(std::memory_order_relaxed))) return log;
  tapegrad::detail::modes &= ~uint32_t{kModeProfile};
  state().log.reset();
  return nullptr;
}

void write_tensor(std::vector<int64_t>& to, const Tensor* t) {
  if (!t || !t->defined()) {
    to.push_back(-1);
    return;
  }
  to.push_back(static_cast<int64_t>(t->dtype()));
  to.push_back(t->ndim());
  to.insert(to.end(), t->sizes().begin(), t->sizes().end());
}

uint32_t write_inputs(std::vector<int64_t>& to, std::initializer_list<Input> inputs) {
  const size_t at = to.size();
  to.push_back(static_cast<int64_t>(inputs.size()));
  for (const Input& input : inputs) {
    switch (input.kind) {
      case Input::kTensors:
        to.push_back(-2);
        to.push_back(static_cast<int64_t>(input.list.size()));
        for (const Tensor& t : input.list) write_tensor(to, &t);
        break;
      case Input::kInts:
        to.push_back(-3);
        to.push_back(static_cast<int64_t>(input.ints.size()));
        to.insert(to.end(), input.ints.begin(), input.ints.end());
        break;
      case Input::kInt:
        to.push_back(-4);
        to.push_back(input.number);
        break;
      default:
        write_tensor(to, input.tensor);
    }
  }
  return static_cast<uint32_t>(at);
}

// Adds an open event: its index, or kNone when none is taken.
uint32_t begin(Log& log, Kind kind, const char* name, int64_t sequence, uint32_t extra,
               const std::initializer_list<Input>* inputs) {
  uint32_t site = 0, stack = 0;
  if (log.options.stack) {
    site = current_site();
    stack = current_stack();
  }
  SpinGuard guard(log.locked);
  if (log.ended) return kNone;
  if (log.events.size() >= kMostEvents) {
    ++log.dropped;
    return kNone;
  }
  const auto at = static_cast<uint32_t>(log.events.size());
  if (inputs && log.options.shapes) extra = write_inputs(log.inputs, *inputs);
  const uint32_t parent = log.open.empty() ? kNone : log.open.back();
  log.open.push_back(at);
  const int64_t bytes = log.options.memory ? cpu_allocator().thread_bytes() : 0;
  log.events.push_back({name, now(), -1, bytes, sequence, parent, site, stack, extra, kind});
  return at;
}

void finish(Log& log, uint32_t at) noexcept {
  const int64_t time = now();
  SpinGuard guard(log.locked);
  if (log.ended) return;
  Event& event = log.events[at];
  event.end = time;
  if (log.options.memory) event.bytes = cpu_allocator().thread_bytes() - event.bytes;
  // An operator notes the first node that was made while it ran: its own, as those that accumulate follow.
  if (event.kind == Kind::Operator) {
    const auto newest = static_cast<int64_t>(autograd::detail::node_sequence);
    event.sequence = newest != event.sequence ? event.sequence + 1 : 0;
  }
  for (size_t k = log.open.size(); k > 0; --k) {
    if (log.open[k - 1] != at) continue;
    log.open.erase(log.open.begin() + static_cast<std::ptrdiff_t>(k - 1));
    break;
  }
}

}  // namespace

void start(const Options& options) {
  Session& s = session();
  std::lock_guard lock(s.mutex);
  TG_CHECK(current.load() == 0, Runtime, "profiler: a profiler runs already: only one may run at a time");
  s.logs.clear();
  s.options = options;
  current.store(++started);
}

bool running() noexcept { return current.load(std::memory_order_relaxed) != 0; }

Options options() noexcept {
  Session& s = session();
  std::lock_guard lock(s.mutex);
  return s.options;
}

void attach() {
  Session& s = session();
  std::lock_guard lock(s.mutex);
  const uint64_t number = current.load();
  if (number == 0 || (state().log && state().log->session == number)) return;
  auto log = std::make_shared<Log>();
  log->session = number;
  log->options = s.options;
  log->thread = static_cast<uint64_t>(syscall(SYS_gettid));
  log->events.reserve(4096);
  s.logs.push_back(log);
  state().log = std::move(log);
  passing = false;
  tapegrad::detail::modes |= kModeProfile;
}

std::vector<std::shared_ptr<ThreadRecord>> stop() {
  Session& s = session();
  std::lock_guard lock(s.mutex);
  TG_CHECK(current.load() != 0, Runtime, "profiler: no profiler runs");
  current.store(0);
  tapegrad::detail::modes &= ~uint32_t{kModeProfile};
  state().log.reset();
  const int64_t time = now();
  std::vector<std::shared_ptr<ThreadRecord>> records;
  for (auto& log : s.logs) {
    SpinGuard guard(log->locked);
    log->ended = true;
    for (uint32_t at : log->open) {
      Event& event = log->events[at];
      event.end = time;
      event.bytes = 0;
      if (event.kind == Kind::Operator) event.sequence = 0;
    }
    records.push_back(log);
  }
  s.logs.clear();
  return records;
}

bool enter() noexcept {
  if (passing) {
    passing = false;
    return false;
  }
  return passing = my_log() != nullptr;
}

Scope::Scope(const char* name, std::initializer_list<Input> inputs) noexcept {
  Log* log = my_log();
  if (!log) return;
  try {
    at_ = begin(*log, Kind::Operator, name, static_cast<int64_t>(autograd::detail::node_sequence), kNone, &inputs);
    if (at_ != kNone) session_ = log->session;
  } catch (...) {  // out of memory: this call goes unrecorded
  }
}

Scope::Scope(Kind kind, std::string_view name, int64_t sequence, uint32_t extra) noexcept {
  open(kind, name, sequence, extra);
}

void Scope::open(Kind kind, std::string_view name, int64_t sequence, uint32_t extra) noexcept {
  Log* log = my_log();
  if (!log) return;
  try {
    const char* kept = log->names.emplace(name).first->c_str();
    at_ = begin(*log, kind, kept, sequence, extra, nullptr);
    if (at_ != kNone) session_ = log->session;
  } catch (...) {
  }
}

void Scope::close() noexcept {
  if (session_ == 0) return;
  Log* log = state().log.get();
  if (log && log->session == session_) finish(*log, at_);
  session_ = 0;
}

}  // namespace tapegrad::autograd::profiler
