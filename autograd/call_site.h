// Call sites: where in the user's program an operator was called, as a small id that is cheap to take (only when
// a node is made or an in-place write happens) and is turned into `file:line` only for a message.
// The Python bindings install `capture`; C++ callers get id 0 ("unknown").
#pragma once

#include <cstdint>
#include <string>

#include "tapegrad/c10/macros.h"

namespace tapegrad::autograd {

TG_API extern uint32_t (*capture_site)() noexcept;               // null: no bindings loaded
TG_API extern std::string (*describe_site_hook)(uint32_t site);  // "train.py:31"

inline uint32_t current_site() noexcept { return capture_site ? capture_site() : 0; }
TG_API std::string describe_site(uint32_t site);  // "" for 0

}  // namespace tapegrad::autograd
