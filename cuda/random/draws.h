// The state of a random call as passed to kernels. A graph must draw other numbers at each replay, so captured kernels
// read the replay's starting state from device memory (draws.cu writes it there before each replay); all others get
// plain values.
#pragma once

#include "tapegrad/c10/random/generator.h"
#include "tapegrad/cuda/launch/launch.h"

namespace tapegrad::cuda {

struct DrawState {
  PhiloxState call;                     // of a graph: counted from the beginning of a replay
  const PhiloxState* replay = nullptr;  // of the device
  TG_DEVICE operator PhiloxState() const {
    return replay == nullptr ? call : PhiloxState{replay->seed, replay->offset + call.offset};
  }
};

// The draw state for kernels of the call whose state the generator (null: the default one) returned last. Raises
// Runtime if the generator was seeded while a graph is being captured: a replay could not repeat that.
TG_API DrawState draw_state(const PhiloxState& state, const GeneratorPtr& generator, Device device);

// --- for graphs; interface.cpp calls these beside the driver's functions of the same names ---
void begin_draws(Stream stream);
// Resets the generators to their state before the capture, since nothing has been drawn. A null graph: the capture
// failed.
void end_draws(Stream stream, GraphHandle graph);
void instantiate_draws(GraphHandle graph, GraphExecHandle exec);
// Starts a replay at the current state of the graph's generators, and advances them by the draws of one replay.
void launch_draws(GraphExecHandle exec, Stream stream);
void forget_draws(const void* graph_or_exec) noexcept;

}  // namespace tapegrad::cuda
