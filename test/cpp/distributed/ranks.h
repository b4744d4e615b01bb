// Ranks for tests of engines: threads of this process, or processes made by fork. A rank ends with a text: empty when
// all went well, else what it threw. Within a rank, `must` stands for REQUIRE, which is for the test's own thread.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tapegrad/distributed/backend.h"

namespace tapegrad::distributed::test {

using Seconds = std::chrono::duration<double>;

inline void must(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("not so: " + what);
}

inline Wait wait_for(double seconds, const char* what = "test") {
  Wait wait;
  wait.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  wait.what = what;
  return wait;
}

using Maker = std::unique_ptr<Backend> (*)(const BackendPlace&);
using Body = std::function<void(Backend&)>;

inline BackendPlace place_of(std::shared_ptr<Store> store, int rank, int size, double seconds = 60) {
  return {
      std::move(store), rank, size, std::make_shared<Failure>(), Milliseconds(static_cast<int64_t>(seconds * 1e3)), {}};
}

inline std::string text_of(const std::function<void()>& f) {
  try {
    f();
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

inline std::vector<std::string> as_threads(int size, Maker make, const Body& body) {
  auto store = make_hash_store();
  std::vector<std::string> texts(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back(
        [&, r] { texts[static_cast<size_t>(r)] = text_of([&] { body(*make(place_of(store, r, size))); }); });
  for (std::thread& t : threads) t.join();
  return texts;
}

// Processes under way. What is not waited for is killed.
class Processes {
 public:
  Processes(int size, Maker make, const Body& body) {
    char name[] = "/tmp/tapegrad-ranks-XXXXXX";
    if (mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = name;
    for (int r = 0; r < size; ++r) {
      int ends[2];
      if (pipe(ends) != 0) throw std::runtime_error("pipe");
      const pid_t pid = fork();
      if (pid == 0) {
        alarm(100);  // nothing of a test outlives it, also what is stopped
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setsid();  // a group with a stopped member gets SIGHUP when a shell in front of it ends
        close(ends[0]);
        const std::string text =
            text_of([&] { body(*make(place_of(make_file_store(folder_ + "/store", size), r, size))); });
        _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
      }
      close(ends[1]);
      pids_.push_back(pid);
      pipes_.push_back(ends[0]);
    }
  }
  ~Processes() {
    for (size_t r = 0; r < pids_.size(); ++r) {
      if (pids_[r] > 0) {
        ::kill(pids_[r], SIGKILL);
        waitpid(pids_[r], nullptr, 0);
      }
      close(pipes_[r]);
    }
    std::filesystem::remove_all(folder_);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void send_signal(int rank, int signal) { ::kill(pids_[static_cast<size_t>(rank)], signal); }
  // What the rank ended with.
  std::string end_of(int rank) {
    const auto r = static_cast<size_t>(rank);
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(pipes_[r], buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(n));
    int status = 0;
    waitpid(pids_[r], &status, 0);
    pids_[r] = -1;
    if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
    return WEXITSTATUS(status) == 0 ? text : "exit status " + std::to_string(WEXITSTATUS(status));
  }
  std::vector<std::string> ends() {
    std::vector<std::string> texts;
    for (size_t r = 0; r < pids_.size(); ++r) texts.push_back(end_of(static_cast<int>(r)));
    return texts;
  }

 private:
  std::string folder_;
  std::vector<pid_t> pids_;
  std::vector<int> pipes_;
};

inline std::vector<std::string> as_processes(int size, Maker make, const Body& body) {
  return Processes(size, make, body).ends();
}

}  // namespace tapegrad::distributed::test
