// Chains of recorded steps. Kernels are kept by their text, for the process.
#include <map>
#include <mutex>

#include "tapegrad/aten/record/device/device_chain.h"
#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/launch/launch.h"
#include "tapegrad/cuda/record/source.h"

namespace tapegrad::cuda {

namespace {

using record::Call;
using record::OperandLayout;

constexpr size_t kMostKernels = 1024;  // a few tens of kB each

class Chain final : public record::DeviceChain {
 public:
  Chain(ChainSource source, std::shared_ptr<const SourceKernel> kernel)
      : source_(std::move(source)), kernel_(std::move(kernel)) {}

  void run(std::span<const Call> calls) const override {
    const pointwise::Iterator& like = *calls[0].pointwise;
    int64_t columns = 0;
    bool aligned = true;
    std::vector<uint64_t> argument(4);
    for (const ChainPlace& p : source_.places) {
      const pointwise::Iterator& it = *calls[p.call].pointwise;
      const auto at = reinterpret_cast<uintptr_t>(it.data[p.operand]);
      if (p.layout == OperandLayout::Dense || p.layout == OperandLayout::PerColumn)
        aligned &= at % std::min<size_t>(16, p.item * kChainPack) == 0;
      if (p.layout == OperandLayout::PerColumn || p.layout == OperandLayout::PerRow) columns = it.shape[1];
      argument.push_back(at);
      argument.push_back(p.layout == OperandLayout::PerRow ? std::bit_cast<uint64_t>(it.strides[p.operand][0]) : 0);
    }
    argument[0] = static_cast<uint64_t>(like.numel);
    argument[1] = static_cast<uint64_t>(columns);
    argument[2] = aligned ? 1 : 0;
    argument.insert(argument.end(), source_.numbers.begin(), source_.numbers.end());
    if (source_.numbers.empty()) argument.push_back(0);
    const Work work(like.device);
    const int64_t each = like.numel >= (int64_t{1} << 23) ? 4 : 1;  // as pointwise/rows.h
    kernel_->launch(work, grid_for(like.numel, int64_t{kBlock} * kChainPack * each, INT32_MAX).blocks, kBlock,
                    argument.data(), argument.size() * sizeof(uint64_t));
  }
  const std::string& text() const noexcept override { return source_.text; }

 private:
  ChainSource source_;
  std::shared_ptr<const SourceKernel> kernel_;
};

class Compiler final : public record::ChainCompiler {
 public:
  bool knows(const Call& call) const override { return compiles_kernels() && knows_call(call); }
  std::shared_ptr<const record::DeviceChain> find(std::span<const Call> calls,
                                                  const std::function<bool(int)>& in_memory,
                                                  std::function<void()>& compile) const override {
    ChainSource source = write_chain(calls, in_memory);
    Key key(calls[0].pointwise->device.index, source.text);
    const std::lock_guard guard(mutex_);
    if (const auto at = kernels_.find(key); at != kernels_.end())
      return std::make_shared<Chain>(std::move(source), at->second);
    compile = [this, made = std::move(key)] { this->compile(made); };
    return nullptr;
  }

  std::string texts() const {
    const std::lock_guard guard(mutex_);
    std::string all;
    for (const auto& [key, kernel] : kernels_) all += (all.empty() ? "" : std::string(1, '\0')) + key.second;
    return all;
  }

 private:
  using Key = std::pair<int, std::string>;  // the device and the text
  void compile(const Key& key) const {
    {
      const std::lock_guard guard(mutex_);
      if (kernels_.contains(key)) return;  // another step has waited for it, too
      TG_CHECK(kernels_.size() < kMostKernels, Runtime, "cuda: {} kernels have been compiled", kMostKernels);
    }
    std::shared_ptr<const SourceKernel> kernel = compile_kernel(key.first, kChainKernel, key.second, device_texts());
    const std::lock_guard guard(mutex_);
    kernels_.try_emplace(key, std::move(kernel));
  }
  mutable std::mutex mutex_;
  mutable std::map<Key, std::shared_ptr<const SourceKernel>> kernels_;
};

const Compiler& compiler() {
  static auto& instance = *new Compiler;
  return instance;
}

}  // namespace

std::string chain_texts() { return compiler().texts(); }
void register_chains() { record::chain_compiler.store(&compiler()); }

}  // namespace tapegrad::cuda
