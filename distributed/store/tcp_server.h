// The server of a TCP store: one thread, which never waits for a client. A client that is slow, silent, or sends what
// is no command costs what it has sent so far (a length is believed when the bytes are there) and loses its connection
// alone. Until a client has shown what it is (tcp_wire.h) it may send a few bytes within ten seconds. A client that
// does not read its answers is not read from. Clients that wait are entries in a table, and cost no time. Thread rules:
// made and destroyed by any thread, also in a forked child, where it is empty.
#pragma once

#include <cstdint>
#include <memory>
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
