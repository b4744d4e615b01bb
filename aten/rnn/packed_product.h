// Products of few rows with one matrix that stays the same over many steps. The matrix is packed once into panels as
// wide as two vectors, so that a step streams through it; a library's product would repack it in every step. Each row
// of the result is summed in the same order however the rows are distributed over threads. Compiled per instruction
// set.
#pragma once

#include <algorithm>

#include "tapegrad/aten/linalg/product/gemm.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {

// Sums are in the compute type. Of 16-bit numbers the panels hold floats, or pairs of bfloat16, of two rows each, where
// the processor multiplies these: a step of the loops over k is a row of the matrix or such a pair.
template <class T>
class PackedMatrix {
 public:
  using C = compute_t<T>;

  // b has k rows and n columns.
  PackedMatrix(MatrixRef<T> b, int64_t k, int64_t n);

  // c (m x n, rows ldc apart) = a (m x k, rows lda apart) * b, added to c where asked, on the calling thread.
  void multiply(int64_t m, const T* a, int64_t lda, C* c, int64_t ldc, bool add) const;

 private:
  int64_t k_, n_;
  bool pairs_;
  int64_t steps_;
  Tensor holder_;
};

// c (m x n, in the compute type) = a * b, or that + c, shared out to threads.
template <class T>
void threaded_sums(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<T> b, bool add, compute_t<T>* c,
                   int64_t ldc);

// The product for the rows of all steps at once, shared out to threads.
template <class T>
void tall_product(int64_t m, int64_t k, int64_t n, const T* a, int64_t lda, MatrixRef<T> b, compute_t<T>* c,
                  int64_t ldc);

// The number of sequences that a thread takes through all steps together, at most so many: each step reads the whole
// matrix, so that large ones are read as seldom as possible. It may depend on the number of threads, since it changes
// no sum.
inline constexpr int64_t kMostSequences = 64;
inline int64_t sequences_per_chunk(int64_t sequences, int64_t matrix_bytes) {
  const int64_t chunks = get_num_threads() * (matrix_bytes > (1 << 20) ? 1 : 2);
  return std::clamp<int64_t>((sequences + chunks - 1) / chunks, 8, kMostSequences);
}

// The number of steps from which packing the matrix pays off.
inline constexpr int64_t kPackedSteps = 4;

}  // namespace tapegrad::cpu::TG_ISA
