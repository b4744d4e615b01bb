// The CUDA runtime, and through it the driver, behind cuda::Driver. The only host code that calls them.
#include <cuda.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/libraries/library.h"
#include "tapegrad/cuda/runtime/check.h"
#include "tapegrad/cuda/runtime/driver.h"
#include "tapegrad/cuda/runtime/pointer.h"

namespace tapegrad::cuda {

void throw_cuda_error(cudaError_t status, const char* call) {
  (void)cudaGetLastError();  // it would surface again at an innocent call
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorUnsupportedPtxVersion ||
      status == cudaErrorInvalidPtx) {
    int device = 0;
    cudaDeviceProp p{};
    if (cudaGetDevice(&device) == cudaSuccess && cudaGetDeviceProperties(&p, device) == cudaSuccess)
      TG_THROW(Runtime,
               "cuda: tapegrad's kernels were compiled for other architectures than that of cuda:{} ({}, sm_{}{})\n"
               "build it with -DTG_CUDA_ARCHITECTURES={}{}-real",
               device, p.name, p.major, p.minor, p.major, p.minor);
  }
  TG_CHECK(status != cudaErrorMemoryAllocation, OutOfMemory, "cuda: {}: out of memory", call);
  TG_THROW(Runtime, "cuda: {}: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status));
}

namespace {

[[noreturn]] void throw_driver_error(CUresult status, const char* call) {
  const char* text = nullptr;
  static auto get = [] {
    void* p = nullptr;
    cudaDriverEntryPointQueryResult found;
    (void)cudaGetDriverEntryPointByVersion("cuGetErrorString", &p, 6000, cudaEnableDefault, &found);
    return reinterpret_cast<CUresult (*)(CUresult, const char**)>(p);
  }();
  if (get == nullptr || get(status, &text) != CUDA_SUCCESS || text == nullptr) text = "unknown error";
  TG_THROW(Runtime, "cuda: {}: {} ({})", call, text, static_cast<int>(status));
}

// Functions of the driver that the runtime has no name for; looked up through the runtime, so that nothing links to
// libcuda, which machines without a GPU do not have.
struct VirtualMemory {
  CUresult (*get_granularity)(size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) = nullptr;
  CUresult (*reserve)(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long) = nullptr;
  CUresult (*release_addresses)(CUdeviceptr, size_t) = nullptr;
  CUresult (*create)(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long) = nullptr;
  CUresult (*release)(CUmemGenericAllocationHandle) = nullptr;
  CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) = nullptr;
  CUresult (*unmap)(CUdeviceptr, size_t) = nullptr;
  CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) = nullptr;
  CUresult (*get_attribute)(int*, CUdevice_attribute, CUdevice) = nullptr;
  bool complete = false;
};

const VirtualMemory& virtual_memory() {
  static const VirtualMemory table = [] {
    VirtualMemory t;
    bool all = true;
    auto find = [&](const char* name, auto& function) {
      void* p = nullptr;
      cudaDriverEntryPointQueryResult found;
      all &= cudaGetDriverEntryPointByVersion(name, &p, 11000, cudaEnableDefault, &found) == cudaSuccess &&
             found == cudaDriverEntryPointSuccess && p != nullptr;
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(p);
    };
    find("cuMemGetAllocationGranularity", t.get_granularity);
    find("cuMemAddressReserve", t.reserve);
    find("cuMemAddressFree", t.release_addresses);
    find("cuMemCreate", t.create);
    find("cuMemRelease", t.release);
    find("cuMemMap", t.map);
    find("cuMemUnmap", t.unmap);
    find("cuMemSetAccess", t.set_access);
    find("cuDeviceGetAttribute", t.get_attribute);
    (void)cudaGetLastError();
    t.complete = all;
    return t;
  }();
  return table;
}

#define TG_DRIVER_CHECK(call)                                                         \
  do {                                                                                \
    const CUresult tg_result = (call);                                                \
    if (TG_UNLIKELY(tg_result != CUDA_SUCCESS)) throw_driver_error(tg_result, #call); \
  } while (false)

CUmemAllocationProp physical_property(int device) {
  CUmemAllocationProp p{};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  p.location.id = device;
  return p;
}

bool out_of_memory(cudaError_t status) {
  if (status != cudaErrorMemoryAllocation) return false;
  (void)cudaGetLastError();
  return true;
}

class RuntimeDriver final : public Driver {
 public:
  int device_count() noexcept override {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess) return count;
    (void)cudaGetLastError();
    return 0;
  }

  std::string why_no_device() override {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    (void)cudaGetLastError();
    if (status == cudaSuccess && count > 0) return "";
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    const int have = driver_version();
    if (status == cudaErrorInsufficientDriver && have == 0) return "no NVIDIA driver was found";
    if (status == cudaErrorInsufficientDriver)
      return fmt::format("the NVIDIA driver is too old: it is made for CUDA {}.{}, and CUDA {}.{} is needed",
                         have / 1000, have % 1000 / 10, runtime_version() / 1000, runtime_version() % 1000 / 10);
    if (visible != nullptr) return fmt::format("CUDA_VISIBLE_DEVICES shows none: '{}'", visible);
    if (status == cudaErrorNoDevice || status == cudaSuccess) return "the driver found no GPU";
    return fmt::format("the driver cannot be started: {} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
  }

  int driver_version() override {
    int version = 0;
    if (cudaDriverGetVersion(&version) != cudaSuccess) (void)cudaGetLastError();
    return version;
  }

  int runtime_version() override {
    int version = 0;
    TG_CUDA_CHECK(cudaRuntimeGetVersion(&version));
    return version;
  }

  int current_device() override {
    int device = 0;
    TG_CUDA_CHECK(cudaGetDevice(&device));
    return device;
  }

  void set_device(int device) override { TG_CUDA_CHECK(cudaSetDevice(device)); }

  MemoryInfo memory_info_relaxed(int device) override {
    DeviceGuard guard(device);
    MemoryInfo info;
    TG_CUDA_CHECK(cudaMemGetInfo(&info.free, &info.total));
    return info;
  }

  DeviceProperties properties(int device) override {
    cudaDeviceProp p;
    TG_CUDA_CHECK(cudaGetDeviceProperties(&p, device));
    DeviceProperties out;
    out.name = p.name;
    out.major = p.major;
    out.minor = p.minor;
    out.multiprocessors = p.multiProcessorCount;
    out.total_memory = p.totalGlobalMem;
    out.warp_size = p.warpSize;
    out.max_threads_per_multiprocessor = p.maxThreadsPerMultiProcessor;
    out.max_threads_per_block = p.maxThreadsPerBlock;
    out.shared_memory_per_block = p.sharedMemPerBlock;
    out.shared_memory_per_block_optin = p.sharedMemPerBlockOptin;
    out.shared_memory_per_multiprocessor = p.sharedMemPerMultiprocessor;
    out.registers_per_multiprocessor = p.regsPerMultiprocessor;
    out.l2_cache_size = static_cast<size_t>(p.l2CacheSize);
    out.memory_bus_width = p.memoryBusWidth;
    out.integrated = p.integrated != 0;
    out.multi_gpu_board = p.isMultiGpuBoard != 0;
    out.pci_bus_id = p.pciBusID;
    out.pci_device_id = p.pciDeviceID;
    out.pci_domain_id = p.pciDomainID;
    std::memcpy(out.uuid, p.uuid.bytes, sizeof(out.uuid));
    TG_CUDA_CHECK(cudaDeviceGetAttribute(&out.clock_rate_khz, cudaDevAttrClockRate, device));
    TG_CUDA_CHECK(cudaDeviceGetAttribute(&out.memory_clock_rate_khz, cudaDevAttrMemoryClockRate, device));
    return out;
  }

  bool can_access_peer(int device, int peer) override {
    int can = 0;
    TG_CUDA_CHECK(cudaDeviceCanAccessPeer(&can, device, peer));
    return can != 0;
  }

  void enable_peer_access_relaxed(int device, int peer) override {
    DeviceGuard guard(device);
    const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled)
      (void)cudaGetLastError();
    else
      TG_CUDA_CHECK(status);
  }

  void synchronize_device(int device) override {
    DeviceGuard guard(device);
    TG_CUDA_CHECK(cudaDeviceSynchronize());
  }

  std::string last_error() override {
    const cudaError_t status = cudaGetLastError();
    return status == cudaSuccess ? "" : cudaGetErrorString(status);
  }

  // --- memory ---
  void* allocate_relaxed(int device, size_t nbytes) override {
    DeviceGuard guard(device);
    void* p = nullptr;
    const cudaError_t status = cudaMalloc(&p, nbytes);
    if (out_of_memory(status)) return nullptr;
    TG_CUDA_CHECK(status);
    return p;
  }

  void free_relaxed(int device, void* p) override {
    DeviceGuard guard(device);
    TG_CUDA_CHECK(cudaFree(p));
  }

  size_t granularity(int device) override {
    const VirtualMemory& vm = virtual_memory();
    if (!vm.complete) return 0;
    int supported = 0;
    if (vm.get_attribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) != CUDA_SUCCESS ||
        supported == 0)
      return 0;
    const CUmemAllocationProp property = physical_property(device);
    size_t size = 0;
    TG_DRIVER_CHECK(vm.get_granularity(&size, &property, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    return size;
  }

  void* reserve_addresses_relaxed(int device, size_t nbytes) override {
    DeviceGuard guard(device);
    CUdeviceptr p = 0;
    TG_DRIVER_CHECK(virtual_memory().reserve(&p, nbytes, 0, 0, 0));
    return reinterpret_cast<void*>(p);
  }

  void release_addresses_relaxed(int, void* p, size_t nbytes) override {
    TG_DRIVER_CHECK(virtual_memory().release_addresses(reinterpret_cast<CUdeviceptr>(p), nbytes));
  }

  PhysicalHandle create_memory_relaxed(int device, size_t nbytes) override {
    DeviceGuard guard(device);
    const CUmemAllocationProp property = physical_property(device);
    CUmemGenericAllocationHandle handle = 0;
    const CUresult status = virtual_memory().create(&handle, nbytes, &property, 0);
    if (status == CUDA_ERROR_OUT_OF_MEMORY) return 0;
    TG_DRIVER_CHECK(status);
    return handle;
  }

  void release_memory_relaxed(int, PhysicalHandle memory, size_t) override {
    TG_DRIVER_CHECK(virtual_memory().release(memory));
  }

  void map_relaxed(int device, void* at, PhysicalHandle memory, size_t nbytes) override {
    const auto p = reinterpret_cast<CUdeviceptr>(at);
    TG_DRIVER_CHECK(virtual_memory().map(p, nbytes, 0, memory, 0));
    // This device, and every other that reads its memory directly.
    int count = 0;
    TG_CUDA_CHECK(cudaGetDeviceCount(&count));
    for (int other = 0; other < count; ++other) {
      int can = other == device;
      if (!can) TG_CUDA_CHECK(cudaDeviceCanAccessPeer(&can, other, device));
      if (!can) continue;
      CUmemAccessDesc access{};
      access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      access.location.id = other;
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      const CUresult status = virtual_memory().set_access(p, nbytes, &access, 1);
      if (status != CUDA_SUCCESS) {
        (void)virtual_memory().unmap(p, nbytes);
        throw_driver_error(status, "cuMemSetAccess");
      }
    }
  }

  // Waits for nothing: the allocator has waited for what used this memory.
  void unmap_relaxed(int device, void* at, size_t nbytes) override {
    DeviceGuard guard(device);
    TG_DRIVER_CHECK(virtual_memory().unmap(reinterpret_cast<CUdeviceptr>(at), nbytes));
  }

  // --- pinned ---
  void* allocate_pinned_relaxed(size_t nbytes) override {
    void* p = nullptr;
    const cudaError_t status = cudaHostAlloc(&p, nbytes, cudaHostAllocPortable | cudaHostAllocMapped);
    if (out_of_memory(status)) return nullptr;
    TG_CUDA_CHECK(status);
    return p;
  }
  void free_pinned_relaxed(void* p) override { TG_CUDA_CHECK(cudaFreeHost(p)); }
  void register_pinned_relaxed(void* p, size_t nbytes) override {
    TG_CUDA_CHECK(cudaHostRegister(p, nbytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
  }
  void unregister_pinned_relaxed(void* p) override { TG_CUDA_CHECK(cudaHostUnregister(p)); }

  bool is_pinned_relaxed(const void* p) override {
    cudaPointerAttributes a;
    if (cudaPointerGetAttributes(&a, p) != cudaSuccess) {
      (void)cudaGetLastError();
      return false;
    }
    return a.type == cudaMemoryTypeHost;
  }

  void* device_address(void* pinned) override {
    void* p = nullptr;
    TG_CUDA_CHECK(cudaHostGetDevicePointer(&p, pinned, 0));
    return p;
  }

  // --- work ---
  void copy(void* to, const void* from, size_t nbytes, CopyKind kind, StreamHandle stream) override {
    const cudaMemcpyKind k = kind == CopyKind::HostToDevice   ? cudaMemcpyHostToDevice
                             : kind == CopyKind::DeviceToHost ? cudaMemcpyDeviceToHost
                                                              : cudaMemcpyDeviceToDevice;
    TG_CUDA_CHECK(cudaMemcpyAsync(to, from, nbytes, k, stream));
  }

  void copy_peer(void* to, int to_device, const void* from, int from_device, size_t nbytes,
                 StreamHandle stream) override {
    TG_CUDA_CHECK(cudaMemcpyPeerAsync(to, to_device, from, from_device, nbytes, stream));
  }

  void fill(void* p, int byte, size_t nbytes, StreamHandle stream) override {
    TG_CUDA_CHECK(cudaMemsetAsync(p, byte, nbytes, stream));
  }

  // In a capture the function runs once per replay, so it is unknown when it is no longer needed: it is leaked.
  void host_function(StreamHandle stream, std::function<void()> function) override {
    const bool captured = capture_state(stream) != CaptureState::None;
    struct Call {
      std::function<void()> function;
      bool keep;
    };
    auto call = std::make_unique<Call>(Call{std::move(function), captured});
    auto run = [](void* p) {
      auto* c = static_cast<Call*>(p);
      try {
        c->function();
      } catch (...) {  // there is no caller that could handle it
      }
      if (!c->keep) delete c;
    };
    TG_CUDA_CHECK(cudaLaunchHostFunc(stream, run, call.get()));
    (void)call.release();
  }

  // --- streams ---
  StreamHandle create_stream_relaxed(int device, int priority) override {
    DeviceGuard guard(device);
    cudaStream_t stream = nullptr;
    TG_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority));
    return stream;
  }
  void destroy_stream_relaxed(StreamHandle stream) override { TG_CUDA_CHECK(cudaStreamDestroy(stream)); }
  bool query_stream_relaxed(StreamHandle stream) override { return ready(cudaStreamQuery(stream), "cudaStreamQuery"); }
  void synchronize_stream_relaxed(StreamHandle stream) override { TG_CUDA_CHECK(cudaStreamSynchronize(stream)); }
  void stream_wait_event(StreamHandle stream, EventHandle event) override {
    TG_CUDA_CHECK(cudaStreamWaitEvent(stream, event, 0));
  }
  void priority_range(int& least, int& greatest) override {
    TG_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  }

  // --- events ---
  EventHandle create_event_relaxed(int device, unsigned flags) override {
    DeviceGuard guard(device);
    unsigned f = (flags & kEventTiming) ? cudaEventDefault : cudaEventDisableTiming;
    if (flags & kEventBlockingSync) f |= cudaEventBlockingSync;
    if (flags & kEventInterprocess) f |= cudaEventInterprocess;
    cudaEvent_t event = nullptr;
    TG_CUDA_CHECK(cudaEventCreateWithFlags(&event, f));
    return event;
  }
  void destroy_event(EventHandle event) noexcept override { (void)cudaEventDestroy(event); }
  void record_event(EventHandle event, StreamHandle stream) override { TG_CUDA_CHECK(cudaEventRecord(event, stream)); }
  bool query_event_relaxed(EventHandle event) override { return ready(cudaEventQuery(event), "cudaEventQuery"); }
  void synchronize_event_relaxed(EventHandle event) override { TG_CUDA_CHECK(cudaEventSynchronize(event)); }
  float elapsed_ms(EventHandle start, EventHandle end) override {
    float ms = 0;
    TG_CUDA_CHECK(cudaEventElapsedTime(&ms, start, end));
    return ms;
  }

  // --- other processes ---
  IpcHandle event_ipc_handle_relaxed(EventHandle event) override {
    cudaIpcEventHandle_t handle;
    TG_CUDA_CHECK(cudaIpcGetEventHandle(&handle, event));
    return pack(handle);
  }
  EventHandle open_event_relaxed(int device, const IpcHandle& packed) override {
    DeviceGuard guard(device);
    cudaIpcEventHandle_t handle;
    std::memcpy(&handle, packed.bytes, sizeof(handle));
    cudaEvent_t event = nullptr;
    TG_CUDA_CHECK(cudaIpcOpenEventHandle(&event, handle));
    return event;
  }
  IpcHandle memory_ipc_handle_relaxed(void* p) override {
    cudaIpcMemHandle_t handle;
    TG_CUDA_CHECK(cudaIpcGetMemHandle(&handle, p));
    return pack(handle);
  }
  void* open_memory_relaxed(int device, const IpcHandle& packed) override {
    DeviceGuard guard(device);
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, packed.bytes, sizeof(handle));
    void* p = nullptr;
    TG_CUDA_CHECK(cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess));
    return p;
  }
  void close_memory_relaxed(int device, void* p) override {
    DeviceGuard guard(device);
    TG_CUDA_CHECK(cudaIpcCloseMemHandle(p));
  }

  // --- graphs ---
  void begin_capture(StreamHandle stream, const char* mode) override {
    const std::string m = mode;
    cudaStreamCaptureMode k = cudaStreamCaptureModeGlobal;
    if (m == "thread_local")
      k = cudaStreamCaptureModeThreadLocal;
    else if (m == "relaxed")
      k = cudaStreamCaptureModeRelaxed;
    else
      TG_CHECK(m == "global", Value, "cuda: begin_capture: the mode is one of global, thread_local, relaxed: got '{}'",
               m);
    TG_CUDA_CHECK(cudaStreamBeginCapture(stream, k));
  }
  GraphHandle end_capture(StreamHandle stream) override {
    cudaGraph_t graph = nullptr;
    TG_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    TG_CHECK(graph != nullptr, Runtime, "cuda: end_capture: the capture was spoilt by a call that it does not allow");
    return graph;
  }
  CaptureMode exchange_capture_mode(CaptureMode mode) noexcept override {
    auto m = static_cast<cudaStreamCaptureMode>(mode);
    (void)cudaThreadExchangeStreamCaptureMode(&m);
    return static_cast<CaptureMode>(m);
  }
  CaptureState capture_state(StreamHandle stream) override {
    if (stream == nullptr) return CaptureState::None;  // it never is; asking would be an error while another one is
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    TG_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
    return status == cudaStreamCaptureStatusNone     ? CaptureState::None
           : status == cudaStreamCaptureStatusActive ? CaptureState::Active
                                                     : CaptureState::Invalid;
  }
  uint64_t capture_id(StreamHandle stream) override {
    if (stream == nullptr) return 0;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    TG_CUDA_CHECK(cudaStreamGetCaptureInfo(stream, &status, &id));
    return status == cudaStreamCaptureStatusNone ? 0 : id;
  }
  GraphExecHandle instantiate(GraphHandle graph) override {
    cudaGraphExec_t exec = nullptr;
    TG_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    return exec;
  }
  void launch_graph(GraphExecHandle graph, StreamHandle stream) override {
    TG_CUDA_CHECK(cudaGraphLaunch(graph, stream));
  }
  size_t graph_nodes(GraphHandle graph) override {
    size_t n = 0;
    TG_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &n));
    return n;
  }
  std::string graph_dot(GraphHandle graph) override {
    char path[] = "/tmp/tapegrad-graph-XXXXXX";
    const int fd = mkstemp(path);
    TG_CHECK(fd >= 0, Runtime, "cuda: graph_dot: no temporary file can be made in /tmp");
    close(fd);
    const cudaError_t status = cudaGraphDebugDotPrint(graph, path, cudaGraphDebugDotFlagsVerbose);
    std::string text;
    if (FILE* file = std::fopen(path, "rb")) {
      char buffer[4096];
      while (const size_t n = std::fread(buffer, 1, sizeof(buffer), file)) text.append(buffer, n);
      std::fclose(file);
    }
    unlink(path);
    TG_CUDA_CHECK(status);
    return text;
  }
  void destroy_graph(GraphHandle graph) noexcept override { (void)cudaGraphDestroy(graph); }
  void destroy_graph_exec(GraphExecHandle graph) noexcept override { (void)cudaGraphExecDestroy(graph); }

  void mark(int what, const char* text, uint64_t* id) override {
    switch (what) {
      case 0:
        return nvtxMarkA(text);
      case 1:
        return (void)nvtxRangePushA(text);
      case 2:
        return (void)nvtxRangePop();
      case 3:
        *id = nvtxRangeStartA(text);
        return;
      default:
        return nvtxRangeEnd(*id);
    }
  }
  void profiler(bool on) override { TG_CUDA_CHECK(on ? cudaProfilerStart() : cudaProfilerStop()); }
  std::string libraries() override { return libraries_json(); }

 private:
  static bool ready(cudaError_t status, const char* call) {
    if (status == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    if (status != cudaSuccess) throw_cuda_error(status, call);
    return true;
  }
  template <class Handle>
  static IpcHandle pack(const Handle& handle) {
    static_assert(sizeof(Handle) == sizeof(IpcHandle));
    IpcHandle out;
    std::memcpy(out.bytes, &handle, sizeof(handle));
    return out;
  }
};

}  // namespace

Driver& driver() {
  static auto& instance = *new RuntimeDriver;
  return instance;
}

int device_of_address(const void* p) {
  const RelaxedCapture relaxed;
  cudaPointerAttributes a;
  if (cudaPointerGetAttributes(&a, p) != cudaSuccess) {
    (void)cudaGetLastError();
    return -1;
  }
  return a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged ? a.device : -1;
}

}  // namespace tapegrad::cuda
