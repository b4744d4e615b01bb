#include "tapegrad/c10/device/device_interface.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "tapegrad/c10/device/library_folder.h"

namespace tapegrad {

DeviceInterface::~DeviceInterface() = default;
DeviceSharing::~DeviceSharing() = default;

namespace {

std::atomic<DeviceInterface*> cuda_interface{nullptr};
std::once_flag once;
std::string why_not;  // written once, under `once`

void load() noexcept try {
  try {
    const char* simulate = std::getenv("TAPEGRAD_CUDA_SIMULATE");
    const bool simulated = simulate != nullptr && *simulate != '\0';
    const std::string path = library_folder() + (simulated ? "libtapegrad_cuda_sim.so" : "libtapegrad_cuda.so");
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const std::string text = dlerror();
      const bool absent = text.find(path + ": cannot open shared object file") != text.npos;
      why_not = absent ? "libtapegrad_cuda.so is not installed (pip install tapegrad-cuda, or a build with CUDA=ON)"
                       : "its library cannot be loaded: " + text;
      return;
    }
    auto init = reinterpret_cast<int (*)()>(dlsym(library, "tapegrad_cuda_init"));
    if (init == nullptr) {
      why_not = "its library is of another version";
      return;
    }
    init();
  } catch (const Error& error) {
    why_not = error.message();
  } catch (const std::exception& error) {
    why_not = error.what();
  }
} catch (const std::exception&) {  // no memory to say why not
}

}  // namespace

void set_device_interface(DeviceType type, DeviceInterface* interface) {
  TG_CHECK(type == DeviceType::CUDA, Runtime, "device: only cuda has a library of its own");
  cuda_interface.store(interface, std::memory_order_release);
}

bool device_interface_loaded(DeviceType type) noexcept {
  return type == DeviceType::CUDA && cuda_interface.load(std::memory_order_acquire) != nullptr;
}

DeviceInterface* device_interface(DeviceType type) noexcept {
  if (type != DeviceType::CUDA) return nullptr;
  if (DeviceInterface* have = cuda_interface.load(std::memory_order_acquire)) return have;
  std::call_once(once, load);
  return cuda_interface.load(std::memory_order_acquire);
}

std::string device_why_not(DeviceType type) {
  if (DeviceInterface* have = device_interface(type)) return have->unavailable_reason();
  if (type == DeviceType::Batched) return "it is over, and a tensor that was made inside it is used";
  return type == DeviceType::CUDA ? why_not : "nothing can be allocated there";
}

DeviceInterface& need_device(DeviceType type, const char* op) {
  DeviceInterface* have = device_interface(type);
  const std::string why = have == nullptr || have->count() == 0 ? device_why_not(type) : "";
  TG_CHECK(why.empty(), Runtime,
           "{}: there is no CUDA device: {}\nuse device='cpu', or ask tapegrad.cuda.is_available() first", op, why);
  return *have;
}

HostHooks& host_hooks() noexcept {
  static HostHooks hooks;
  return hooks;
}

}  // namespace tapegrad
