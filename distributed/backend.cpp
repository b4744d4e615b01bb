// What engines share, and the opening of the one over gloo, which is a library of its own.
#include "tapegrad/distributed/backend.h"

#include <dlfcn.h>

#include <mutex>
#include <vector>

#include "tapegrad/c10/library_folder.h"

namespace tapegrad::distributed {

namespace {

using MakeGloo = Backend* (*)(const BackendPlace&);

struct GlooLibrary {
  MakeGloo make = nullptr;
  std::string why_not;
};

const GlooLibrary& gloo_library() {
  static const GlooLibrary library = [] {
    GlooLibrary l;
    const std::string path = library_folder() + "libtapegrad_gloo.so";
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* text = dlerror();
      l.why_not = text != nullptr ? text : "it cannot be opened";
      return l;
    }
    l.make = reinterpret_cast<MakeGloo>(dlsym(handle, "tapegrad_gloo_make"));
    if (l.make == nullptr) l.why_not = "it is of another version";
    return l;
  }();
  return library;
}

}  // namespace

void Backend::barrier(const Wait& wait) {
  const char mine = 0;
  std::vector<char> all(static_cast<size_t>(size_));
  exchange(&mine, 1, all.data(), wait);
}

bool gloo_is_available() noexcept {
  try {
    return gloo_library().make != nullptr;
  } catch (const std::exception&) {
    return false;
  }
}

std::unique_ptr<Backend> make_gloo_backend(const BackendPlace& place) {
  const GlooLibrary& library = gloo_library();
  if (library.make == nullptr)
    fail(DistError::Part::Backend,
         "gloo: the engine that connects machines is not there: {}\ninstall gloo (Debian: libgloo-dev) and build "
         "tapegrad "
         "again; ranks on one machine need none",
         library.why_not);
  return std::unique_ptr<Backend>(library.make(place));
}

}  // namespace tapegrad::distributed
