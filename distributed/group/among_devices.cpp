// Collectives among devices of this process: checks the arguments of each device and calls the engine.
#include <algorithm>

#include "tapegrad/autograd/engine/node.h"
#include "tapegrad/distributed/group/group.h"

namespace tapegrad::distributed {

namespace {

void check_part(const char* op, const Tensor& t, const Tensor& first, int64_t numel, const char* name, size_t i) {
  TG_CHECK(t.defined() && t.is_cuda() && t.is_contiguous(), Type, "{}: {} {} must be a contiguous tensor of a GPU", op,
           name, i);
  TG_CHECK(t.dtype() == first.dtype(), Type, "{}: all tensors must have one dtype: got {} and {}", op, first.dtype(),
           t.dtype());
  TG_CHECK(t.numel() == numel, Value, "{}: {} {} has {} elements, expected {}", op, name, i, t.numel(), numel);
}

}  // namespace

void among_devices(Kind kind, const std::vector<Tensor>& in, const std::vector<Tensor>& out, Reduce reduce, int root) {
  const char* const op = name_of(kind);
  const DeviceEngine& engine = device_engine();
  TG_CHECK(!in.empty(), Value, "{}: no tensors were given", op);
  const auto n = static_cast<int64_t>(in.size());
  const bool rooted = kind == Kind::Reduce || kind == Kind::Broadcast;
  TG_CHECK(!rooted || (root >= 0 && root < n), Value, "{}: the root must be one of {} tensors: got {}", op, n, root);
  const size_t outputs = kind == Kind::Reduce ? 1 : kind == Kind::Broadcast ? 0 : in.size();
  TG_CHECK(out.size() == outputs, Value, "{}: expected {} outputs: got {}", op, outputs, out.size());
  TG_CHECK(in[0].defined(), Type, "{}: input 0 must be a contiguous tensor of a GPU", op);
  const int64_t numel = in[0].numel();
  std::vector<int> devices;
  for (size_t i = 0; i < in.size(); ++i) {
    check_part(op, in[i], in[0], numel, "input", i);
    devices.push_back(in[i].device().index);
    TG_CHECK(std::count(devices.begin(), devices.end(), devices.back()) == 1, Value,
             "{}: each tensor must be on a GPU of its own: cuda:{} has two", op, devices.back());
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t expected = kind == Kind::AllGather ? numel * n : kind == Kind::ReduceScatter ? numel / n : numel;
    TG_CHECK(kind != Kind::ReduceScatter || numel % n == 0, Value, "{}: {} elements cannot be cut into {} parts", op,
             numel, n);
    check_part(op, out[i], in[0], expected, "output", i);
    TG_CHECK(out[i].device() == in[kind == Kind::Reduce ? static_cast<size_t>(root) : i].device(), Value,
             "{}: output {} must be on the GPU of its input: got {}", op, i, out[i].device());
    autograd::check_inplace(out[i], op, false);
  }
  if (kind == Kind::Broadcast)
    for (const Tensor& t : in) autograd::check_inplace(t, op, false);
  engine.among_devices(kind, in, out, reduce, root);
  for (const Tensor& t : kind == Kind::Broadcast ? in : out) autograd::bump_version(t, op);
}

}  // namespace tapegrad::distributed
