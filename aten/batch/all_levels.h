// The program's own view of vmap, from within an operator.
#pragma once

#include "tapegrad/c10/macros.h"

namespace tapegrad::batch {

// Shows all levels for a scope, whichever of them an operator works below.
class TG_API AllLevels {
 public:
  AllLevels() noexcept;
  ~AllLevels();
  AllLevels(const AllLevels&) = delete;
  AllLevels& operator=(const AllLevels&) = delete;

 private:
  int saved_;
};

}  // namespace tapegrad::batch
