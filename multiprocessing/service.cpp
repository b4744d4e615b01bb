#include "tapegrad/multiprocessing/service.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "tapegrad/c10/error.h"

namespace tapegrad::shared {

namespace {

enum class Op : uint32_t { Hello = 1, Arena, Ticket };
enum class Status : uint32_t { Ok, Stale, Full, NoDescriptor };

struct Request {
  Op op;
  uint32_t a, b;
};
struct Reply {
  Status status;
  uint32_t a, b;
  uint64_t nbytes;
};

constexpr int kAnswerSeconds = 10;

socklen_t address_of(uint64_t owner, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const int n = std::snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "tapegrad-%016llx",
                              static_cast<unsigned long long>(owner));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(n));
}

bool send_reply(int socket, const Reply& reply, const Descriptor& file) noexcept {
  iovec data{const_cast<Reply*>(&reply), sizeof(reply)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (file) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = file.get();
    std::memcpy(CMSG_DATA(c), &fd, sizeof(int));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof(reply));
}

// Sends a request and waits for the answer and what comes with it.
Reply ask(int socket, const Request& request, Descriptor* file) {
  TG_CHECK(send(socket, &request, sizeof(request), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(request)), Runtime,
           "shared memory: the process that owns the tensor has ended");
  Reply reply{};
  iovec data{&reply, sizeof(reply)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t n;
  do {
    n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  TG_CHECK(n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK), Runtime,
           "shared memory: the process that owns the tensor has not answered for {} s", kAnswerSeconds);
  TG_CHECK(n == static_cast<ssize_t>(sizeof(reply)), Runtime,
           "shared memory: the process that owns the tensor has ended");
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int fd;
    std::memcpy(&fd, CMSG_DATA(c), sizeof(int));
    Descriptor received(fd);
    if (file != nullptr) *file = std::move(received);
  }
  TG_CHECK(!(message.msg_flags & MSG_CTRUNC), Runtime, "shared memory: {}", explain_errno(EMFILE));
  TG_CHECK(reply.status != Status::NoDescriptor, Runtime,
           "shared memory: the process that owns the tensor has no file descriptor left");
  TG_CHECK(reply.status != Status::Full, Runtime,
           "shared memory: {} processes hold tensors of one process: there is no place for another one", kSlots - 2);
  return reply;
}

}  // namespace

Service::Service(Ledger& ledger, ServiceHandlers handlers) : ledger_(ledger), handlers_(std::move(handlers)) {
  listener_ = Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  spare_ = Descriptor(fcntl(wake_.get(), F_DUPFD_CLOEXEC, 0));
  TG_CHECK(listener_ && wake_ && spare_, Runtime, "share_memory: {}", explain_errno(errno));
  sockaddr_un address;
  const socklen_t n = address_of(ledger.id(), address);
  TG_CHECK(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), n) == 0 && listen(listener_.get(), 128) == 0,
           Runtime, "share_memory: no socket to pass descriptors through: {}", std::strerror(errno));
  // Signals are the program's: this thread takes none.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::exception&) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    TG_THROW(Runtime, "share_memory: no thread can be started");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Service::~Service() {
  const uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof(one)) > 0) thread_.join();
}

void Service::abandon() noexcept {
  listener_.reset();
  wake_.reset();
  spare_.reset();
  for (Peer& p : peers_) {
    p.socket.reset();
    p.pidfd.reset();
  }
}

void Service::accept_one() noexcept {
  int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
    // Without a descriptor a connection could not even be rejected, and the listener would stay readable.
    spare_.reset();
    fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) {
      send_reply(fd, {Status::NoDescriptor, 0, 0, 0}, Descriptor());
      ::close(fd);
    }
    spare_ = Descriptor(fcntl(wake_.get(), F_DUPFD_CLOEXEC, 0));
    return;
  }
  if (fd < 0) return;
  Descriptor socket(fd);
  ucred who{};
  socklen_t size = sizeof(who);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || (who.uid != geteuid() && who.uid != 0)) return;
  Peer peer;
  peer.socket = std::move(socket);
  try {
    peers_.push_back(std::move(peer));
  } catch (...) {  // out of memory: the peer sees a closed connection
  }
}

// False when the peer has gone or talks nonsense.
bool Service::answer(Peer& peer) try {
  Request request{};
  const ssize_t n = recv(peer.socket.get(), &request, sizeof(request), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n != static_cast<ssize_t>(sizeof(request))) return false;
  switch (request.op) {
    case Op::Hello: {
      ucred who{};
      socklen_t size = sizeof(who);
      getsockopt(peer.socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size);
      peer.slot = request.a != kNone && request.a < kPinSlot ? request.a : ledger_.claim_slot(mark_of(who.pid));
      if (peer.slot == kNone) return send_reply(peer.socket.get(), {Status::Full, 0, 0, 0}, Descriptor());
      peer.pidfd = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, who.pid, 0)));
      Descriptor ledger(fcntl(ledger_.file().get(), F_DUPFD_CLOEXEC, 0));
      return send_reply(peer.socket.get(), {ledger ? Status::Ok : Status::NoDescriptor, peer.slot, 0, 0}, ledger);
    }
    case Op::Arena: {
      uint64_t nbytes = 0;
      errno = 0;
      Descriptor file = handlers_.arena(request.a, request.b, nbytes);
      const Status status = file ? Status::Ok : errno == EMFILE ? Status::NoDescriptor : Status::Stale;
      return send_reply(peer.socket.get(), {status, 0, 0, nbytes}, file);
    }
    case Op::Ticket: {
      const Ticket t = peer.slot == kNone ? Ticket() : handlers_.ticket(request.a, peer.slot);
      return send_reply(peer.socket.get(), {t.number == kNone ? Status::Stale : Status::Ok, t.number, t.generation, 0},
                        Descriptor());
    }
  }
  return false;
} catch (const std::exception&) {
  return false;  // no memory for a ticket: the peer sees a closed connection
}

void Service::run() {
  std::vector<pollfd> set;
  for (;;) {
    std::unique_lock busy(busy_);
    set.clear();
    set.push_back({wake_.get(), POLLIN, 0});
    set.push_back({listener_.get(), POLLIN, 0});
    for (const Peer& p : peers_) {
      set.push_back({p.socket.get(), POLLIN, 0});  // a negative descriptor is passed over
      set.push_back({p.pidfd.get(), POLLIN, 0});
    }
    busy.unlock();
    if (poll(set.data(), set.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (set[0].revents != 0) return;
    busy.lock();
    for (size_t i = 0; i < peers_.size(); ++i) {
      Peer& p = peers_[i];
      if (set[2 + 2 * i].revents != 0 && !answer(p)) p.socket.reset();
      if (set[3 + 2 * i].revents != 0) {
        ledger_.sweep_dead();
        p.socket.reset();
        p.pidfd.reset();
      }
    }
    std::erase_if(peers_, [](const Peer& p) { return !p.socket && !p.pidfd; });
    if (set[1].revents != 0) accept_one();
  }
}

Connection Connection::open(uint64_t owner, uint32_t& slot, Ledger** ledger) {
  Connection c;
  c.socket_ = Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  TG_CHECK(c.socket_, Runtime, "shared memory: {}", explain_errno(errno));
  const timeval limit{kAnswerSeconds, 0};
  setsockopt(c.socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(c.socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  sockaddr_un address;
  const socklen_t n = address_of(owner, address);
  TG_CHECK(connect(c.socket_.get(), reinterpret_cast<sockaddr*>(&address), n) == 0, Runtime,
           "shared memory: the process that owns the tensor has ended\nit must live until the tensor was received");
  ucred who{};
  socklen_t size = sizeof(who);
  TG_CHECK(getsockopt(c.socket_.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
               (who.uid == geteuid() || who.uid == 0 || geteuid() == 0),
           Runtime, "shared memory: the tensor belongs to another user");
  Descriptor file;
  const Reply reply = ask(c.socket_.get(), {Op::Hello, slot, 0}, &file);
  TG_CHECK(reply.status == Status::Ok && file, Runtime, "shared memory: {}", explain_errno(EMFILE));
  if (slot == kNone) {
    slot = reply.a;
    *ledger = Ledger::open(std::move(file), owner);
  }
  return c;
}

Descriptor Connection::arena(uint32_t arena, uint32_t epoch, uint64_t& nbytes) {
  Descriptor file;
  const Reply reply = ask(socket_.get(), {Op::Arena, arena, epoch}, &file);
  TG_CHECK(reply.status == Status::Ok && file, Runtime, "shared memory: a stale handle: its arena is gone");
  nbytes = reply.nbytes;
  return file;
}

Ticket Connection::ticket(uint32_t entry) {
  const Reply reply = ask(socket_.get(), {Op::Ticket, entry, 0}, nullptr);
  TG_CHECK(reply.status == Status::Ok, Runtime, "shared memory: a tensor can only be passed on by those who hold it");
  return {reply.a, reply.b};
}

bool Connection::ended() const noexcept {
  if (!socket_) return true;
  char byte;
  return recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

}  // namespace tapegrad::shared
