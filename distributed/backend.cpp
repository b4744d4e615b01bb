// Shared code of the engines, and the loading of those that are separate libraries.
#include "tapegrad/distributed/backend.h"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <vector>

#include "tapegrad/c10/device/library_folder.h"

namespace tapegrad::distributed {

namespace {

struct Engine {
  Backend* (*make)(const BackendPlace&) = nullptr;
  std::string why_not;
};

// libtapegrad_<name>.so, opened once; tapegrad_<name>_make is what it gives.
const Engine& engine_library(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, Engine> engines;
  const std::lock_guard lock(mutex);
  const auto [it, is_new] = engines.try_emplace(name);
  Engine& engine = it->second;
  if (!is_new) return engine;
  // MPI's own parts are libraries that look for its symbols among all.
  const int scope = name == "mpi" ? RTLD_GLOBAL : RTLD_LOCAL;
  void* handle = dlopen(fmt::format("{}libtapegrad_{}.so", library_folder(), name).c_str(), RTLD_NOW | scope);
  if (handle == nullptr) {
    const char* text = dlerror();
    engine.why_not = text != nullptr ? text : "it cannot be opened";
    return engine;
  }
  engine.make = reinterpret_cast<decltype(engine.make)>(dlsym(handle, fmt::format("tapegrad_{}_make", name).c_str()));
  if (engine.make == nullptr) engine.why_not = "it is of another version";
  return engine;
}

std::unique_ptr<Backend> make_from_library(const std::string& name, const char* advice, const BackendPlace& place) {
  const Engine& engine = engine_library(name);
  if (engine.make == nullptr)
    fail(DistError::Part::Backend, "{}: the engine that connects machines is not there: {}\n{}", name, engine.why_not,
         advice);
  return std::unique_ptr<Backend>(engine.make(place));
}

}  // namespace

Collectives::~Collectives() = default;

void Backend::barrier(const Wait& wait) {
  const char mine = 0;
  std::vector<char> all(static_cast<size_t>(size_));
  exchange(&mine, 1, all.data(), wait);
}

bool engine_is_available(const char* name) noexcept {
  try {
    return engine_library(name).make != nullptr;
  } catch (const std::exception&) {
    return false;
  }
}

std::unique_ptr<Backend> make_gloo_backend(const BackendPlace& place) {
  return make_from_library(
      "gloo", "install gloo (Debian: libgloo-dev) and build tapegrad again; ranks on one machine need none", place);
}

std::unique_ptr<Backend> make_mpi_backend(const BackendPlace& place) {
  return make_from_library("mpi", "install an MPI (Debian: libopenmpi-dev) and build tapegrad again", place);
}

}  // namespace tapegrad::distributed
