#include "tapegrad/aten/optim/steps.h"

#include "tapegrad/c10/dispatch/each_isa.h"
#include "tapegrad/c10/error.h"

namespace tapegrad {

#define TG_DECLARE(isa, level)                        \
  namespace cpu::isa {                                \
  void fused_rule(int, DType, const optim::RuleRun&); \
  }
TG_EACH_ISA(TG_DECLARE)
#undef TG_DECLARE

namespace optim {
namespace {

RuleKernel choose() {
  RuleKernel kernel = nullptr;
#define TG_CHOOSE(isa, level) \
  if (cpu_isa() >= level) kernel = &cpu::isa::fused_rule;
  TG_EACH_ISA(TG_CHOOSE)
#undef TG_CHOOSE
  if (kernel == nullptr)
    TG_THROW(Runtime, "optimizer step: this processor lacks AVX2, and no kernels for older ones were built");
  return kernel;
}

}  // namespace

RuleKernel cpu_steps() {
  static const RuleKernel chosen = choose();
  return chosen;
}

std::atomic<const DeviceSteps*> device_steps{nullptr};

}  // namespace optim
}  // namespace tapegrad
