// A chain: pointwise calls that follow each other, over tensors of one size that lie densely; what they read may also
// be one number, or one per row or column of a size that all have in common. It runs piece by piece,
// each piece through all calls, so that what one call writes is still in the first-level cache when the next one reads
// it, and what only the chain uses needs no memory but a piece's. The kernels are those of the calls; their loops begin
// at multiples of 16 elements, so the bits are the same. Runs of arithmetic are loops of their own (fuse.h). On a
// device a chain is one kernel (device/device_chain.h).
#pragma once

#include "tapegrad/aten/record/chain/fuse.h"
#include "tapegrad/aten/record/recording.h"

namespace tapegrad::record {

// How an operand of a chain lies: one number for all elements, one behind the other, one number per column (a row that
// is repeated) or per row.
enum class OperandLayout : uint8_t { Number, Dense, PerColumn, PerRow, Other };
TG_API OperandLayout layout_of(const pointwise::Iterator& it, int k);

struct Chain {
  std::vector<Call> calls;
  int64_t numel = 0;
  int64_t columns = 0;  // of the calls that have operands with a number per row or column; else 0
  int64_t piece = 0;    // elements
  // Of operand k of call i: which buffer it is in; -1: it lies in a slot, where the call's own iterator has its
  // address.
  std::vector<std::array<int, 1 + pointwise::kMaxInputs>> buffers;
  size_t buffer_bytes = 0;  // of one buffer
  int num_buffers = 0;
  bool narrow = false;                              // there are elements of 16 bits, and no columns
  std::vector<FusedCalls> fused;                    // runs of calls that are one loop each, in their order
  std::shared_ptr<const class DeviceChain> kernel;  // on a device: all of it
  // What a thread that runs pieces needs: iterators over a piece, and its buffers.
  struct Worker {
    std::vector<pointwise::Iterator> iterators;
    std::unique_ptr<char[]> memory;
    std::vector<char*> places;
  };
  std::vector<Worker> workers;

  void run();
  int64_t step() const;  // elements that loops do are a multiple of it

 private:
  void run_piece(Worker& w, int64_t from, int64_t n, bool with_loops);
};

// Whether the slot is a temporary that none but calls [first, last) use.
bool only_used_in(const Recording& recording, int slot, size_t first, size_t last);
// Whole calls are as fast up to 2^16 elements times calls.
inline bool is_worth_a_chain(int64_t calls, int64_t numel) { return calls >= 2 && calls * numel > 1 << 16; }
// Groups of calls [first, last) that may run as chains. Marks the slots that only a chain uses (Slot::chained).
std::vector<std::pair<size_t, size_t>> find_chains(Recording& recording);
// Takes over the calls.
std::unique_ptr<Chain> make_chain(Recording& recording, size_t first, size_t last);

}  // namespace tapegrad::record
