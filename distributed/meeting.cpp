#include "tapegrad/distributed/meeting.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tapegrad/c10/environment.h"
#include "tapegrad/c10/memory/proc_file.h"
#include "tapegrad/distributed/local/local_backend.h"
#include "tapegrad/distributed/local/process.h"
#include "tapegrad/multiprocessing/exchange.h"

namespace tapegrad::distributed {

namespace {

// Identifies the scope of process numbers: the machine, its boot, and the name spaces. Empty if unknown.
std::string machine() {
  const detail::ProcFile boot("/proc/sys/kernel/random/boot_id");
  utsname names{};
  if (!boot.ok() || uname(&names) != 0) return {};
  std::string text = fmt::format("{}|{}|{}", boot.text(), names.nodename, geteuid());
  for (const char* space : {"net", "pid", "user"}) {
    char link[64];
    const ssize_t n = readlink(fmt::format("/proc/self/ns/{}", space).c_str(), link, sizeof(link));
    if (n <= 0) return {};
    text.append("|").append(link, static_cast<size_t>(n));
  }
  return text;
}

// Whether this process can share memory with others of its machine and user.
bool can_share_memory() {
  if (!environment_flag("TAPEGRAD_SHARED_MEMORY", true)) return false;
  try {
    (void)shared::exchange().allocate(1);
  } catch (const std::exception&) {  // no memory files or no sockets in this container
    return false;
  }
  return true;
}

}  // namespace

struct Meeting::State {
  std::shared_ptr<Watch> watch;
  std::vector<int> world_ranks;
  std::shared_ptr<Failure> failure;
  BackendPlace place;  // that of the engine
  bool share = true;
  std::vector<std::shared_ptr<local::Process>> neighbours;  // by rank; null: another machine's, or this process
  Clock::time_point asked = Clock::now();
  Milliseconds pause{250};

  void check() {
    if (failure) failure->raise_if_set();
    const auto now = Clock::now();
    if (now - asked < pause) return;
    for (size_t r = 0; r < neighbours.size(); ++r)
      if (neighbours[r] && neighbours[r]->ended())
        fail(DistError::Part::Backend, "process group: rank {} has died: process {}", r, neighbours[r]->id());
    if (watch) {
      const std::vector<int> gone = watch->gone();
      for (int r = 0; r < place.size; ++r)
        if (std::ranges::count(gone, world_ranks.empty() ? r : world_ranks[static_cast<size_t>(r)]) != 0)
          fail(DistError::Part::Backend, "process group: rank {} has gone: its connection to the store has ended", r);
    }
    asked = Clock::now();
    pause = std::min(pause * 2, Milliseconds(2000));  // many ranks may poll
  }
};

Meeting::Meeting(const BackendPlace& place, std::shared_ptr<Watch> watch, std::vector<int> world_ranks)
    : state_(std::make_shared<State>()) {
  State& s = *state_;
  s.watch = std::move(watch);
  s.world_ranks = std::move(world_ranks);
  s.failure = place.failure;
  s.place = place;
  // Weak: an engine may keep the store for longer than the meeting lasts.
  s.place.check = [state = std::weak_ptr(state_)] {
    if (const auto it = state.lock()) it->check();
  };
  s.place.store = make_prefix_store("meeting", place.store, s.place.check);

  std::vector<std::string> keys;
  for (int r = 0; r < place.size; ++r) keys.push_back(fmt::format("machine/{}", r));
  const std::string here = machine();
  const shared::ProcessMark own = shared::mark_of(getpid());
  s.place.store->set(keys[static_cast<size_t>(place.rank)],
                     fmt::format("{}|{}|{}", can_share_memory() ? 1 : 0, own, here));
  try {
    s.place.store->wait(keys, place.timeout);
  } catch (const DistError& e) {
    if (e.part() != DistError::Part::Store) throw;
    std::vector<int> missing;
    for (int r = 0; r < place.size; ++r)
      if (!s.place.store->check({keys[static_cast<size_t>(r)]})) missing.push_back(r);
    if (missing.empty()) throw;
    fail(DistError::Part::Store, "process group: {} of {} ranks did not come within {:.3g} s: {}", missing.size(),
         place.size, static_cast<double>(place.timeout.count()) / 1000, rank_list(missing));
  }
  for (const std::string& text : s.place.store->multi_get(keys)) {
    const size_t bar = text.find('|', 2);
    const bool near = !here.empty() && bar != std::string::npos && text.compare(bar + 1, std::string::npos, here) == 0;
    s.share = s.share && near && text[0] == '1';
    const auto mark = near ? static_cast<shared::ProcessMark>(std::strtoull(text.c_str() + 2, nullptr, 10)) : own;
    s.neighbours.push_back(mark == own || mark == 0 ? nullptr : local::Process::find(mark));
  }
  s.share = s.share && place.size <= local::kMostRanks;
}

Meeting::~Meeting() = default;
bool Meeting::all_share_memory() const noexcept { return state_->share; }
const BackendPlace& Meeting::place() const noexcept { return state_->place; }

}  // namespace tapegrad::distributed
