// The server of a TCP store: one thread, which never waits for a client. A slow, silent or invalid client costs only
// the memory of the bytes that it has sent (nothing is allocated for an announced length until the bytes have arrived),
// and only its own connection is closed. Until a client has authenticated (tcp_wire.h) it may send only a few bytes,
// within ten seconds. The server does not read from a client that does not read its answers. Waiting clients are
// entries in a table and cost no time. Thread rules: made and destroyed by any thread, also in a forked child, where it
// is empty.
#pragma once

#include <cstdint>
#include <string>

#include "tapegrad/distributed/store/tcp_socket.h"

namespace tapegrad::distributed {

class TG_API TcpServer {
 public:
  TcpServer(OwnDescriptor listener, uint16_t port, std::string token);
  ~TcpServer();
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;
  uint16_t port() const noexcept { return port_; }
  const std::string& token() const noexcept { return token_; }
  bool in_its_process() const noexcept;

 private:
  struct State;
  const uint16_t port_;
  const std::string token_;
  State* state_;  // deleted by a thread of the process that made it only
};

}  // namespace tapegrad::distributed
