// Makes all levels of vmap visible inside an operator, as they are to the program outside of it.
#pragma once

#include "tapegrad/c10/macros.h"

namespace tapegrad::batch {

// For its lifetime all levels are visible, whatever level the running operator works below.
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
