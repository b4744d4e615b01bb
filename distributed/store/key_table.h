// Values and queues by key: the data of a hash store and of a TCP store's server. Not thread-safe: the owner locks.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tapegrad/c10/macros.h"

namespace tapegrad::distributed {

// A counter's new value; DistError(Store) where the text is no number or the sum does not fit into 64 bits.
int64_t sum_of_counter(const std::string& key, std::string_view value, int64_t amount);

class KeyTable {
 public:
  const std::string* find(const std::string& key) const noexcept;  // null: not there
  bool has(const std::string& key) const noexcept;                 // a value, or something in its queue
  void set(const std::string& key, std::string value) { values_[key] = std::move(value); }
  int64_t add(const std::string& key, int64_t amount);
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  void append(const std::string& key, std::string_view value) { values_[key].append(value); }
  bool erase(const std::string& key) { return values_.erase(key) != 0; }
  int64_t size() const noexcept { return static_cast<int64_t>(values_.size()); }
  std::vector<std::string> keys() const;

  void push(const std::string& key, std::string value) { queues_[key].push_back(std::move(value)); }
  std::optional<std::string> pop(const std::string& key);
  int64_t queue_len(const std::string& key) const noexcept;

 private:
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;
};

}  // namespace tapegrad::distributed
