#include "tapegrad/distributed/reducer.h"

#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/autograd/engine/engine.h"

namespace tapegrad::distributed {

// The callback at the end of a backward. The engine drops it uncalled where the backward fails; then what was begun is
// forgotten.
struct Reducer::Ending {
  std::shared_ptr<Reducer> reducer;
  ~Ending() { reducer->reset(); }
};

std::shared_ptr<Reducer> Reducer::make(std::vector<Tensor> params, Calls calls) {
  std::shared_ptr<Reducer> self(new Reducer);
  self->calls_ = std::move(calls);
  self->params_.resize(params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    Param& p = self->params_[i];
    p.leaf = std::move(params[i]);
    p.hook = autograd::add_post_accumulate_hook(p.leaf, [weak = std::weak_ptr(self), i](const Tensor&) {
      if (auto reducer = weak.lock()) reducer->arrive(i);
    });
  }
  return self;
}

Reducer::~Reducer() { remove_hooks(); }

void Reducer::remove_hooks() noexcept {
  for (Param& p : params_) p.hook.remove();
}

void Reducer::set_buckets(std::vector<Plan> plans) {
  std::vector<size_t> seen(params_.size());
  for (const Plan& plan : plans) {
    TG_CHECK(!plan.params.empty() && (!plan.sparse || plan.params.size() == 1), Value,
             "buckets: a bucket has parameters, a sparse one has one: got {}", plan.params.size());
    for (size_t i : plan.params) {
      TG_CHECK(i < params_.size() && seen[i]++ == 0, Value, "buckets: parameter {} of {} is not there, or there twice",
               i, params_.size());
      const Tensor &a = params_[i].leaf, &b = params_[plan.params[0]].leaf;
      TG_CHECK(a.dtype() == b.dtype() && a.device() == b.device(), Value,
               "buckets: parameters of one bucket have one dtype and device: got {} on {} and {} on {}", a.dtype(),
               a.device(), b.dtype(), b.device());
    }
  }
  for (size_t i = 0; i < seen.size(); ++i) TG_CHECK(seen[i] == 1, Value, "buckets: parameter {} is in none of them", i);
  const Lock lock(mutex_);
  TG_CHECK(!armed_ || next_ == buckets_.size(), Runtime, "buckets: they cannot change while a backward is under way");
  std::vector<Bucket> buckets(plans.size());
  for (size_t b = 0; b < plans.size(); ++b) {
    buckets[b].params = std::move(plans[b].params);
    buckets[b].sparse = plans[b].sparse;
    for (size_t i : buckets[b].params) {
      params_[i].bucket = b;
      params_[i].view = {};
      buckets[b].numel += params_[i].leaf.numel();
    }
  }
  buckets_ = std::move(buckets);
  next_ = buckets_.size();
}

void Reducer::expect(bool yes) {
  const Lock lock(mutex_);
  expected_ = yes;
}

bool Reducer::watch(TensorSpan outputs) {
  bool any = false;
  for (const Tensor& t : outputs) {
    if (!t.defined() || !autograd::needs_grad(t) || t.is_leaf()) continue;  // hooks of a leaf would never be removed
    any = true;
    autograd::add_tensor_hook(t, [weak = weak_from_this()](const Tensor& grad) {
      if (auto self = weak.lock(); self && grad.defined() && autograd::accumulating()) {
        Lock lock(self->mutex_);
        if (!self->armed_) self->begin(lock);
      }
      return Tensor();
    });
  }
  return any;
}

void Reducer::learn() {
  const Lock lock(mutex_);
  learning_ = true;
  for (Param& p : params_) p.wanted = kMany;
}

// --- memory ---

namespace {

Tensor part_of(const Tensor& buffer, const Tensor& leaf, int64_t offset) {
  if (leaf.impl()->is_non_overlapping_and_dense()) return raw::as_strided(buffer, leaf.sizes(), leaf.strides(), offset);
  DimVector strides(leaf.sizes());
  int64_t step = 1;
  for (size_t d = strides.size(); d-- > 0;) {
    const int64_t n = strides[d];
    strides[d] = step;
    step *= std::max<int64_t>(n, 1);
  }
  return raw::as_strided(buffer, leaf.sizes(), strides, offset);
}

}  // namespace

void Reducer::give_memory(Bucket& b) {
  const auto flags = static_cast<int64_t>(b.params.size());
  const Tensor& first = params_[b.params[0]].leaf;
  b.buffer = empty_tensor(DimVector{b.numel + flags}, first.dtype(), first.device());
  int64_t offset = 0;
  for (size_t i : b.params) {
    params_[i].view = part_of(b.buffer, params_[i].leaf, offset);
    offset += params_[i].leaf.numel();
  }
}

// Whether all who can see the memory are the bucket, its views, and the gradients that are accumulated into it.
bool Reducer::has_memory_of_its_own(const Bucket& b) const {
  if (!b.buffer.defined() || b.buffer.impl()->use_count() != 1 ||
      b.buffer.impl()->storage().use_count() != 1 + b.params.size())
    return false;
  for (size_t i : b.params) {
    const Param& p = params_[i];
    const autograd::AutogradMeta* m = autograd::meta(p.leaf);
    const bool is_grad = m && m->grad.defined() && m->grad.impl() == p.view.impl();
    if (!is_grad && p.view.impl()->use_count() != 1) return false;
  }
  return true;
}

// --- a backward ---

void Reducer::begin(Lock& lock) {
  for (Param& p : params_) {
    p.arrived = 0;
    p.placed = false;
  }
  for (Bucket& b : buckets_) {
    b.pending = 0;
    for (size_t i : b.params) b.pending += params_[i].wanted > 0;
    if (!b.sparse && !has_memory_of_its_own(b)) give_memory(b);
  }
  auto ending = std::make_shared<Ending>();
  ending->reducer = shared_from_this();
  order_.clear();
  next_ = 0;
  thread_ = std::this_thread::get_id();
  armed_ = true;
  expected_ = false;
  lock.unlock();  // the end of `ending` locks
  autograd::queue_callback([ending = std::move(ending)] { ending->reducer->end(); });
  if (calls_.begin) calls_.begin();
  lock.lock();
}

void Reducer::arrive(size_t i) {
  Lock lock(mutex_);
  Param& p = params_[i];
  if (!armed_) {
    if (!expected_) return;
    begin(lock);
  }
  TG_CHECK(thread_ == std::this_thread::get_id(), Runtime,
           "DistributedDataParallel: another thread is in a backward through the same model: one at a time");
  Bucket& b = buckets_[p.bucket];
  ++p.arrived;
  TG_CHECK(p.arrived <= p.wanted, Runtime,
           "DistributedDataParallel: Expected to mark a variable ready only once: the gradient of parameter {} came a "
           "second time in one backward, when its bucket may be under way\n"
           "that is so where a part of the model is used in several reentrant checkpoints: use "
           "checkpoint(use_reentrant=False), or static_graph=True",
           i);
  if (!p.placed) order_.push_back(i);
  if (!b.sparse) place(p);
  p.placed = true;
  if (p.arrived != p.wanted) return;
  --b.pending;
  start_full_buckets(lock);
}

// The gradient, wherever the tape has put it, becomes its place in the bucket.
void Reducer::place(Param& p) {
  Tensor old;  // dropped after the lock: its end may run code of the program
  const std::lock_guard guard(autograd::grad_mutex(*p.leaf.impl()));
  Tensor& grad = autograd::ensure_meta(p.leaf).grad;
  if (!grad.defined() || grad.impl() == p.view.impl()) return;
  raw::copy_(p.view, grad.is_sparse() ? sparse::to_dense(grad) : grad);
  old = std::exchange(grad, p.view);
}

void Reducer::start_full_buckets(Lock& lock) {
  while (next_ < buckets_.size() && buckets_[next_].pending == 0) {
    const size_t index = next_++;
    Bucket& b = buckets_[index];
    if (!b.sparse) {
      const auto flags = static_cast<int64_t>(b.params.size());
      raw::fill_(raw::as_strided(b.buffer, DimVector{flags}, DimVector{1}, b.numel), Scalar(1.0));
      for (int64_t k = 0; k < flags; ++k) {
        Param& p = params_[b.params[static_cast<size_t>(k)]];
        if (!p.placed) raw::zero_(raw::as_strided(b.buffer, DimVector{1}, DimVector{1}, b.numel + k));
      }
    }
    lock.unlock();
    calls_.ready(index);
    lock.lock();
  }
}

void Reducer::end() {
  Lock lock(mutex_);
  for (size_t k = next_; k < buckets_.size(); ++k) {
    Bucket& b = buckets_[k];
    b.pending = 0;
    for (size_t i : b.params) {
      Param& p = params_[i];
      if (b.sparse || p.placed) continue;
      if (autograd::ensure_meta(p.leaf).grad.defined()) {  // from a backward that was not reduced
        place(p);
        p.placed = true;
      } else {
        raw::zero_(p.view);
      }
    }
  }
  start_full_buckets(lock);
  lock.unlock();
  calls_.end();
  lock.lock();
  if (std::exchange(learning_, false))
    for (Param& p : params_) p.wanted = p.arrived;
}

void Reducer::reset() noexcept {
  const Lock lock(mutex_);
  armed_ = false;
  next_ = buckets_.size();
}

// --- what the caller sees ---

Tensor Reducer::buffer(size_t bucket, bool with_flags) const {
  const Bucket& b = buckets_.at(bucket);
  TG_CHECK(b.buffer.defined(), Runtime, "buckets: bucket {} has no memory", bucket);
  return with_flags ? b.buffer : raw::as_strided(b.buffer, DimVector{b.numel}, DimVector{1}, 0);
}

std::vector<Tensor> Reducer::views(size_t bucket) const {
  std::vector<Tensor> result;
  for (size_t i : buckets_.at(bucket).params) result.push_back(params_[i].view);
  return result;
}

std::vector<size_t> Reducer::unused() const {
  std::vector<size_t> result;
  for (size_t i = 0; i < params_.size(); ++i)
    if (!params_[i].placed) result.push_back(i);
  return result;
}

void Reducer::adopt(size_t param) {
  Param& p = params_.at(param);
  Tensor old;
  const std::lock_guard guard(autograd::grad_mutex(*p.leaf.impl()));
  old = std::exchange(autograd::ensure_meta(p.leaf).grad, p.view);
}

std::vector<size_t> Reducer::order() const { return order_; }

}  // namespace tapegrad::distributed
