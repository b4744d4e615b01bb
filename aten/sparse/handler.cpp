// The handler of sparse tensors: rows that name a function for them (key `sparse`) lead there; the others refuse such
// a tensor, because there is no kernel for its device.
#include "tapegrad/aten/dispatch/call.h"

namespace tapegrad::sparse {
namespace {

void handle(dispatch::Call& call, dispatch::Results& results) { call.run(call.function.sparse, results); }

const dispatch::Registration registration({dispatch::kOrderSparse, dispatch::Stage::Public, kKindSparse, &handle});

}  // namespace
}  // namespace tapegrad::sparse
