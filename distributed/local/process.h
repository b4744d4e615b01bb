// Detects that another process has ended, by its pidfd, which then becomes readable, or by /proc where there is no
// pidfd. One descriptor per process, however many groups it is in. Thread rules: any thread.
#pragma once

#include <memory>

#include "tapegrad/multiprocessing/ledger.h"

namespace tapegrad::distributed::local {

class Process {
 public:
  static std::shared_ptr<Process> find(shared::ProcessMark mark);
  explicit Process(shared::ProcessMark mark) noexcept;
  int id() const noexcept { return static_cast<int>(static_cast<uint32_t>(mark_)); }
  bool ended() const noexcept;

 private:
  shared::ProcessMark mark_;
  shared::Descriptor pidfd_;
};

}  // namespace tapegrad::distributed::local
