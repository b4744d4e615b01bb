// The kernel of a chain over more elements than 32 bits count: its last blocks, over memory of which only the end is
// touched.
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "tapegrad/cuda/launch/launch.h"
#include "tapegrad/cuda/record/source.h"
#include "tapegrad/cuda/simulated/simulated_compiler.h"

using namespace tapegrad;
using namespace tapegrad::cuda;
using record::Call;

namespace {

struct Sparse {
  explicit Sparse(size_t n) : nbytes(n) {
    at = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(at != MAP_FAILED);
  }
  ~Sparse() { munmap(at, nbytes); }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  float* floats() const { return static_cast<float*>(at); }
  void* at;
  size_t nbytes;
};

OperatorEntry mul{"mul", {}, {}};

// out = a * b: `a` dense, `b` with these strides.
Call product(int64_t rows, int64_t columns, int out, void* to, int a, const void* x, int b, const void* y,
             int64_t per_row, int64_t per_column) {
  Call call;
  call.kind = Call::Kind::Pointwise;
  call.entry = &mul;
  call.pointwise = std::make_unique<pointwise::Iterator>();
  pointwise::Iterator& it = *call.pointwise;
  it.ndim = 2;
  it.num_inputs = 2;
  it.numel = rows * columns;
  it.shape[0] = rows;
  it.shape[1] = columns;
  it.device = Device(DeviceType::CUDA, 0);
  const void* data[] = {to, x, y};
  const int slots[] = {out, a, b};
  for (int k = 0; k < 3; ++k) {
    it.data[k] = static_cast<char*>(const_cast<void*>(data[k]));
    it.dtype[k] = DType::float32;
    it.strides[k][0] = k == 2 ? per_row : 4 * columns;
    it.strides[k][1] = k == 2 ? per_column : 4;
    call.uses.push_back({slots[k], 0, 0, 0, k == 0});
  }
  return call;
}

}  // namespace

TEST_CASE("a chain's kernel counts elements in 64 bits", "[cuda][record]") {
  if (std::getenv("TAPEGRAD_CUDA_SIMULATE_COMPILER") == nullptr) {
    if (std::system("g++ --version > /dev/null 2>&1") != 0) {
      WARN("no g++, which stands for NVRTC on a simulated device: not tested");
      return;
    }
    setenv("TAPEGRAD_CUDA_SIMULATE_COMPILER", "g++", 1);
  }
  for (const int64_t columns : {int64_t{1000}, int64_t{1001}}) {
    const int64_t least = int64_t{1} << (columns == 1000 ? 31 : 32), rows = least / columns + 5, n = rows * columns;
    REQUIRE(n > least);
    const Sparse x(static_cast<size_t>(n) * 4), y(static_cast<size_t>(n) * 4), per_row(static_cast<size_t>(rows) * 4);
    std::vector<float> per_column(static_cast<size_t>(columns));
    for (int64_t c = 0; c < columns; ++c) per_column[static_cast<size_t>(c)] = static_cast<float>(c);
    for (int64_t i = n - 3000; i < n; ++i) x.floats()[i] = static_cast<float>(i % 17 + 1);
    for (int64_t r = rows - 4; r < rows; ++r) per_row.floats()[r] = static_cast<float>(r % 13 + 1);
    std::vector<Call> calls;
    calls.push_back(product(rows, columns, 0, nullptr, 1, x.at, 2, per_column.data(), 0, 4));
    calls.push_back(product(rows, columns, 3, y.at, 0, nullptr, 4, per_row.at, 4, 0));
    for (const Call& call : calls) REQUIRE(knows_call(call));
    const ChainSource source = write_chain(calls, [](int slot) { return slot != 0; });
    const auto kernel = compile_kernel(0, kChainKernel, source.text, device_texts());
    std::vector<uint64_t> argument{static_cast<uint64_t>(n), static_cast<uint64_t>(columns), 1, 0};
    REQUIRE(source.places.size() == 4);
    for (const ChainPlace& p : source.places) {
      const pointwise::Iterator& it = *calls[p.call].pointwise;
      argument.push_back(reinterpret_cast<uint64_t>(it.data[p.operand]));
      argument.push_back(p.layout == record::OperandLayout::PerRow ? 4 : 0);
    }
    argument.push_back(0);
    const uint32_t blocks = grid_for(n, int64_t{kBlock} * kChainPack, INT32_MAX).blocks;
    REQUIRE(static_cast<int64_t>(blocks) * kBlock * kChainPack >= n);
    simulated::blocks_of (*kernel)(argument.data(), blocks - 2, blocks, blocks, kBlock);
    for (int64_t i = n - 2000; i < n; ++i)
      REQUIRE(y.floats()[i] == x.floats()[i] * static_cast<float>(i % columns) * per_row.floats()[i / columns]);
  }
}
