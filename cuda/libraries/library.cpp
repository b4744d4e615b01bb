#include "tapegrad/cuda/libraries/library.h"

#include <dlfcn.h>

#include "tapegrad/c10/error.h"

namespace tapegrad::cuda {

void Library::open() noexcept {
  std::string text = files_;
  std::string first_error;
  while (!text.empty() && handle_ == nullptr) {
    const size_t space = text.find(' ');
    const std::string file = text.substr(0, space);
    text = space == text.npos ? "" : text.substr(space + 1);
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr && first_error.empty()) {
      const char* error = dlerror();
      first_error = error ? error : "unknown error";
    }
  }
  if (handle_ == nullptr) why_not_ = std::string(name_) + " cannot be loaded: " + first_error;
}

bool Library::available() noexcept {
  std::call_once(once_, [this] { open(); });
  return handle_ != nullptr;
}

std::string Library::why_not() { return available() ? "" : why_not_; }

void* Library::symbol(const char* s) {
  TG_CHECK(available(), Runtime, "cuda: {}", why_not_);
  void* p = dlsym(handle_, s);
  TG_CHECK(p != nullptr, Runtime, "cuda: this {} is of another version: it has no {}", name_, s);
  return p;
}

#define TG_LIBRARY(function, name, files)             \
  Library& function() {                               \
    static auto& library = *new Library(name, files); \
    return library;                                   \
  }
TG_LIBRARY(cublas, "cuBLAS", "libcublas.so.13")
TG_LIBRARY(cublas_lt, "cuBLASLt", "libcublasLt.so.13")
TG_LIBRARY(cudnn, "cuDNN", "libcudnn.so.9")
TG_LIBRARY(nvrtc, "NVRTC", "libnvrtc.so.13")
TG_LIBRARY(cusolver, "cuSOLVER", "libcusolver.so.12")
TG_LIBRARY(cufft, "cuFFT", "libcufft.so.12")
TG_LIBRARY(nccl, "NCCL", "libnccl.so.2")
#undef TG_LIBRARY

namespace {

// Their version functions have no structures in their types, so no header is needed for them.
int version_by_result(Library& library, const char* function) {
  return static_cast<int>(reinterpret_cast<size_t (*)()>(library.symbol(function))());
}
int version_by_pointer(Library& library, const char* function) {
  int version = 0;
  reinterpret_cast<int (*)(int*)>(library.symbol(function))(&version);
  return version;
}
int cublas_version() {
  auto property = reinterpret_cast<int (*)(int, int*)>(cublas().symbol("cublasGetProperty"));
  int part[3] = {};
  for (int i = 0; i < 3; ++i) property(i, &part[i]);
  return part[0] * 10000 + part[1] * 100 + part[2];
}

}  // namespace

std::string libraries_json() {
  std::string out = "{";
  auto row = [&](const char* key, Library& library, auto version) {
    std::string value;
    try {
      value = library.available() ? fmt::format("{{\"version\": {}}}", version()) : "";
    } catch (const Error& error) {
      value = "{\"missing\": \"a version that is not known\"}";
    }
    if (value.empty()) {
      std::string why;
      for (char c : library.why_not()) why += c == '"' || c == '\\' || c == '\n' ? '\'' : c;
      value = fmt::format("{{\"missing\": \"{}\"}}", why);
    }
    out += fmt::format("{}\"{}\": {}", out.size() > 1 ? ", " : "", key, value);
  };
  row("cublas", cublas(), cublas_version);
  row("cublas_lt", cublas_lt(), [] { return version_by_result(cublas_lt(), "cublasLtGetVersion"); });
  row("cudnn", cudnn(), [] { return version_by_result(cudnn(), "cudnnGetVersion"); });
  row("nvrtc", nvrtc(), [] {
    int major = 0, minor = 0;
    reinterpret_cast<int (*)(int*, int*)>(nvrtc().symbol("nvrtcVersion"))(&major, &minor);
    return 1000 * major + 10 * minor;
  });
  row("cusolver", cusolver(), [] { return version_by_pointer(cusolver(), "cusolverGetVersion"); });
  row("cufft", cufft(), [] { return version_by_pointer(cufft(), "cufftGetVersion"); });
  row("nccl", nccl(), [] { return version_by_pointer(nccl(), "ncclGetVersion"); });
  return out + "}";
}

}  // namespace tapegrad::cuda
