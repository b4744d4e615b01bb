#include "tapegrad/aten/record/chain/loop.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <numbers>

#include "tapegrad/c10/dispatch/kernel_table.h"
#include "tapegrad/c10/environment.h"

#if defined(__x86_64__)
#include <xbyak/xbyak.h>
#endif

namespace tapegrad::record {

namespace {

std::atomic<int64_t> live{0};
std::atomic<bool>& enabled() {
  static std::atomic<bool> on = environment_flag("TAPEGRAD_LOOPS", true);
  return on;
}

}  // namespace

bool set_loops(bool on) noexcept { return enabled().exchange(on); }
bool loops_enabled() noexcept { return enabled(); }
int64_t num_loops() noexcept { return live; }

LoopCode::LoopCode(std::span<const std::byte> code) : bytes_((code.size() + 4095) / 4096 * 4096) {
  memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  std::memcpy(memory_, code.data(), code.size());
  if (mprotect(memory_, bytes_, PROT_READ | PROT_EXEC) != 0) {
    munmap(memory_, bytes_);
    throw std::bad_alloc();
  }
  ++live;
}
LoopCode::~LoopCode() {
  munmap(memory_, bytes_);
  --live;
}

#if defined(__x86_64__)

namespace {

using V = Xbyak::Xmm;  // a vector register of the width in use

// The instructions by which operators are written, over float or double and both instruction sets. `out` is none of the
// inputs.
class Vectors : public Xbyak::CodeGenerator {
 public:
  Vectors(void* memory, size_t bytes, DType dtype)
      : CodeGenerator(bytes, memory), wide(cpu_isa() == Isa::Avx512), dbl(dtype == DType::float64) {}
  const bool wide, dbl;
  int lanes() const {  // elements of a vector
    const int bytes = wide ? 64 : 32;
    return dbl ? bytes / 8 : bytes / 4;
  }
  V v(int i) const { return wide ? V(Xbyak::Zmm(i)) : V(Xbyak::Ymm(i)); }
  V scratch(int i) const { return v(i); }  // 0 and 1
  static constexpr int kFirstRegister = 2;
  enum Predicate : uint8_t { kEq = 0, kLt = 1, kLe = 2, kUnordered = 3, kNe = 4, kGe = 13, kGt = 14 };

#define TG_PACKED(name, ps, pd) \
  void name(const V& o, const V& a, const V& b) { dbl ? pd(o, a, b) : ps(o, a, b); }
  TG_PACKED(add_, vaddps, vaddpd)
  TG_PACKED(sub_, vsubps, vsubpd)
  TG_PACKED(mul_, vmulps, vmulpd)
  TG_PACKED(div_, vdivps, vdivpd)
  void sqrt_(const V& o, const V& a) { dbl ? vsqrtpd(o, a) : vsqrtps(o, a); }
  TG_PACKED(max_, vmaxps, vmaxpd)  // a > b ? a : b
  TG_PACKED(min_, vminps, vminpd)
  void copy_(const V& o, const V& a) { vmovaps(o, a); }
  TG_PACKED(bit_and, vandps, vandpd)
  TG_PACKED(bit_andn, vandnps, vandnpd)  // ~a & b
  TG_PACKED(bit_or, vorps, vorpd)
  TG_PACKED(bit_xor, vxorps, vxorpd)
#undef TG_PACKED
  void round_(const V& o, const V& a, uint8_t how) {
    if (wide)
      dbl ? vrndscalepd(o, a, how) : vrndscaleps(o, a, how);
    else
      dbl ? vroundpd(o, a, how) : vroundps(o, a, how);
  }
  // c + a b and c - a b, rounded once.
  void fma_(const V& o, const V& a, const V& b, const V& c) {
    copy_(o, a);
    dbl ? vfmadd213pd(o, b, c) : vfmadd213ps(o, b, c);
  }
  void fnma_(const V& o, const V& a, const V& b, const V& c) {
    copy_(o, a);
    dbl ? vfnmadd213pd(o, b, c) : vfnmadd213ps(o, b, c);
  }
  void compare(const V& o, Predicate p, const V& a, const V& b) {  // all bits of a true element
    if (!wide) return dbl ? vcmppd(o, a, b, p) : vcmpps(o, a, b, p);
    dbl ? vcmppd(k1, a, b, p) : vcmpps(k1, a, b, p);
    dbl ? vpmovm2q(o, k1) : vpmovm2d(o, k1);
  }
  void select(const V& o, const V& mask, const V& a, const V& b) {  // mask ? a : b
    if (!wide) return dbl ? vblendvpd(o, b, a, mask) : vblendvps(o, b, a, mask);
    copy_(o, mask);
    vpternlogd(o, a, b, 0xCA);
  }
  // x p y ? a : b; o may be a or b.
  void choose(const V& o, Predicate p, const V& x, const V& y, const V& a, const V& b) {
    if (wide) {
      dbl ? vcmppd(k1, x, y, p) : vcmpps(k1, x, y, p);
      return dbl ? vblendmpd(o | k1, b, a) : vblendmps(o | k1, b, a);
    }
    compare(scratch(0), p, x, y);
    select(o, scratch(0), a, b);
  }
  V zero() {  // in scratch(1)
    const V z = scratch(1);
    wide ? vpxord(z, z, z) : vpxor(z, z, z);
    return z;
  }

  // One element per byte, 0 for false.
  void load_mask(const V& o, const Xbyak::Address& from) {
    dbl ? vpmovzxbq(o, from) : vpmovzxbd(o, from);
    if (wide) {
      dbl ? vptestmq(k1, o, o) : vptestmd(k1, o, o);
      return dbl ? vpmovm2q(o, k1) : vpmovm2d(o, k1);
    }
    dbl ? vpcmpgtq(o, o, zero()) : vpcmpgtd(o, o, zero());
  }
  void store_mask(const Xbyak::Address& to, const V& mask) {
    const Xbyak::Xmm t(scratch(0).getIdx()), high(scratch(1).getIdx()), low(mask.getIdx());
    if (wide) {
      dbl ? vpmovqb(t, Xbyak::Zmm(mask.getIdx())) : vpmovdb(t, Xbyak::Zmm(mask.getIdx()));
    } else {
      vextracti128(high, Xbyak::Ymm(mask.getIdx()), 1);
      dbl ? vshufps(t, low, high, 0x88) : vpackssdw(t, low, high);
      if (dbl) vpackssdw(t, t, t);
      vpacksswb(t, t, t);
    }
    vpabsb(t, t);
    lanes() == 16 ? vmovdqu(to, t) : lanes() == 8 ? vmovq(to, t) : vmovd(to, t);
  }
};

using Emit = void (*)(Vectors& e, const V& o, const V* x, int form);
struct Known {
  LoopOperator op;
  Emit emit;
};

// The order of two factors, and of two terms: which of two NaN comes out.
void times(Vectors& e, const V& o, const V& a, const V& b, bool turned) { turned ? e.mul_(o, b, a) : e.mul_(o, a, b); }
void plus(Vectors& e, const V& o, const V& a, const V& b, bool turned) { turned ? e.add_(o, b, a) : e.add_(o, a, b); }
// c + a b or c - a b: rounded once (forms 0 and 1), or the product first, as where one loop has a number for it.
void with_product(Vectors& e, const V& o, const V& a, const V& b, const V& c, bool minus, int form) {
  if (form < 2) {
    const V &first = form == 0 ? a : b, &second = form == 0 ? b : a;
    return minus ? e.fnma_(o, first, second, c) : e.fma_(o, first, second, c);
  }
  e.mul_(o, a, b);
  minus ? e.sub_(o, c, o) : plus(e, o, c, o, form == 3);
}
void clamp(Vectors& e, const V& o, const V& x, const V& low, const V& high, int form) {
  e.max_(o, low, x);  // x where one is NaN
  e.min_(o, high, o);
  const V sum = e.scratch(1);
  plus(e, sum, low, high, form == 1);
  e.choose(o, Vectors::kUnordered, low, high, sum, o);
}
// The larger or smaller one; NaN wins.
void extreme(Vectors& e, const V& o, const V& a, const V& b, bool largest) {
  largest ? e.max_(o, a, b) : e.min_(o, a, b);
  e.choose(o, Vectors::kUnordered, a, a, a, o);
}
// NaN loses.
void extreme_number(Vectors& e, const V& o, const V& a, const V& b, Vectors::Predicate p) {
  e.choose(o, p, a, b, a, b);
  e.choose(o, Vectors::kUnordered, b, b, a, o);
}
// low <= x <= high ? 0 : grad, or the opposite.
void inside(Vectors& e, const V& o, const V& x, const V& low, const V& high, const V& in, const V& out) {
  e.choose(o, Vectors::kGe, x, low, in, out);
  e.choose(o, Vectors::kLe, x, high, o, out);
}
// x > 0 ? value : slope times it.
void leaky(Vectors& e, const V& o, const V& x, const V& value, const V& slope, int form) {
  times(e, o, value, slope, form == 1);
  e.choose(o, Vectors::kGt, x, e.zero(), value, o);
}
// -bound <= x <= bound ? 0 : value.
void outside(Vectors& e, const V& o, const V& x, const V& bound, const V& minus_zero, const V& value) {
  e.bit_xor(e.scratch(1), bound, minus_zero);
  e.compare(o, Vectors::kGe, x, e.scratch(1));
  e.compare(e.scratch(0), Vectors::kLe, x, bound);
  e.bit_and(o, o, e.scratch(0));
  e.bit_andn(o, o, value);
}

#define TG_EMIT [](Vectors& e, const V& o, const V* x, [[maybe_unused]] int form)
#define TG_ROUNDED(how) \
  TG_EMIT { e.round_(o, x[0], how); }
#define TG_COMPARED(p) \
  TG_EMIT { e.compare(o, Vectors::p, x[0], x[1]); }
#define TG_LOGIC(f) \
  TG_EMIT { e.f(o, x[0], x[1]); }
constexpr double kInf = std::numeric_limits<double>::infinity();

// clang-format off: it takes the lambdas behind the macro for blocks
// All operators that loops know. Formulas are those of the functors: `x` are inputs, parameters and constants.
const Known known[] = {
    {{kNumberOfBool.data(), 1, 1, 0, 1, {1.0}, 1}, TG_EMIT { e.bit_and(o, x[0], x[1]); }},
    {{"add", 2, 0, 1, 4, {}, 0}, TG_EMIT { with_product(e, o, x[2], x[1], x[0], false, form); }},
    {{"sub", 2, 0, 1, 4, {}, 0}, TG_EMIT { with_product(e, o, x[2], x[1], x[0], true, form); }},
    {{"rsub", 2, 0, 1, 4, {}, 0}, TG_EMIT { with_product(e, o, x[2], x[0], x[1], true, form); }},
    {{"mul", 2, 0, 0, 2, {}, 0}, TG_EMIT { times(e, o, x[0], x[1], form == 1); }},
    {{"true_divide", 2, 0, 0, 1, {}, 0}, TG_EMIT { e.div_(o, x[0], x[1]); }},
    {{"neg", 1, 0, 0, 1, {-0.0}, 1}, TG_EMIT { e.bit_xor(o, x[0], x[1]); }},
    {{"abs", 1, 0, 0, 1, {-0.0}, 1}, TG_EMIT { e.bit_andn(o, x[1], x[0]); }},
    {{"_square", 1, 0, 0, 1, {}, 0}, TG_EMIT { e.mul_(o, x[0], x[0]); }},
    {{"_cube", 1, 0, 0, 1, {}, 0}, TG_EMIT { e.mul_(o, x[0], x[0]); e.mul_(o, o, x[0]); }},
    {{"reciprocal", 1, 0, 0, 1, {1.0}, 1}, TG_EMIT { e.div_(o, x[1], x[0]); }},
    {{"sqrt", 1, 0, 0, 1, {}, 0}, TG_EMIT { e.sqrt_(o, x[0]); }},
    {{"rsqrt", 1, 0, 0, 1, {1.0}, 1}, TG_EMIT { e.sqrt_(o, x[0]); e.div_(o, x[1], o); }},
    {{"_identity", 1, 0, 0, 1, {}, 0}, TG_EMIT { e.copy_(o, x[0]); }},
    {{"floor", 1, 0, 0, 1, {}, 0}, TG_ROUNDED(9)},
    {{"ceil", 1, 0, 0, 1, {}, 0}, TG_ROUNDED(10)},
    {{"trunc", 1, 0, 0, 1, {}, 0}, TG_ROUNDED(11)},
    {{"_round", 1, 0, 0, 1, {}, 0}, TG_ROUNDED(4)},
    {{"frac", 1, 0, 0, 1, {}, 0}, TG_EMIT { e.round_(o, x[0], 11); e.sub_(o, x[0], o); }},
    {{"sign", 1, 0, 0, 1, {1.0}, 1}, TG_EMIT {
       const V zero = e.zero(), less = e.scratch(0);
       e.compare(o, Vectors::kGt, x[0], zero);
       e.compare(less, Vectors::kLt, x[0], zero);
       e.bit_and(o, o, x[1]);
       e.bit_and(less, less, x[1]);
       e.sub_(o, o, less);
     }},
    {{"copysign", 2, 0, 0, 1, {-0.0}, 1}, TG_EMIT {
       e.bit_andn(o, x[2], x[0]);
       e.bit_and(e.scratch(0), x[2], x[1]);
       e.bit_or(o, o, e.scratch(0));
     }},
    {{"deg2rad", 1, 0, 0, 1, {std::numbers::pi / 180}, 1}, TG_EMIT { e.mul_(o, x[0], x[1]); }},
    {{"maximum", 2, 0, 0, 1, {}, 0}, TG_EMIT { extreme(e, o, x[0], x[1], true); }},
    {{"minimum", 2, 0, 0, 1, {}, 0}, TG_EMIT { extreme(e, o, x[0], x[1], false); }},
    {{"clamp_min", 2, 0, 0, 1, {}, 0}, TG_EMIT { extreme(e, o, x[0], x[1], true); }},
    {{"clamp_max", 2, 0, 0, 1, {}, 0}, TG_EMIT { extreme(e, o, x[0], x[1], false); }},
    {{"fmax", 2, 0, 0, 1, {}, 0}, TG_EMIT { extreme_number(e, o, x[0], x[1], Vectors::kGe); }},
    {{"fmin", 2, 0, 0, 1, {}, 0}, TG_EMIT { extreme_number(e, o, x[0], x[1], Vectors::kLe); }},
    {{"_clamp", 3, 0, 0, 2, {}, 0}, TG_EMIT { clamp(e, o, x[0], x[1], x[2], form); }},
    {{"_clamp_backward", 4, 0, 0, 1, {}, 0}, TG_EMIT { inside(e, o, x[1], x[2], x[3], x[0], e.zero()); }},
    {{"addcmul", 3, 0, 1, 4, {}, 0}, TG_EMIT {
       times(e, e.scratch(0), x[1], x[2], (form & 2) != 0);
       with_product(e, o, x[3], e.scratch(0), x[0], false, form & 1);
     }},
    {{"addcdiv", 3, 0, 1, 2, {}, 0}, TG_EMIT {
       e.div_(e.scratch(0), x[1], x[2]);
       with_product(e, o, x[3], e.scratch(0), x[0], false, form);
     }},
    {{"relu", 1, 0, 0, 1, {}, 0}, TG_EMIT {
       const V zero = e.zero();
       e.choose(o, Vectors::kLe, x[0], zero, zero, x[0]);
     }},
    {{"threshold", 1, 0, 2, 1, {}, 0}, TG_EMIT { e.choose(o, Vectors::kLe, x[0], x[1], x[2], x[0]); }},
    {{"_threshold_backward", 2, 0, 1, 1, {}, 0}, TG_EMIT { e.choose(o, Vectors::kLe, x[1], x[2], e.zero(), x[0]); }},
    {{"hardtanh", 1, 0, 2, 2, {}, 0}, TG_EMIT { clamp(e, o, x[0], x[1], x[2], form); }},
    {{"_hardtanh_backward", 2, 0, 2, 1, {}, 0}, TG_EMIT {
       const V zero = e.zero();
       e.choose(o, Vectors::kLe, x[1], x[2], zero, x[0]);
       e.choose(o, Vectors::kGe, x[1], x[3], zero, o);
     }},
    {{"leaky_relu", 1, 0, 1, 2, {}, 0}, TG_EMIT { leaky(e, o, x[0], x[0], x[1], form); }},
    {{"_leaky_relu_backward", 2, 0, 1, 2, {}, 0}, TG_EMIT { leaky(e, o, x[1], x[0], x[2], form); }},
    {{"_prelu", 2, 0, 0, 2, {}, 0}, TG_EMIT { leaky(e, o, x[0], x[0], x[1], form); }},
    {{"_sigmoid_backward", 2, 0, 0, 4, {1.0}, 1}, TG_EMIT {
       e.sub_(e.scratch(0), x[2], x[1]);
       times(e, o, e.scratch(0), x[1], (form & 2) != 0);
       times(e, o, x[0], o, (form & 1) != 0);
     }},
    {{"_tanh_backward", 2, 0, 0, 2, {1.0}, 1}, TG_EMIT {
       e.fnma_(e.scratch(0), x[1], x[1], x[2]);
       times(e, o, x[0], e.scratch(0), form == 1);
     }},
    {{"hardsigmoid", 1, 0, 0, 1, {3.0, 6.0, 1.0 / 6}, 3}, TG_EMIT {
       e.add_(e.scratch(0), x[0], x[1]);
       const V zero = e.zero();
       e.max_(o, e.scratch(0), zero);
       e.min_(o, o, x[2]);
       e.add_(zero, e.scratch(0), zero);  // the sum that a NaN gives
       e.choose(o, Vectors::kUnordered, x[0], x[0], zero, o);
       e.mul_(o, o, x[3]);
     }},
    {{"_hardsigmoid_backward", 2, 0, 0, 1, {3.0, -3.0, 1.0 / 6}, 3}, TG_EMIT {
       e.mul_(o, x[0], x[4]);
       const V zero = e.zero();
       e.choose(o, Vectors::kGt, x[1], x[3], o, zero);
       e.choose(o, Vectors::kLt, x[1], x[2], o, zero);
     }},
    {{"softsign", 1, 0, 0, 1, {1.0, -0.0}, 2}, TG_EMIT {
       e.bit_andn(o, x[2], x[0]);
       e.add_(o, x[1], o);
       e.div_(o, x[0], o);
     }},
    {{"hardshrink", 1, 0, 1, 1, {-0.0}, 1}, TG_EMIT { outside(e, o, x[0], x[1], x[2], x[0]); }},
    {{"_shrink_backward", 2, 0, 1, 1, {-0.0}, 1}, TG_EMIT { outside(e, o, x[1], x[2], x[3], x[0]); }},
    {{"eq", 2, kGivesMask, 0, 1, {}, 0}, TG_COMPARED(kEq)},
    {{"ne", 2, kGivesMask, 0, 1, {}, 0}, TG_COMPARED(kNe)},
    {{"lt", 2, kGivesMask, 0, 1, {}, 0}, TG_COMPARED(kLt)},
    {{"le", 2, kGivesMask, 0, 1, {}, 0}, TG_COMPARED(kLe)},
    {{"gt", 2, kGivesMask, 0, 1, {}, 0}, TG_COMPARED(kGt)},
    {{"ge", 2, kGivesMask, 0, 1, {}, 0}, TG_COMPARED(kGe)},
    {{"isnan", 1, kGivesMask, 0, 1, {}, 0}, TG_EMIT { e.compare(o, Vectors::kUnordered, x[0], x[0]); }},
    {{"isinf", 1, kGivesMask, 0, 1, {-0.0, kInf}, 2}, TG_EMIT {
       e.bit_andn(e.scratch(0), x[1], x[0]);
       e.compare(o, Vectors::kEq, e.scratch(0), x[2]);
     }},
    {{"isfinite", 1, kGivesMask, 0, 1, {-0.0, kInf}, 2}, TG_EMIT {
       e.bit_andn(e.scratch(0), x[1], x[0]);
       e.compare(o, Vectors::kLt, e.scratch(0), x[2]);
     }},
    {{"logical_and", 2, 3 | kGivesMask, 0, 1, {}, 0}, TG_LOGIC(bit_and)},
    {{"logical_or", 2, 3 | kGivesMask, 0, 1, {}, 0}, TG_LOGIC(bit_or)},
    {{"logical_xor", 2, 3 | kGivesMask, 0, 1, {}, 0}, TG_LOGIC(bit_xor)},
    {{"bitwise_and", 2, 3 | kGivesMask, 0, 1, {}, 0}, TG_LOGIC(bit_and)},
    {{"bitwise_or", 2, 3 | kGivesMask, 0, 1, {}, 0}, TG_LOGIC(bit_or)},
    {{"bitwise_xor", 2, 3 | kGivesMask, 0, 1, {}, 0}, TG_LOGIC(bit_xor)},
    {{"where", 3, 1, 0, 1, {}, 0}, TG_EMIT { e.select(o, x[0], x[1], x[2]); }},
    {{"masked_fill", 3, 2, 0, 1, {}, 0}, TG_EMIT { e.select(o, x[1], x[2], x[0]); }},
};
// clang-format on
#undef TG_EMIT
#undef TG_ROUNDED
#undef TG_COMPARED
#undef TG_LOGIC

// The loop: rdi has the places' addresses, rsi the number of elements, rcx counts them.
class Emitter : public Vectors {
 public:
  // `hoist`: numbers stay in registers; else they are loaded where they are used.
  Emitter(const Formula& f, bool hoist, void* memory, size_t bytes)
      : Vectors(memory, bytes, f.dtype), f_(f), registers_(wide ? 32 : 16), holds_(32, -1), locked_(32, false) {
    const int values = static_cast<int>(f.places.size() + f.steps.size());
    last_.assign(static_cast<size_t>(values), -1);
    std::vector<bool> used(f.places.size());
    for (size_t s = 0; s < f.steps.size(); ++s) {
      for (int value : f.steps[s].inputs) last_[static_cast<size_t>(value)] = static_cast<int>(s);
      if (f.steps[s].stored >= 0) used[static_cast<size_t>(f.steps[s].stored)] = true;
    }
    endbr64();
    for (size_t p = 0; p < f.places.size(); ++p) {
      if (!f.places[p].number && (used[p] || last_[p] >= 0) && bases_.size() < std::size(kBases)) {
        bases_.push_back(static_cast<int>(p));
        mov(kBases[bases_.size() - 1], ptr[rdi + 8 * p]);
      }
      if (!f.places[p].number || !hoist || last_[p] < 0) continue;
      const int r = take();
      if (r < 0) return;
      load(static_cast<int>(p), v(r));
      holds_[static_cast<size_t>(r)] = static_cast<int>(p);
      locked_[static_cast<size_t>(r)] = true;
    }
    xor_(ecx, ecx);
    Xbyak::Label next;
    L(next);
    for (size_t s = 0; s < f.steps.size(); ++s)
      if (!step(static_cast<int>(s))) return;
    add(rcx, lanes());
    cmp(rcx, rsi);
    jb(next, T_NEAR);
    vzeroupper();
    ret();
    whole_ = true;
  }
  bool whole() const { return whole_; }

 private:
  static constexpr size_t kNumBases = 5;
  const Xbyak::Reg64 kBases[kNumBases] = {rdx, r8, r9, r10, r11};

  Xbyak::Address element(int place) {
    const Formula::Place& p = f_.places[static_cast<size_t>(place)];
    const auto at = std::find(bases_.begin(), bases_.end(), place);
    Xbyak::Reg64 base = rax;
    if (at != bases_.end())
      base = kBases[static_cast<size_t>(at - bases_.begin())];
    else
      mov(rax, ptr[rdi + 8 * place]);
    if (p.number) return ptr[base];
    return p.is_bool ? ptr[base + rcx] : dbl ? ptr[base + rcx * 8] : ptr[base + rcx * 4];
  }
  void load(int place, const V& o) {
    const Formula::Place& p = f_.places[static_cast<size_t>(place)];
    const Xbyak::Address from = element(place);
    if (p.number)
      dbl ? vbroadcastsd(wide ? Xbyak::Ymm(Xbyak::Zmm(o.getIdx())) : Xbyak::Ymm(o.getIdx()), from)
          : vbroadcastss(o, from);
    else if (p.is_bool)
      load_mask(o, from);
    else
      vmovups(o, from);
  }
  // Where a value lies in memory, or -1.
  int place_of(int value) const {
    const int places = static_cast<int>(f_.places.size());
    return value < places ? value : f_.steps[static_cast<size_t>(value - places)].stored;
  }
  // A register that nothing else needs, or one whose value can be loaded again, the one that is used last; or -1.
  int take() {
    int best = -1;
    for (int r = kFirstRegister; r < registers_; ++r) {
      const int value = holds_[static_cast<size_t>(r)];
      if (value < 0 && !locked_[static_cast<size_t>(r)]) return r;
      if (value < 0 || locked_[static_cast<size_t>(r)] || place_of(value) < 0) continue;
      if (best < 0 || last_[static_cast<size_t>(value)] > last_[static_cast<size_t>(holds_[static_cast<size_t>(best)])])
        best = r;
    }
    if (best >= 0) holds_[static_cast<size_t>(best)] = -1;
    return best;
  }
  int get(int value) {
    for (int r = kFirstRegister; r < registers_; ++r)
      if (holds_[static_cast<size_t>(r)] == value) return r;
    const int r = take();
    if (r >= 0) {
      load(place_of(value), v(r));
      holds_[static_cast<size_t>(r)] = value;
    }
    return r;
  }
  bool step(int s) {
    const Formula::Step& step = f_.steps[static_cast<size_t>(s)];
    V x[12];
    std::vector<int> held;
    const auto lock = [&](int r) {
      if (r >= 0 && !locked_[static_cast<size_t>(r)]) {
        locked_[static_cast<size_t>(r)] = true;
        held.push_back(r);
      }
      return r >= 0;
    };
    for (size_t k = 0; k < step.inputs.size(); ++k) {
      const int r = get(step.inputs[k]);
      if (!lock(r)) return false;
      x[k] = v(r);
    }
    const int out = take();
    if (!lock(out)) return false;
    reinterpret_cast<const Known*>(step.op)->emit(*this, v(out), x, step.form);
    if (step.stored >= 0) {
      const Formula::Place& p = f_.places[static_cast<size_t>(step.stored)];
      const Xbyak::Address to = element(step.stored);
      p.is_bool ? store_mask(to, v(out)) : vmovups(to, v(out));
    }
    holds_[static_cast<size_t>(out)] = static_cast<int>(f_.places.size()) + s;
    for (int r : held) {
      locked_[static_cast<size_t>(r)] = false;
      if (last_[static_cast<size_t>(holds_[static_cast<size_t>(r)])] <= s) holds_[static_cast<size_t>(r)] = -1;
    }
    return true;
  }

  const Formula& f_;
  const int registers_;
  std::vector<int> bases_, holds_, last_;
  std::vector<bool> locked_;
  bool whole_ = false;
};

// Loops that live. A child process may be made while another thread holds the lock, so nobody waits for it.
struct Cache {
  std::mutex lock;
  std::vector<std::pair<Formula, std::weak_ptr<const LoopCode>>> loops;
};

}  // namespace

const LoopOperator* find_loop_operator(std::string_view name) noexcept {
  for (const Known& k : known)
    if (name == k.op.name) return &k.op;
  return nullptr;
}

std::shared_ptr<const LoopCode> make_loop(const Formula& formula) {
  if (cpu_isa() == Isa::Generic) return nullptr;
  static Cache& cache = *new Cache;
  const std::unique_lock guard(cache.lock, std::try_to_lock);
  if (guard) {
    std::erase_if(cache.loops, [](const auto& known) { return known.second.expired(); });
    for (const auto& [made, code] : cache.loops)
      if (made == formula)
        if (auto found = code.lock()) return found;
  }
  try {
    std::vector<std::byte> memory(64 << 10);
    for (bool hoist : {true, false}) {
      const Emitter emitter(formula, hoist, memory.data(), memory.size());
      if (!emitter.whole()) continue;
      auto code = std::make_shared<const LoopCode>(std::span(memory).first(emitter.getSize()));
      if (guard) cache.loops.emplace_back(formula, code);
      return code;
    }
  } catch (const Xbyak::Error&) {  // longer than 64 KB
  } catch (const std::bad_alloc&) {
  }
  return nullptr;
}

#else

const LoopOperator* find_loop_operator(std::string_view) noexcept { return nullptr; }
std::shared_ptr<const LoopCode> make_loop(const Formula&) { return nullptr; }

#endif

}  // namespace tapegrad::record
