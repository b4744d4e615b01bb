// Incremental parser of one command in the bytes that a client has sent so far: finds its end and its fields. It
// resumes where it stopped when more bytes have arrived, so that a command received byte by byte takes no more time in
// total than one received at once.
#pragma once

#include <string_view>
#include <vector>

#include "tapegrad/distributed/store/tcp_wire.h"

namespace tapegrad::distributed::wire {

class CommandReader {
 public:
  enum class Result : uint8_t { Complete, More, Invalid };
  // `bytes` begins with the same command as in the last call that gave More.
  Result read(std::string_view bytes);
  void next() noexcept;  // the command is done with

  Command command() const noexcept { return command_; }
  size_t size() const noexcept { return at_; }  // of the complete command
  // Keys, values and numbers in their order, without lengths and counts.
  struct Field {
    size_t begin, size;
  };
  const std::vector<Field>& fields() const noexcept { return fields_; }

 private:
  Command command_ = Command::Ping;
  const char* format_ = nullptr;  // null: the command byte has not come
  size_t field_ = 0;              // of the format
  bool counted_ = false;
  uint64_t rounds_ = 0;  // times that the format is still to be read
  size_t at_ = 0;
  std::vector<Field> fields_;
};

}  // namespace tapegrad::distributed::wire
