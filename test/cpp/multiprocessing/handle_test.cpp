// A hundred thousand damaged handles, for the sanitizers: of each the checksum is first the old one and then the one
// that a liar would write, and both the owner and another process try them. What is taken must be a whole block.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "tapegrad/c10/error.h"
#include "tapegrad/multiprocessing/exchange.h"

using namespace tapegrad;
using shared::Exchange;
using shared::Handle;

namespace {

constexpr int kDamaged = 100'000;

struct Block {
  Storage storage;
  std::vector<Handle> handles;  // on their way
  unsigned char value;
};

// Where the words of a handle begin, and their sizes.
struct Field {
  size_t at, size;
};
constexpr Field kFields[] = {{offsetof(Handle, magic), 4},     {offsetof(Handle, kind), 2},
                             {offsetof(Handle, device), 2},    {offsetof(Handle, owner), 8},
                             {offsetof(Handle, entry), 4},     {offsetof(Handle, generation), 4},
                             {offsetof(Handle, ticket), 4},    {offsetof(Handle, ticket_generation), 4},
                             {offsetof(Handle, arena), 4},     {offsetof(Handle, epoch), 4},
                             {offsetof(Handle, offset), 8},    {offsetof(Handle, nbytes), 8},
                             {offsetof(Handle, read_only), 2}, {offsetof(Handle, has_event), 2},
                             {offsetof(Handle, checksum), 4}};

class Dice {
 public:
  size_t below(size_t n) { return static_cast<size_t>(next_() % n); }

  // Fields of the handle become what another one has, an extreme value, or nearly what they were.
  Handle damage(const Handle& handle, const Handle& other) {
    Handle wrong = handle;
    auto* bytes = reinterpret_cast<unsigned char*>(&wrong);
    for (size_t times = 1 + below(3); times-- > 0;) {
      const Field& f = kFields[below(std::size(kFields))];
      uint64_t word = 0;
      std::memcpy(&word, bytes + f.at, f.size);
      const uint64_t extreme[] = {0, 1, 2, 255, 256, 1u << 20, INT32_MAX, UINT32_MAX, INT64_MAX, ~uint64_t{0}};
      switch (below(7)) {
        case 0:
          word = extreme[below(std::size(extreme))];
          break;
        case 1:
          word ^= uint64_t{1} << below(8 * f.size);
          break;
        case 2:
          word += below(2) != 0 ? 1 : ~uint64_t{0};
          break;
        case 3:
          word = next_();
          break;
        case 4:
          std::memcpy(&word, reinterpret_cast<const unsigned char*>(&other) + f.at, f.size);
          break;
        case 5: {  // a stretch of what another one says: its ticket with its generation, its place
          const size_t first = 4 * below(16), n = 4 * (1 + below(16 - first / 4));
          std::memcpy(bytes + first, reinterpret_cast<const unsigned char*>(&other) + first, n);
          continue;
        }
        default:
          bytes[below(below(4) != 0 ? Handle::kArenaBytes : sizeof(Handle))] = static_cast<unsigned char>(next_());
          continue;
      }
      std::memcpy(bytes + f.at, &word, f.size);
    }
    return wrong;
  }

 private:
  std::mt19937_64 next_{20251123};
};

struct Outcome {
  int refused = 0, taken = 0;
};

// As far as a handle of CPU memory is sent.
bool same(const Handle& a, const Handle& b) { return std::memcmp(&a, &b, Handle::kArenaBytes) == 0; }

bool holds_value(const Block& block, const Storage& got) {
  const auto* first = static_cast<const unsigned char*>(got->data());
  return got->nbytes() == block.storage->nbytes() &&
         std::all_of(first, first + got->nbytes(), [&](unsigned char c) { return c == block.value; });
}

}  // namespace

TEST_CASE("a hundred thousand damaged handles", "[multiprocessing]") {
  Exchange owner, other;
  std::vector<Block> blocks;
  for (size_t nbytes : {size_t{0}, size_t{1}, size_t{7}, size_t{64}, size_t{64}, size_t{5000}, size_t{70'000}})
    for (bool read_only : {false, true}) {
      Block b{owner.allocate(nbytes, read_only), {}, static_cast<unsigned char>(blocks.size() + 1)};
      if (nbytes != 0) std::memset(b.storage->data(), b.value, nbytes);
      for (int i = 0; i < 4; ++i) b.handles.push_back(owner.give(b.storage));
      blocks.push_back(std::move(b));
    }
  for (size_t i = 0; i < 40; ++i) owner.allocate(64 * i);  // entries with free blocks

  Dice dice;
  Outcome plain, resealed;
  auto attempt = [&](Exchange& receiver, const Handle& wrong, Outcome& outcome) {
    Storage got;
    try {
      got = receiver.receive(wrong);
    } catch (const Error&) {
      ++outcome.refused;
      return;
    }
    // It was another whole handle: the one that is used up now is replaced.
    ++outcome.taken;
    for (Block& b : blocks)
      for (Handle& h : b.handles)
        if (same(h, wrong)) {
          if (!holds_value(b, got)) FAIL("a block with other bytes");
          h = owner.give(b.storage);
          return;
        }
    FAIL("a handle that nobody gave was taken");
  };
  for (int i = 0; i < kDamaged;) {
    const Block& block = blocks[dice.below(blocks.size())];
    const Block& second = dice.below(2) != 0 ? block : blocks[dice.below(blocks.size())];
    const Handle sent = block.handles[dice.below(4)];
    Handle wrong = dice.damage(sent, second.handles[dice.below(4)]);
    if (same(wrong, sent)) continue;
    attempt(i % 2 != 0 ? owner : other, wrong, plain);
    wrong.seal();
    if (same(wrong, sent)) continue;  // the checksum alone was hit
    attempt(i % 2 != 0 ? owner : other, wrong, resealed);
    ++i;
  }
  INFO(plain.refused << " refused and " << plain.taken << " taken as they were, " << resealed.refused << " and "
                     << resealed.taken << " with their own checksum");
  REQUIRE(plain.taken < kDamaged / 100);  // whole copies of other handles
  REQUIRE(resealed.refused > kDamaged / 2);
  REQUIRE(resealed.taken > 100);  // the same, and tickets of the same block
  for (Block& b : blocks)
    for (const Handle& h : b.handles) {
      REQUIRE(owner.on_its_way(h));
      REQUIRE(holds_value(b, other.receive(h)));
    }
  blocks.clear();
  REQUIRE(other.stats().received == 0);
  REQUIRE(owner.stats().tickets == 0);
  REQUIRE(owner.stats().blocks == 0);
}
