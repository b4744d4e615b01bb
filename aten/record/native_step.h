// A native step: what the program of a recorded step did above the kernels, written down while it was recorded: which
// functions of operators it called, where it ran a backward pass, an optimizer's step, and which sizes it asked for.
// Done again with arguments of other sizes it needs no Python, for the functions find the sizes of what they make
// themselves. In a dry run (DryRun) no kernel runs: what comes of it is a recording of a step of these sizes.
//
// Integers that the program has computed from sizes are followed, from where it read them to where a function takes
// them. It is valid for sizes for which everything that the program asked for has the same answer as when it was
// written down: sizes that it read, how many tensors a function gave, whether a gradient was there. Else run() raises.
#pragma once

#include "tapegrad/aten/dispatch/call.h"
#include "tapegrad/aten/record/recording.h"

namespace tapegrad::record {

// What of the geometry of a tensor the program asked for; from 0 on: the size of this dimension.
enum SizeAsked : int { kAskedSizes = -1, kAskedNdim = -2, kAskedNumel = -3, kAskedGeometry = -4 };

class TG_API NativeStep {
 public:
  // `numbers`: integers that may follow from sizes.
  using Code = std::function<std::vector<Tensor>(std::span<Tensor> operands, std::span<const int64_t> numbers)>;
  struct Place {
    int argument, item, value;
  };
  // An integer among the arguments that is a symbol: one that follows from sizes.
  struct Followed {
    int argument, item, symbol;
  };
  struct Term {
    int symbol;     // -1: the number
    int64_t value;  // as it was recorded
  };
  struct Operation {
    enum class Kind : uint8_t { Function, Code, Host, Size, Gradient, Number };
    Kind kind = Kind::Function;
    uint32_t modes = 0;  // of kModeGradMask
    std::string line;    // of the program
    std::vector<int> results;
    std::vector<int> same;  // which operand each result is itself, or -1
    // Function
    const dispatch::Function* function = nullptr;
    std::vector<Value> arguments;  // tensors of it are undefined, but for numbers
    std::vector<Place> tensors;
    decltype(dispatch::Results::number) number;
    std::vector<Followed> followed;  // of Code: item of `numbers`
    DimVector numbers;
    // Code, Size
    std::vector<int> operands;
    Code code;
    std::string name;
    int asked = 0;
    DimVector answer;
    int symbol = -1;  // Size, Number: the first one that it makes; -1: the answer must be the same
    // Number
    char rule = 0;
    Term terms[2] = {};
    // Host
    std::vector<const void*> key;
    std::function<void()> host;
    bool repeatable = false;
    std::function<HostParts()> parts;
    // Gradient
    Tensor leaf;
    bool defined = false;
  };
  struct Constant {
    int value;
    Tensor tensor;
    bool made = false;  // by the host, in each step anew
  };

  // The results, on the tape where they were. Raises Runtime where something is not as it was, and what functions
  // raise.
  std::vector<Tensor> run(TensorSpan feeds) const;

  std::vector<Operation> operations;
  std::vector<Constant> constants;
  std::vector<int> inputs, outputs;
  std::vector<std::pair<int, int>> given_back;  // arguments that a function has given back, and as which value
  bool tells_apart = false;                     // the program may tell tensors apart by identity
  std::vector<size_t> last_use;                 // of each value
  size_t symbols = 0;
  std::vector<Tensor> leaves;  // whose gradients it may touch
};

// Writes one down, of what this thread does from its construction to finish() or its end, while `recorder` records.
class TG_API NativeTrace {
 public:
  NativeTrace(TensorSpan feeds, Recorder& recorder);
  ~NativeTrace();
  NativeTrace(const NativeTrace&) = delete;
  NativeTrace& operator=(const NativeTrace&) = delete;

  void tells_apart() noexcept { step_->tells_apart = true; }
  // Null where the program did something that cannot be written down: reason() says what.
  std::unique_ptr<NativeStep> finish(TensorSpan outputs);
  const std::string& reason() const noexcept { return reason_; }

  // The one of this thread that writes now, or null.
  static NativeTrace* now() noexcept;
  static bool lives() noexcept;  // of this thread, also while its mode is off

  void call(dispatch::Call& call, dispatch::Results& results);
  std::vector<Tensor> code(std::string name, std::vector<Tensor> operands, DimVector numbers, NativeStep::Code code);
  void host(const Call& call);
  void asked(const Tensor& t, const char* what, int which);
  void gradient(const Tensor& leaf, const Tensor& grad, bool known);
  void add_leaf(const Tensor& leaf);
  void refuse(std::string reason);  // the first one counts

  // The program reads sizes, and where the numbers go is followed: the first of the symbols for them, or -1.
  int follow(const Tensor& t, const char* what, int which);
  int next_symbol() const noexcept { return static_cast<int>(step_ ? step_->symbols : 0); }
  // Symbols as objects of the program have them, which may outlive the step: those of another one are none here, -1.
  int64_t outside(int symbol) const noexcept { return symbol < 0 ? -1 : first_ + symbol; }
  int inside(int64_t symbol) const noexcept {
    return symbol < first_ || symbol - first_ >= next_symbol() ? -1 : static_cast<int>(symbol - first_);
  }
  // What the program computes: "+-*/%" (as `//` and `%` of Python) give a symbol, comparisons "<l=!>g" -1: they must
  // come out as they did.
  int number(char rule, NativeStep::Term a, NativeStep::Term b);
  // The number must be the same; -1: there is none.
  void pin(int symbol);
  // A function is about to be given this number.
  void given(NativeStep::Term number);
  void pin_given();  // what no function has taken
  bool has_given() const noexcept { return !given_.empty(); }

 private:
  struct Info {
    const StorageImpl* storage;
    DType dtype;
    ptrdiff_t offset;
    DimVector sizes, strides;
    bool operator==(const Info&) const = default;
  };
  static Info info_of(const Tensor& t);
  int add(const Tensor& t);
  int value_of(const Tensor& t);
  void stop() noexcept;
  std::vector<int> match(const std::vector<int64_t>& integers);
  NativeStep::Operation& operation(NativeStep::Operation::Kind kind);

  std::unique_ptr<NativeStep> step_;
  std::string reason_;
  Recorder& recorder_;
  std::vector<Info> values_;
  PointerMap value_of_, memory_;                       // of tensors; of storages, their first value
  std::vector<weak_intrusive_ptr<StorageImpl>> kept_;  // whose addresses must not be given to others
  std::vector<const TensorImpl*> feeds_;
  const int64_t first_;                  // outside, of the first symbol
  std::vector<int64_t> symbols_;         // their values
  std::vector<std::string> origins_;     // and where they were read or computed
  std::vector<NativeStep::Term> given_;  // to the next function
};

// Calls code above the kernels that makes tensors of tensors, and writes it down as one operation. `code` may be called
// in each later dry run.
TG_API std::vector<Tensor> native_call(std::string name, std::vector<Tensor> operands, NativeStep::Code code,
                                       DimVector numbers = {});
namespace detail {
TG_API TG_COLD void size_asked(const Tensor& t, const char* what, int which);
}
// The program asks for sizes, and may go on by them.
inline void note_size(const Tensor& t, const char* what, int which) {
  if (TG_UNLIKELY(active())) detail::size_asked(t, what, which);
}

// While it lives, calls of this thread are recorded and not made: no kernel runs, no optimizer steps. Gradients of
// `leaves` and the places of generators are put back at its end.
class TG_API DryRun {
 public:
  DryRun(std::span<const Tensor> leaves, std::span<const DrawnFrom> generators);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;
  static bool active() noexcept;

 private:
  std::vector<std::pair<Tensor, Tensor>> gradients_;
  std::vector<std::pair<intrusive_ptr<Generator>, uint64_t>> offsets_;
};

}  // namespace tapegrad::record
