// Reference counting inside the object: `intrusive_ptr<T>` owns, `weak_intrusive_ptr<T>` observes.
// T derives from intrusive_ptr_target. When the last owner goes, `release_resources()` runs (it must drop
// what the object holds; it may be entered while weak references still exist) and the memory is freed when
// the last weak reference goes, too. All owners together hold one weak count. Counting is atomic: handles
// may be copied and dropped on any thread; a single handle is not safe for concurrent writes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

class intrusive_ptr_target {
 public:
  intrusive_ptr_target() = default;
  intrusive_ptr_target(const intrusive_ptr_target&) = delete;
  intrusive_ptr_target& operator=(const intrusive_ptr_target&) = delete;

  uint32_t use_count() const noexcept { return owners(counts_.load(std::memory_order_acquire)); }
  uint32_t weak_count() const noexcept {
    uint64_t n = counts_.load(std::memory_order_acquire);
    return static_cast<uint32_t>(n >> 32) - (owners(n) != 0 ? 1 : 0);
  }

 protected:
  virtual ~intrusive_ptr_target() = default;
  // Called once, when the last owner goes; see the head of this file.
  virtual void release_resources() noexcept {}

 private:
  template <class>
  friend class intrusive_ptr;
  template <class>
  friend class weak_intrusive_ptr;

  // Both counts in one word, so that "no other reference exists" is one load: owners in the low half, weak references
  // in the high half (all owners together hold one).
  static constexpr uint64_t kOwner = 1;
  static constexpr uint64_t kWeak = uint64_t{1} << 32;
  static constexpr uint32_t owners(uint64_t n) { return static_cast<uint32_t>(n); }

  void retain() const noexcept { counts_.fetch_add(kOwner, std::memory_order_relaxed); }
  // The first owner of a new object: no other thread can see it yet, so a plain store suffices.
  void retain_new() const noexcept {
    counts_.store(counts_.load(std::memory_order_relaxed) + kOwner, std::memory_order_relaxed);
  }
  // Out of line, because every handle that goes out of scope would hold a copy: a quarter of the code of most files,
  // and of the time to compile them.
  TG_NOINLINE void release() const noexcept {
    auto* self = const_cast<intrusive_ptr_target*>(this);
    if (counts_.load(std::memory_order_acquire) == kWeak + kOwner) {
      // The common case: one owner and no weak reference, so no other thread can race; no atomic operation is needed.
      counts_.store(kWeak, std::memory_order_relaxed);
    } else if (owners(counts_.fetch_sub(kOwner, std::memory_order_acq_rel)) != 1) {
      return;
    }
    self->release_resources();
    // release_resources may have created weak references, which defer the deletion.
    if (counts_.load(std::memory_order_acquire) == kWeak) {
      delete self;
    } else {
      weak_release();
    }
  }
  void weak_retain() const noexcept { counts_.fetch_add(kWeak, std::memory_order_relaxed); }
  void weak_release() const noexcept {
    if (counts_.fetch_sub(kWeak, std::memory_order_acq_rel) == kWeak) delete const_cast<intrusive_ptr_target*>(this);
  }
  bool try_retain() const noexcept {
    uint64_t n = counts_.load(std::memory_order_relaxed);
    while (owners(n) != 0)
      if (counts_.compare_exchange_weak(n, n + kOwner, std::memory_order_acq_rel)) return true;
    return false;
  }

  mutable std::atomic<uint64_t> counts_{kWeak};
};

template <class T>
class intrusive_ptr {
 public:
  intrusive_ptr() noexcept = default;
  intrusive_ptr(std::nullptr_t) noexcept {}
  explicit intrusive_ptr(T* p) noexcept : p_(p) {
    if (p_) p_->retain();
  }
  intrusive_ptr(const intrusive_ptr& o) noexcept : p_(o.p_) {
    if (p_) p_->retain();
  }
  intrusive_ptr(intrusive_ptr&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  template <class U>
    requires std::is_convertible_v<U*, T*>
  intrusive_ptr(const intrusive_ptr<U>& o) noexcept : intrusive_ptr(static_cast<T*>(o.get())) {}
  template <class U>
    requires std::is_convertible_v<U*, T*>
  intrusive_ptr(intrusive_ptr<U>&& o) noexcept : p_(o.release()) {}
  ~intrusive_ptr() { reset(); }

  intrusive_ptr& operator=(const intrusive_ptr& o) noexcept {
    intrusive_ptr(o).swap(*this);
    return *this;
  }
  intrusive_ptr& operator=(intrusive_ptr&& o) noexcept {
    intrusive_ptr(std::move(o)).swap(*this);
    return *this;
  }
  void swap(intrusive_ptr& o) noexcept { std::swap(p_, o.p_); }
  void reset() noexcept {
    if (T* p = std::exchange(p_, nullptr)) static_cast<const intrusive_ptr_target*>(p)->release();
  }

  T* get() const noexcept { return p_; }
  T* operator->() const noexcept { return p_; }
  T& operator*() const noexcept { return *p_; }
  explicit operator bool() const noexcept { return p_ != nullptr; }
  bool operator==(const intrusive_ptr& o) const noexcept { return p_ == o.p_; }
  uint32_t use_count() const noexcept { return p_ ? p_->use_count() : 0; }

  // Releases the pointer without lowering the count; `reclaim` takes such a pointer back.
  T* release() noexcept { return std::exchange(p_, nullptr); }
  static intrusive_ptr reclaim(T* p) noexcept {
    intrusive_ptr r;
    r.p_ = p;
    return r;
  }
  // The first owner of an object that no other thread can reach.
  static intrusive_ptr adopt_new(T* p) noexcept {
    static_cast<const intrusive_ptr_target*>(p)->retain_new();
    return reclaim(p);
  }

 private:
  T* p_ = nullptr;
};

template <class T, class... Args>
intrusive_ptr<T> make_intrusive(Args&&... args) {
  return intrusive_ptr<T>::adopt_new(new T(std::forward<Args>(args)...));
}

template <class T>
class weak_intrusive_ptr {
 public:
  weak_intrusive_ptr() noexcept = default;
  explicit weak_intrusive_ptr(const intrusive_ptr<T>& o) noexcept : p_(o.get()) {
    if (p_) p_->weak_retain();
  }
  weak_intrusive_ptr(const weak_intrusive_ptr& o) noexcept : p_(o.p_) {
    if (p_) p_->weak_retain();
  }
  weak_intrusive_ptr(weak_intrusive_ptr&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  ~weak_intrusive_ptr() { reset(); }
  weak_intrusive_ptr& operator=(weak_intrusive_ptr o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  void reset() noexcept {
    if (T* p = std::exchange(p_, nullptr)) static_cast<const intrusive_ptr_target*>(p)->weak_release();
  }
  bool expired() const noexcept { return p_ == nullptr || p_->use_count() == 0; }
  // The object, owned again, or null when its last owner has gone.
  intrusive_ptr<T> lock() const noexcept {
    if (p_ && static_cast<const intrusive_ptr_target*>(p_)->try_retain()) return intrusive_ptr<T>::reclaim(p_);
    return {};
  }
  // Gives the weak reference away and takes it back, as intrusive_ptr does.
  T* release() noexcept { return std::exchange(p_, nullptr); }
  static weak_intrusive_ptr reclaim(T* p) noexcept {
    weak_intrusive_ptr r;
    r.p_ = p;
    return r;
  }
  // Identity only; must not be dereferenced without `lock`.
  T* unsafe_get() const noexcept { return p_; }

 private:
  T* p_ = nullptr;
};

}  // namespace tapegrad

template <class T>
struct std::hash<tapegrad::intrusive_ptr<T>> {
  size_t operator()(const tapegrad::intrusive_ptr<T>& p) const noexcept { return std::hash<T*>()(p.get()); }
};
