// Where a recording compares a value that the program goes on by.
#pragma once

#include "tapegrad/aten/record/recording.h"

namespace tapegrad::record {

// A replay that finds another value is undone, so guards stand before the first call that cannot be undone: a step of
// an optimizer, a body of control flow.
class GuardPlaces {
 public:
  // The place among the calls for a guard of these bytes: behind the other guards, at the end, or as soon as they have
  // their values. Calls that make them from what was there before such a call are moved before it. None where it is too
  // late.
  std::optional<size_t> find(Recording& recording, const Use& read);
  // A guard was put there.
  void placed(size_t at) noexcept;

 private:
  size_t seen_ = 0;              // calls that were looked at
  size_t after_guards_ = 0;      // the first place behind all guards
  std::optional<size_t> fixed_;  // the first of these calls
};

}  // namespace tapegrad::record
