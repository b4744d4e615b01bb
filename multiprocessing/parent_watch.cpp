#include "tapegrad/multiprocessing/parent_watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "tapegrad/c10/error.h"
#include "tapegrad/multiprocessing/ledger.h"
#include "tapegrad/multiprocessing/shared_file.h"

namespace tapegrad::shared {

namespace {

void wait_for_end(pid_t parent) noexcept {
  const ProcessMark mark = mark_of(parent);
  const Descriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, parent, 0)));
  if (!pidfd) {  // it has gone, or the kernel knows no pidfd, or there is no descriptor left: look now and then
    while (mark != 0 && is_alive(mark)) usleep(100'000);
    return;
  }
  pollfd set{pidfd.get(), POLLIN, 0};
  while (poll(&set, 1, -1) < 0 && errno == EINTR) {
  }
}

}  // namespace

void end_with(pid_t parent, int signal) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread([parent, signal] {
      wait_for_end(parent);
      if (signal == 0) _exit(1);
      kill(getpid(), signal);
    }).detach();
  } catch (const std::exception&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  TG_CHECK(started, Runtime, "end_with_parent: no thread can be started");
}

}  // namespace tapegrad::shared
