// Collectives of random kinds and sizes, compared with plain loops: every rank knows what all ranks give, since values
// come from a seed. Ends with the same bits on all ranks for the same seed.
#pragma once

#include <cstring>
#include <random>

#include "distributed/ranks.h"
#include "tapegrad/aten/functions.h"

namespace tapegrad::distributed::test {

// A byte that rank `from` has for rank `to` in call `call`.
inline char byte_of(uint64_t call, int from, int to, size_t i) {
  uint64_t x = call * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(from * 257 + to + 1) * 0xBF58476D1CE4E5B9u + i;
  x = (x ^ (x >> 29)) * 0x94D049BB133111EBu;
  return static_cast<char>(x >> 56);
}

inline std::vector<char> bytes_of(uint64_t call, int from, int to, size_t n) {
  std::vector<char> bytes(n + 1);  // one more: never empty
  for (size_t i = 0; i < n; ++i) bytes[i] = byte_of(call, from, to, i);
  return bytes;
}

inline size_t random_size(std::mt19937_64& random) {
  switch (random() % 6) {
    case 0:
      return 0;
    case 1:
      return random() % 100;
    case 2:
      return size_t{16} << 10;
    case 3:
      return random() % (size_t{1} << 20);
    default:
      return random() % (size_t{64} << 10);
  }
}

class RandomCalls {
 public:
  RandomCalls(Backend& ranks, uint64_t seed, double seconds)
      : ranks_(ranks), random_(seed), wait_(wait_for(seconds, "random call")), me_(ranks.rank()), n_(ranks.size()) {}

  void run(int count) {
    for (int i = 0; i < count; ++i) one();
  }

 private:
  void one() {
    ++call_;
    const auto kind = random_() % 9;
    const int root = static_cast<int>(random_() % static_cast<uint64_t>(n_));
    std::vector<size_t> sizes;
    for (int r = 0; r < n_; ++r) sizes.push_back(random_size(random_));
    const auto n = static_cast<size_t>(n_), me = static_cast<size_t>(me_);
    std::vector<std::vector<char>> in(n), out(n);
    std::vector<Bytes> outs(n);
    std::vector<ConstBytes> ins(n);
    auto same = [&](const std::vector<char>& got, int from, int to, size_t size, const char* what) {
      must(std::memcmp(got.data(), bytes_of(call_, from, to, size).data(), size) == 0,
           std::string(what) + " of " + std::to_string(size) + " bytes, call " + std::to_string(call_));
      must(got[size] == 55, std::string(what) + " wrote too much");
    };
    auto allocate = [&](size_t r, size_t size) {
      out[r].assign(size + 1, 55);
      outs[r] = {out[r].data(), size};
    };
    switch (kind) {
      case 0: {
        const size_t size = sizes[0] % (Backend::kMostExchanged + 1);
        const auto mine = bytes_of(call_, me_, 0, size);
        std::vector<char> all(size * n + 1);
        ranks_.exchange(mine.data(), size, all.data(), wait_);
        for (size_t r = 0; r < n; ++r)
          must(std::memcmp(all.data() + r * size, bytes_of(call_, static_cast<int>(r), 0, size).data(), size) == 0,
               "exchange");
        return;
      }
      case 1: {
        auto data = bytes_of(call_, me_, 0, sizes[0]);
        data.back() = 55;
        ranks_.broadcast({data.data(), sizes[0]}, root, wait_);
        return same(data, root, 0, sizes[0], "broadcast");
      }
      case 2:
      case 3: {
        const int64_t numel = static_cast<int64_t>(sizes[0] / 4);
        auto data = bytes_of(call_, me_, 0, sizes[0] / 4 * 4);
        const bool to_all = kind == 2;
        if (to_all)
          ranks_.all_reduce(data.data(), numel, DType::int32, Reduce::Sum, wait_);
        else
          ranks_.reduce(data.data(), numel, DType::int32, Reduce::Sum, root, wait_);
        if (!to_all && root != me_) {
          must(data == bytes_of(call_, me_, 0, sizes[0] / 4 * 4), "reduce changed another rank's data");
          return;
        }
        must(std::memcmp(data.data(), sum(0, static_cast<size_t>(numel)).data(), static_cast<size_t>(numel) * 4) == 0,
             "reduction of " + std::to_string(numel));
        return;
      }
      case 4:
      case 5: {
        const auto mine = bytes_of(call_, me_, 0, sizes[me]);
        const bool here = kind == 4 || root == me_;
        for (size_t r = 0; r < n; ++r) {
          allocate(r, sizes[r]);
          if (!here) outs[r].data = nullptr;
        }
        if (kind == 4)
          ranks_.all_gather({mine.data(), sizes[me]}, outs, wait_);
        else
          ranks_.gather({mine.data(), sizes[me]}, outs, root, wait_);
        for (size_t r = 0; r < n && here; ++r) same(out[r], static_cast<int>(r), 0, sizes[r], "gather");
        return;
      }
      case 6: {
        if (root == me_) {
          for (size_t r = 0; r < n; ++r) {
            in[r] = bytes_of(call_, me_, static_cast<int>(r), sizes[r]);
            ins[r] = {in[r].data(), sizes[r]};
          }
        } else {
          ins.clear();
        }
        allocate(me, sizes[me]);
        ranks_.scatter(ins, outs[me], root, wait_);
        return same(out[me], root, me_, sizes[me], "scatter");
      }
      case 7: {
        std::vector<const void*> rows(n);
        std::vector<int64_t> numel(n);
        for (size_t r = 0; r < n; ++r) {
          in[r] = bytes_of(call_, me_, static_cast<int>(r), sizes[r] / 4 * 4);
          rows[r] = in[r].data();
          numel[r] = static_cast<int64_t>(sizes[r] / 4);
        }
        allocate(me, sizes[me] / 4 * 4);
        ranks_.reduce_scatter(rows, numel, out[me].data(), DType::int32, Reduce::Sum, wait_);
        must(std::memcmp(out[me].data(), sum(me_, sizes[me] / 4).data(), sizes[me] / 4 * 4) == 0, "reduce_scatter");
        return must(out[me].back() == 55, "reduce_scatter wrote too much");
      }
      default: {
        // The size of a pair: known to both.
        auto size_of = [&](size_t from, size_t to) { return sizes[(from + 2 * to) % n] / (1 + (from ^ to)); };
        for (size_t r = 0; r < n; ++r) {
          in[r] = bytes_of(call_, me_, static_cast<int>(r), size_of(me, r));
          ins[r] = {in[r].data(), size_of(me, r)};
          allocate(r, size_of(r, me));
        }
        ranks_.all_to_all(ins, outs, wait_);
        for (size_t r = 0; r < n; ++r) same(out[r], static_cast<int>(r), me_, size_of(r, me), "all_to_all");
      }
    }
  }

  std::vector<uint32_t> sum(int to, size_t numel) const {
    std::vector<uint32_t> total(numel + 1);
    for (int r = 0; r < n_; ++r) {
      const auto bytes = bytes_of(call_, r, to, numel * 4);
      for (size_t i = 0; i < numel; ++i) {
        uint32_t x;
        std::memcpy(&x, bytes.data() + 4 * i, 4);
        total[i] += x;
      }
    }
    return total;
  }

  Backend& ranks_;
  std::mt19937_64 random_;
  const Wait wait_;
  const int me_, n_;
  uint64_t call_ = 0;
};

}  // namespace tapegrad::distributed::test
