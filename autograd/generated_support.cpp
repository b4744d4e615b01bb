#include "tapegrad/autograd/generated_support.h"

namespace tapegrad::autograd {

void throw_recorded_out(const char* op) {
  TG_THROW(Runtime,
           "{}: out=... does not support automatic differentiation, but one of the arguments requires grad\n"
           "hint: use no_grad, or the form without out=",
           op);
}

}  // namespace tapegrad::autograd
