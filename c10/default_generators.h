// The generators of random operators that are given none: one for the CPU (generator.h) and one for each CUDA device.
// All begin alike, so after one seed every device draws the same numbers; from there on each counts its own calls. A
// thread with a generator of its own (thread_generator.h) uses that for all devices.
#pragma once

#include "tapegrad/c10/device.h"
#include "tapegrad/c10/generator.h"

namespace tapegrad {

TG_API const intrusive_ptr<Generator>& default_generator_of(Device device);
inline Generator& generator_or_default(const intrusive_ptr<Generator>& given, Device device) {
  return given ? *given : *default_generator_of(device);
}

// What random operators of a CUDA device use from here on. Any thread; calls that are drawing may use either.
TG_API void set_default_generator_of(Device device, intrusive_ptr<Generator> generator);

// Seeds all that the calling thread uses.
TG_API void manual_seed_all(uint64_t seed);

}  // namespace tapegrad
