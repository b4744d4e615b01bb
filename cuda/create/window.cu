// Windows and frequencies (rows of fft.toml), computed in double as on the CPU.
#include "tapegrad/aten/fft/window_values.h"
#include "tapegrad/cuda/create/sequence.h"
#include "tapegrad/cuda/kernels.h"

namespace tapegrad::cuda {

#define TG_NAMED(name) name##_cuda
TG_WINDOW_KERNELS(TG_NAMED, sequence<double>)

}  // namespace tapegrad::cuda
