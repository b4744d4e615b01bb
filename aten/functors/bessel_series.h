// Bessel functions J and I of orders 0 and 1 as Chebyshev series: the same steps for every argument, so that g++ makes
// vectors of loops over them. Coefficients were computed in 40 digits (mpmath: values at 64 or more nodes,
// DLMF 3.11.11) from the functions' definitions, and cut at 1e-17; up to 8 of (J0 - 1) / x^2 and J1 / x in x^2 and of
// (e^-x I0 - 1) / x and e^-x I1 / x in x, from 8 on of the modulus and phase parts of J (DLMF 10.17.3, 10.17.4) in 1 /
// x^2 and of sqrt(x) e^-x I in 1 / x. Absolute errors of J and relative ones of I are below 1e-14; float takes as many
// coefficients as it has digits.
#pragma once

#include "tapegrad/aten/functors/math.h"

namespace tapegrad::fn::bessel {

#if defined(__CUDACC__)
#define TG_UNROLLED
#else
#define TG_UNROLLED _Pragma("GCC unroll 32")
#endif

// c[0] / 1 + c[1] T1(t) + ... by Clenshaw's recurrence (DLMF 3.11.15).
template <int kUsed, int N>
TG_HD inline double chebyshev(const double (&c)[N], double t) {
  constexpr int kFirst = kUsed < N ? kUsed : N;
  double here = 0, above = 0;
  TG_UNROLLED for (int k = kFirst - 1; k > 0; --k) {
    const double next = 2 * t * here - above + c[k];
    above = here;
    here = next;
  }
  return t * here - above + c[0];
}

// J_order for |x| <= infinity; NaN gives NaN.
template <class T, int kOrder>
TG_HD inline double bessel_j(double x) {
  // Within the function: code for GPUs sees no arrays outside of it.
  constexpr double kNearJ0[] = {-0.077766209429742085,   0.1028904170766648,      -0.050793630440898698,
                                0.015270507130341145,    -0.0028783209368242034,  0.00036532863906334038,
                                -3.3196929515532644e-5,  2.2639743094501873e-6,   -1.2015449125992107e-7,
                                5.1052243824723881e-9,   -1.7763924015812512e-10, 5.1563431056007952e-12,
                                -1.2679171293102721e-13, 2.6755168109244327e-15,  -4.898861188519179e-17};
  constexpr double kNearJ1[] = {
      0.081044846325658115,   -0.14897514506765211,    0.1609992623572097,     -0.082680491766817907,
      0.022213639654966035,   -0.003646940600769276,   0.00040503377283548218, -3.2555548668572585e-5,
      1.9858774049915167e-6,  -9.5219847567504362e-8,  3.6871337590971482e-9,  -1.1780266226958848e-10,
      3.1601545803480033e-12, -7.2217552396517734e-14, 1.4232144003513942e-15, -2.4441972916190464e-17};
  constexpr double kP0[] = {0.99946034934751867,     -0.00053652204681321174, 3.0751847875194746e-6,
                            -5.1705945376060977e-8,  1.6306464635151383e-9,   -7.86409137723707e-11,
                            5.1682623873491925e-12,  -4.3045788699253912e-13, 4.3265957431549406e-14,
                            -5.0690340959352361e-15, 6.7480722157338737e-16,  -1.0011513723467786e-16,
                            1.6305919233744185e-17};
  constexpr double kQ0[] = {-0.015555854605337009,   6.8385199426116496e-5,  -7.4144984110606473e-7,
                            1.7972457247968992e-8,   -7.27191593686632e-10,  4.2201219046687384e-11,
                            -3.2067474209966347e-12, 3.0061451253517063e-13, -3.336328185322427e-14,
                            4.2552250402454611e-15,  -6.09993013164005e-16,  9.6621289703032567e-17,
                            -1.6686065214378146e-17};
  constexpr double kP1[] = {1.0009030408600137,      0.00089898983308594086,  -3.9872843004889085e-6,
                            6.1776339606442985e-8,   -1.8718907491063066e-9,  8.8168986595823389e-11,
                            -5.7048636403956447e-12, 4.6991955152305424e-13,  -4.6842237839904892e-14,
                            5.4526748960447172e-15,  -7.2211808422740179e-16, 1.0667689114335412e-16,
                            -1.7312313216116335e-17};
  constexpr double kQ1[] = {0.046777787069535325,    -9.6277235491570793e-5,  9.1386152579554541e-7,
                            -2.0959781384083422e-8,  8.2291933276505541e-10,  -4.6863636881769452e-11,
                            3.5152187949686081e-12,  -3.2643156743278999e-13, 3.5967765829165292e-14,
                            -4.5612523950772972e-15, 6.508282957783384e-16,   -1.0269147531823243e-16,
                            1.7676355487764792e-17};
  constexpr int kNear = sizeof(T) <= 4 ? 12 : 32, kFar = sizeof(T) <= 4 ? 5 : 32;
  const double m = math::magnitude(x);
  const double u = m <= 8 ? x * x / 32 - 1 : 1;
  const double near = kOrder == 0 ? 1 + x * x * chebyshev<kNear>(kNearJ0, u) : x * chebyshev<kNear>(kNearJ1, u);
  const double far_x = m > 8 ? m : 8, z = 8 / far_x, v = 2 * z * z - 1;
  const double p = kOrder == 0 ? chebyshev<kFar>(kP0, v) : chebyshev<kFar>(kP1, v);
  const double q = z * (kOrder == 0 ? chebyshev<kFar>(kQ0, v) : chebyshev<kFar>(kQ1, v));
  // x - pi/4 and x - 3 pi/4 from the sine and cosine of x, which know x exactly.
  // The cosine is that of an argument with a sign: g++ would join the two into one call, which has no vector form.
  const double s = math::sin(far_x), c = math::cos(x < 0 ? -far_x : far_x), scale = 1 / math::sqrt(math::kPi * far_x);
  const double cosine = kOrder == 0 ? c + s : s - c, sine = kOrder == 0 ? s - c : -(s + c);
  const double far = scale * (p * cosine - q * sine);
  const double value = m <= 8 ? near : kOrder == 1 && x < 0 ? -far : far;
  return m > std::numeric_limits<double>::max() ? 0 : x == x ? value : x;
}

// e^-|x| I_order(x).
template <class T, int kOrder>
TG_HD inline double scaled_bessel_i(double x) {
  constexpr double kNearI0[] = {
      -0.34079544562255068,    0.35078970984747039,    -0.17232986462143861,    0.079680470156511215,
      -0.034481624215607645,   0.01393542039453943,    -0.0052579239764209492,  0.0018536577555999675,
      -0.00061154653230427377, 0.00018917311747924792, -5.4987489923513263e-5,  1.5053304915699431e-5,
      -3.8900949582961173e-6,  9.5110903625725223e-7,  -2.2049229344776242e-7,  4.8569320198324461e-8,
      -1.0186039645917094e-8,  2.0377342062193218e-9,  -3.8955381645278958e-10, 7.1285289027450704e-11,
      -1.2506541683874972e-11, 2.1068395171654257e-12, -3.4126880766365756e-13, 5.3224429726709367e-14,
      -8.0023909453576448e-15, 1.1612796570306011e-15, -1.6283480770028315e-16, 2.2085601147531738e-17};
  constexpr double kNearI1[] = {
      0.12629359322181683,    -0.17641651835783406,    0.1026436586898471,     -0.052945981208094991,
      0.024726449030626517,   -0.010564084894626198,   0.0041564229443128882,  -0.0015135724506312531,
      0.00051228595616857577, -0.00016176081582589675, 4.7815651075500542e-5,  -1.3273163656039436e-5,
      3.4702513081376785e-6,  -8.5687202646954547e-7,  2.0032947535521353e-7,  -4.4450591287963281e-8,
      9.3815373864957718e-9,  -1.8872497517228293e-9,  3.625590281552117e-10,  -6.6634897235020277e-11,
      1.1736186298890902e-11, -1.9839743977649437e-12, 3.2237933659455747e-13, -5.0421855047279117e-14,
      7.6006842947354069e-15, -1.1055969477353863e-15, 1.5536319577362005e-16, -2.1114212143581661e-17};
  constexpr double kFarI0[] = {
      0.40224520550705442,     0.0033691164782556941,   6.889758346916824e-5,    2.8913705208347565e-6,
      2.0489185894690637e-7,   2.2666689904981781e-8,   3.3962320257083863e-9,   4.9406023882249696e-10,
      1.1889147107846438e-11,  -3.1499165279632414e-11, -1.3215811840447713e-11, -1.7941785315068061e-12,
      7.1801244513836662e-13,  3.8527783827421427e-13,  1.5400862175214098e-14,  -4.1505693472872221e-14,
      -9.5548466988283076e-15, 3.8116806693526224e-15,  1.7725601330565264e-15,  -3.4254856196772191e-16,
      -2.8276239805165835e-16, 3.4612228676974611e-17,  4.46562142029676e-17};
  constexpr double kFarI1[] = {
      0.38928811750914006,     -0.0097610974913614684,  -0.00011058893876262372, -3.8825648088776904e-6,
      -2.5122362378702089e-7,  -2.6314688468895195e-8,  -3.835380385964237e-9,   -5.5897434621965838e-10,
      -1.8974958123505412e-11, 3.2526035830154882e-11,  1.4125807436613781e-11,  2.0356285441470895e-12,
      -7.1985517762459085e-13, -4.0835511110921973e-13, -2.1015418427726643e-14, 4.2724400167119514e-14,
      1.0420276984128803e-14,  -3.8144030724370078e-15, -1.8803547755107824e-15, 3.3082023109209283e-16,
      2.9626289976459501e-16,  -3.209525921993424e-17,  -4.6503053684893583e-17};
  constexpr int kNear = sizeof(T) <= 4 ? 19 : 32, kFar = sizeof(T) <= 4 ? 8 : 32;
  const double m = math::magnitude(x);
  const double t = m <= 8 ? m / 4 - 1 : 1;
  const double near = kOrder == 0 ? 1 + m * chebyshev<kNear>(kNearI0, t) : m * chebyshev<kNear>(kNearI1, t);
  const double far_x = m > 8 ? m : 8, v = 16 / far_x - 1;
  const double far = (kOrder == 0 ? chebyshev<kFar>(kFarI0, v) : chebyshev<kFar>(kFarI1, v)) / math::sqrt(far_x);
  const double value = m > 8 ? far : m <= 8 ? near : x;
  return kOrder == 0 ? value : math::copysign(value, x);
}

}  // namespace tapegrad::fn::bessel
