// Where libtapegrad itself was loaded from, with a slash at the end: libraries of ours that are opened when they are
// first needed (CUDA, gloo) lie beside it. Empty where that is not known. Any thread.
#pragma once

#include <string>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

TG_API std::string library_folder();

}  // namespace tapegrad
