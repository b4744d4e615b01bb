// What NVRTC is to a device, the host's compiler is to a simulated one: the text of a kernel becomes a library in a
// temporary folder, whose blocks and threads run one after the other. TAPEGRAD_CUDA_SIMULATE_COMPILER names the
// compiler (g++); without it nothing is compiled, for a kernel takes half a second.
#if defined(TG_CUDA_SIMULATED)

#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/runtime/kernel_compiler.h"
#include "tapegrad/cuda/simulated/launch.h"
#include "tapegrad/cuda/simulated/simulated_compiler.h"

namespace tapegrad::cuda {

namespace {

using simulated::RunBlocks;

// What nvcc declares by itself.
constexpr const char* kBefore = R"(
#define __CUDACC__
#define __host__
#define __device__
#define __global__
#define __launch_bounds__(n)
#define TG_DECLARE(name) float name##f(float) noexcept; double name(double) noexcept;
#define TG_DECLARE2(name) float name##f(float, float) noexcept; double name(double, double) noexcept;
extern "C" {
TG_DECLARE(exp) TG_DECLARE(exp2) TG_DECLARE(expm1) TG_DECLARE(log) TG_DECLARE(log2) TG_DECLARE(log10) TG_DECLARE(log1p)
TG_DECLARE(sin) TG_DECLARE(cos) TG_DECLARE(tan) TG_DECLARE(asin) TG_DECLARE(acos) TG_DECLARE(atan) TG_DECLARE(sinh)
TG_DECLARE(cosh) TG_DECLARE(tanh) TG_DECLARE(asinh) TG_DECLARE(acosh) TG_DECLARE(atanh) TG_DECLARE(erf) TG_DECLARE(erfc)
TG_DECLARE(lgamma) TG_DECLARE(sqrt) TG_DECLARE(floor) TG_DECLARE(ceil) TG_DECLARE(trunc) TG_DECLARE(rint)
TG_DECLARE2(pow) TG_DECLARE2(atan2) TG_DECLARE2(hypot) TG_DECLARE2(fmod) TG_DECLARE2(copysign) TG_DECLARE2(nextafter)
float ldexpf(float, int) noexcept; double ldexp(double, int) noexcept;
}
struct Index { unsigned x; };
static thread_local Index threadIdx, blockIdx, blockDim, gridDim;
)";
constexpr const char* kBehind = R"(
extern "C" __attribute__((visibility("default")))
void run_blocks(const void* argument, unsigned begin, unsigned end, unsigned blocks, unsigned threads) {
  gridDim.x = blocks;
  blockDim.x = threads;
  for (blockIdx.x = begin; blockIdx.x < end; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) KERNEL(*static_cast<const Arguments*>(argument));
}
)";

class HostKernel final : public SourceKernel {
 public:
  explicit HostKernel(std::shared_ptr<void> library)
      : library_(std::move(library)), run_(reinterpret_cast<RunBlocks>(dlsym(library_.get(), "run_blocks"))) {}
  RunBlocks run() const { return run_; }
  void launch(const Stream& stream, uint32_t blocks, uint32_t threads, const void* argument,
              size_t nbytes) const override {
    const auto* first = static_cast<const uint64_t*>(argument);
    simulated::enqueue(stream.handle, "kernel",
                       [=, run = run_, library = library_, copy = std::vector(first, first + nbytes / 8)] {
                         run(copy.data(), 0, blocks, blocks, threads);
                       });
  }

 private:
  std::shared_ptr<void> library_;
  RunBlocks run_;
};

const char* compiler() {
  const char* wish = std::getenv("TAPEGRAD_CUDA_SIMULATE_COMPILER");
  return wish != nullptr && *wish != '\0' ? wish : nullptr;
}

// Not by std::system, for which the whole process would ignore Ctrl-C. In a group of its own, which a terminal's does
// not reach.
bool run_in_shell(const std::string& command) {
  posix_spawnattr_t how;
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_init(&how);
  posix_spawnattr_setsigmask(&how, &none);  // the thread that compiles blocks all
  posix_spawnattr_setpgroup(&how, 0);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  std::string shell = "sh", option = "-c", text = command;
  char* arguments[] = {shell.data(), option.data(), text.data(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawn(&child, "/bin/sh", nullptr, &how, arguments, environ);
  posix_spawnattr_destroy(&how);
  if (failed != 0) return false;
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

simulated::RunBlocks simulated::blocks_of(const SourceKernel& kernel) {
  return dynamic_cast<const HostKernel&>(kernel).run();
}

bool compiles_kernels() { return compiler() != nullptr; }

std::shared_ptr<const SourceKernel> compile_kernel(int, const char* name, const std::string& text,
                                                   std::span<const SourceFile> headers) {
  namespace fs = std::filesystem;
  TG_CHECK(compiler() != nullptr, Runtime, "cuda: TAPEGRAD_CUDA_SIMULATE_COMPILER names no compiler");
  std::error_code no_folder;
  std::string pattern = (fs::temp_directory_path(no_folder) / "tapegrad-kernel-XXXXXX").string();
  TG_CHECK(!no_folder && mkdtemp(pattern.data()) != nullptr, Runtime, "cuda: no temporary folder can be made: {}",
           pattern);
  const fs::path folder = pattern;
  struct Removed {
    const fs::path& folder;
    ~Removed() {
      std::error_code ignored;
      fs::remove_all(folder, ignored);
    }
  } removed{folder};
  const auto write = [&](const fs::path& at, std::string_view content) {
    fs::create_directories(at.parent_path(), no_folder);
    std::ofstream(at, std::ios::binary) << content;
  };
  for (const SourceFile& h : headers) write(folder / h.name, h.text);
  std::string behind = kBehind;
  behind.replace(behind.find("KERNEL"), 6, name);
  write(folder / "kernel.cpp", kBefore + text + behind);
  // Arithmetic as in the kernels of this library.
  const std::string command = fmt::format(
      "{} -std=c++20 -O1 -w -fPIC -shared -fno-strict-aliasing -fvisibility=hidden -nostdinc -I'{}' -o '{}' '{}' 2> "
      "'{}'",
      compiler(), pattern, pattern + "/kernel.so", pattern + "/kernel.cpp", pattern + "/log");
  if (!run_in_shell(command)) {
    std::ostringstream log;
    log << std::ifstream(folder / "log").rdbuf();
    const std::string said = log.str();
    const size_t at = said.find("error");
    TG_THROW(Runtime, "cuda: the compiler refuses a kernel: {}",
             at == said.npos ? said.substr(0, said.find('\n')) : said.substr(at, said.find('\n', at) - at));
  }
  void* library = dlopen((pattern + "/kernel.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* why = library == nullptr ? dlerror() : "";
  TG_CHECK(library != nullptr, Runtime, "cuda: a kernel cannot be loaded: {}", why);
  return std::make_shared<HostKernel>(std::shared_ptr<void>(library, [](void* l) { dlclose(l); }));
}

}  // namespace tapegrad::cuda

#endif
