#include "tapegrad/distributed/watch.h"

#include <cstdlib>
#include <future>
#include <map>
#include <thread>

#include "tapegrad/c10/threads/fork.h"

namespace tapegrad::distributed {

std::string (*where_hook)() = nullptr;

namespace {

constexpr Milliseconds kGrace{1000};
constexpr Milliseconds kLong{3'600'000};

std::string note_key(int rank, int64_t number) { return fmt::format("note/{}/{}", rank, number); }

void send_note(Store& store, int rank, const std::string& text) {
  store.set(note_key(rank, store.add(fmt::format("notes/{}", rank), 1)), text);
}

}  // namespace

struct Watch::State {
  std::shared_ptr<Store> reading, writing;
  int rank, size;
  uint32_t generation = fork_generation();
  std::mutex mutex;  // guards what follows; taken while a callback runs, so that forget() waits for it
  std::map<uint64_t, OnFailure> listeners;
  uint64_t next = 1;
  std::atomic<bool> silent{false};  // the store did not answer the last question
  bool known = false, told = false, ends = false;
  std::string why;
  Milliseconds grace{};
  std::thread thread;

  void tell(const std::string& text, Milliseconds after) noexcept {
    const std::lock_guard lock(mutex);
    if (ends || (known && (after.count() != 0 || grace.count() == 0))) return;
    known = true;
    why = text;
    grace = after;
    for (auto& [number, f] : listeners) f(why, grace);
  }

  // On a separate thread, so that the failing rank can go on if the store's server does not answer.
  static void broadcast(const std::shared_ptr<State>& state, const std::string& note) noexcept try {
    {
      const std::lock_guard lock(state->mutex);
      if (state->told || state->generation != fork_generation()) return;
      state->told = true;
    }
    auto done = std::make_shared<std::promise<void>>();
    std::thread([state, note, done] {
      try {
        for (int r = 0; r < state->size; ++r)
          if (r != state->rank) send_note(*state->writing, r, note);
      } catch (const std::exception&) {  // the store has gone: its other clients see that themselves
      }
      done->set_value();
    }).detach();
    done->get_future().wait_for(state->silent ? Milliseconds(200) : Milliseconds(2000));
  } catch (const std::exception&) {  // no memory, no thread: those who wait reach their limit
  }

  void answer(const std::string& key) {
    if (where_hook == nullptr) return;
    // Getting the line needs the GIL, which a long call may hold: not on the thread that receives failures.
    std::thread([store = writing, key] {
      try {
        store->set(key, where_hook());
      } catch (const std::exception&) {
      }
    }).detach();
  }

  void run() noexcept {
    for (int64_t number = 1;; ++number) {
      try {
        const std::string note = reading->get(note_key(rank, number), kLong);
        if (note.starts_with("failed ")) tell(note.substr(7), Milliseconds{0});
        if (note.starts_with("left ")) tell(note.substr(5), kGrace);
        if (note.starts_with("where ")) answer(note.substr(6));
      } catch (const DistError& error) {
        {
          const std::lock_guard lock(mutex);
          if (ends) return;
        }
        if (error.part() == DistError::Part::Store) {  // an hour without a note
          --number;
          continue;
        }
        tell(fmt::format("the store of the job has gone ({})", error.what()), kGrace);
        return;
      } catch (const std::exception& error) {
        tell(fmt::format("rank {} can no longer hear of failures: {}", rank, error.what()), kGrace);
        return;
      }
    }
  }
};

Watch::Watch(const std::shared_ptr<Store>& store, int rank, int size) : state_(std::make_shared<State>()) {
  state_->reading = store->clone();
  state_->writing = store->clone();
  state_->writing->set_timeout(Milliseconds(1000));
  state_->rank = rank;
  state_->size = size;
  state_->reading->set_at_end("gone", fmt::format("{} ", rank));  // before other ranks learn of this one
  state_->thread = std::thread([state = state_] { state->run(); });
}

Watch::~Watch() {
  State& s = *state_;
  if (s.generation != fork_generation()) {  // a forked child has no such thread
    s.thread.detach();
    new std::shared_ptr<State>(state_);  // and its locks may stay held forever
    return;
  }
  {
    const std::lock_guard lock(s.mutex);
    s.ends = true;
    s.listeners.clear();
  }
  s.reading->close("the group was destroyed");
  s.thread.join();
}

int Watch::rank() const noexcept { return state_->rank; }

uint64_t Watch::add(OnFailure f) {
  const std::lock_guard lock(state_->mutex);
  if (state_->known) f(state_->why, state_->grace);
  state_->listeners.emplace(state_->next, std::move(f));
  return state_->next++;
}

void Watch::forget(uint64_t number) {
  if (state_->generation != fork_generation()) return;
  const std::lock_guard lock(state_->mutex);
  state_->listeners.erase(number);
}

void Watch::failed(const std::string& why) noexcept { State::broadcast(state_, "failed " + why); }

void Watch::left() noexcept {
  State::broadcast(
      state_, fmt::format("left rank {} has left: its process has ended or has destroyed the group", state_->rank));
}

std::vector<int> Watch::gone() noexcept try {
  std::vector<int> ranks;
  if (!state_->writing->check({"gone"})) return ranks;
  const std::string text = state_->writing->get("gone");
  for (const char* at = text.c_str(); *at != '\0';) {
    char* end = nullptr;
    ranks.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    if (end == at) break;
    at = *end == ' ' ? end + 1 : end;
  }
  return ranks;
} catch (const std::exception&) {
  return {};
}

std::string Watch::where(int rank, Milliseconds limit) noexcept try {
  Store& store = *state_->writing;
  const std::string key = fmt::format("where/{}/{}", rank, store.add(fmt::format("wheres/{}", rank), 1));
  send_note(store, rank, "where " + key);
  state_->silent = false;
  return store.get(key, limit);
} catch (const DistError& error) {
  state_->silent = error.part() == DistError::Part::Network;
  return "";
} catch (const std::exception&) {
  return "";
}

}  // namespace tapegrad::distributed
