// A prepared collective call of one rank: checked arguments, tensors made contiguous where the engine needs it, and the
// header by which ranks compare their calls. Owned by the group's queue; used by one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "tapegrad/distributed/group/group.h"

namespace tapegrad::distributed {

// The header that ranks exchange before each collective. Plain data of a fixed size, the same on all ranks' builds.
struct Header {
  static constexpr uint32_t kMagic = 0x32646774;
  uint32_t magic = kMagic;
  Kind kind = Kind::Barrier;
  Reduce reduce = Reduce::Sum;
  uint8_t mean = 0;
  DType dtype = DType::uint8;
  uint64_t number = 0;   // of the call in its group
  uint64_t payload = 0;  // bytes that this rank contributes
  uint64_t shape = 0;    // hash of the sizes that must agree
  int64_t numel = 0;     // of the input
  int32_t root = 0;
  int16_t count = 0;    // tensors
  uint8_t varying = 0;  // sizes may differ by rank
  int8_t ndim = 0;      // of the first tensor
  int64_t sizes[8] = {};
  uint8_t on_device = 0;  // an engine for devices moves the data
  char line[143] = {};
};
static_assert(sizeof(Header) == 256);

// "all_reduce(sum) of float32 [3, 4] at train.py:31"
std::string describe(const Header& h);

struct Prepared {
  Call call;
  Device place;                       // where the engine finds the data: the host, or a device that has an engine
  std::shared_ptr<DeviceMark> after;  // on a device: what the data waits for
  Header header;
  std::vector<Tensor> in, out;  // contiguous; in place: the same ones
  std::vector<ConstBytes> in_bytes;
  std::vector<Bytes> out_bytes;  // on the root only where there is one, but with sizes everywhere

  // After the engine has run: computes the mean, and copies results into the caller's tensors.
  void finish(int ranks);

 private:
  friend Prepared prepare(Call call, int rank, int size, Device place);
  struct CopyBack {
    Tensor target, source;
  };
  std::vector<CopyBack> back_;
  bool written_ = true;  // this rank gets a result
};

// Raises for errors that this rank can detect alone; nothing is written then. Copies tensors that are not contiguous or
// not at `place`.
Prepared prepare(Call call, int rank, int size, Device place = {});

// Raises Error(Runtime), on all ranks with the same text, if their calls do not match. headers[r * stride bytes].
void check_agreement(const char* headers, size_t stride, int size);

}  // namespace tapegrad::distributed
