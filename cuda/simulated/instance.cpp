// The driver of libtapegrad_cuda_sim, and its options.
#include <cstdlib>
#include <string_view>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/runtime/pointer.h"
#include "tapegrad/cuda/simulated/launch.h"
#include "tapegrad/cuda/simulated/simulated_driver.h"

namespace tapegrad::cuda {

namespace simulated {

namespace {

uint64_t number(const char* name, uint64_t otherwise, uint64_t most) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const uint64_t value = std::strtoull(text, &end, 10);
  TG_CHECK(*end == '\0' && value <= most, Value, "{}: expected a number up to {}: got '{}'", name, most, text);
  return value;
}

}  // namespace

Options options_from_environment() {
  Options options;
  options.devices = static_cast<int>(number("TAPEGRAD_CUDA_SIMULATE", 1, 64));
  options.memory = number("TAPEGRAD_CUDA_SIMULATE_MEMORY", 4096, uint64_t{1} << 30) << 20;
  const char* text = std::getenv("TAPEGRAD_CUDA_SIMULATE_SCHEDULE");
  const std::string_view schedule = text == nullptr ? "" : text;
  if (schedule == "eager") {
    options.schedule = Schedule::Eager;
  } else if (schedule.substr(0, 7) == "random:") {
    options.schedule = Schedule::Random;
    char* end = nullptr;
    options.seed = std::strtoull(text + 7, &end, 10);
    TG_CHECK(*end == '\0' && end != text + 7, Value,
             "TAPEGRAD_CUDA_SIMULATE_SCHEDULE: expected a number after 'random:': got '{}'", schedule);
  } else {
    TG_CHECK(schedule.empty() || schedule == "lazy", Value,
             "TAPEGRAD_CUDA_SIMULATE_SCHEDULE: expected lazy, eager or random:SEED: got '{}'", schedule);
  }
  return options;
}

SimulatedDriver& simulated_driver() {
  static auto& instance = *new SimulatedDriver(options_from_environment());
  return instance;
}

void enqueue(StreamHandle stream, const char* name, std::function<void()> work) {
  simulated_driver().enqueue(stream, name, std::move(work));
}

}  // namespace simulated

// For tests in Python.
extern "C" TG_API void tapegrad_simulated_open_memory(int open) {
  simulated::simulated_driver().open_memory_to_host(open != 0);
}

Driver& driver() { return simulated::simulated_driver(); }

int device_of_address(const void* p) { return simulated::simulated_driver().device_of(p); }

}  // namespace tapegrad::cuda
