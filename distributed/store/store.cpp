#include "tapegrad/distributed/store/store.h"

#include <algorithm>
#include <condition_variable>

#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/distributed/store/key_table.h"
#include "tapegrad/distributed/store/store_base.h"

namespace tapegrad::distributed {

Clock::time_point deadline_in(Milliseconds limit) noexcept {
  constexpr Milliseconds kYears{int64_t{10} * 365 * 86400 * 1000};
  return Clock::now() + std::min(limit, kYears);
}

std::string text_of(Milliseconds limit) {
  if (limit.count() < 1000) return fmt::format("{} ms", limit.count());
  return fmt::format("{:g} s", static_cast<double>(limit.count()) / 1000);
}

std::string key_list(const std::vector<std::string>& keys) {
  constexpr size_t kShown = 4;
  std::string text;
  for (size_t i = 0; i < std::min(keys.size(), kShown); ++i) text += (i != 0 ? ", " : "") + keys[i];
  if (keys.size() > kShown) text += fmt::format(" and {} others", keys.size() - kShown);
  return text;
}

std::vector<std::string> Store::multi_get(const std::vector<std::string>& keys) {
  std::vector<std::string> values;
  for (const std::string& key : keys) values.push_back(get(key));
  return values;
}

namespace {

void check_pairs(size_t keys, size_t values) {
  TG_CHECK(keys == values, Value, "multi_set: there must be one value per key: got {} keys and {} values", keys,
           values);
}

[[noreturn]] void no_queues() { TG_THROW(NotImplemented, "queue support is not implemented for this store"); }

}  // namespace

void Store::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  check_pairs(keys.size(), values.size());
  for (size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
}

void Store::barrier(const std::string& key, int64_t world_size, std::optional<Milliseconds> limit) {
  if (add(key + "/num_members", 1) >= world_size) set(key + "/last_member", "1");
  wait({key + "/last_member"}, limit);
}

void Store::set_at_end(const std::string&, const std::string&) {}
void Store::queue_push(const std::string&, const std::string&) { no_queues(); }
std::optional<std::string> Store::queue_pop(const std::string&, bool) { no_queues(); }
int64_t Store::queue_len(const std::string&) { no_queues(); }

void StoreState::set_limit(Milliseconds limit) {
  TG_CHECK(limit.count() >= 0, Value, "set_timeout: the timeout must not be negative: got {} ms", limit.count());
  limit_.store(limit.count(), std::memory_order_relaxed);
}

bool StoreState::begin_close(const std::string& why) noexcept {
  if (!in_its_process()) return false;
  const std::lock_guard lock(why_mutex_);
  if (closed_.load(std::memory_order_relaxed)) return false;
  try {
    why_ = why;
  } catch (const std::bad_alloc&) {  // without words, then
  }
  closed_.store(true, std::memory_order_release);
  return true;
}

void StoreState::fail_closed(const char* op) const {
  const std::lock_guard lock(why_mutex_);
  fail(DistError::Part::Store, "{}: the store is closed: {}", op, why_);
}

void StoreState::check_usable(const char* op) const {
  if (!in_its_process())
    fail(DistError::Part::Store,
         "{}: the {} belongs to the process that made it, and this is a forked child of that one\nmake a store in the "
         "child, after the fork",
         op, name_);
  if (is_closed()) fail_closed(op);
}

Milliseconds StoreState::checked(const char* op, std::optional<Milliseconds> limit) const {
  const Milliseconds value = limit.value_or(this->limit());
  TG_CHECK(value.count() >= 0, Value, "{}: the timeout must not be negative: got {} ms", op, value.count());
  return value;
}

namespace {

struct HashTable {
  std::mutex mutex;
  std::condition_variable changed;
  KeyTable keys;
};

class HashStore final : public StoreBase<Store> {
 public:
  HashStore(std::shared_ptr<HashTable> table, Milliseconds limit)
      : StoreBase("HashStore", limit), table_(std::move(table)) {}

  void set(const std::string& key, const std::string& value) override {
    change("set", [&](KeyTable& keys) { keys.set(key, value); });
  }
  int64_t add(const std::string& key, int64_t amount) override {
    return change("add", [&](KeyTable& keys) { return keys.add(key, amount); });
  }
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override {
    return change("compare_set", [&](KeyTable& keys) { return keys.compare_set(key, expected, desired); });
  }
  void append(const std::string& key, const std::string& value) override {
    change("append", [&](KeyTable& keys) { keys.append(key, value); });
  }
  bool delete_key(const std::string& key) override {
    return change("delete_key", [&](KeyTable& keys) { return keys.erase(key); });
  }
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) override {
    check_pairs(keys.size(), values.size());
    change("multi_set", [&](KeyTable& table) {
      for (size_t i = 0; i < keys.size(); ++i) table.set(keys[i], values[i]);
    });
  }
  void queue_push(const std::string& key, const std::string& value) override {
    change("queue_push", [&](KeyTable& keys) { keys.push(key, value); });
  }
  int64_t queue_len(const std::string& key) override {
    return look("queue_len", [&](const KeyTable& keys) { return keys.queue_len(key); });
  }
  int64_t num_keys() override {
    return look("num_keys", [](const KeyTable& keys) { return keys.size(); });
  }
  std::vector<std::string> list_keys() override {
    return look("list_keys", [](const KeyTable& keys) { return keys.keys(); });
  }
  bool check(const std::vector<std::string>& keys) override {
    return look("check", [&](const KeyTable& table) {
      return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return table.has(key); });
    });
  }
  std::string get(const std::string& key, std::optional<Milliseconds> limit) override {
    return until("get", {key}, limit, [&](KeyTable& keys) {
      const std::string* value = keys.find(key);
      return value == nullptr ? std::optional<std::string>() : *value;
    });
  }
  void wait(const std::vector<std::string>& keys, std::optional<Milliseconds> limit) override {
    until("wait", keys, limit, [&](KeyTable& table) {
      for (const std::string& key : keys)
        if (!table.has(key)) return std::optional<bool>();
      return std::optional<bool>(true);
    });
  }
  std::optional<std::string> queue_pop(const std::string& key, bool wait) override {
    if (!wait) return change("queue_pop", [&](KeyTable& keys) { return keys.pop(key); });
    return until("queue_pop", {key}, {}, [&](KeyTable& keys) { return keys.pop(key); });
  }
  std::shared_ptr<Store> clone() override {
    check_usable("clone");
    return std::make_shared<HashStore>(table_, timeout());
  }

 private:
  void wake() noexcept override {
    const std::lock_guard lock(table_->mutex);  // no thread is between its check and its sleep
    table_->changed.notify_all();
  }
  template <class F>
  std::invoke_result_t<F, const KeyTable&> look(const char* op, F&& f) {
    check_usable(op);
    const std::lock_guard lock(table_->mutex);
    return f(table_->keys);
  }
  template <class F>
  std::invoke_result_t<F, KeyTable&> change(const char* op, F&& f) {
    check_usable(op);
    const std::lock_guard lock(table_->mutex);
    table_->changed.notify_all();  // they wait for the lock first
    return f(table_->keys);
  }
  // What f gives once it gives something.
  template <class F>
  typename std::invoke_result_t<F, KeyTable&>::value_type until(const char* op, const std::vector<std::string>& keys,
                                                                std::optional<Milliseconds> given, F&& f) {
    check_usable(op);
    const Milliseconds limit = checked(op, given);
    const Clock::time_point deadline = deadline_in(limit);
    const BlockingRegion region;
    std::unique_lock lock(table_->mutex);
    for (;;) {
      if (auto found = f(table_->keys)) return *found;
      if (is_closed()) fail_closed(op);
      const Clock::time_point now = Clock::now();
      if (now >= deadline) {
        std::vector<std::string> missing;
        for (const std::string& key : keys)
          if (!table_->keys.has(key)) missing.push_back(key);
        fail(DistError::Part::Store, "{}: timed out after {}: no value for {}", op, text_of(limit), key_list(missing));
      }
      table_->changed.wait_until(lock, std::min(deadline, now + kSlice));
      lock.unlock();
      check_interrupt();
      lock.lock();
    }
  }

  std::shared_ptr<HashTable> table_;
};

class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store, std::function<void()> check)
      : prefix_(std::move(prefix) + "/"), store_(std::move(store)), check_(std::move(check)) {}

  void set(const std::string& key, const std::string& value) override { store_->set(prefix_ + key, value); }
  std::string get(const std::string& key, std::optional<Milliseconds> limit) override {
    if (check_) wait({key}, limit);
    return store_->get(prefix_ + key, limit);
  }
  int64_t add(const std::string& key, int64_t amount) override { return store_->add(prefix_ + key, amount); }
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override {
    return store_->compare_set(prefix_ + key, expected, desired);
  }
  bool check(const std::vector<std::string>& keys) override { return store_->check(prefixed(keys)); }
  void wait(const std::vector<std::string>& keys, std::optional<Milliseconds> limit) override {
    if (!check_) return store_->wait(prefixed(keys), limit);
    constexpr Milliseconds kPart{250};
    const Milliseconds all = limit.value_or(timeout());
    const Clock::time_point deadline = deadline_in(all);
    std::vector<std::string> missing = prefixed(keys);
    for (;;) {
      const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
      try {
        return store_->wait(missing, std::clamp(left, Milliseconds(0), kPart));
      } catch (const DistError& e) {
        if (e.part() != DistError::Part::Store) throw;
      }
      check_();
      if (left > kPart) continue;
      std::erase_if(missing, [this](const std::string& key) { return store_->check({key}); });
      if (missing.empty()) return;
      fail(DistError::Part::Store, "wait: timed out after {}: no value for {}", text_of(all), key_list(missing));
    }
  }
  bool delete_key(const std::string& key) override { return store_->delete_key(prefix_ + key); }
  int64_t num_keys() override { return store_->num_keys(); }  // of the whole store, as PyTorch's
  void append(const std::string& key, const std::string& value) override { store_->append(prefix_ + key, value); }
  std::vector<std::string> multi_get(const std::vector<std::string>& keys) override {
    return store_->multi_get(prefixed(keys));
  }
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) override {
    store_->multi_set(prefixed(keys), values);
  }
  std::vector<std::string> list_keys() override {
    std::vector<std::string> mine;
    for (const std::string& key : store_->list_keys())
      if (key.starts_with(prefix_)) mine.push_back(key.substr(prefix_.size()));
    return mine;
  }
  void barrier(const std::string& key, int64_t world_size, std::optional<Milliseconds> limit) override {
    store_->barrier(prefix_ + key, world_size, limit);
  }
  void queue_push(const std::string& key, const std::string& value) override {
    store_->queue_push(prefix_ + key, value);
  }
  std::optional<std::string> queue_pop(const std::string& key, bool wait) override {
    return store_->queue_pop(prefix_ + key, wait);
  }
  int64_t queue_len(const std::string& key) override { return store_->queue_len(prefix_ + key); }
  void set_at_end(const std::string& key, const std::string& value) override {
    store_->set_at_end(prefix_ + key, value);
  }
  void close(const std::string& why) noexcept override { store_->close(why); }
  std::shared_ptr<Store> clone() override {
    return std::make_shared<PrefixStore>(prefix_.substr(0, prefix_.size() - 1), store_->clone(), check_);
  }
  Milliseconds timeout() const override { return store_->timeout(); }
  void set_timeout(Milliseconds limit) override { store_->set_timeout(limit); }

 private:
  std::vector<std::string> prefixed(const std::vector<std::string>& keys) const {
    std::vector<std::string> full;
    full.reserve(keys.size());
    for (const std::string& key : keys) full.push_back(prefix_ + key);
    return full;
  }

  const std::string prefix_;
  const std::shared_ptr<Store> store_;
  const std::function<void()> check_;
};

}  // namespace

std::shared_ptr<Store> make_hash_store() {
  return std::make_shared<HashStore>(std::make_shared<HashTable>(), TcpStoreOptions().timeout);
}

std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> store,
                                         std::function<void()> check) {
  TG_CHECK(store != nullptr, Value, "PrefixStore: there is no store under it");
  return std::make_shared<PrefixStore>(std::move(prefix), std::move(store), std::move(check));
}

}  // namespace tapegrad::distributed
