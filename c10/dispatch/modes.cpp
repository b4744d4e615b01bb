#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::detail {
constinit thread_local uint32_t modes __attribute__((tls_model("initial-exec"))) = 0;
}
