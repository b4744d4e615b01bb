// The engine over MPI, for ranks that mpirun or srun has started. A library of its own (libtapegrad_mpi), opened when a
// group asks for it (backend.cpp), so that tapegrad needs no MPI. Collectives are composed of its sends and receives
// (pairwise_backend.h): requests are polled in turn, so that a deadline, the failure of another rank and Ctrl-C end the
// wait.
//
// Thread rules: MPI is called by one thread at a time, under a lock; a group has a communicator of its own.
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tapegrad/distributed/pairwise_backend.h"

namespace tapegrad::distributed {

namespace {

constexpr size_t kMostAtOnce = size_t{1} << 30;  // bytes of one message: MPI counts in int
constexpr int kSwapTag = 0;                      // of collectives; messages have the tags after it

std::mutex& mpi_lock() {
  static std::mutex mutex;
  return mutex;
}
// Set under the lock: a request could not be ended, so that a later call of MPI might write to freed memory.
bool mpi_is_lost = false;
std::atomic<bool> a_group_failed = false;  // the ranks may not all come to the end of MPI, which would wait for them

std::string mpi_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int n = 0;
  MPI_Error_string(code, text, &n);
  return "MPI says: " + std::string(text, static_cast<size_t>(n));
}
void check_mpi(int code, const char* what) {
  if (code != MPI_SUCCESS) fail(DistError::Part::Backend, "{}: {}", what, mpi_text(code));
}

// Once per process. MPI is finalised at its end, unless a group failed: the other ranks might then not take part, and
// mpirun ends them.
void start_mpi() {
  int started = 0, ended = 0;
  MPI_Finalized(&ended);
  if (ended != 0) fail(DistError::Part::Backend, "mpi: MPI has been ended in this process");
  MPI_Initialized(&started);
  if (started != 0) return;
  const char* marks[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_STEP_ID"};
  if (std::none_of(std::begin(marks), std::end(marks), [](const char* m) { return std::getenv(m) != nullptr; }))
    fail(DistError::Part::Backend,
         "mpi: this process was not started by mpirun or srun\nbackend=\"gloo\" needs no launcher of MPI");
  int given = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given), "mpi");
  if (given < MPI_THREAD_SERIALIZED)
    fail(DistError::Part::Backend, "mpi: this MPI cannot be called by several threads");
  std::atexit([] {
    const std::lock_guard lock(mpi_lock());
    if (!a_group_failed) MPI_Finalize();
  });
}

class MpiBackend final : public PairwiseBackend {
 public:
  explicit MpiBackend(const BackendPlace& place) : PairwiseBackend(place.rank, place.size), failure_(place.failure) {
    connect(place);
  }
  ~MpiBackend() override {
    const std::lock_guard lock(mpi_lock());
    int ended = 0;
    MPI_Finalized(&ended);
    if (ended == 0 && !a_group_failed) MPI_Comm_free(&communicator_);
  }

  const char* name() const noexcept override { return "mpi"; }
  bool polls() const noexcept override { return true; }

  void send(ConstBytes data, int peer, uint64_t tag, const Wait& wait) override {
    Requests requests(*this, wait);
    requests.send(data, peer, message_tag(tag, wait));
    requests.finish();
  }
  void recv(Bytes data, int peer, uint64_t tag, const Wait& wait) override {
    Requests requests(*this, wait);
    requests.recv(data, peer, message_tag(tag, wait));
    requests.finish();
  }
  int recv_any(Bytes data, uint64_t tag, const Wait& wait) override {
    const int mpi_tag = message_tag(tag, wait);
    MPI_Status status{};
    const auto since = Clock::now();
    for (Pause pause;; pause()) {
      int come = 0;
      {
        const std::lock_guard lock(mpi_lock());
        check_lost(wait);
        check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, mpi_tag, communicator_, &come, &status), wait.what.c_str());
      }
      if (come != 0) break;
      wait.poll(since, [this] {
        std::vector<int> others;
        for (int r = 0; r < size(); ++r)
          if (r != rank()) others.push_back(r);
        return others;
      });
    }
    recv(data, status.MPI_SOURCE, tag, wait);
    return status.MPI_SOURCE;
  }

  void abort(const std::string& why) noexcept override {
    failure_->set(why);
    a_group_failed = true;
  }

 private:
  // Between two questions to MPI: soon at first, for small messages of ranks that are all there.
  class Pause {
   public:
    void operator()() {
      constexpr int kYields = 200;
      if (++asked_ < kYields)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(std::min(asked_ - kYields + 1, 20) * 50));
    }

   private:
    int asked_ = 0;
  };

  // Sends and receives in progress. Those that are incomplete at its destruction are cancelled; if MPI cannot cancel
  // them, it is not called any more in this process.
  class Requests final : public Swap {
   public:
    Requests(MpiBackend& backend, const Wait& wait) : backend_(backend), wait_(wait) {}
    ~Requests() override { cancel(); }

    void send(ConstBytes data, int peer, int tag) {
      pieces(
          data.nbytes,
          [&](size_t first, int n, MPI_Request* request) {
            return MPI_Isend(static_cast<const char*>(data.data) + first, n, MPI_BYTE, peer, tag,
                             backend_.communicator_, request);
          },
          peer, false);
    }
    void recv(Bytes data, int peer, int tag) {
      pieces(
          data.nbytes,
          [&](size_t first, int n, MPI_Request* request) {
            return MPI_Irecv(static_cast<char*>(data.data) + first, n, MPI_BYTE, peer, tag, backend_.communicator_,
                             request);
          },
          peer, true);
    }
    void finish() override {
      const auto since = Clock::now();
      std::string failed;
      for (Pause pause;; pause()) {
        {
          const std::lock_guard lock(mpi_lock());
          backend_.check_lost(wait_);
          std::erase_if(open_, [&](Open& o) { return is_done(o, failed); });
        }
        if (!failed.empty()) fail(DistError::Part::Backend, "{}: {}", wait_.what, failed);
        if (open_.empty()) return;
        wait_.poll(since, [this] {
          std::vector<int> missing;
          for (const Open& o : open_)
            if (std::find(missing.begin(), missing.end(), o.peer) == missing.end()) missing.push_back(o.peer);
          return missing;
        });
      }
    }

   private:
    struct Open {
      MPI_Request request;
      int peer, nbytes;
      bool receives;
    };

    template <class F>
    void pieces(size_t nbytes, F&& start, int peer, bool receives) {
      const std::lock_guard lock(mpi_lock());
      backend_.check_lost(wait_);
      for (size_t first = 0; first == 0 || first < nbytes; first += kMostAtOnce) {
        const int n = static_cast<int>(std::min(kMostAtOnce, nbytes - first));
        open_.push_back({MPI_REQUEST_NULL, peer, n, receives});
        const int code = start(first, n, &open_.back().request);
        if (code != MPI_SUCCESS) open_.pop_back();
        check_mpi(code, wait_.what.c_str());
      }
    }
    // Whether it is over; what went wrong stays in `failed`.
    static bool is_done(Open& o, std::string& failed) {
      int done = 0, n = 0;
      MPI_Status status{};
      const int code = MPI_Test(&o.request, &done, &status);
      if (code != MPI_SUCCESS) {
        if (failed.empty()) failed = mpi_text(code);
        return true;
      }
      if (done == 0 || !o.receives) return done != 0;
      MPI_Get_count(&status, MPI_BYTE, &n);
      if (n != o.nbytes && failed.empty())
        failed = fmt::format("{} bytes were expected of rank {}: got {}", o.nbytes, o.peer, n);
      return true;
    }
    void cancel() noexcept {
      if (open_.empty()) return;
      const std::lock_guard lock(mpi_lock());
      a_group_failed = true;
      if (mpi_is_lost) return;
      for (Open& o : open_)
        if (o.request != MPI_REQUEST_NULL) MPI_Cancel(&o.request);
      const auto until = Clock::now() + Milliseconds(100);
      while (!open_.empty() && Clock::now() < until)
        std::erase_if(open_, [](Open& o) {
          int done = 1;
          return o.request == MPI_REQUEST_NULL || MPI_Test(&o.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
                 done != 0;
        });
      mpi_is_lost = !open_.empty();
    }

    MpiBackend& backend_;
    const Wait& wait_;
    std::vector<Open> open_;
  };

  std::unique_ptr<Swap> start(std::span<const ConstBytes> in, std::span<const Bytes> out, const Wait& wait) override {
    auto requests = std::make_unique<Requests>(*this, wait);
    const auto me = static_cast<size_t>(rank());
    for (size_t i = 1; i < ranks(); ++i)
      if (const size_t from = (me + ranks() - i) % ranks(); out[from].nbytes != 0)
        requests->recv(out[from], static_cast<int>(from), kSwapTag);
    for (size_t i = 1; i < ranks(); ++i)
      if (const size_t to = (me + i) % ranks(); in[to].nbytes != 0)
        requests->send(in[to], static_cast<int>(to), kSwapTag);
    return requests;
  }

  void check_lost(const Wait& wait) const {
    if (mpi_is_lost)
      fail(DistError::Part::Backend, "{}: MPI is not used any more in this process, since a call could not be ended",
           wait.what);
  }
  int message_tag(uint64_t tag, const Wait& wait) const {
    if (tag >= static_cast<uint64_t>(most_tag_))
      fail(DistError::Part::Backend, "{}: this MPI takes tags up to {}", wait.what, (most_tag_ - 1) / 2);
    return static_cast<int>(tag) + kSwapTag + 1;
  }

  // Ranks exchange their numbers in MPI's world through the store; once all have arrived, creating the communicator
  // does not wait.
  void connect(const BackendPlace& place) {
    {
      const std::lock_guard lock(mpi_lock());
      if (mpi_is_lost)
        fail(DistError::Part::Backend,
             "mpi: an earlier group has failed, and MPI is not used any more in this process");
      start_mpi();
      int own = 0;
      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
      check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &own), "mpi");
      place.store->set(fmt::format("mpi/{}", rank()), std::to_string(own));
    }
    std::vector<int> world;
    for (int r = 0; r < size(); ++r)
      world.push_back(std::stoi(place.store->get(fmt::format("mpi/{}", r), place.timeout)));
    place.failure->raise_if_set();
    const std::lock_guard lock(mpi_lock());
    for (size_t r = 0; r < ranks(); ++r)
      for (size_t other = 0; other < r; ++other)
        if (world[r] == world[other])
          fail(DistError::Part::Backend,
               "mpi: ranks {} and {} are not of one job of MPI: both are number {} of theirs\nis this Python's MPI "
               "that of the mpirun?",
               other, r, world[r]);
    MPI_Group all, members;
    check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &all), "mpi");
    int code = MPI_Group_incl(all, size(), world.data(), &members);
    MPI_Group_free(&all);
    check_mpi(code, "mpi");
    code = MPI_Comm_create_group(MPI_COMM_WORLD, members, 0, &communicator_);
    MPI_Group_free(&members);
    check_mpi(code, "mpi");
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    int* most = nullptr;
    int known = 0;
    MPI_Comm_get_attr(communicator_, MPI_TAG_UB, static_cast<void*>(&most), &known);
    most_tag_ = (known != 0 ? *most : 32767) - kSwapTag - 1;
  }

  std::shared_ptr<Failure> failure_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int most_tag_ = 0;
};

}  // namespace

}  // namespace tapegrad::distributed

// What libtapegrad looks up (distributed/backend.cpp).
extern "C" __attribute__((visibility("default"))) tapegrad::distributed::Backend* tapegrad_mpi_make(
    const tapegrad::distributed::BackendPlace& place) {
  return new tapegrad::distributed::MpiBackend(place);
}
