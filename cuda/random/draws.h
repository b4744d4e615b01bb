// The numbers of a random call, as kernels are given them. A graph is to draw others at each replay, so what is
// recorded reads where the replay begins from memory of the device (draws.cu writes it there before each replay);
// everything else gets plain values.
#pragma once

#include "tapegrad/c10/generator.h"
#include "tapegrad/cuda/launch/launch.h"

namespace tapegrad::cuda {

struct DrawState {
  PhiloxState call;                     // of a graph: counted from the beginning of a replay
  const PhiloxState* replay = nullptr;  // of the device
  TG_DEVICE operator PhiloxState() const {
    return replay == nullptr ? call : PhiloxState{replay->seed, replay->offset + call.offset};
  }
};

// What the kernels of a call are given whose state the generator (null: the default one) made last. Raises Runtime
// where the generator was seeded while a graph is being recorded: no replay could repeat that.
TG_API DrawState draw_state(const PhiloxState& state, const GeneratorPtr& generator, Device device);

// --- for graphs; interface.cpp calls these beside the driver's functions of the same names ---
void begin_draws(Stream stream);
// Generators go back to where the capture found them, since nothing has been drawn. A null graph: the capture failed.
void end_draws(Stream stream, GraphHandle graph);
void instantiate_draws(GraphHandle graph, GraphExecHandle exec);
// The generators of the graph go on by what one replay draws, which begins where they are now.
void launch_draws(GraphExecHandle exec, Stream stream);
void forget_draws(const void* graph_or_exec) noexcept;

}  // namespace tapegrad::cuda
