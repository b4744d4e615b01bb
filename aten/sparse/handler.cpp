// The handler of sparse tensors: rows that name a function for them (key `sparse`) lead there; the others refuse such
// a tensor, because there is no kernel for its device. A row with `sparse = "values"` is done on the values of its one
// tensor, and the form with out= of each by that without, whose result is written then: their step is the function.
#include "tapegrad/aten/dispatch/call.h"
#include "tapegrad/aten/sparse/products.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"

namespace tapegrad::sparse {
namespace {

using dispatch::Call;
using dispatch::Results;

void write_results(const Call& call) {
  const std::string_view id = dispatch::id_of(call.function);  // add_out
  const auto* listed = dispatch::find_function(id.substr(0, id.size() - std::string_view("_out").size()));
  TG_ASSERT(listed != nullptr);
  const dispatch::Function* whole = listed->function;
  const size_t inputs = whole->types.size();
  Results found;
  Call(*whole, call.stage, call.arguments.first(inputs)).run(whole->whole, found);
  for (size_t i = inputs; i < call.arguments.size(); ++i)
    write_to(call.function.name, call.arguments[i].tensor(), found.tensors[i - inputs]);
}

void on_values(const Call& call, Results& results) {
  const Tensor& given = call.arguments[0].tensor();
  const SparseImpl& impl = impl_of(given, call.function.name);
  const bool whole = impl.compressed() >= 0 || impl.coalesced(), writes = call.function.form == dispatch::Form::InPlace;
  TG_CHECK(whole || !writes, Runtime,
           "{}: expected a coalesced tensor, whose entries are one for each place\nuse coalesce() first",
           call.function.name);
  const Tensor t = whole ? given : coalesce(given);  // the function of a sum
  dispatch::ChangedArguments changed(call.arguments);
  changed.set_tensor(0, values(t));
  Call(call.function, call.stage, changed.arguments()).run(call.function.whole, results);
  if (!writes)
    for (Tensor& result : results.tensors) result = with_values(t, result);
}

void handle(Call& call, Results& results) {
  const dispatch::Function& f = call.function;
  if (f.sparse != f.whole) return call.run(f.sparse, results);
  f.form == dispatch::Form::Out ? write_results(call) : on_values(call, results);
}

const dispatch::Registration registration({dispatch::kOrderSparse, dispatch::Stage::Public, kKindSparse, &handle});

}  // namespace
}  // namespace tapegrad::sparse
