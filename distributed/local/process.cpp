#include "tapegrad/distributed/local/process.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <mutex>

namespace tapegrad::distributed::local {

Process::Process(shared::ProcessMark mark) noexcept
    : mark_(mark), pidfd_(static_cast<int>(syscall(SYS_pidfd_open, id(), 0))) {
  if (!shared::is_alive(mark)) pidfd_.reset();  // the number may be another process's by now
}

bool Process::ended() const noexcept {
  if (!pidfd_) return !shared::is_alive(mark_);
  pollfd set{pidfd_.get(), POLLIN, 0};
  return poll(&set, 1, 0) > 0;
}

std::shared_ptr<Process> Process::find(shared::ProcessMark mark) {
  static std::mutex& mutex = *new std::mutex;
  static auto& known = *new std::map<shared::ProcessMark, std::weak_ptr<Process>>;
  const std::lock_guard lock(mutex);
  std::weak_ptr<Process>& entry = known[mark];
  std::shared_ptr<Process> process = entry.lock();
  if (!process) {
    std::erase_if(known, [mark](const auto& item) { return item.first != mark && item.second.expired(); });
    process = std::make_shared<Process>(mark);
    known[mark] = process;
  }
  return process;
}

}  // namespace tapegrad::distributed::local
