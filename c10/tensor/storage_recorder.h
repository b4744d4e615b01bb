// A callback for every storage that a thread allocates while it records (kModeRecord). Set once, while the library is
// being loaded; null until then.
#pragma once

#include "tapegrad/c10/tensor/storage.h"

namespace tapegrad {

TG_API extern void (*storage_recorder)(const Storage& made);

}  // namespace tapegrad
