#include "tapegrad/aten/batch/batched_tensor.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "tapegrad/aten/batch/all_levels.h"
#include "tapegrad/aten/batch/tape_below.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/tensor_kind.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/memory/available_memory.h"

namespace tapegrad::batch {
namespace {

std::atomic<uint64_t> last_id{0};

constinit thread_local bool had_levels = false;  // nothing is made for a thread without vmap
std::vector<Level>& levels() {
  static thread_local std::vector<Level> stack;
  return stack;
}
constinit thread_local int visible = 0;               // levels that operators see
constinit thread_local uint64_t recorded_levels = 0;  // bit n: level n has tensors that a tape below knows

void show(int n) noexcept {
  visible = n;
  detail::modes = n > 0 ? detail::modes | kModeBatch : detail::modes & ~uint32_t{kModeBatch};
}

IntSpan rest(IntSpan dims, bool has_dim) { return has_dim ? IntSpan(dims.data() + 1, dims.size() - 1) : dims; }

DimVector led_by(int64_t first, IntSpan dims) {
  DimVector all{first};
  for (int64_t d : dims) all.push_back(d);
  return all;
}

// The view of the physical tensor that has the view's geometry in every sample.
Tensor physical_view(const BatchedImpl& impl, const ViewSpec& view) {
  const Tensor& t = impl.physical();
  TG_CHECK(!view.dtype, NotImplemented, "vmap: a view of another dtype is not available here");
  // Recorded below: the tape of the levels below must know whose bytes these are.
  if (!impl.has_dim()) return tapegrad::as_strided(t, view.sizes, view.strides, view.offset);
  return tapegrad::as_strided(t, led_by(t.sizes()[0], view.sizes), led_by(t.strides()[0], view.strides), view.offset);
}

}  // namespace

BatchedImpl::BatchedImpl(Tensor physical, int level, uint64_t id, bool has_dim)
    : TensorImpl(physical.impl()->storage(), physical.dtype(), rest(physical.sizes(), has_dim),
                 rest(physical.strides(), has_dim), physical.storage_offset()),
      id_(id),
      level_(level),
      has_dim_(has_dim) {
  share_version(*physical.impl());
  if (physical.impl()->is_inference()) set_inference(true);
  set_device(Device(DeviceType::Batched, static_cast<int8_t>(level)));
  physical_ = std::move(physical);
}

void BatchedImpl::set_physical(Tensor physical) {
  set_geometry(rest(physical.sizes(), has_dim_), rest(physical.strides(), has_dim_), physical.storage_offset());
  physical_ = std::move(physical);
}

void BatchedImpl::release_resources() noexcept {
  TensorImpl::release_resources();
  physical_.reset();
}

int depth() noexcept { return visible; }
bool tape_below() noexcept { return recorded_levels != 0; }

Device level_device(Device d) noexcept {
  const auto at = static_cast<size_t>(d.index) - 1;
  return at < levels().size() ? levels()[at].device : Device();
}

const Level& level(int n) {
  TG_ASSERT(n >= 1 && n <= static_cast<int>(levels().size()));
  return levels()[static_cast<size_t>(n) - 1];
}

int enter(int64_t size, Randomness randomness) {
  require_thread_memory<Level>();
  had_levels = true;
  TG_CHECK(visible == static_cast<int>(levels().size()), Runtime, "vmap: cannot begin inside of an operator");
  TG_CHECK(visible < 100, Runtime, "vmap: nested more than 100 times");
  levels().push_back({size, randomness, last_id.fetch_add(1) + 1, {}});
  show(visible + 1);
  return visible;
}

void leave(int n) noexcept {
  if (n < 1 || n > static_cast<int>(levels().size())) return;
  levels().resize(static_cast<size_t>(n) - 1);
  if (n < 64) recorded_levels &= (uint64_t{1} << n) - 1;
  show(n - 1);
}

const BatchedImpl& impl_of(const Tensor& t) {
  TG_ASSERT(is_batched(t));
  return *static_cast<const BatchedImpl*>(t.impl());
}

Tensor wrap(const Tensor& physical, int n, bool has_dim) {
  TG_CHECK(!has_dim || (physical.ndim() > 0 && physical.sizes()[0] == level(n).size), Runtime,
           "vmap: a tensor of sizes {} does not have the {} samples", format_ints(physical.sizes()), level(n).size);
  if (const Device there = host_device(physical.device()); there.is_cuda())
    levels()[static_cast<size_t>(n) - 1].device = there;
  if (physical.impl()->needs_grad()) recorded_levels |= uint64_t{1} << std::min(n, 63);
  return Tensor(make_intrusive<BatchedImpl>(physical, n, level(n).id, has_dim));
}

std::pair<Tensor, bool> unwrap(const Tensor& t, int n) {
  if (!is_batched(t) || impl_of(t).level() != n) return {t, false};
  highest_level({&t});  // alive?
  return {impl_of(t).physical(), impl_of(t).has_dim()};
}

int highest_level(std::initializer_list<const Tensor*> tensors, std::initializer_list<TensorSpan> lists) {
  int highest = 0;
  auto look = [&](const Tensor& t) {
    if (!is_batched(t)) return;
    const BatchedImpl& impl = impl_of(t);
    const auto& stack = levels();
    const auto at = static_cast<size_t>(impl.level()) - 1;
    TG_CHECK(at < stack.size() && stack[at].id == impl.id() && impl.level() <= visible, Runtime,
             "vmap: a tensor that was made inside a vmap is used after its end, or by another thread\n"
             "return it from the mapped function instead");
    highest = std::max(highest, impl.level());
  };
  for (const Tensor* t : tensors) look(*t);
  for (TensorSpan list : lists)
    for (const Tensor& t : list) look(t);
  return highest;
}

Tensor alias(const Tensor& base, const ViewSpec& view) {
  highest_level({&base});
  const BatchedImpl& impl = impl_of(base);
  if (!view.dtype && view.offset == base.storage_offset() && IntSpan(view.sizes) == base.sizes() &&
      IntSpan(view.strides) == base.strides())
    return wrap(impl.physical(), impl.level(), impl.has_dim());
  Below below(impl.level());
  return wrap(physical_view(impl, view), impl.level(), impl.has_dim());
}

Tensor detach(const Tensor& t) {
  highest_level({&t});
  const BatchedImpl& impl = impl_of(t);
  return wrap(impl.physical().detach(), impl.level(), impl.has_dim());
}

const TensorKind kKind{[](const Tensor& t) -> const Tensor& { return impl_of(t).physical(); }, detach,
                       [](const Tensor& t) { return t.device(); }};

void set_view_(const Tensor& self, const ViewSpec& view) {
  highest_level({&self});
  auto& impl = static_cast<BatchedImpl&>(*self.impl());
  Below below(impl.level());
  impl.set_physical(physical_view(impl, view));
}

Below::Below(int n) noexcept : saved_(visible) { show(n - 1); }
Below::~Below() { show(saved_); }

Suspended::Suspended(int n)
    : recorded_(recorded_levels),
      visible_(visible),
      first_(std::min(std::max(n, 1) - 1, static_cast<int>(levels().size()))) {
  auto& stack = levels();
  levels_.assign(stack.begin() + first_, stack.end());
  stack.erase(stack.begin() + first_, stack.end());
  show(first_);
}
Suspended::~Suspended() {
  auto& stack = levels();
  stack.erase(stack.begin() + std::min(first_, static_cast<int>(stack.size())), stack.end());  // what was not left
  stack.insert(stack.end(), levels_.begin(), levels_.end());  // in the memory that they had
  recorded_levels |= recorded_;
  show(visible_);
}

AllLevels::AllLevels() noexcept : saved_(visible) {
  if (had_levels) show(static_cast<int>(levels().size()));
}
AllLevels::~AllLevels() { show(saved_); }

void throw_needs_values(const char* op) {
  throw NeedsValues(ErrorKind::Runtime,
                    fmt::format("{}: a tensor that vmap maps over has no value of its own: it stands for all samples\n"
                                "inside vmap, control flow cannot depend on values: use where(), or return the tensor",
                                op));
}

void throw_out(const char* op) {
  TG_THROW(Runtime, "{}: out= is not supported inside vmap\nuse the form without out=", op);
}

}  // namespace tapegrad::batch
