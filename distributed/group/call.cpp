#include "tapegrad/distributed/group/call.h"

#include <algorithm>
#include <cstring>

#include "tapegrad/aten/functions.h"
#include "tapegrad/autograd/engine/node.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::distributed {

namespace {

constexpr const char* kNames[] = {"barrier", "broadcast",      "all_reduce", "reduce", "all_gather", "gather",
                                  "scatter", "reduce_scatter", "all_to_all", "send",   "recv"};
constexpr const char* kReductions[] = {"sum", "product", "min", "max", "band", "bor", "bxor"};

bool reduces(Kind k) { return k == Kind::AllReduce || k == Kind::Reduce || k == Kind::ReduceScatter; }
bool in_place(Kind k) { return k == Kind::Broadcast || k == Kind::AllReduce || k == Kind::Reduce; }
bool has_root(Kind k) { return k == Kind::Broadcast || k == Kind::Reduce || k == Kind::Gather || k == Kind::Scatter; }

uint64_t mixed(uint64_t h, int64_t value) {
  h = (h ^ static_cast<uint64_t>(value)) * 0xFF51AFD7ED558CCDu;
  return h ^ h >> 32;
}
uint64_t shape_hash(const std::vector<Tensor>& tensors) {
  uint64_t h = tensors.size();
  for (const Tensor& t : tensors) {
    h = mixed(h, t.ndim());
    for (int64_t n : t.sizes()) h = mixed(h, n);
  }
  return h;
}

void check_tensor(const char* op, const Tensor& t, DType dtype, bool written) {
  TG_CHECK(t.defined(), Type, "{}: a tensor is missing", op);
  TG_CHECK(t.is_cpu() || t.is_cuda(), Runtime,
           "{}: only dense tensors on the CPU and CUDA devices can be sent: got one on {}", op, t.device());
  TG_CHECK(t.dtype() == dtype, Type, "{}: all tensors must have one dtype: got {} and {}", op, dtype, t.dtype());
  if (written) autograd::check_inplace(t, op, false);
}

Tensor brought_to(Device place, const Tensor& t) {
  if (t.device() == place && t.is_contiguous()) return t;
  const Tensor copy = empty_tensor(t.sizes(), t.dtype(), place);
  copy_(copy, t);
  return copy;
}

Bytes bytes_of(const Tensor& t) { return {t.data_ptr(), static_cast<size_t>(t.nbytes())}; }

// Parts of one tensor for `n` ranks, of equal sizes.
template <class B>
void split(const Tensor& t, int n, std::vector<B>& parts) {
  const size_t part = static_cast<size_t>(t.nbytes()) / static_cast<size_t>(n);
  auto* data = static_cast<char*>(t.data_ptr());
  for (int r = 0; r < n; ++r) parts.push_back({data + static_cast<size_t>(r) * part, part});
}

}  // namespace

const char* name_of(Kind kind) noexcept {
  return kNames[std::min<size_t>(static_cast<size_t>(kind), std::size(kNames) - 1)];
}

std::string describe(const Header& h) {
  std::string text = name_of(h.kind);
  if (reduces(h.kind))
    text += fmt::format("({})", h.mean ? "mean" : kReductions[std::min<size_t>(static_cast<size_t>(h.reduce), 6)]);
  if (h.kind != Kind::Barrier) {
    if (h.count != 1) text += fmt::format(" of {} tensors, the first", h.count);
    text += fmt::format(" of {} [", dtype_name(h.dtype));
    for (int i = 0; i < std::min<int>(h.ndim, 8); ++i) text += fmt::format("{}{}", i ? ", " : "", h.sizes[i]);
    text += h.on_device ? "] on a GPU" : "]";
  }
  if (has_root(h.kind)) text += fmt::format(" with root {}", h.root);
  if (h.line[0] != '\0') text += fmt::format(" at {}", std::string_view(h.line, strnlen(h.line, sizeof(h.line))));
  return text;
}

void check_agreement(const char* headers, size_t stride, int size) {
  std::vector<Header> all(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r)
    std::memcpy(&all[static_cast<size_t>(r)], headers + static_cast<size_t>(r) * stride, sizeof(Header));
  const Header& a = all[0];
  for (int r = 0; r < size; ++r) {
    const Header& b = all[static_cast<size_t>(r)];
    TG_CHECK(b.magic == Header::kMagic, Runtime, "{} #{}: rank {} runs another version, or what it sent was damaged",
             name_of(a.kind), a.number, r);
    const bool data = a.kind != Kind::Barrier;
    const bool same = b.kind == a.kind && b.number == a.number &&
                      (!data || (b.dtype == a.dtype && b.count == a.count && b.on_device == a.on_device)) &&
                      (!reduces(a.kind) || (b.reduce == a.reduce && b.mean == a.mean)) &&
                      (!has_root(a.kind) || b.root == a.root) &&
                      (a.varying == b.varying && (a.varying || b.shape == a.shape));
    TG_CHECK(same, Runtime,
             "{} #{}: the ranks do not agree: rank 0 calls {}, rank {} calls {}\nall ranks of a group must make the "
             "same calls in the same order",
             name_of(a.kind), a.number, describe(a), r, describe(b));
    TG_CHECK(
        b.shape == a.shape, Runtime,
        "{} #{}: rank 0 and rank {} have outputs of other sizes for the same ranks: rank 0 calls {}, rank {} calls {}",
        name_of(a.kind), a.number, r, describe(a), r, describe(b));
  }
}

Prepared prepare(Call call, int rank, int size, Device place) {
  const NoGradGuard no_grad;
  Prepared p;
  const Kind kind = call.kind;
  const char* op = name_of(kind);
  const auto n = static_cast<size_t>(size);
  Header& h = p.header;
  p.place = place;
  h.on_device = place.is_cuda();
  h.kind = kind;
  h.reduce = call.reduce;
  h.mean = call.mean;
  h.root = call.root;
  h.varying = call.sizes_may_differ || kind == Kind::AllToAll;
  std::memcpy(h.line, call.line.data(), std::min(call.line.size(), sizeof(h.line) - 1));
  if (kind == Kind::Barrier) {
    p.call = std::move(call);
    return p;
  }
  const bool is_root = call.root == rank;
  if (has_root(kind))
    TG_CHECK(call.root >= 0 && call.root < size, Value, "{}: there is no rank {} among {}", op, call.root, size);
  const bool gives = kind != Kind::Scatter || is_root;
  const bool takes = kind != Kind::Gather || is_root;
  TG_CHECK(in_place(kind) || !gives || kind == Kind::Recv || !call.inputs.empty(), Value, "{}: the input is missing",
           op);
  TG_CHECK(!takes || kind == Kind::Send || !call.outputs.empty(), Value, "{}: the output is missing", op);
  const DType dtype = (call.outputs.empty() ? call.inputs : call.outputs)[0].dtype();
  for (const Tensor& t : call.inputs) check_tensor(op, t, dtype, false);
  for (const Tensor& t : call.outputs) check_tensor(op, t, dtype, true);
  if (reduces(kind)) check_reduce(op, dtype, call.reduce);
  if (call.mean)
    TG_CHECK(call.reduce == Reduce::Sum && dtype != DType::bool_ && dtype < DType::uint16, Value,
             "{}: a mean is made of numbers that kernels compute with: got {}", op, dtype);

  // Which sizes must agree among the ranks: those of what each gives, or takes where one gives.
  const std::vector<Tensor>& shown =
      in_place(kind) || kind == Kind::Scatter || call.inputs.empty() ? call.outputs : call.inputs;
  h.dtype = dtype;
  h.count = static_cast<int16_t>(std::min<size_t>(shown.size(), INT16_MAX));
  h.shape = h.varying ? 0 : shape_hash(shown);
  if (call.tag != 0 && kind != Kind::Send && kind != Kind::Recv)  // the caller's own number of the call
    h.shape = mixed(h.shape, static_cast<int64_t>(call.tag));
  h.ndim = static_cast<int8_t>(std::min(shown[0].ndim(), 127));
  for (int i = 0; i < std::min(shown[0].ndim(), 8); ++i) h.sizes[i] = shown[0].sizes()[static_cast<size_t>(i)];

  if (in_place(kind)) {
    int64_t total = 0;
    for (const Tensor& t : call.outputs) total += t.numel();
    h.numel = total;
    const Tensor& first = call.outputs[0];
    if (call.outputs.size() == 1 && first.device() == place && first.is_contiguous() && !call.scaled) {
      p.out = {first};
    } else {
      // One piece for all, so that many small tensors cost one call of the engine.
      const Tensor flat = empty_tensor({total}, dtype, place);
      int64_t at = 0;
      for (const Tensor& t : call.outputs) {
        const Tensor part = alias_tensor(flat, t.sizes(), contiguous_strides(t.sizes()), at);
        copy_(part, t);
        p.back_.push_back({t, part});
        at += t.numel();
      }
      if (call.scaled) mul_(flat, Scalar(call.factor));
      p.out = {flat};
    }
    p.written_ = kind != Kind::Reduce || is_root;
    p.out_bytes.push_back(bytes_of(p.out[0]));
    h.payload = p.out_bytes[0].nbytes;
    p.call = std::move(call);
    return p;
  }

  const int64_t itemsize = static_cast<int64_t>(element_size(dtype));
  if (gives) {
    const bool many = kind == Kind::Scatter || kind == Kind::ReduceScatter || kind == Kind::AllToAll;
    TG_CHECK(!many || call.inputs.size() == n || (call.inputs.size() == 1 && kind != Kind::AllToAll), Value,
             "{}: there must be one input for each of the {} ranks: got {}", op, size, call.inputs.size());
    for (const Tensor& t : call.inputs) {
      Tensor mine = brought_to(place, t);
      if (call.scaled) mine = mul(mine, Scalar(call.factor));
      p.in.push_back(mine);
      h.numel += t.numel();
    }
    if (many && p.in.size() == 1 && n != 1) {
      TG_CHECK(p.in[0].numel() % size == 0, Value, "{}: {} elements cannot be split among {} ranks", op,
               p.in[0].numel(), size);
      split(p.in[0], size, p.in_bytes);
    } else {
      for (const Tensor& t : p.in) p.in_bytes.push_back({t.data_ptr(), static_cast<size_t>(t.nbytes())});
    }
    h.payload = static_cast<uint64_t>(h.numel * itemsize);
  } else {
    p.in_bytes.assign(n, {nullptr, 0});
  }
  if (takes) {
    const bool many = kind == Kind::AllGather || kind == Kind::Gather || kind == Kind::AllToAll;
    TG_CHECK(!many || call.outputs.size() == n || (call.outputs.size() == 1 && kind == Kind::AllGather), Value,
             "{}: there must be one output for each of the {} ranks: got {}", op, size, call.outputs.size());
    for (const Tensor& t : call.outputs) {
      const bool direct = t.device() == place && t.is_contiguous();
      p.out.push_back(direct ? t : empty_tensor(t.sizes(), dtype, place));
      if (!direct) p.back_.push_back({t, p.out.back()});
    }
    if (many && p.out.size() == 1 && n != 1)
      split(p.out[0], size, p.out_bytes);
    else
      for (const Tensor& t : p.out) p.out_bytes.push_back(bytes_of(t));
    // Where each rank has its own size all ranks must know them all; the pairs of AllToAll are compared by the group.
    if (kind == Kind::AllGather && h.varying)
      for (const Bytes& b : p.out_bytes) h.shape = mixed(h.shape, static_cast<int64_t>(b.nbytes));
  }

  // What one rank gives must be what another takes, as far as this rank sees both.
  auto same = [&](size_t given, size_t taken, const char* what) {
    TG_CHECK(given == taken, Value, "{}: {} has {} elements, but {} are to be written there", op, what,
             taken / static_cast<size_t>(itemsize), given / static_cast<size_t>(itemsize));
  };
  const auto me = static_cast<size_t>(rank);
  if ((kind == Kind::AllGather || kind == Kind::Gather) && takes) {
    same(p.in_bytes[0].nbytes, p.out_bytes[me].nbytes, "the output of this rank");
    if (!call.sizes_may_differ)
      for (const Bytes& b : p.out_bytes) same(p.in_bytes[0].nbytes, b.nbytes, "an output");
  }
  if (kind == Kind::Gather && !takes) p.out_bytes.assign(n, {nullptr, p.in_bytes[0].nbytes});
  if (kind == Kind::Scatter && gives)
    for (const ConstBytes& b : p.in_bytes) same(b.nbytes, p.out_bytes[0].nbytes, "the output");
  if (kind == Kind::Scatter && !gives) p.in_bytes.assign(n, {nullptr, p.out_bytes[0].nbytes});
  if (kind == Kind::ReduceScatter) same(p.in_bytes[me].nbytes, p.out_bytes[0].nbytes, "the output");
  if (kind == Kind::AllToAll) same(p.in_bytes[me].nbytes, p.out_bytes[me].nbytes, "this rank's own output");
  if (kind == Kind::Scatter) h.numel = p.out[0].numel();
  p.call = std::move(call);
  return p;
}

void Prepared::finish(int ranks) {
  if (!written_) return;
  const ModeGuard plain(kModeNoGrad, ~static_cast<uint32_t>(kModeNoGrad));
  if (call.mean)
    for (const Tensor& t : out) {
      if (is_integral(t.dtype()))
        div_(t, Scalar(static_cast<int64_t>(ranks)), "trunc");
      else  // each part of a complex number by itself, which rounds once
        div_(is_complex(t.dtype()) ? view_as_real(t) : t, Scalar(static_cast<int64_t>(ranks)));
    }
  for (const CopyBack& b : back_) copy_(b.target, b.source);
  if (back_.empty() && !call.mean)
    for (const Tensor& t : out) autograd::bump_version(t, name_of(call.kind));
}

}  // namespace tapegrad::distributed
