// The real cuDNN is asked, without a device, whether it knows the graphs of attention: it finalizes them, its
// heuristics give engines for devices that are described to it, and plans are made. Nothing is run. For whoever has the
// library:
//
//   pip install --target /tmp/cudnn nvidia-cudnn-cu13 nvidia-cuda-nvrtc nvidia-cublas
//   TAPEGRAD_CUDNN=/tmp/cudnn/nvidia build/tapegrad_tests "[cudnn]"
//
// TAPEGRAD_CUDNN_PLANS=1 makes a plan for each, which compiles kernels: seconds each.
#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/attention/cudnn_layout.h"

using namespace tapegrad;
using namespace tapegrad::cuda;
using namespace tapegrad::cuda::cudnn_graph;

namespace {

std::string why_not;

bool open(const std::string& file) {
  if (dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return true;
  why_not = dlerror();
  return false;
}

const Functions* find_library() {
  const char* folder = std::getenv("TAPEGRAD_CUDNN");
  if (folder == nullptr) {
    why_not = "TAPEGRAD_CUDNN names no folder of NVIDIA's wheels";
    return nullptr;
  }
  const std::string at = folder;
  if (!open("libcuda.so.1") && !open(TG_DRIVER_STUB)) return nullptr;
  if (!open(at + "/cu13/lib/libcublasLt.so.13") || !open(at + "/cu13/lib/libnvrtc.so.13")) return nullptr;
  void* library = dlopen((at + "/cudnn/lib/libcudnn.so.9").c_str(), RTLD_NOW);
  if (library == nullptr) {
    why_not = dlerror();
    return nullptr;
  }
  static Functions all;
  bool complete = true;
  const auto find = [&](auto& function, const char* name) {
    void* const symbol = dlsym(library, name);
    function.assign(symbol);
    complete &= symbol != nullptr;
    if (symbol == nullptr) why_not = dlerror();
  };
  find(all.version, "cudnnGetVersion");
  find(all.create, "cudnnCreate");
  find(all.set_stream, "cudnnSetStream");
  find(all.create_descriptor, "cudnnBackendCreateDescriptor");
  find(all.destroy_descriptor, "cudnnBackendDestroyDescriptor");
  find(all.set, "cudnnBackendSetAttribute");
  find(all.get, "cudnnBackendGetAttribute");
  find(all.finalize, "cudnnBackendFinalize");
  find(all.execute, "cudnnBackendExecute");
  find(all.error_string, "cudnnGetErrorString");
  find(all.last_error, "cudnnGetLastErrorString");
  return complete ? &all : nullptr;
}

const Functions* library() {
  static const Functions* const found = find_library();
  return found;
}

// As cuDNN describes devices to itself: what CUDA says of them.
Descriptor described_device(int version, int multiprocessors, int shared_memory, const char* name) {
  const std::string json = fmt::format(
      "{{\"cudaDeviceId\": 0, \"deviceVer\": {}, \"driverVer\": 13000, \"maxGridSize\": [2147483647, 65535, 65535], "
      "\"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, \"multiProcessorCount\": {}, \"warpSize\": 32, "
      "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": {}, \"reservedSharedMemoryPerBlock\": "
      "1024, \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": "
      "2048, \"pciDeviceId\": 0, \"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"smClockRateKHz\": 1980000, "
      "\"memClockRateKHz\": 2619000, \"memoryBusWidth\": 5120, \"l2CacheSize\": 52428800, \"deviceName\": \"{}\", "
      "\"totalGlobalMem\": 85899345920}}",
      version, multiprocessors, shared_memory, name);
  Descriptor device(kDevice);
  device.set(kDeviceJson, kTypeChar, static_cast<int64_t>(json.size()), json.data());
  device.finalize();
  return device;
}

// What is added to the scores differs by batch, heads, rows.
struct Bias {
  bool batch, heads, rows;
};
struct Shape {
  int64_t heads, shared, rows, keys, width, value_width;
  bool causal, interleaved;
  std::optional<Bias> bias = {};
  bool kept = false;
};

std::vector<Shape> shapes() {
  std::vector<Shape> out;
  for (const auto& [width, value_width] : {std::pair(8, 8),
                                           {24, 24},
                                           {40, 40},
                                           {64, 64},
                                           {72, 80},
                                           {96, 96},
                                           {128, 128},
                                           {64, 128},
                                           {192, 128},
                                           {256, 256}})
    for (const auto& [rows, keys] :
         {std::pair(256, 256), {1024, 1024}, {127, 129}, {33, 2}, {300, 17}, {17, 1000}, {1, 77}})
      for (const int64_t shared : {4, 2, 1})
        for (const bool causal : {false, true})
          for (const bool interleaved : {false, true}) {
            out.push_back({4, shared, rows, keys, width, value_width, causal, interleaved});
            for (const Bias& bias :
                 {Bias{true, true, true}, {true, false, false}, {false, false, true}, {false, true, false}})
              if (!causal && !interleaved) {
                out.push_back(out.back());
                out.back().bias = bias;
              }
            if (interleaved || keys == 2) continue;
            out.push_back(out.back());
            out.back().kept = true;
          }
  return out;
}

AttentionBackward attention_of(const Shape& s, DType dtype) {
  attention::Sizes z;
  z.batch = 2;
  z.heads = s.heads, z.shared = s.shared;
  z.rows = s.rows, z.keys = s.keys;
  z.width = s.width, z.value_width = s.value_width;
  const auto rows = [&](int64_t heads, int64_t lines, int64_t width) {
    return s.interleaved ? AttentionRows{nullptr, heads * lines * width, width, heads * width}
                         : AttentionRows{nullptr, heads * lines * width, lines * width, width};
  };
  AttentionBackward out{
      .forward = {dtype, z, s.causal, 1.0, rows(s.heads, s.rows, s.width), rows(s.shared, s.keys, s.width),
                  rows(s.shared, s.keys, s.value_width), nullptr, nullptr},
      .grad_output = rows(s.heads, s.rows, s.value_width)};
  if (s.bias)
    out.forward.bias = {nullptr, s.bias->batch ? z.batch : 1, s.bias->heads ? z.heads : 1, s.bias->rows ? z.rows : 1,
                        pitch_of(z.keys)};
  if (s.kept) out.forward.kept = {nullptr, pitch_of(z.keys), 1.25};
  return out;
}

}  // namespace

TEST_CASE("cuDNN knows the graphs of attention", "[cuda][cudnn]") {
  if (library() == nullptr) {
    WARN("skipped: " << why_not);
    return;
  }
  use_cudnn(&library);
  const bool plans = std::getenv("TAPEGRAD_CUDNN_PLANS") != nullptr;
  struct Name {
    int version, multiprocessors, shared_memory;
    const char* name;
  };
  for (const Name& n :
       {Name{900, 132, 232448, "NVIDIA H100 80GB HBM3"}, Name{800, 108, 166912, "NVIDIA A100-SXM4-80GB"},
        Name{1000, 148, 232448, "NVIDIA B200"}, Name{1200, 170, 101376, "NVIDIA GeForce RTX 5090"}}) {
    const Descriptor device = described_device(n.version, n.multiprocessors, n.shared_memory, n.name);
    for (const bool backward : {false, true}) {
      int wanted = 0, known = 0, planned = 0;
      for (const Shape& s : shapes())
        for (const DType dtype : {DType::float16, DType::bfloat16}) {
          const AttentionBackward b = attention_of(s, dtype);
          const AttentionForward& a = b.forward;
          if (!takes(a, backward) || !takes(n.version / 100, version(), a.sizes, backward)) continue;
          ++wanted;
          CAPTURE(n.name, backward, s.shared, s.rows, s.keys, s.width, s.value_width, s.causal, s.interleaved);
          try {
            Graph graph;
            backward ? describe_attention_grad(graph, b) : describe_attention(graph, a);
            const Descriptor finished = graph.finish(nullptr);
            const Choice choice{.measured = false, .deterministic = true, .tf32 = false, .limit = 0};
            const auto engines = configurations(finished, dtype, choice, &device);
            CHECK(!engines.empty());
            if (engines.empty()) continue;
            ++known;
            if (!plans && (s.rows != 1024 || s.width != 64 || s.value_width != 64 || s.interleaved)) continue;
            int64_t workspace = 0;
            (void)plan_of(engines.front(), nullptr, &device, workspace);
            ++planned;
            // What portion_of() counts with, and full heads of key and value where they are shared.
            const Portion whole = portion_of(a.sizes);
            const int64_t scores = whole.batch * whole.shared * a.sizes.group() * ((s.rows + 127) / 128 * 128) *
                                   ((s.keys + 127) / 128 * 128);
            if (backward) CHECK(workspace <= 2 * scores + (1 << 24));
          } catch (const Refusal& refusal) {
            FAIL_CHECK(refusal.call << ": " << refusal.status << ": " << refusal.message);
          }
        }
      WARN("cuDNN " << version() << ", " << n.name << (backward ? ", backward: " : ", forward: ") << known << " of "
                    << wanted << " graphs have an engine, " << planned << " plans were made");
    }
  }
  use_cudnn(nullptr);
}
