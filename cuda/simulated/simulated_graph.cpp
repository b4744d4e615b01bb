// Captures of the simulated machine: the closures in the order in which they were queued, which is one that the real
// dependencies allow.
#include <utility>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/simulated/simulated_state.h"

namespace tapegrad::cuda::simulated {

namespace {

thread_local CaptureMode thread_mode = CaptureMode::Global;

CaptureMode mode_of(const std::string& name) {
  TG_CHECK(name == "global" || name == "thread_local" || name == "relaxed", Value,
           "cuda: begin_capture: the mode is one of global, thread_local, relaxed: got '{}'", name);
  return name == "global" ? CaptureMode::Global : name == "relaxed" ? CaptureMode::Relaxed : CaptureMode::ThreadLocal;
}

}  // namespace

CaptureMode SimulatedDriver::exchange_capture_mode(CaptureMode mode) noexcept {
  return std::exchange(thread_mode, mode);
}

void SimulatedDriver::forbid_in_capture(const char* call) {
  Lock lock(mutex_);
  refuse_in_any_capture(call);
}

void SimulatedDriver::refuse_in_any_capture(const char* call) {
  if (captures_.empty() || thread_mode == CaptureMode::Relaxed) return;
  bool refused = false;
  for (auto& [id, capture] : captures_) {
    const bool ours = capture->thread == std::this_thread::get_id();
    if (ours ? capture->mode == CaptureMode::Relaxed
             : capture->mode != CaptureMode::Global || thread_mode != CaptureMode::Global)
      continue;
    capture->invalid = refused = true;
  }
  TG_CHECK(!refused, Runtime, "cuda: {}: operation not permitted when stream is capturing", call);
}

void SimulatedDriver::begin_capture(StreamHandle handle, const char* mode) {
  Lock lock(mutex_);
  check("begin_capture");
  TG_CHECK(handle != nullptr, Runtime, "cuda: begin_capture: the default stream cannot be captured");
  SimulatedStream& stream = stream_of(handle);
  TG_CHECK(stream.capture == 0, Runtime, "cuda: begin_capture: the stream is being captured");
  auto capture = std::make_unique<Capture>();
  capture->mode = mode_of(mode);
  capture->origin = &stream;
  capture->streams.push_back(&stream);
  stream.capture = next_handle_++;
  stream.last_node = 0;
  stream.joined = true;
  captures_[stream.capture] = std::move(capture);
}

GraphHandle SimulatedDriver::end_capture(StreamHandle handle) {
  Lock lock(mutex_);
  check("end_capture");
  SimulatedStream& stream = stream_of(handle);
  auto it = captures_.find(stream.capture);
  TG_CHECK(it != captures_.end() && it->second->origin == &stream, Runtime,
           "cuda: end_capture: no capture was begun on this stream");
  TG_CHECK(it->second->mode == CaptureMode::Relaxed || it->second->thread == std::this_thread::get_id(), Runtime,
           "cuda: end_capture: attempt to terminate a thread-local capture sequence from another thread");
  std::unique_ptr<Capture> capture = std::move(it->second);
  captures_.erase(it);
  bool joined = true;
  for (SimulatedStream* s : capture->streams) {
    joined &= s->joined || s == &stream;
    s->capture = 0;
  }
  TG_CHECK(!capture->invalid, Runtime, "cuda: end_capture: operation failed due to a previous error during capture");
  TG_CHECK(joined, Runtime,
           "cuda: end_capture: capturing stream has unjoined work: wait for the other streams before the end");
  auto graph = reinterpret_cast<GraphHandle>(next_handle_++);
  graphs_[graph] = capture->graph;
  return graph;
}

CaptureState SimulatedDriver::capture_state(StreamHandle handle) {
  Lock lock(mutex_);
  const SimulatedStream& stream = stream_of(handle);
  if (stream.capture == 0) return CaptureState::None;
  return captures_.at(stream.capture)->invalid ? CaptureState::Invalid : CaptureState::Active;
}

uint64_t SimulatedDriver::capture_id(StreamHandle handle) {
  Lock lock(mutex_);
  return stream_of(handle).capture;
}

GraphExecHandle SimulatedDriver::instantiate(GraphHandle graph) {
  Lock lock(mutex_);
  check("instantiate");
  auto it = graphs_.find(graph);
  TG_CHECK(it != graphs_.end(), Runtime, "cuda: instantiate: no such graph");
  auto exec = reinterpret_cast<GraphExecHandle>(next_handle_++);
  execs_[exec] = it->second;
  return exec;
}

void SimulatedDriver::launch_graph(GraphExecHandle handle, StreamHandle stream) {
  std::shared_ptr<SimulatedGraph> graph;
  {
    Lock lock(mutex_);
    check("launch_graph");
    auto it = execs_.find(handle);
    TG_CHECK(it != execs_.end(), Runtime, "cuda: launch_graph: no such graph");
    graph = it->second;
  }
  for (const Recorded& node : graph->nodes) enqueue(stream, node.name, node.work);
}

std::size_t SimulatedDriver::graph_nodes(GraphHandle graph) {
  Lock lock(mutex_);
  auto it = graphs_.find(graph);
  TG_CHECK(it != graphs_.end(), Runtime, "cuda: graph_nodes: no such graph");
  return it->second->nodes.size();
}

std::string SimulatedDriver::graph_dot(GraphHandle graph) {
  Lock lock(mutex_);
  auto it = graphs_.find(graph);
  TG_CHECK(it != graphs_.end(), Runtime, "cuda: graph_dot: no such graph");
  std::string text = "digraph capture {\n";
  const auto& nodes = it->second->nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    text += "  n" + std::to_string(i) + " [label=\"" + nodes[i].name + "\"];\n";
    if (i > 0) text += "  n" + std::to_string(i - 1) + " -> n" + std::to_string(i) + ";\n";
  }
  return text + "}\n";
}

void SimulatedDriver::destroy_graph(GraphHandle graph) noexcept {
  Lock lock(mutex_);
  enter("destroy_graph");
  graphs_.erase(graph);
}

void SimulatedDriver::destroy_graph_exec(GraphExecHandle graph) noexcept {
  Lock lock(mutex_);
  enter("destroy_graph_exec");
  execs_.erase(graph);
}

}  // namespace tapegrad::cuda::simulated
