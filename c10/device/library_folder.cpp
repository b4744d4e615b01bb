#include "tapegrad/c10/device/library_folder.h"

#include <dlfcn.h>

namespace tapegrad {

std::string library_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&library_folder), &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "" : path.substr(0, slash + 1);
}

}  // namespace tapegrad
