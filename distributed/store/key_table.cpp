#include "tapegrad/distributed/store/key_table.h"

#include <charconv>

#include "tapegrad/distributed/errors.h"

namespace tapegrad::distributed {

int64_t sum_of_counter(const std::string& key, std::string_view value, int64_t amount) {
  int64_t old = 0, sum = 0;
  const char* end = value.data() + value.size();
  const auto [at, error] = std::from_chars(value.data(), end, old);
  if (error != std::errc() || at != end)
    fail(DistError::Part::Store, "add: the value of {} is not a number: \"{}\"", key, value.substr(0, 40));
  if (__builtin_add_overflow(old, amount, &sum))
    fail(DistError::Part::Store, "add: the counter {} leaves 64 bits: {} + {}", key, old, amount);
  return sum;
}

const std::string* KeyTable::find(const std::string& key) const noexcept {
  const auto at = values_.find(key);
  return at == values_.end() ? nullptr : &at->second;
}

bool KeyTable::has(const std::string& key) const noexcept { return find(key) != nullptr || queue_len(key) != 0; }

int64_t KeyTable::add(const std::string& key, int64_t amount) {
  const std::string* old = find(key);
  const int64_t sum = old == nullptr ? amount : sum_of_counter(key, *old, amount);
  values_[key] = std::to_string(sum);
  return sum;
}

std::string KeyTable::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  const std::string* old = find(key);
  if (old == nullptr ? expected.empty() : *old == expected) return values_[key] = desired;
  return old == nullptr ? expected : *old;
}

std::vector<std::string> KeyTable::keys() const {
  std::vector<std::string> all;
  all.reserve(values_.size());
  for (const auto& [key, value] : values_) all.push_back(key);
  return all;
}

std::optional<std::string> KeyTable::pop(const std::string& key) {
  const auto at = queues_.find(key);
  if (at == queues_.end()) return {};
  std::string value = std::move(at->second.front());
  at->second.pop_front();
  if (at->second.empty()) queues_.erase(at);
  return value;
}

int64_t KeyTable::queue_len(const std::string& key) const noexcept {
  const auto at = queues_.find(key);
  return at == queues_.end() ? 0 : static_cast<int64_t>(at->second.size());
}

}  // namespace tapegrad::distributed
