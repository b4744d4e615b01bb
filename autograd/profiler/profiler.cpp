#include "tapegrad/autograd/profiler/profiler.h"

#include <atomic>
#include <mutex>

#include "tapegrad/aten/dispatch/call.h"
#include "tapegrad/autograd/engine/node.h"
#include "tapegrad/autograd/profiler/profiler_log.h"
#include "tapegrad/c10/error.h"
#include "tapegrad/c10/memory/available_memory.h"

namespace tapegrad::autograd::profiler {

namespace {

struct Session {
  std::mutex mutex;
  std::vector<std::shared_ptr<Log>> logs;
  Options options;
  TickScale scale;
};
Session& session() {
  static auto* one = new Session;
  return *one;
}
std::atomic<uint64_t> current{0};  // the number of the running session; 0: none
uint64_t started = 0;              // under the mutex

// The calling thread's log: what every event reads, and its owner, which ends with the thread.
constinit thread_local Log* mine __attribute__((tls_model("initial-exec"))) = nullptr;
struct Owner {
  std::shared_ptr<Log> log;
  void set(std::shared_ptr<Log> to) noexcept {
    mine = to.get();
    log = std::move(to);
  }
  ~Owner() { mine = nullptr; }
};
Owner& owner() {
  static thread_local Owner one;
  return one;
}

TG_COLD void leave() noexcept {
  tapegrad::detail::modes &= ~uint32_t{kModeProfile};
  if (mine) owner().set(nullptr);
}

// The calling thread's log of the running session, or null; forgets a session that has ended.
inline Log* my_log() noexcept {
  if (TG_LIKELY(mine && mine->session == current.load(std::memory_order_relaxed))) return mine;
  leave();
  return nullptr;
}

// The result of a stopped session: names are in the log.
struct Record final : ThreadRecord {
  std::shared_ptr<Log> log;
};

}  // namespace

void start(const Options& options) {
  Session& s = session();
  std::lock_guard lock(s.mutex);
  TG_CHECK(current.load() == 0, Runtime, "profiler: a profiler runs already: only one may run at a time");
  s.logs.clear();
  s.options = options;
  if (started == 0) use_counter = counter_is_steady();
  s.scale.begin();
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
  if (number == 0 || (mine && mine->session == number)) return;
  auto log = std::make_shared<Log>(number, s.options);
  s.logs.push_back(log);
  require_thread_memory<Owner>();
  owner().set(std::move(log));
  tapegrad::detail::modes |= kModeProfile;
}

std::vector<std::shared_ptr<ThreadRecord>> stop() {
  Session& s = session();
  std::lock_guard lock(s.mutex);
  TG_CHECK(current.load() != 0, Runtime, "profiler: no profiler runs");
  current.store(0);
  leave();
  const int64_t now = ticks();
  s.scale.end();
  std::vector<std::shared_ptr<ThreadRecord>> records;
  for (auto& log : std::exchange(s.logs, {})) {
    auto record = std::make_shared<Record>();
    log->read(*record, s.scale, now);
    record->log = std::move(log);
    records.push_back(std::move(record));
  }
  return records;
}

Scope::Scope(const char* name, dispatch::Arguments inputs) noexcept {
  Log* log = my_log();
  if (!log) return;
  try {
    at_ = log->begin(Kind::Operator, name, static_cast<int64_t>(autograd::detail::node_sequence), kNone, &inputs);
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
    at_ = log->begin(kind, log->keep(name), sequence, extra, nullptr);
    if (at_ != kNone) session_ = log->session;
  } catch (...) {
  }
}

void Scope::close() noexcept {
  if (session_ == 0) return;
  if (mine && mine->session == session_) mine->finish(at_);
  session_ = 0;
}

namespace {

void handle(dispatch::Call& call, dispatch::Results& results) {
  const Scope scope(call.function.name, call.arguments);
  call.proceed(results);
}

const dispatch::Registration registration({dispatch::kOrderProfiler, dispatch::Stage::Public, kModeProfile, &handle});

}  // namespace

}  // namespace tapegrad::autograd::profiler
