#include "tapegrad/cuda/record/nvrtc.h"

#include <dlfcn.h>

#include <vector>

#include "tapegrad/c10/error.h"

namespace tapegrad::cuda {

namespace {

// As nvrtc.h declares them.
using Program = struct NvrtcProgram*;
struct Functions {
  int (*version)(int*, int*);
  const char* (*error)(int);
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  int (*destroy)(Program*);
  int (*compile)(Program, int, const char* const*);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*cubin_size)(Program, size_t*);
  int (*cubin)(Program, char*);
};

// "error: ..." of the log; warnings stand before it.
std::string first_error(std::string_view log) {
  const size_t at = log.find("error");
  std::string_view line = at == log.npos ? log : log.substr(at);
  line = line.substr(0, line.find_first_of(std::string_view("\n\0", 2)));
  return std::string(line);
}

}  // namespace

std::string compile_cubin(const std::function<void*(const char*)>& find, int architecture, const std::string& text,
                          std::span<const SourceFile> headers) {
  Functions f;
  const auto get = [&]<class F>(F*& function, const char* name) { function = reinterpret_cast<F*>(find(name)); };
  get(f.version, "nvrtcVersion");
  get(f.error, "nvrtcGetErrorString");
  get(f.create, "nvrtcCreateProgram");
  get(f.destroy, "nvrtcDestroyProgram");
  get(f.compile, "nvrtcCompileProgram");
  get(f.log_size, "nvrtcGetProgramLogSize");
  get(f.log, "nvrtcGetProgramLog");
  get(f.cubin_size, "nvrtcGetCUBINSize");
  get(f.cubin, "nvrtcGetCUBIN");
  int major = 0, minor = 0;
  f.version(&major, &minor);
  TG_CHECK(major == 13, Runtime, "cuda: NVRTC is of CUDA {}.{}, and CUDA 13 is needed", major, minor);
  // It looks for its other half by name alone, which in a folder of PyPI's packages is found only when it is there
  // already.
  if (Dl_info self; dladdr(reinterpret_cast<void*>(f.version), &self) != 0) {
    const std::string file = self.dli_fname, folder = file.substr(0, file.rfind('/') + 1);
    (void)dlopen(fmt::format("{}libnvrtc-builtins.so.{}.{}", folder, major, minor).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  const auto check = [&](int status, const char* call) {
    TG_CHECK(status == 0, Runtime, "cuda: {}: {}", call, f.error(status));
  };

  std::vector<std::string> owned;  // views need not end with a zero
  std::vector<const char*> names, texts;
  owned.reserve(2 * headers.size());
  for (const SourceFile& h : headers) {
    names.push_back(owned.emplace_back(h.name).c_str());
    texts.push_back(owned.emplace_back(h.text).c_str());
  }
  struct Owner {
    const Functions& f;
    Program program = nullptr;
    ~Owner() {
      if (program != nullptr) f.destroy(&program);
    }
  } made{f};
  check(f.create(&made.program, text.c_str(), "chain.cu", static_cast<int>(headers.size()), texts.data(), names.data()),
        "nvrtcCreateProgram");
  // The rest as nvcc has it: contraction within an operator, no flush of small numbers, exact quotients and roots.
  const std::string target = fmt::format("--gpu-architecture=sm_{}", architecture);
  const char* const options[] = {target.c_str(), "--std=c++20", "--device-as-default-execution-space"};
  const int status = f.compile(made.program, 3, options);
  if (status != 0) {
    size_t n = 0;
    f.log_size(made.program, &n);
    std::string log(n, '\0');
    if (n > 0) f.log(made.program, log.data());
    TG_THROW(Runtime, "cuda: NVRTC {}.{} refuses a kernel for sm_{}: {} ({})", major, minor, architecture,
             first_error(log), f.error(status));
  }
  size_t n = 0;
  check(f.cubin_size(made.program, &n), "nvrtcGetCUBINSize");
  std::string cubin(n, '\0');
  check(f.cubin(made.program, cubin.data()), "nvrtcGetCUBIN");
  return cubin;
}

}  // namespace tapegrad::cuda
