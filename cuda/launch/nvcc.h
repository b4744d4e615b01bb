// Included before every .cu file by nvcc's command line (cmake/TapegradCuda.cmake). Of g++'s builtins that the functors
// use nvcc has no isunordered for the device: called there, it would be taken for undefined behaviour and removed with
// what depends on it. The compiler says so in a warning, and warnings are errors.
#pragma once

#include <cmath>

#include "tapegrad/cuda/launch/complex_operators.h"

#define __builtin_isunordered(x, y) ((x) != (x) || (y) != (y))
