// The default generators of random operators: one for the CPU (generator.h) and one per CUDA device. All start from the
// same seed, so every device draws the same numbers; each then counts its own calls. A thread with a generator of its
// own (thread_generator.h) uses that one for all devices.
#pragma once

#include "tapegrad/c10/device/device.h"
#include "tapegrad/c10/random/generator.h"

namespace tapegrad {

TG_API const intrusive_ptr<Generator>& default_generator_of(Device device);
inline Generator& generator_or_default(const intrusive_ptr<Generator>& given, Device device) {
  return given ? *given : *default_generator_of(device);
}

// Replaces the default generator of a CUDA device. Any thread; calls that are drawing meanwhile may use either
// generator.
TG_API void set_default_generator_of(Device device, intrusive_ptr<Generator> generator);

// Seeds all default generators that the calling thread uses.
TG_API void manual_seed_all(uint64_t seed);

}  // namespace tapegrad
