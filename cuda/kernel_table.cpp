// Fills the CUDA column of the kernel table. Kernels are weak references, so that a missing one is null, which
// `tapegrad_cuda_missing_kernels` names, and not a library that cannot be loaded. Visible, or the linker could not
// leave them null.
#define TG_KERNEL_REFERENCE __attribute__((weak, visibility("default")))
#include "tapegrad/cuda/kernel_table.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "tapegrad/aten/copy/across.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/optim/fused.h"
#include "tapegrad/cuda/sparse/coo.h"

namespace tapegrad::cuda {

namespace {

std::string missing_names;

// Rows whose CPU kernel calls operators and touches no memory itself: it serves any device.
constexpr std::string_view kAnyDevice[] = {"_embed_view", "_read_view", "_unfold_backward", "roll",
                                           "repeat",      "diag_embed", "_linalg_pinv"};

void set(OpId op, AnyKernel kernel) {
  AnyKernel(&devices)[kNumDeviceTypes] = kernel_table[op].device;
  const bool any_device = std::ranges::find(kAnyDevice, op_names[op]) != std::end(kAnyDevice);
  if (kernel == nullptr && any_device) kernel = devices[static_cast<int>(DeviceType::CPU)];
  devices[static_cast<int>(DeviceType::CUDA)] = kernel;
  if (kernel == nullptr) missing_names += std::string(op_names[op]) + "\n";
}

}  // namespace

void fill_kernel_table() {
  missing_names.clear();
#define TG_ITERATED(index, name, kind) set(index, reinterpret_cast<AnyKernel>(&name));
#define TG_WRITTEN(index, name, ...) set(index, reinterpret_cast<AnyKernel>(&name));
#include "tapegrad/cuda/kernel_list.inc"
#undef TG_ITERATED
#undef TG_WRITTEN
  copy_across.store(&copy_any);
  sparse::check_indices.store(&record_out_of_bounds);
  set_optimizer_steps();
}

}  // namespace tapegrad::cuda

const char* tapegrad_cuda_missing_kernels() { return tapegrad::cuda::missing_names.c_str(); }
