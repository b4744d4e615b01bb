// A program: the functions of operators that one run of some code called, in order, and the values that went from one
// to the next. It runs again without that code, can be written to a file and read (nn/files/program_file.h), cut down
// to what some of its values need, and made valid for other sizes of its inputs.
//
// Values are numbered: inputs, constants (weights, and tensors that the code made on the host), results. A program is
// what one run did: conditions that the code made on sizes or on its own state are not in it.
//
// Not changed after it was made, so threads may run one at the same time.
#pragma once

#include <memory>
#include <string>

#include "tapegrad/aten/dispatch/function.h"
#include "tapegrad/aten/record/value.h"

namespace tapegrad::record {

class TG_API Program {
 public:
  struct ValueInfo {
    std::string name;
    DType dtype = DType::float32;
    DimVector sizes;
    int memory = -1;       // values of one number may share memory
    Tensor constant;       // else undefined
    bool written = false;  // a call writes to its memory: each run has a copy of such a constant or fed value
  };
  // Where a call takes a value: an argument, or an item of one that is a list.
  struct Place {
    int argument, item, value;
  };
  // An integer among the arguments that depends on sizes of the inputs: the recorded one, and for each set of symbols
  // (bits) what it changes by for the product of how much they differ from theirs.
  struct Fit {
    int argument, item;
    int64_t recorded;
    std::vector<std::pair<uint32_t, int64_t>> terms;
  };
  // A choice: argument 0 is a list of the predicate, 1 and 2 are what its bodies take, the first where it holds. A
  // loop: argument 0 is what is carried, and 1 and 2 what the bodies (predicate and turn) take behind that.
  enum class Control : uint8_t { None, Cond, While };
  struct Operation {
    std::string_view id() const noexcept;
    const dispatch::Listed* function = nullptr;  // none: control flow
    Control control = Control::None;
    std::vector<std::shared_ptr<Program>> bodies;
    std::vector<Value> arguments;  // tensors of it are undefined, but for numbers
    std::vector<Place> tensors;
    std::vector<Fit> fits;
    std::vector<int> results;
    std::string line;  // of the code; not written to files
  };
  // A size that may change: dimension `dim` of inputs, which was `recorded`.
  struct Symbol {
    std::string name;
    int64_t recorded = 0;
    std::vector<std::pair<int, int>> places;  // which of the inputs, and the dimension
  };

  std::vector<ValueInfo> values;
  std::vector<int> inputs, outputs;
  std::vector<Operation> operations;
  std::vector<Symbol> symbols;

  // Raises Type or Value where an input has another dtype or size than the program is valid for, with its name.
  void check(TensorSpan given) const;
  // The outputs for these inputs, one for each of `inputs`, operator by operator; on the tape where it is on and inputs
  // or constants need a gradient. Raises what check() and the operators raise.
  std::vector<Tensor> run(TensorSpan given) const;
  // As a body, of inputs that are right: `sizes` are those of the symbols.
  std::vector<Tensor> run(TensorSpan given, const std::vector<int64_t>& sizes) const;
  // The calls that `fetches` need where the values `feeds` are given in place of the inputs. Raises Value where an
  // input that is not among them is needed.
  std::unique_ptr<Program> part(std::span<const int> feeds, std::span<const int> fetches) const;
  // The number of a value by its name; raises Key.
  int value(std::string_view name) const;

  // Makes it valid for other sizes. `others`: programs of the same code in which the symbols of the subset i + 1 (bits)
  // are larger by one, for all subsets; the last one, for a check, has all of them larger by three. Raises Value, with
  // the call, where something depends on the sizes in another way.
  void generalize(std::vector<Symbol> changing, std::span<const std::shared_ptr<Program>> others);
  // One line per call.
  std::string text() const;

 private:
  std::vector<int64_t> sizes_of(TensorSpan given) const;
};

}  // namespace tapegrad::record
