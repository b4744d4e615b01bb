#include "tapegrad/aten/onednn/product.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>

#include "tapegrad/aten/onednn/library.h"
#include "tapegrad/c10/dispatch/kernel_table.h"
#include "tapegrad/c10/dispatch/work_counters.h"

namespace tapegrad::onednn {
namespace {

// Only where it pays to prepare a primitive, which takes 0.3 ms once for each shape.
constexpr double kLeastHalfWork = 1 << 15;

struct PlanKey {
  Product product;
  int64_t factors, out, add;
  bool operator==(const PlanKey&) const = default;
};

struct Plan {
  dnnl::primitive primitive;
  dnnl::memory::desc a, b, c, scratchpad;
};

using dims = dnnl::memory::dims;

std::shared_ptr<const Plan> make_plan(const PlanKey& key) {
  const auto in = data_type(static_cast<DType>(key.factors));
  auto desc = [](int64_t rows, int64_t columns, dnnl::memory::data_type type, int64_t ld, bool turned) {
    return dnnl::memory::desc({rows, columns}, type, turned ? dims{1, ld} : dims{ld, 1});
  };
  auto plan = std::make_shared<Plan>();
  const Product& p = key.product;
  plan->a = desc(p.m, p.k, in, p.lda, p.trans_a);
  plan->b = desc(p.k, p.n, in, p.ldb, p.trans_b);
  plan->c = desc(p.m, p.n, data_type(static_cast<DType>(key.out)), p.ldc, false);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.add) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc pd(engine(), plan->a, plan->b, plan->c, attributes);
  if (std::string(pd.impl_info_str()).starts_with("ref")) return nullptr;  // plain loops
  plan->primitive = dnnl::matmul(pd);
  plan->scratchpad = pd.scratchpad_desc();
  return plan;
}

std::shared_ptr<const Plan> plan_for(const PlanKey& key) {
  using Cache = PlanCache<PlanKey, Plan, KeyHash<PlanKey>>;
  static auto* cache = new Cache;  // never destroyed: threads may still run at exit
  return cache->get(key, "matmul", make_plan);
}

struct Instructions {
  bool bfloat16 = false, float16 = false, int8 = false, int8_tiles = false;
  Instructions() {
#if defined(__x86_64__)
    if (cpu_isa() != Isa::Avx512) return;
    bfloat16 = __builtin_cpu_supports("avx512bf16");  // processors with AMX have it, too
    float16 = __builtin_cpu_supports("avx512fp16");
    int8 = __builtin_cpu_supports("avx512vnni");
    unsigned a, b, c, d = 0;
    int8_tiles = int8 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 25 & 1);
#endif
  }
};

const Instructions& instructions() {
  static const Instructions has;
  return has;
}

double work(const Product& p) { return static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k); }

}  // namespace

bool available() { return true; }

bool multiplies(DType dtype) {
  const Instructions& has = instructions();
  return dtype == DType::bfloat16 ? has.bfloat16
         : dtype == DType::int8   ? has.int8
                                  : dtype == DType::float16 && has.float16;
}

bool has_int8_tiles() { return instructions().int8_tiles; }

bool is_faster(const Product& p) {
  // Measured on one thread of a Zen 5 against OpenBLAS's kernels for AVX-512, 149 shapes of 16 to 512 rows and columns
  // and 16 to 3,136 terms for each layout: 1.2 times as fast in the geometric mean, and in the large products of an
  // Intel processor with AMX 1.09 to 1.13 times. Up to a million multiplications OpenBLAS has kernels of its own, which
  // are faster, and for few terms. Of a transposed second factor with few columns oneDNN reads rows side by side, which
  // is slow where they lie 1 KiB apart (0.5 to 0.9); two transposed factors are slower in most shapes.
  static const bool wide = cpu_isa() == Isa::Avx512;
  if (!wide || work(p) <= 1e6) return false;
  if (!p.trans_b) return p.k >= 32;
  return !p.trans_a && (p.n >= 128 || p.k <= 128 || p.ldb % 256 != 0);
}

bool sgemm(const Product& p, float alpha, const float* a, const float* b, float beta, float* c) {
  // It generates its kernels in its first call, and never again if that finds no memory.
  static std::atomic<bool> usable{true};
  if (!usable.load(std::memory_order_relaxed)) return false;
  CallScope scope;
  count_work(Work::LibraryCall);
  // Long rows of a transposed factor are read in parts: 1.25 times as fast for 3,136 terms, the same for 1,024.
  const int64_t part = p.trans_b && !p.trans_a ? 512 : p.k;
  for (int64_t at = 0; at < p.k; at += part) {
    const auto status = dnnl_sgemm(p.trans_a ? 'T' : 'N', p.trans_b ? 'T' : 'N', p.m, p.n, std::min(part, p.k - at),
                                   alpha, a + at, p.lda, b + at, p.ldb, at > 0 ? 1.0f : beta, c, p.ldc);
    if (status == dnnl_success) continue;
    if (at > 0) raise("matmul", dnnl::error(status, "sgemm"));  // c is no longer what it was
    if (status != dnnl_out_of_memory) usable = false;
    return false;
  }
  return true;
}

namespace {

// A plan with what a call hands to it. Each thread keeps its last one, since tiles of one product are alike: looking
// the plan up and making these objects would take as long as a product of 64 x 64 x 64.
struct Call {
  PlanKey key;
  std::shared_ptr<const Plan> plan;
  dnnl::memory a, b, c, scratchpad;
  std::unordered_map<int, dnnl::memory> arguments;

  Call(const PlanKey& k, std::shared_ptr<const Plan> p)
      : key(k),
        plan(std::move(p)),
        a(wrap(plan->a, nullptr)),
        b(wrap(plan->b, nullptr)),
        c(wrap(plan->c, nullptr)),
        scratchpad(wrap(plan->scratchpad, nullptr)),
        arguments{{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}, {DNNL_ARG_SCRATCHPAD, scratchpad}} {}
};

}  // namespace

bool multiply(const Product& p, DType factors, const void* a, const void* b, DType out, bool add, void* c) {
  // As sgemm(): what found no memory for its code once does not look for it again.
  static std::atomic<bool> usable{true};
  if (!multiplies(factors) || work(p) < kLeastHalfWork || !usable.load(std::memory_order_relaxed)) return false;
  const PlanKey key{p, static_cast<int64_t>(factors), static_cast<int64_t>(out), add};
  struct LastCall {};
  require_thread_memory<LastCall>();
  static thread_local std::unique_ptr<Call> last;
  try {
    if (!last || !(last->key == key)) {
      std::shared_ptr<const Plan> plan;
      try {
        plan = plan_for(key);
      } catch (const std::exception&) {  // no memory
        usable = false;
      }
      if (!plan) return false;
      last = std::make_unique<Call>(key, std::move(plan));
    }
    CallScope scope;
    Tensor holder;
    last->a.set_data_handle(const_cast<void*>(a));
    last->b.set_data_handle(const_cast<void*>(b));
    last->c.set_data_handle(c);
    last->scratchpad.set_data_handle(take(holder, last->plan->scratchpad.get_size()));
    count_work(Work::LibraryCall);
    last->plan->primitive.execute(stream(), last->arguments);
  } catch (const dnnl::error& e) {
    usable = false;
    if (add) raise("matmul", e);  // c may no longer be what it was
    return false;
  }
  return true;
}

}  // namespace tapegrad::onednn
