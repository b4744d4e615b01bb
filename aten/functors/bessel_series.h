// Bessel functions J, Y, I and K of orders 0 and 1 as Chebyshev series: the same steps for every argument, so that g++
// makes vectors of loops over them. Coefficients were computed in 40 digits or more (mpmath: values at 64 or more
// nodes, DLMF 3.11.11) from the functions' definitions, and cut at 1e-17; up to 8 of (J0 - 1) / x^2 and J1 / x in x^2,
// of what Y0 and Y1 / x have beside their logarithm (DLMF 10.8.1, 10.8.2) in x^2 and of (e^-x I0 - 1) / x and e^-x I1 /
// x in x, from 8 on of the modulus and phase parts of J and Y (DLMF 10.17.3, 10.17.4) in 1 / x^2 and of sqrt(x) e^-x I
// in 1 / x; up to 2 of the parts of K (DLMF 10.31.1, 10.31.2) in x^2, from 2 on of sqrt(x) e^x K in 1 / x. Absolute
// errors of J and Y and relative ones of I and K are below 1e-14; float takes as many coefficients as it has digits.
#pragma once

#include "tapegrad/aten/functors/math.h"

#if !defined(__CUDACC__)
extern "C" {
// For results of float: they err by 3.5 units in the last place of double.
TG_VECTORISED double tg_short_sin(double) noexcept;
TG_VECTORISED double tg_short_cos(double) noexcept;
}
#endif

namespace tapegrad::fn::bessel {

#if defined(__CUDACC__)
#define TG_UNROLLED
#else
#define TG_UNROLLED _Pragma("GCC unroll 32")
#endif

// c[0] + c[1] T1(t) + c[2] T2(t) ... for |t| <= 1: by Clenshaw's recurrence (DLMF 3.11.15) or, where less than half of
// double's digits are wanted, as a sum of powers, which takes half of the steps.
template <bool kPowers, int N>
struct Series {
  double c[N] = {};
  TG_HD double operator()(double t) const {
    double here = c[N - 1], above = 0;
    if constexpr (kPowers) {
      TG_UNROLLED for (int k = N - 2; k >= 0; --k) here = here * t + c[k];
      return here;
    } else {
      const double twice = 2 * t;
      TG_UNROLLED for (int k = N - 2; k > 0; --k) {
        const double next = twice * here + (c[k] - above);  // a step waits for one product and sum
        above = here;
        here = next;
      }
      return t * here + (c[0] - above);
    }
  }
};
// For results of T; float takes `kShort` coefficients.
template <class T, int kShort, int N>
TG_HD constexpr auto series(const double (&c)[N]) {
  constexpr bool kPowers = sizeof(T) <= 4;
  constexpr int kUsed = kPowers && kShort < N ? kShort : N;
  Series<kPowers, kUsed> result;
  if constexpr (kPowers) {
    double before[kUsed] = {}, here[kUsed] = {1}, next[kUsed] = {};  // the powers of T_k-1, T_k, T_k+1
    for (int k = 0; k < kUsed; ++k) {
      for (int i = 0; i < kUsed; ++i) {
        result.c[i] += c[k] * here[i];
        next[i] = (i > 0 ? (k == 0 ? 1 : 2) * here[i - 1] : 0) - before[i];
      }
      for (int i = 0; i < kUsed; ++i) {
        before[i] = here[i];
        here[i] = next[i];
      }
    }
  } else {
    for (int k = 0; k < kUsed; ++k) result.c[k] = c[k];
  }
  return result;
}

// J_order and Y_order for x >= 8, by Hankel's expansion: the modulus and phase parts for a sine and a cosine.
struct Both {
  double j, y;
};
template <class T, int kOrder>
TG_HD inline Both bessel_far(double x, double s, double c) {
  // Within the function: code for GPUs sees no arrays outside of it.
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
  constexpr auto p0 = series<T, 5>(kP0);
  constexpr auto p1 = series<T, 5>(kP1);
  constexpr auto q0 = series<T, 5>(kQ0);
  constexpr auto q1 = series<T, 5>(kQ1);
  const double z = 8 / x, v = 2 * z * z - 1, scale = 1 / math::sqrt(math::kPi * x);
  const double p = kOrder == 0 ? p0(v) : p1(v);
  const double q = z * (kOrder == 0 ? q0(v) : q1(v));
  // x - pi/4 and x - 3 pi/4 from the sine and cosine of x, which know x exactly.
  const double cosine = kOrder == 0 ? c + s : s - c, sine = kOrder == 0 ? s - c : -(s + c);
  return {scale * (p * cosine - q * sine), scale * (p * sine + q * cosine)};
}
template <class T, int kOrder>
TG_HD inline double bessel_j_near(double x) {
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
  constexpr auto near_j0 = series<T, 12>(kNearJ0);
  constexpr auto near_j1 = series<T, 12>(kNearJ1);
  const double square = x * x, u = square / 32 - 1;
  return kOrder == 0 ? 1 + square * near_j0(u) : x * near_j1(u);
}

template <class T>
TG_HD inline double sine(double x) {
#if !defined(__CUDACC__)
  if constexpr (sizeof(T) <= 4) return ::tg_short_sin(x);
#endif
  return math::sin(x);
}
template <class T>
TG_HD inline double cosine(double x) {
#if !defined(__CUDACC__)
  if constexpr (sizeof(T) <= 4) return ::tg_short_cos(x);
#endif
  return math::cos(x);
}

// J_order for |x| <= infinity; NaN gives NaN.
template <class T, int kOrder>
TG_HD inline double bessel_j(double x) {
  const double m = math::magnitude(x), far_x = m > 8 ? m : 8;
  const double near = bessel_j_near<T, kOrder>(m <= 8 ? x : 8);
  // The cosine is that of an argument with a sign: g++ would join the two into one call, which has no vector form.
  const double far = bessel_far<T, kOrder>(far_x, sine<T>(far_x), cosine<T>(x < 0 ? -far_x : far_x)).j;
  const double value = m <= 8 ? near : kOrder == 1 && x < 0 ? -far : far;
  return m > std::numeric_limits<double>::max() ? 0 : x == x ? value : x;
}

// Y_order for x > 0; minus infinity at 0, NaN below.
template <class T, int kOrder>
TG_HD inline double bessel_y(double x) {
  constexpr double kNearY0[] = {-0.033146113203284942,   -0.27447430552974527,   0.17903431407718266,
                                0.26156734625504664,     -0.17730201278114358,   0.047196689595763387,
                                -0.0072879624795520792,  0.00075311359325777423, -5.632079141056987e-5,
                                3.206532537654801e-6,    -1.4407233274018699e-7, 5.2487947873305161e-9,
                                -1.5837552541812015e-10, 4.0263308183061208e-12, -8.7473412033107696e-14,
                                1.6434898714919469e-15,  -2.6977881152566836e-17};
  constexpr double kNearY1[] = {
      0.0025380132357417817,   -0.01608717304766875,  -0.095912045360830742,   0.084451972596523458,
      -0.028328123944594366,   0.005289897544167113,  -0.0006414551451326356,  5.5059828733387438e-5,
      -3.5380800186893499e-6,  1.7707804556154403e-7, -7.1105500498992798e-9,  2.3443379059115164e-10,
      -6.4651518414115942e-12, 1.51429151205002e-13,  -3.0511859694473253e-15, 5.3466803857286701e-17};
  constexpr auto near_y0 = series<T, 12>(kNearY0);
  constexpr auto near_y1 = series<T, 12>(kNearY1);
  const double near_x = x <= 8 ? x : 8, far_x = x > 8 ? x : 8, u = near_x * near_x / 32 - 1;
  const double wave = 2 / math::kPi * math::log(near_x) * bessel_j_near<T, kOrder>(near_x);
  const double near = kOrder == 0 ? wave + near_y0(u) : wave - 2 / math::kPi / near_x + near_x * near_y1(u);
  const double far = bessel_far<T, kOrder>(far_x, sine<T>(far_x), cosine<T>(x < 0 ? -far_x : far_x)).y;
  const double value = x > std::numeric_limits<double>::max() ? 0 : x > 8 ? far : near;
  const double edge = x == 0 ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  return x > 0 ? value : edge;
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
  constexpr auto far_i0 = series<T, 8>(kFarI0);
  constexpr auto far_i1 = series<T, 8>(kFarI1);
  constexpr auto near_i0 = series<T, 19>(kNearI0);
  constexpr auto near_i1 = series<T, 19>(kNearI1);
  const double m = math::magnitude(x);
  const double t = m <= 8 ? m / 4 - 1 : 1;
  const double near = kOrder == 0 ? 1 + m * near_i0(t) : m * near_i1(t);
  const double far_x = m > 8 ? m : 8, v = 16 / far_x - 1;
  const double far = (kOrder == 0 ? far_i0(v) : far_i1(v)) / math::sqrt(far_x);
  const double value = m > 8 ? far : m <= 8 ? near : x;
  return kOrder == 0 ? value : math::copysign(value, x);
}

// K_order(x), or with kScaled e^x K_order(x), for x > 0; infinity at 0, NaN below.
template <class T, int kOrder, bool kScaled>
TG_HD inline double bessel_k(double x) {
  constexpr double kNearK0[] = {0.8433977275772223,    0.78707899085929595,    0.061525778602440722,
                                0.0019458946141853283, 3.3247998700597629e-5,  3.5563825166277006e-7,
                                2.6056207418988498e-9, 1.3895141631982779e-11, 5.6352146618418467e-14,
                                1.7966278703136083e-16};
  constexpr double kNearI0[] = {1.6029228068079633,     0.63880962565117701,    0.036854859694361758,
                                0.00098287812725147983, 1.4983654208927293e-5,  1.4738449008423847e-7,
                                1.0114797900674825e-9,  5.1149979020112798e-12, 1.9842806226805619e-14,
                                6.0905165060589549e-17};
  constexpr double kNearK1[] = {-0.50892378453208251,    -0.2114356597763456,     -0.010725575310322739,
                                -0.00025132335864834033, -3.4112002554142969e-6,  -3.0267041466557711e-8,
                                -1.8945972239916102e-10, -8.8192213962287514e-13, -3.1733487638923217e-15};
  constexpr double kNearI1[] = {0.6417589969911874,     0.14753932014919342,    0.0058987426800207883,
                                0.00011988137174638708, 1.4739165119093127e-6,  1.2138074968740922e-8,
                                7.1611066927992795e-11, 3.1748793113101199e-13, 1.0962998348773075e-15};
  constexpr double kFarK0[] = {
      1.2201515410329777,     -0.031448101311964501,   0.0015698838857300534,  -0.00012849549581627803,
      1.3949813718876499e-5,  -1.8317555227191195e-6,  2.7668136394450151e-7,  -4.6604898976879477e-8,
      8.5740340174142261e-9,  -1.6975345093890615e-9,  3.5773972814003284e-10, -7.957489244477397e-11,
      1.8559491149549266e-11, -4.5145978833745192e-12, 1.1403405882073442e-12, -2.9800969231481784e-13,
      8.0328907750683744e-14, -2.2275133267462964e-14, 6.340076476276646e-15,  -1.8485933779209072e-15,
      5.5120559994043334e-16, -1.6782311257549006e-16, 5.2103917776435541e-17, -1.6475805939842633e-17};
  constexpr double kFarK1[] = {
      1.3603130952422213,      0.10392373657681724,    -0.0028578168596227794,  0.00019521551847135163,
      -1.936197974166083e-5,   2.4064849478372171e-6,  -3.5019606030878125e-7,  5.7410841254500493e-8,
      -1.0345762465678097e-8,  2.0150497551970346e-9,  -4.1903547593419256e-10, 9.2183151876053141e-11,
      -2.129967838427791e-11,  5.1396396734823435e-12, -1.2891739609498229e-12, 3.3484196660522431e-13,
      -8.9767051820101461e-14, 2.4771544242195987e-14, -7.0198370892147689e-15, 2.0387031662398609e-15,
      -6.0570472706430178e-16, 1.8380935752430454e-16, -5.6894628491936484e-17, 1.7940510478863573e-17};
  constexpr auto far_k0 = series<T, 11>(kFarK0);
  constexpr auto far_k1 = series<T, 11>(kFarK1);
  constexpr auto near_i0 = series<T, 7>(kNearI0);
  constexpr auto near_i1 = series<T, 7>(kNearI1);
  constexpr auto near_k0 = series<T, 7>(kNearK0);
  constexpr auto near_k1 = series<T, 7>(kNearK1);
  const double near_x = x <= 2 ? x : 2, far_x = x > 2 ? x : 2, u = near_x * near_x / 2 - 1, v = 4 / far_x - 1;
  const double l = math::log(near_x);
  const double near = kOrder == 0 ? near_k0(u) - l * near_i0(u) : 1 / near_x + near_x * (near_k1(u) + l * near_i1(u));
  const double far = (kOrder == 0 ? far_k0(v) : far_k1(v)) / math::sqrt(far_x);
  const double power = math::exp(kScaled ? near_x : -far_x);
  const double value = x > 2 ? (kScaled ? far : far * power) : (kScaled ? near * power : near);
  const double edge = x == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  return x > 0 ? value : edge;
}

}  // namespace tapegrad::fn::bessel
