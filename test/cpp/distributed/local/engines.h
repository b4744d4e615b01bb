// The engines of one machine, each on ranks of all kinds.
#pragma once

#include <catch2/catch.hpp>

#include "distributed/ranks.h"

namespace tapegrad::distributed::test {

#if defined(__SANITIZE_THREAD__)  // which knows no threads in the child of a program with threads
inline constexpr bool kForks = false;
#else
inline constexpr bool kForks = true;
#endif

using Run = std::vector<std::string> (*)(int, Maker, const Body&);
struct Engine {
  const char* name;
  Maker make;
  Run run;
};
// Threads may share memory through arenas, too: then it is their own.
inline const Engine kEngines[] = {{"threads", make_thread_backend, as_threads},
                                  {"arenas of threads", make_shared_backend, as_threads},
                                  {"processes", make_shared_backend, as_processes}};

// The body on the ranks of each engine; none may end with an exception.
inline void on_all(int size, const Body& body) {
  for (const Engine& engine : kEngines) {
    if (engine.run == as_processes && !kForks) continue;
    const std::vector<std::string> texts = engine.run(size, engine.make, body);
    for (int r = 0; r < size; ++r) {
      INFO(engine.name << ", rank " << r << " of " << size);
      REQUIRE(texts[static_cast<size_t>(r)] == "");
    }
  }
}

}  // namespace tapegrad::distributed::test
