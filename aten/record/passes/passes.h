// What plans do with recorded calls beyond replaying them. Each pass may be switched off, for tests: the bits are the
// same without it.
#pragma once

#include "tapegrad/aten/record/recording.h"

namespace tapegrad::record {

enum Pass : uint32_t {
  kPassDead = 1,       // calls whose results nobody reads are left out
  kPassConstants = 2,  // what is made of numbers alone is made once, with the plan
  kPassSame = 4,       // equal calls are made once in each replay
  kPassChains = 8,     // runs of pointwise calls go piece by piece
  kPassTakeOver = 16,  // results lie where an operand dies
  kAllPasses = 31,
};
// Which passes later plans have; returns what was.
TG_API uint32_t set_passes(uint32_t passes) noexcept;
bool pass_enabled(Pass pass) noexcept;

struct Folded {
  int calls = 0;     // that are not made in replays
  size_t bytes = 0;  // that are kept for what they wrote
};
// Makes the calls that read nothing but numbers, tensors of the host and what such calls wrote: Slot::Kind::Constant.
// All that a plan keeps of that is at most 1 MiB: what would be more is made in each replay.
Folded fold_constants(Recording& recording);

// Leaves out calls that would write once more what an earlier one wrote, of the same operands with no write in between,
// and lets those that read it read the earlier one's. Only where memory does not grow: the earlier one's is needed up
// to there anyway, or both are in one chain; or with `small`, where it has at most 4 KiB. Returns how many.
int make_once(Recording& recording, bool small);

// Moves dead calls to the end of their part, where they interrupt no chain.
void set_aside_dead(Recording& recording);

// Two calls of one recording: the same kernel and numbers, and operands that lie alike, in the same slots where they
// are read.
bool are_alike(Recording& recording, const Call& a, const Call& b);

}  // namespace tapegrad::record
