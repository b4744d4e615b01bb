// The short-time Fourier transform and its inverse.

#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_fft.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pad.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_fft.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad::composite {
namespace {

struct Frames {
  int64_t hop, window;
};

Frames checked_frames(const char* op, int64_t n_fft, std::optional<int64_t> hop, std::optional<int64_t> win,
                      const Tensor& window) {
  TG_CHECK(n_fft > 0, Runtime, "{}: n_fft must be positive: got {}", op, n_fft);
  Frames f{hop.value_or(n_fft / 4), win.value_or(n_fft)};
  TG_CHECK(f.hop > 0, Runtime, "{}: hop_length must be positive: got {}", op, f.hop);
  TG_CHECK(f.window > 0 && f.window <= n_fft, Runtime, "{}: win_length must be between 1 and n_fft, {}: got {}", op,
           n_fft, f.window);
  TG_CHECK(!window.defined() || (window.ndim() == 1 && window.size(0) == f.window), Runtime,
           "{}: window must have {} elements, which is win_length: got shape {}", op, f.window,
           window.defined() ? format_ints(window.sizes()) : std::string());
  return f;
}

// The window in the middle of n_fft samples; undefined where it is all ones.
Tensor centred(const Tensor& window, int64_t n_fft, int64_t length, DType dtype, Device device) {
  if (!window.defined() && length == n_fft) return {};
  Tensor w = window.defined() ? window : ones({length}, dtype, device);
  int64_t left = (n_fft - length) / 2;
  return length == n_fft ? w : constant_pad_nd(w, {left, n_fft - length - left}, 0);
}

void warn_without_window(const char* op, const Frames& f, const Tensor& window, const char* why) {
  if (!window.defined() && f.window > 1)
    warn(fmt::format(
        "{}: A window was not provided. A rectangular window will be applied, {}. To suppress this warning, "
        "give window=hann_window({}), or ones({}) where a rectangle is meant.",
        op, why, f.window, f.window));
}

}  // namespace

Tensor stft(const Tensor& input, int64_t n_fft, std::optional<int64_t> hop_length, std::optional<int64_t> win_length,
            const Tensor& window, bool center, std::string_view pad_mode, bool normalized, std::optional<bool> onesided,
            std::optional<bool> return_complex, std::optional<bool> align_to_window) {
  constexpr const char* op = "stft";
  TG_CHECK(input.is_floating_point() || input.is_complex(), Runtime,
           "{}: input must have a floating or complex dtype: got {}", op, input.dtype());
  TG_CHECK(input.ndim() == 1 || input.ndim() == 2, Runtime, "{}: input must have 1 or 2 dimensions: got shape {}", op,
           format_ints(input.sizes()));
  TG_CHECK(!(center && align_to_window), Runtime, "{}: align_to_window is for center=False", op);
  bool complex = input.is_complex() || (window.defined() && window.is_complex());
  TG_CHECK(return_complex || complex, Runtime,
           "{}: return_complex must be given for real input\nhint: return_complex=True gives complex numbers, and "
           "view_as_real of them is what False gives",
           op);
  Frames f = checked_frames(op, n_fft, hop_length, win_length, window);
  warn_without_window(op, f, window, "which is known to cause spectral leakage");
  bool half = onesided.value_or(!complex);
  TG_CHECK(!half || !complex, Runtime, "{}: onesided is for a real input and a real window", op);
  Tensor x = input.ndim() == 1 ? unsqueeze(input, 0) : input;
  if (center) {
    int64_t border = n_fft / 2;
    x = squeeze(pad(unsqueeze(x, 0), {border, border}, pad_mode), IntSpan{0});
  } else if (align_to_window.value_or(false)) {
    int64_t left = (n_fft - f.window) / 2;
    x = constant_pad_nd(x, {left, n_fft - f.window - left}, 0);
  }
  TG_CHECK(n_fft <= x.size(1), Runtime, "{}: n_fft must be at most the length of the signal, {}: got {}", op, x.size(1),
           n_fft);
  Tensor pieces = unfold(x, 1, n_fft, f.hop),
         w = centred(window, n_fft, f.window, to_real(input.dtype()), input.device());
  if (w.defined()) pieces = mul(pieces, w);
  std::optional<std::string_view> norm = normalized ? "ortho" : "backward";
  Tensor r =
      half ? tapegrad::fft_rfft(pieces, std::nullopt, -1, norm) : tapegrad::fft_fft(pieces, std::nullopt, -1, norm);
  r = transpose(r, 1, 2);
  if (input.ndim() == 1) r = squeeze(r, IntSpan{0});
  return return_complex.value_or(true) ? r : view_as_real(r);
}

Tensor istft(const Tensor& input, int64_t n_fft, std::optional<int64_t> hop_length, std::optional<int64_t> win_length,
             const Tensor& window, bool center, bool normalized, std::optional<bool> onesided,
             std::optional<int64_t> length, bool return_complex) {
  constexpr const char* op = "istft";
  TG_CHECK(input.is_complex(), Runtime,
           "{}: expected a complex tensor: got {}\nhint: view_as_complex makes one of pairs", op, input.dtype());
  TG_CHECK(input.ndim() == 2 || input.ndim() == 3, Runtime, "{}: input must have 2 or 3 dimensions: got shape {}", op,
           format_ints(input.sizes()));
  TG_CHECK(input.numel() > 0, Runtime, "{}: input is empty: shape {}", op, format_ints(input.sizes()));
  Frames f = checked_frames(op, n_fft, hop_length, win_length, window);
  warn_without_window(op, f, window, "which inverts stft where that had none either");
  Tensor x = transpose(input.ndim() == 2 ? unsqueeze(input, 0) : input, 1, 2);
  int64_t frames = x.size(1), bins = x.size(2);
  bool half = onesided.value_or(bins != n_fft);
  TG_CHECK(bins == (half ? n_fft / 2 + 1 : n_fft), Runtime, "{}: n_fft {} has {} frequencies: got {}", op, n_fft,
           half ? n_fft / 2 + 1 : n_fft, bins);
  TG_CHECK(!return_complex || !half, Runtime, "{}: a complex result needs all frequencies: onesided=False", op);
  TG_CHECK(return_complex || !window.defined() || !window.is_complex(), Runtime,
           "{}: a complex window needs return_complex=True", op);
  std::optional<std::string_view> norm = normalized ? "ortho" : "backward";
  if (return_complex) {
    x = tapegrad::fft_ifft(x, std::nullopt, -1, norm);
  } else {
    x = tapegrad::fft_irfft(half ? x : narrow(x, -1, 0, n_fft / 2 + 1), n_fft, -1, norm);
  }
  Tensor w = centred(window, n_fft, f.window, to_real(input.dtype()), input.device());
  if (!w.defined()) w = ones({n_fft}, to_real(input.dtype()), input.device());
  TG_CHECK(f.hop <= (int64_t{1} << 56) / frames && n_fft <= int64_t{1} << 56, Runtime,
           "{}: {} frames at hop_length {} are too long a signal", op, frames, f.hop);
  int64_t total = n_fft + f.hop * (frames - 1);
  Tensor y = _unfold_backward(mul(x, w), {x.size(0), total}, 1, n_fft, f.hop);
  Tensor weight = _unfold_backward(expand(square(w), {1, frames, n_fft}), {1, total}, 1, n_fft, f.hop);
  int64_t start = center ? n_fft / 2 : 0, end = total - (center ? n_fft / 2 : 0);
  if (length) {
    TG_CHECK(*length > 0, Runtime, "{}: length must be positive: got {}", op, *length);
    end = *length > total - start ? total : start + *length;
    if (*length > end - start)
      warn(
          fmt::format("{}: The length of signal is shorter than the length parameter: {} samples and {}. Zeros are "
                      "put at its end. Please check your center and hop_length settings.",
                      op, end - start, *length));
  }
  TG_CHECK(start < end, Runtime, "{}: nothing is left of the signal of {} samples", op, total);
  y = narrow(y, 1, start, end - start);
  weight = narrow(weight, 1, start, end - start);
  if (!weight.is_meta()) {
    double least = raw::amin(raw::abs(weight.detach())).item<double>();
    TG_CHECK(!(least <= 1e-11), Runtime, "{}: the squared windows must not add up to zero: the smallest sum is {}", op,
             least);
  }
  y = div(y, weight);
  if (length && *length > end - start) y = constant_pad_nd(y, {0, *length - (end - start)}, 0);
  return input.ndim() == 2 ? squeeze(y, IntSpan{0}) : y;
}

}  // namespace tapegrad::composite
