#include "tapegrad/distributed/store/tcp_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <set>
#include <thread>

#include "tapegrad/c10/threads/fork.h"
#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/distributed/store/store_base.h"
#include "tapegrad/multiprocessing/shared_file.h"

namespace tapegrad::distributed {

namespace {

// The descriptors that a forked child closes. Never destroyed: threads may outlive static objects.
struct OpenDescriptors {
  std::mutex mutex;
  std::set<int> all;

  OpenDescriptors() {
    pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); },
                   [] {
                     for (int fd : get().all) ::close(fd);
                     get().all.clear();
                     get().mutex.unlock();
                   });
  }
  static OpenDescriptors& get() {
    static OpenDescriptors* const one = new OpenDescriptors;
    return *one;
  }
};

std::string lower_text(int error) {
  if (error == EMFILE || error == ENFILE) return shared::explain_errno(error);
  std::string text = std::strerror(error);
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

struct Lookup {
  std::mutex mutex;
  std::condition_variable changed;
  std::string host, port;
  bool done = false, left = false;
  int status = 0;
  addrinfo* found = nullptr;
};

int look_up(const char* host, const char* port, int flags, addrinfo** found) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  return getaddrinfo(host, port, &hints, found);
}

// A name server may not answer for minutes, and getaddrinfo() cannot be interrupted: it is called on another thread.
Addresses resolve(const std::string& host, uint16_t port, const SocketWait& wait, std::string& problem, bool& later) {
  Addresses none(nullptr, freeaddrinfo);
  addrinfo* found = nullptr;
  const std::string number = std::to_string(port);
  if (look_up(host.c_str(), number.c_str(), AI_NUMERICHOST, &found) == 0) return {found, freeaddrinfo};
  const auto lookup = std::make_shared<Lookup>();
  lookup->host = host;
  lookup->port = number;
  std::thread([lookup] {
    addrinfo* result = nullptr;
    const int status = look_up(lookup->host.c_str(), lookup->port.c_str(), AI_ADDRCONFIG, &result);
    const std::lock_guard lock(lookup->mutex);
    if (lookup->left && result != nullptr) freeaddrinfo(result);
    lookup->status = status;
    lookup->found = status == 0 && !lookup->left ? result : nullptr;
    lookup->done = true;
    lookup->changed.notify_all();
  }).detach();
  std::unique_lock lock(lookup->mutex);
  try {
    while (!lookup->done) {
      lookup->changed.wait_for(lock, Milliseconds(20));
      if (lookup->done) break;
      lock.unlock();
      const Ready ready = wait_for(-1, 0, {std::min(wait.deadline, Clock::now()), wait.wakeup});
      lock.lock();
      if (ready == Ready::Woken || Clock::now() >= wait.deadline) {
        lookup->left = !lookup->done;
        if (lookup->done && lookup->found != nullptr) freeaddrinfo(lookup->found);
        problem = ready == Ready::Woken ? "" : fmt::format("the name {} was not resolved in time", host);
        return none;
      }
    }
  } catch (...) {  // Ctrl-C
    lookup->left = true;
    throw;
  }
  if (lookup->status == 0) return {lookup->found, freeaddrinfo};
  later = true;  // the names of a job's machines may be entered while it starts
  problem = fmt::format("the name {} is not known: {}", host, gai_strerror(lookup->status));
  return none;
}

uint16_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t n = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &n) != 0) return 0;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

void set_option(int fd, int level, int name, int value) noexcept { setsockopt(fd, level, name, &value, sizeof(value)); }

}  // namespace

OwnDescriptor::OwnDescriptor(int fd) : fd_(fd), generation_(fork_generation()) {
  if (fd < 0) return;
  OpenDescriptors& open = OpenDescriptors::get();
  try {
    const std::lock_guard lock(open.mutex);
    open.all.insert(fd);
  } catch (...) {
    ::close(fd);
    throw;
  }
}

void OwnDescriptor::reset() noexcept {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0 || generation_ != fork_generation())
    return;  // closed at the fork; the number may be another file's by now
  OpenDescriptors& open = OpenDescriptors::get();
  const std::lock_guard lock(open.mutex);
  open.all.erase(fd);
  ::close(fd);
}

Wakeup::Wakeup() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) fail(DistError::Part::Network, "TCPStore: {}", lower_text(errno));
}

void Wakeup::wake() noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof(one));
}

Ready wait_for(int fd, short events, const SocketWait& wait) {
  for (;;) {
    const Clock::time_point now = Clock::now();
    const bool late = now >= wait.deadline;
    const auto left = std::chrono::ceil<Milliseconds>(std::min<Clock::duration>(wait.deadline - now, kSlice));
    pollfd set[2] = {{wait.wakeup == nullptr ? -1 : wait.wakeup->fd(), POLLIN, 0}, {fd, events, 0}};
    const int n = poll(set, 2, late ? 0 : static_cast<int>(left.count()));
    if (n > 0 && set[0].revents != 0) return Ready::Woken;
    if (n > 0) return Ready::Yes;
    check_interrupt();
    if (late) return Ready::TimedOut;
  }
}

namespace {

template <class F>
Transfer transfer(int fd, size_t n, short events, const SocketWait& wait, F&& step) {
  while (n > 0) {
    const ssize_t done = step(n);
    if (done > 0) {
      n -= static_cast<size_t>(done);
      continue;
    }
    if (done == 0) {
      errno = 0;
      return Transfer::Lost;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Transfer::Lost;
    const Ready ready = wait_for(fd, events, wait);
    if (ready != Ready::Yes) return ready == Ready::Woken ? Transfer::Woken : Transfer::TimedOut;
  }
  return Transfer::Done;
}

}  // namespace

Transfer send_all(int fd, const void* data, size_t n, const SocketWait& wait) {
  const auto* at = static_cast<const char*>(data);
  return transfer(fd, n, POLLOUT, wait, [&](size_t left) {
    const ssize_t sent = send(fd, at, left, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) at += sent;
    return sent;
  });
}

Transfer receive_all(int fd, void* data, size_t n, const SocketWait& wait) {
  auto* at = static_cast<char*>(data);
  return transfer(fd, n, POLLIN, wait, [&](size_t left) {
    const ssize_t got = recv(fd, at, left, MSG_DONTWAIT);
    if (got > 0) at += got;
    return got;
  });
}

void set_up_connection(int fd) noexcept {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // A machine that has gone answers nothing: noticed after 10 + 3 * 5 s of silence.
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 25'000);
}

OwnDescriptor connect_once(const std::string& host, uint16_t port, const SocketWait& wait, std::string& problem,
                           bool& later) {
  later = false;
  const Addresses addresses = resolve(host, port, wait, problem, later);
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    OwnDescriptor fd(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) {
      problem = lower_text(errno);
      continue;
    }
    int error = connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS || error == EINTR) {
      const Ready ready = wait_for(fd.get(), POLLOUT, wait);
      if (ready == Ready::Woken) {
        problem.clear();
        return {};
      }
      socklen_t n = sizeof(error);
      if (ready == Ready::TimedOut)
        error = ETIMEDOUT;
      else if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &n) != 0)
        error = errno;
    }
    if (error == 0) {
      // A client may get the very port that it connects to as its own, and is then connected to itself.
      sockaddr_storage mine{}, other{};
      socklen_t mine_n = sizeof(mine), other_n = sizeof(other);
      if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&mine), &mine_n) == 0 &&
          getpeername(fd.get(), reinterpret_cast<sockaddr*>(&other), &other_n) == 0 && mine_n == other_n &&
          std::memcmp(&mine, &other, mine_n) == 0)
        error = ECONNREFUSED;
    }
    if (error == 0) {
      set_up_connection(fd.get());
      return fd;
    }
    problem = lower_text(error);
    later |= error == ECONNREFUSED || error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
             error == ECONNRESET || error == EAGAIN || error == EADDRNOTAVAIL;
  }
  return {};
}

OwnDescriptor listen_at(const std::string& host, uint16_t& port) {
  addrinfo* found = nullptr;
  const int status = look_up(host.c_str(), std::to_string(port).c_str(), AI_PASSIVE, &found);
  if (status != 0)
    fail(DistError::Part::Network, "TCPStore: no address to listen at: the name {} is not known: {}", host,
         gai_strerror(status));
  const Addresses addresses(found, freeaddrinfo);
  int error = EADDRNOTAVAIL;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
      if (a->ai_family != family) continue;
      OwnDescriptor fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (fd) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
      if (fd && bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0 && listen(fd.get(), 4096) == 0) {
        port = port_of(fd.get());
        return fd;
      }
      error = errno;
    }
  }
  const char* hint = error == EADDRNOTAVAIL
                         ? "\nthe address belongs to another machine: rank 0 runs on the machine that "
                           "is named, or TAPEGRAD_STORE_LISTEN names an address of this one"
                     : error == EADDRINUSE ? "\nanother program, or an earlier run, listens there: choose another port"
                                           : "";
  fail(DistError::Part::Network, "TCPStore: cannot listen at {}:{}: {}{}", host, port, lower_text(error), hint);
}

OwnDescriptor take_listener(int fd, uint16_t& port) {
  int listens = 0;
  socklen_t n = sizeof(listens);
  TG_CHECK(fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) == 0 && listens != 0, Value,
           "TCPStore: master_listen_fd is not a socket that listens: got {}", fd);
  const uint16_t bound = port_of(fd);
  if (port != 0 && bound != port)
    fail(DistError::Part::Store, "TCPStore: master_listen_fd listens at port {}, not at {}", bound, port);
  port = bound;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  fcntl(fd, F_SETFD, fcntl(fd, F_GETFD) | FD_CLOEXEC);
  return OwnDescriptor(fd);
}

}  // namespace tapegrad::distributed
