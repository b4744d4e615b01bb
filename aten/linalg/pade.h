// Padé approximants of the exponential: N. J. Higham, The scaling and squaring method for the matrix exponential
// revisited, SIAM J. Matrix Anal. Appl. 26 (2005). Bounds and coefficients are those of its tables 2.3 and 10.4.
#pragma once

#include <span>
#include <type_traits>

namespace tapegrad::pade {

struct Degree {
  int degree;
  double theta;  // the largest 1-norm for which the approximant is exact to rounding
  double b[14];
};

inline constexpr Degree kDouble[] = {
    {3, 1.495585217958292e-2, {120, 60, 12, 1}},
    {5, 2.539398330063230e-1, {30240, 15120, 3360, 420, 30, 1}},
    {7, 9.504178996162932e-1, {17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1}},
    {9, 2.097847961257068, {17643225600., 8821612800., 2075673600, 302702400, 30270240, 2162160, 110880, 3960, 90, 1}},
    {13,
     5.371920351148152,
     {64764752532480000., 32382376266240000., 7771770303897600., 1187353796428800., 129060195264000., 10559470521600.,
      670442572800., 33522128640., 1323241920, 40840800, 960960, 16380, 182, 1}}};
inline constexpr Degree kSingle[] = {{3, 4.258730016922831e-1, {120, 60, 12, 1}},
                                     {5, 1.880152677804762, {30240, 15120, 3360, 420, 30, 1}},
                                     {7, 3.925724783138660, {17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1}}};

// For real numbers of type R, or complex ones of them, in ascending order.
template <class R>
std::span<const Degree> degrees() {
  if constexpr (std::is_same_v<R, float>)
    return kSingle;
  else
    return kDouble;
}

}  // namespace tapegrad::pade
