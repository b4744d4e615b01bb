#include "tapegrad/c10/kernel_table.h"

namespace tapegrad {

void throw_no_kernel(OpId op, Device device) {
  TG_THROW(NotImplemented, "{}: there is no kernel for tensors on {}", op_names[op], device);
}

}  // namespace tapegrad
