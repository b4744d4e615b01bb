// The folder from which libtapegrad was loaded, with a slash at the end: tapegrad's libraries that are opened on first
// use (CUDA, gloo) lie in it. Empty if unknown. Any thread.
#pragma once

#include <string>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

TG_API std::string library_folder();

}  // namespace tapegrad
