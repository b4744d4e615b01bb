// Who is told of each storage that a thread allocates while it records (kModeRecord). Set once, while the library is
// loaded.
#pragma once

#include "tapegrad/c10/tensor/storage.h"

namespace tapegrad {

TG_API extern void (*storage_recorder)(const Storage& made);

}  // namespace tapegrad
