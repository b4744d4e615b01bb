// expf, expm1f, logf, erff, tanhf, powf, fmodf and fmod over vectors, under the names that g++ calls when it vectorises
// a loop over them (see vector_math_x86.cpp, which leads the other functions to SLEEF): they take half of the time of
// SLEEF's expf and a fifth of that of the others, and err by 1.5 units in the last place at most. And the parts of gelu
// (functors/math.h), which err by 8e-8 at most, and short forms of erff (which errs by 1e-5), expf (by 4e-6 of the
// result), logf and the normal distribution (by 3e-6) for 16-bit results.
//
// Written once over the vector type; a product and a sum in one expression is one rounding wherever there is FMA, so
// AVX2, AVX-512 and NEON give the same bits.

#if (defined(__x86_64__) && defined(__AVX2__) && defined(__FMA__)) || (defined(__aarch64__) && !defined(__clang__))

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cmath>
#include <cstring>

namespace tapegrad::cpu::TG_ISA {
namespace {

using Table = float[16];

#if defined(__AVX512F__)
using V = __m512;
using I = __m512i;
inline V set(float x) { return _mm512_set1_ps(x); }
inline I bits(V x) { return _mm512_castps_si512(x); }
inline V floats(I x) { return _mm512_castsi512_ps(x); }
inline I both(I a, int b) { return _mm512_and_si512(a, _mm512_set1_epi32(b)); }
inline I either(I a, I b) { return _mm512_or_si512(a, b); }
inline V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
inline V least(V a, V b) { return _mm512_maskz_min_ps(0xffff, a, b); }      // b where one is NaN
inline V most(V a, V b) { return _mm512_maskz_max_ps(0xffff, a, b); }       // likewise
inline V scaled(V x, V k) { return _mm512_maskz_scalef_ps(0xffff, x, k); }  // x 2^k, rounded once
inline V below(V a, V b, V yes, V no) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes); }
inline I shifted(I a, int n) { return _mm512_maskz_slli_epi32(0xffff, a, static_cast<unsigned>(n)); }
inline I shifted_back(I a, int n) { return _mm512_maskz_srai_epi32(0xffff, a, static_cast<unsigned>(n)); }
inline I less(I a, I b) { return _mm512_sub_epi32(a, b); }
inline bool zeros(V x) { return _mm512_cmp_ps_mask(x, set(0.0F), _CMP_NEQ_UQ) == 0; }
inline V to_float(I a) { return _mm512_maskz_cvtepi32_ps(0xffff, a); }
inline V look_up(const Table& t, I index) {
  return _mm512_maskz_permutexvar_ps(0xffff, index, _mm512_loadu_ps(t));  // of the index the low four bits
}
#elif defined(__AVX2__)
using V = __m256;
using I = __m256i;
inline V set(float x) { return _mm256_set1_ps(x); }
inline I bits(V x) { return _mm256_castps_si256(x); }
inline V floats(I x) { return _mm256_castsi256_ps(x); }
inline I both(I a, int b) { return _mm256_and_si256(a, _mm256_set1_epi32(b)); }
inline I either(I a, I b) { return _mm256_or_si256(a, b); }
inline V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
inline V least(V a, V b) { return _mm256_min_ps(a, b); }
inline V most(V a, V b) { return _mm256_max_ps(a, b); }
inline V scaled(V x, V k) {  // in two steps, as 2^k itself may be no float
  const I n = _mm256_cvtps_epi32(k), half = _mm256_srai_epi32(n, 1), rest = _mm256_sub_epi32(n, half);
  const I one = _mm256_set1_epi32(127);
  const V a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, one), 23));
  const V b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, one), 23));
  return x * a * b;
}
inline V below(V a, V b, V yes, V no) { return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
inline I shifted(I a, int n) { return _mm256_slli_epi32(a, n); }
inline I shifted_back(I a, int n) { return _mm256_srai_epi32(a, n); }
inline I less(I a, I b) { return _mm256_sub_epi32(a, b); }
inline bool zeros(V x) { return _mm256_movemask_ps(_mm256_cmp_ps(x, set(0.0F), _CMP_NEQ_UQ)) == 0; }
inline V to_float(I a) { return _mm256_cvtepi32_ps(a); }
inline V look_up(const Table& t, I index) {
  const V low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(t), index);
  const V high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(t + 8), index);
  return _mm256_blendv_ps(low, high, floats(shifted(index, 28)));
}
#else
typedef float V __attribute__((vector_size(16)));
typedef int I __attribute__((vector_size(16)));
inline V set(float x) { return V{x, x, x, x}; }
inline I bits(V x) { return reinterpret_cast<I>(x); }
inline V floats(I x) { return reinterpret_cast<V>(x); }
inline I both(I a, int b) { return a & b; }
inline I either(I a, I b) { return a | b; }
inline V fma(V a, V b, V c) { return a * b + c; }  // -ffp-contract=fast
inline V below(V a, V b, V yes, V no) { return a < b ? yes : no; }
inline V least(V a, V b) { return below(a, b, a, b); }
inline V most(V a, V b) { return below(b, a, a, b); }
inline I shifted(I a, int n) { return a << n; }
inline I shifted_back(I a, int n) { return a >> n; }
inline I less(I a, I b) { return a - b; }
inline bool zeros(V x) { return (x[0] == 0) & (x[1] == 0) & (x[2] == 0) & (x[3] == 0); }
inline V to_float(I a) { return __builtin_convertvector(a, V); }
inline V scaled(V x, V k) {
  const I n = __builtin_convertvector(k, I), half = n >> 1;
  return x * floats((half + 127) << 23) * floats((n - half + 127) << 23);
}
inline V look_up(const Table& t, I index) {
  index &= 15;
  return V{t[index[0]], t[index[1]], t[index[2]], t[index[3]]};
}
#endif

inline V magnitude(V x) { return floats(both(bits(x), 0x7fffffff)); }
inline V with_sign(V x, V sign) { return floats(either(bits(x), both(bits(sign), static_cast<int>(0x80000000)))); }

// c[0] + c[1] x + c[2] x^2 ...
template <int kTerms>
inline V polynomial(const float (&c)[kTerms], V x) {
  V p = set(c[kTerms - 1]);
  for (int i = kTerms - 2; i >= 0; --i) p = fma(p, x, set(c[i]));
  return p;
}

// Added to a number below 2^22, this rounds it to an integer and leaves that in the low bits.
constexpr float kRound = 12582912.0F;  // 1.5 * 2^23

// erf(t) for t >= 0 as erf(c) + d + d q(d), d = t - c, around sixteen centres c, 17/64 apart. Each centre lies where
// erf(c) is a float but for a hundredth of its last place, and the sum erf(c) + d keeps its rounding error (Dekker,
// Numerische Mathematik 18 (1971)), so that q of degree 4 brings little error. q interpolates at Chebyshev nodes, for
// c = 0 in t^2. From 4.1 on erf is 1.
constexpr Table kCentre = {0.0F,        0.265731215F, 0.531184018F, 0.796977103F, 1.06317675F, 1.32866657F,
                           1.59309018F, 1.85975635F,  2.1289413F,   2.3933084F,   2.65839124F, 2.9218576F,
                           3.18872476F, 3.4570744F,   3.72274995F,  3.98837495F};
constexpr Table kErf = {0.0F,         0.292934924F, 0.547472298F, 0.740298033F, 0.86730504F,  0.939758003F,
                        0.975738943F, 0.99146384F,  0.997394204F, 0.999287307F, 0.999829769F, 0.999964058F,
                        0.999993503F, 0.999998987F, 0.999999881F, 1.0F};
constexpr Table kErf1 = {0.128379166F,  0.0514489412F, -0.149026439F, -0.402134985F, -0.635621667F, -0.806904912F,
                         -0.910824955F, -0.964488983F, -0.987864375F, -0.996328473F, -0.999037802F, -0.999778807F,
                         -0.999956667F, -0.999992728F, -0.999998927F, -0.999999881F};
constexpr Table kErf2 = {0.0F,
                         -0.279395461F,
                         -0.452015102F,
                         -0.47648111F,
                         -0.387400419F,
                         -0.256562859F,
                         -0.142066643F,
                         -0.0660427138F,
                         -0.0258357506F,
                         -0.00878660288F,
                         -0.00255760713F,
                         -0.000646126631F,
                         -0.000138034884F,
                         -2.51453021e-05F,
                         -4.01842772e-06F,
                         -5.54957694e-07F};
constexpr Table kErf3 = {-0.3761217F,     -0.300983489F,   -0.123587079F,   0.053873077F,
                         0.153121233F,    0.162890404F,    0.121155314F,    0.0700452849F,
                         0.0326233357F,   0.012795466F,    0.00421205815F,  0.00118511391F,
                         0.000279047817F, 5.55120168e-05F, 9.60964917e-06F, 1.42856879e-06F};
constexpr Table kErf4 = {0.0F,
                         0.132012516F,
                         0.182217181F,
                         0.136811525F,
                         0.0480154604F,
                         -0.0221043024F,
                         -0.0487345159F,
                         -0.0429950282F,
                         -0.0261630304F,
                         -0.0124650318F,
                         -0.00480193784F,
                         -0.00154192734F,
                         -0.00040820241F,
                         -9.02428874e-05F,
                         -1.71745814e-05F,
                         -2.78614743e-06F};
constexpr Table kErf5 = {0.112129807F,    0.0757785812F,   -0.00172596122F, -0.059438698F,
                         -0.0659493059F,  -0.036870148F,   -0.00512103969F, 0.0109173339F,
                         0.0124458736F,   0.00807118043F,  0.00382864452F,  0.00142883172F,
                         0.000433421257F, 0.000108796674F, 2.2851993e-05F,  4.04648608e-06F};

inline V erf(V x) {
  const V t = least(set(4.1F), magnitude(x));
  const V rounded = fma(t, set(64.0F / 17), set(kRound));
  const I at = bits(rounded);
  const V d = t - look_up(kCentre, at), value = look_up(kErf, at);
  V q = look_up(kErf5, at);
  q = fma(q, d, look_up(kErf4, at));
  q = fma(q, d, look_up(kErf3, at));
  q = fma(q, d, look_up(kErf2, at));
  q = fma(q, d, look_up(kErf1, at));
  const V sum = value + d;
  const V error = d - (sum - value);
  return with_sign(sum + fma(d, q, error), x);
}

// An odd function from 16 polynomials around the multiples of `spacing`, which has few bits: the multiples and the
// distances from them are exact. Beyond the last one the function stays as it is there.
template <int kTerms>
inline V odd(const Table (&t)[kTerms], float spacing, V x) {
  const V size = least(set(15.46875F * spacing), magnitude(x));
  const V rounded = fma(size, set(1 / spacing), set(kRound));
  const I at = bits(rounded);
  const V d = fma(rounded - set(kRound), set(-spacing), size);
  V q = look_up(t[kTerms - 1], at);
  for (int i = kTerms - 2; i >= 0; --i) q = fma(q, d, look_up(t[i], at));
  return with_sign(q, x);  // q >= 0
}
// Interpolated at Chebyshev nodes: erf(x / sqrt 2) / 2, and that with x e^(-x^2 / 2) / sqrt(2 pi) added.
constexpr Table kCdf[6] = {
    {0.0F, 0.140342712F, 0.263852507F, 0.359511018F, 0.424712002F, 0.463822275F, 0.484467924F, 0.494058937F,
     0.49797985F, 0.499390453F, 0.499837011F, 0.499961436F, 0.499991924F, 0.49999851F, 0.499999762F, 0.49999997F},
    {0.398942292F, 0.373994678F, 0.308128208F, 0.223104432F, 0.141969696F, 0.0793951154F, 0.0390213802F, 0.0168547444F,
     0.00639811996F, 0.0021344861F, 0.000625813613F, 0.000161252843F, 3.65157757e-05F, 7.26715507e-06F, 1.27103988e-06F,
     1.95373119e-07F},
    {0.0F, -0.0672006756F, -0.110731766F, -0.120266311F, -0.102040946F, -0.0713323429F, -0.0420706011F, -0.0212003924F,
     -0.00919728912F, -0.00345175364F, -0.0011244124F, -0.000318672712F, -7.87145618e-05F, -1.69679934e-05F,
     -3.19533433e-06F, -5.26095221e-07F},
    {-0.0664896891F, -0.0542817749F, -0.0248249378F, 0.00603648415F, 0.02523252F, 0.0294920355F, 0.0237343293F,
     0.0149682015F, 0.00774780056F, 0.00336580398F, 0.00124274974F, 0.000393097027F, 0.000107089836F, 2.52211958e-05F,
     5.14940666e-06F, 9.13352494e-07F},
    {0.0F, 0.0159537252F, 0.0227663666F, 0.0183410011F, 0.00795757584F, -0.00129426166F, -0.00572676817F,
     -0.00585660897F, -0.00403652992F, -0.00215540687F, -0.000937084027F, -0.000339804945F, -0.000104202445F,
     -2.72600682e-05F, -6.12021267e-06F, -1.18427477e-06F},
    {0.00991625525F, 0.00695295911F, 0.000442384655F, -0.00483704824F, -0.00603632815F, -0.00392930908F,
     -0.00107740622F, 0.00070071884F, 0.00115207618F, 0.000882631284F, 0.000482701638F, 0.000207498699F,
     7.29317253e-05F, 2.13965959e-05F, 5.30504576e-06F, 1.12071325e-06F},
};
constexpr Table kSlope[6] = {
    {0.0F, 0.296352386F, 0.512373805F, 0.614656389F, 0.624816477F, 0.590285838F, 0.55043304F, 0.522828817F,
     0.508555532F, 0.50268501F, 0.500710428F, 0.500159144F, 0.500030279F, 0.500004888F, 0.500000656F, 0.50000006F},
    {0.797884524F, 0.682872772F, 0.408581644F, 0.125825793F, -0.0519521944F, -0.107488818F, -0.0893930271F,
     -0.0519839823F, -0.0234697219F, -0.00855848007F, -0.00257045473F, -0.000642989471F, -0.000134910078F,
     -2.38563534e-05F, -3.56743567e-06F, -4.52261503e-07F},
    {0.0F, -0.277746469F, -0.389288753F, -0.309005737F, -0.143323079F, -0.0107257562F, 0.0447779521F, 0.0451201983F,
     0.0272286385F, 0.0121403811F, 0.00426306995F, 0.00121345115F, 0.000284446229F, 5.54485705e-05F, 9.04724311e-06F,
     1.2412778e-06F},
    {-0.265953809F, -0.182053566F, -0.0049077291F, 0.124711305F, 0.139849946F, 0.0804689452F, 0.0182451755F,
     -0.0119670341F, -0.0156194838F, -0.00967207924F, -0.00420119893F, -0.00140370755F, -0.000374849304F,
     -8.16352476e-05F, -1.46768589e-05F, -2.19590925e-06F},
    {0.0F, 0.0971602276F, 0.110534109F, 0.046836745F, -0.0215419549F, -0.0448625758F, -0.030547658F, -0.00916868635F,
     0.00221706927F, 0.00417211326F, 0.00262221321F, 0.00109997042F, 0.000347855821F, 8.69210635e-05F, 1.75780624e-05F,
     2.91826495e-06F},
    {0.0593006499F, 0.032384716F, -0.0178318359F, -0.0405359678F, -0.0251216535F, 0.000231649043F, 0.0115729533F,
     0.00892544631F, 0.00291381404F, -0.000362106453F, -0.000941798964F, -0.000574711594F, -0.000226213757F,
     -6.6178276e-05F, -1.51655831e-05F, -2.7952874e-06F},
};

// erf for results of 16 bits, interpolated likewise but for the slope at 0, which is 2 / sqrt(pi): bfloat16 results are
// those of the exact function, of float16 ones 1 in 1,400 is rounded the other way.
constexpr Table kShortErf[4] = {
    {0.0F, 0.226086959F, 0.434384614F, 0.611192584F, 0.749462247F, 0.849085212F, 0.915214956F, 0.955657601F,
     0.978444397F, 0.99027282F, 0.995929599F, 0.998421967F, 0.999433577F, 0.999811888F, 0.999942243F, 0.999983609F},
    {1.12837923F, 1.08276868F, 0.956707716F, 0.778368473F, 0.583113968F, 0.402238667F, 0.255491376F, 0.149427474F,
     0.0804722905F, 0.0399046615F, 0.0182205737F, 0.00766057381F, 0.00296565797F, 0.00105716055F, 0.000346992863F,
     0.000104871971F},
    {0.0F, -0.218837738F, -0.386883497F, -0.4724814F, -0.472413063F, -0.407864094F, -0.3113617F, -0.212845877F,
     -0.131278932F, -0.0734124482F, -0.0373450853F, -0.0173227228F, -0.00733969826F, -0.00284444098F, -0.00100930152F,
     -0.000328175258F},
    {-0.37516582F, -0.330206811F, -0.213268965F, -0.0670051798F, 0.0616239496F, 0.141817644F, 0.167305574F,
     0.151339114F, 0.114818022F, 0.075710766F, 0.044180274F, 0.0230561346F, 0.0108329579F, 0.00460359454F,
     0.00177524448F, 0.000622710504F},
};
inline V short_erf(V x) { return odd(kShortErf, 13.0F / 64, x); }

// The first for results of 16 bits: with it 14 of all bfloat16 and 488 of all float16 numbers have another gelu, most
// in the last place, those below -3.5 by up to 2 and 5 places, where the difference from 1/2 has few bits in float,
// too.
constexpr Table kShortCdf[4] = {
    {0.0F, 0.14034063F, 0.26384956F, 0.3595086F, 0.424711F, 0.46382242F, 0.48446867F, 0.49405968F, 0.4979804F,
     0.49939072F, 0.49983716F, 0.49996147F, 0.49999195F, 0.4999985F, 0.49999976F, 0.49999997F},
    {0.39894277F, 0.37399375F, 0.30812815F, 0.22310507F, 0.14197049F, 0.07939563F, 0.03902152F, 0.016854653F,
     0.00639797F, 0.002134371F, 6.257507e-04F, 1.6122583e-04F, 3.6506284e-05F, 7.2643734e-06F, 1.2703506e-06F,
     1.9522761e-07F},
    {-4.6811274e-05F, -0.0666854F, -0.10999649F, -0.11967402F, -0.10178404F, -0.07137422F, -0.04225558F, -0.021389522F,
     -0.009327618F, -0.0035213341F, -0.0011546579F, -3.2963825e-04F, -8.20765e-05F, -1.7847307e-05F, -3.3927047e-06F,
     -5.6427734e-07F},
    {-0.06594904F, -0.054057237F, -0.024810672F, 0.0058802543F, 0.02503758F, 0.02936516F, 0.023699557F, 0.014990843F,
     0.007785007F, 0.0033943031F, 0.0012583332F, 3.997949e-04F, 1.0944365e-04F, 2.591164e-05F, 5.320566e-06F,
     9.4950394e-07F}};
inline V short_normal_cdf(V x) { return set(0.5F) + odd(kShortCdf, 23.0F / 64, x); }

inline V normal_cdf(V x) { return set(0.5F) + odd(kCdf, 23.0F / 64, x); }
inline V gelu_slope(V x) { return set(0.5F) + (x - x) + odd(kSlope, 25.0F / 64, x); }  // NaN at infinity: 0 * inf

// e^f - 1 for |f| <= log(2) / 2, interpolated at Chebyshev nodes.
constexpr float kExpm1[5] = {0.5F, 0.166665763F, 0.0416665524F, 0.00836323295F, 0.00139262504F};
inline V expm1_near_zero(V f) { return fma(polynomial(kExpm1, f), f * f, f); }

// e^x = 2^k e^f, with log(2) in two parts, of which k times the first is exact (Cody and Waite, Software Manual for the
// Elementary Functions, 1980). Beyond the bounds it is infinite or 0.
inline V exp(V x) {
  const V t = most(set(-104.0F), least(set(89.0F), x));
  const V k = fma(t, set(1.4426950408889634F), set(kRound)) - set(kRound);  // 1 / log(2)
  const V f = fma(k, set(2.12194440e-4F), fma(k, set(-0.693359375F), t));
  return scaled(set(1.0F) + expm1_near_zero(f), k);
}

// e^x - 1 = 2^k (e^f - 1) + (2^k - 1) with k and f of exp(), e^f - 1 with its rounding error; e^x where 2^k may be no
// float. 0 keeps its sign.
inline V expm1(V x) {
  if (zeros(x)) return x;  // as those of an activation that leaves positive numbers alone
  const V t = most(set(-18.0F), least(set(89.0F), x));
  const V k = fma(t, set(1.4426950408889634F), set(kRound)) - set(kRound);
  const V f = fma(k, set(2.12194440e-4F), fma(k, set(-0.693359375F), t));
  const V rest = polynomial(kExpm1, f) * (f * f), e = f + rest, error = rest - (e - f);
  const V one = set(1.0F), power = scaled(one, k);
  // 1 is taken off the part that it leaves exact.
  const V few = below(x, set(8.0F), one, set(0.0F));
  const V near = fma(e, power, power - few) + fma(error, power, few - one);
  return with_sign(below(x, set(88.0F), near, scaled(e + one, k)), x);
}

// e^x for results of 16 bits: 2^k 2^f, f the rest of x / log(2). Interpolated at points chosen so that bfloat16 results
// are those of the exact function; of float16 ones 1 in 1,600 is rounded the other way.
constexpr float kShortExp[5] = {1.0F, 0.693123043F, 0.24024421F, 0.0559053682F, 0.00956133194F};
inline V short_exp(V x) {
  const V t = most(set(-104.0F), least(set(89.0F), x)), log2e = set(1.4426950408889634F);
  const V k = fma(t, log2e, set(kRound)) - set(kRound);
  const V f = t * log2e - k;
  return scaled(polynomial(kShortExp, f), k);
}

// log(x) = k log(2) + log(1 + f), x = 2^k (1 + f), |f| <= 1/3, where log(1 + f) = f + f^2 q(f).
template <int kTerms>
inline V log_by(const float (&c)[kTerms], V x) {
  const V tiny = set(1.17549435e-38F), zero = set(0.0F), infinity = set(__builtin_inff());
  const V normal = below(x, tiny, x * set(8388608.0F), x);  // 2^23: subnormal numbers become normal ones
  const I k = shifted_back(less(bits(normal), bits(set(2.0F / 3))), 23);
  const V f = floats(less(bits(normal), shifted(k, 23))) - set(1.0F);
  const V power = to_float(k) - below(x, tiny, set(23.0F), zero);
  const V result = fma(power, set(0.69314718055994531F), fma(polynomial(c, f), f * f, f));
  // Below 0 NaN, of infinity itself, of 0 and NaN what is left of them.
  const V edge = below(x, zero, set(__builtin_nanf("")), below(zero, x, x, x - infinity));
  return below(zero, x, below(x, infinity, result, edge), edge);
}
// By interpolation at Chebyshev nodes.
constexpr float kLog[9] = {-0.5F,        0.333333194F,  -0.249999881F, 0.200037807F, -0.166701406F,
                           0.141183093F, -0.123461902F, 0.134257495F,  -0.121255808F};
inline V log(V x) { return log_by(kLog, x); }
// For results of 16 bits, at points chosen so that bfloat16 results are those of the exact function; of positive
// float16 numbers 20 are rounded the other way.
constexpr float kShortLog[5] = {-0.499997318F, 0.332716495F, -0.250005275F, 0.220642433F, -0.177991912F};
inline V short_log(V x) { return log_by(kShortLog, x); }

// tanh(t) for t >= 0: below 0.625 an odd polynomial, above 1 - 2 / (e^2t + 1), to which an error of e^2t brings no
// more than a third of it. e^2t = 2^k e^f with |f| <= log(2) / 2.
constexpr float kTanh[5] = {-0.333333284F, 0.133327693F, -0.0538509078F, 0.0209971797F, -0.00609671418F};
inline V tanh(V x) {
  const V t = least(set(10.0F), magnitude(x)), s = t * t;
  const V odd = fma(t * s, polynomial(kTanh, s), t);
  // k + 127 in the low bits, the exponent of 2^k.
  const V rounded = fma(t, set(2.8853900817779268F), set(kRound + 127));  // 2 / log(2)
  const V f = fma(rounded - set(kRound + 127), set(-0.69314718055994531F), t + t);
  const V e = expm1_near_zero(f);
  const V power = floats(shifted(bits(rounded), 23));
  const V even = set(1.0F) - set(2.0F) / (fma(e, power, power) + set(1.0F));
  return with_sign(below(t, set(0.625F), odd, even), x);
}

#if defined(__AVX512F__)
// x^y = 2^(y log2(x)) in double, after Arm's Optimized Routines, powf: for positive normal x = 2^k z with z around 1,
// log2(x) = k + log2(c) + log2(1 + r) with 1/c from a table of 16 and r = z/c - 1, |r| < 1/32. Both polynomials
// interpolate at Chebyshev nodes. Wrong by half a unit in the last place and a hundredth.
constexpr double kInverse[16] = {
    1.3995757774923072,  1.340902235019882,   1.2869521283314387,  1.2371769430112296,  1.1911099569347963,
    1.1483515378271276,  1.1085575030462087,  1.0714298222572454,  1.0367091305559655,  1.0,
    0.94898127299686963, 0.89580580433612289, 0.84827737546631554, 0.80554126261626757, 0.76690704265776921,
    0.73181090528929404};
constexpr double kLog2[16] = {
    -0.48498960113214934, -0.42320405439850128, -0.36395838960886195, -0.3070518516069638,   -0.25230660128110177,
    -0.19956435302821623, -0.14868360756014293, -0.09953735780996785, -0.052011174028124808, 0.0,
    0.075548477210126891, 0.1587420807814825,   0.23739201078552308,  0.31196960422095971,   0.38287637664292312,
    0.45045718031782539};
constexpr double kLogSeries[7] = {1.4426950408889634,  -0.72134752046048844, 0.4808983469772164, -0.36067362288954319,
                                  0.28853888610091966, -0.24074368688347161, 0.20636108679630963};
constexpr double kPowerSeries[7] = {0.69314718055994529,   0.24022650922288757,  0.055504108839096185,
                                    0.0096180566785246373, 0.001333350238616277, 0.00015461444698569129,
                                    1.5297323760701075e-05};

inline __m512d look_up(const double (&t)[16], __m512i index) {
  return _mm512_permutex2var_pd(_mm512_loadu_pd(t), index, _mm512_loadu_pd(t + 8));
}
inline __m512d polynomial(const double (&c)[7], __m512d x) {
  __m512d p = _mm512_set1_pd(c[6]);
  for (int i = 5; i >= 0; --i) p = _mm512_fmadd_pd(p, x, _mm512_set1_pd(c[i]));
  return p;
}
inline __m256 pow_of_eight(__m256 z, __m256i index, __m256i k, __m256 y) {
  const __m512i at = _mm512_maskz_cvtepi32_epi64(0xff, index);
  const __m512d one = _mm512_set1_pd(1.0);
  const __m512d r = _mm512_fmsub_pd(_mm512_maskz_cvtps_pd(0xff, z), look_up(kInverse, at), one);
  const __m512d whole = _mm512_maskz_cvtepi32_pd(0xff, k) + look_up(kLog2, at);
  const __m512d t = _mm512_maskz_cvtps_pd(0xff, y) * _mm512_fmadd_pd(polynomial(kLogSeries, r), r, whole);
  const __m512d n = _mm512_maskz_roundscale_pd(0xff, t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512d f = t - n;
  return _mm512_maskz_cvtpd_ps(0xff,
                               _mm512_maskz_scalef_pd(0xff, _mm512_fmadd_pd(polynomial(kPowerSeries, f), f, one), n));
}
extern "C" __m512 Sleef_powf16_u10avx512f(__m512, __m512);

inline V pow(V x, V y) {
  const I first = _mm512_set1_epi32(0x3f330000);  // 0.7, from which z counts
  const I from = _mm512_sub_epi32(bits(x), first);
  const I k = _mm512_maskz_srai_epi32(0xffff, from, 23);
  const V z = floats(_mm512_sub_epi32(bits(x), shifted(k, 23)));
  const I index = both(_mm512_maskz_srli_epi32(0xffff, from, 19), 15);
  auto low = [](I v) { return _mm512_maskz_extracti64x4_epi64(0xff, v, 0); };
  auto high = [](I v) { return _mm512_maskz_extracti64x4_epi64(0xff, v, 1); };
  auto half = [](__m256i v) { return _mm256_castsi256_ps(v); };
  const __m256 a = pow_of_eight(half(low(bits(z))), low(index), low(k), half(low(bits(y))));
  const __m256 b = pow_of_eight(half(high(bits(z))), high(index), high(k), half(high(bits(y))));
  const V result = _mm512_castpd_ps(
      _mm512_maskz_insertf64x4(0xff, _mm512_castpd256_pd512(_mm256_castps_pd(a)), _mm256_castps_pd(b), 1));
  // What is zero, negative, subnormal, infinite or NaN.
  const __mmask16 plain = _mm512_cmp_ps_mask(x, set(1.17549435e-38F), _CMP_GE_OQ) &
                          _mm512_cmp_ps_mask(x, set(3.40282347e38F), _CMP_LE_OQ) &
                          _mm512_cmp_ps_mask(magnitude(y), set(3.40282347e38F), _CMP_LE_OQ);
  if (__builtin_expect(plain == 0xffff, 1)) return result;
  return _mm512_mask_blend_ps(plain, Sleef_powf16_u10avx512f(x, y), result);
}
#endif

#if defined(__x86_64__)
// The remainder of a quotient below 2^28 is exact in double: the quotient is further from a whole number than it is
// rounded, and its whole part times y has 52 bits. The C library does the others, one by one.
#if defined(__AVX512F__)
using D = __m512d;
inline D set_double(double x) { return _mm512_set1_pd(x); }
inline D wide(__m256i x) { return _mm512_maskz_cvtps_pd(0xff, _mm256_castsi256_ps(x)); }
inline D low(V x) { return wide(_mm512_maskz_extracti64x4_epi64(0xff, bits(x), 0)); }
inline D high(V x) { return wide(_mm512_maskz_extracti64x4_epi64(0xff, bits(x), 1)); }
inline D truncated(D x) { return _mm512_maskz_roundscale_pd(0xff, x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
inline D rest(D q, D y, D x) { return _mm512_fnmadd_pd(q, y, x); }
inline unsigned small(D q, D limit) { return _mm512_cmp_pd_mask(_mm512_abs_pd(q), limit, _CMP_LT_OQ); }
inline unsigned finite(V x) { return _mm512_cmp_ps_mask(magnitude(x), set(3.40282347e38F), _CMP_LE_OQ); }
inline V joined(D a, D b) {
  const __m512d first = _mm512_castpd256_pd512(_mm256_castps_pd(_mm512_maskz_cvtpd_ps(0xff, a)));
  return _mm512_castpd_ps(_mm512_maskz_insertf64x4(0xff, first, _mm256_castps_pd(_mm512_maskz_cvtpd_ps(0xff, b)), 1));
}
constexpr int kHalf = 8;
#else
using D = __m256d;
inline D set_double(double x) { return _mm256_set1_pd(x); }
inline D low(V x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
inline D high(V x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }
inline D truncated(D x) { return _mm256_round_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
inline D rest(D q, D y, D x) { return _mm256_fnmadd_pd(q, y, x); }
inline unsigned small(D q, D limit) {
  const D size = _mm256_andnot_pd(_mm256_set1_pd(-0.0), q);
  return static_cast<unsigned>(_mm256_movemask_pd(_mm256_cmp_pd(size, limit, _CMP_LT_OQ)));
}
inline unsigned finite(V x) {
  const V inside = _mm256_cmp_ps(magnitude(x), set(3.40282347e38F), _CMP_LE_OQ);
  return static_cast<unsigned>(_mm256_movemask_ps(inside));
}
inline V joined(D a, D b) { return _mm256_set_m128(_mm256_cvtpd_ps(b), _mm256_cvtpd_ps(a)); }
constexpr int kHalf = 4;
#endif
template <class T, class Vector>
[[gnu::noinline, gnu::cold]] Vector fmod_one_by_one(Vector x, Vector y, Vector result, unsigned plain) {
  constexpr unsigned kCount = sizeof(Vector) / sizeof(T);
  T a[kCount], b[kCount], r[kCount];
  std::memcpy(a, &x, sizeof x);
  std::memcpy(b, &y, sizeof y);
  std::memcpy(r, &result, sizeof result);
  for (unsigned l = 0; l < kCount; ++l)
    if ((plain >> l & 1U) == 0) r[l] = std::fmod(a[l], b[l]);
  std::memcpy(&result, r, sizeof result);
  return result;
}
inline V fmod(V x, V y) {
  const D a = low(x), b = low(y), c = high(x), d = high(y), limit = set_double(0x1p28);
  const D p = truncated(a / b), q = truncated(c / d);
  const V result = with_sign(joined(rest(p, b, a), rest(q, d, c)), x);
  const unsigned plain = (small(p, limit) | small(q, limit) << kHalf) & finite(y);
  if (__builtin_expect(plain == (1U << 2 * kHalf) - 1, 1)) return result;
  return fmod_one_by_one<float>(x, y, result, plain);
}
// Likewise of doubles with a quotient below 2^52: rounded, it may reach the next whole number, and a remainder of less
// than zero says so. All steps are exact. SLEEF's function gives NaN where the quotient overflows.
inline D fmod(D x, D y) {
#if defined(__AVX512F__)
  const D a = _mm512_abs_pd(x), b = _mm512_abs_pd(y), q = truncated(a / b), r = rest(q, b, a);
  const D positive = _mm512_mask_add_pd(r, _mm512_cmp_pd_mask(r, set_double(0), _CMP_LT_OQ), r, b);
  const D result = _mm512_maskz_or_pd(0xff, positive, _mm512_maskz_and_pd(0xff, x, set_double(-0.0)));
  const unsigned finite = _mm512_cmp_pd_mask(b, set_double(1.7976931348623157e308), _CMP_LE_OQ);
#else
  const D sign = set_double(-0.0), a = _mm256_andnot_pd(sign, x), b = _mm256_andnot_pd(sign, y);
  const D q = truncated(a / b), r = rest(q, b, a);
  const D positive = r + _mm256_and_pd(_mm256_cmp_pd(r, set_double(0), _CMP_LT_OQ), b);
  const D result = _mm256_or_pd(positive, _mm256_and_pd(x, sign));
  const D inside = _mm256_cmp_pd(b, set_double(1.7976931348623157e308), _CMP_LE_OQ);
  const unsigned finite = static_cast<unsigned>(_mm256_movemask_pd(inside));
#endif
  const unsigned plain = small(q, set_double(0x1p52)) & finite;
  if (__builtin_expect(plain == (1U << kHalf) - 1, 1)) return result;
  return fmod_one_by_one<double>(x, y, result, plain);
}
#endif

}  // namespace
}  // namespace tapegrad::cpu::TG_ISA

namespace here = tapegrad::cpu::TG_ISA;

// The names say the width: e is AVX-512, d AVX2, c AVX, b SSE, which kernels use in the tail of a wider loop, n NEON,
// whose calling convention for these keeps more registers.
extern "C" {
#if defined(__AVX512F__)
#define TG_DEFINE(name, function) \
  __m512 _ZGVeN16v_##name(__m512 x) { return here::function(x); }
#elif defined(__AVX2__)
#define TG_DEFINE(name, function)                                \
  __m256 _ZGVdN8v_##name(__m256 x) { return here::function(x); } \
  __m256 _ZGVcN8v_##name(__m256 x) { return here::function(x); } \
  __m128 _ZGVbN4v_##name(__m128 x) { return _mm256_castps256_ps128(here::function(_mm256_set_m128(x, x))); }
#else
typedef float Pair __attribute__((vector_size(8)));
#define TG_DEFINE(name, function)                                                                      \
  __attribute__((aarch64_vector_pcs)) here::V _ZGVnN4v_##name(here::V x) { return here::function(x); } \
  __attribute__((aarch64_vector_pcs)) Pair _ZGVnN2v_##name(Pair x) {                                   \
    const here::V y = here::function(here::V{x[0], x[1], x[0], x[1]});                                 \
    return Pair{y[0], y[1]};                                                                           \
  }
#endif
#if defined(__AVX512F__)
__m512 _ZGVeN16vv_powf(__m512 x, __m512 y) { return here::pow(x, y); }
__m512 _ZGVeN16vv_fmodf(__m512 x, __m512 y) { return here::fmod(x, y); }
__m512d _ZGVeN8vv_fmod(__m512d x, __m512d y) { return here::fmod(x, y); }
#elif defined(__x86_64__)
__m256 _ZGVdN8vv_fmodf(__m256 x, __m256 y) { return here::fmod(x, y); }
__m256 _ZGVcN8vv_fmodf(__m256 x, __m256 y) { return here::fmod(x, y); }
__m256d _ZGVdN4vv_fmod(__m256d x, __m256d y) { return here::fmod(x, y); }
__m256d _ZGVcN4vv_fmod(__m256d x, __m256d y) { return here::fmod(x, y); }
__m128d _ZGVbN2vv_fmod(__m128d x, __m128d y) {
  return _mm256_castpd256_pd128(here::fmod(_mm256_set_m128d(x, x), _mm256_set_m128d(y, y)));
}
#endif
TG_DEFINE(erff, erf)
TG_DEFINE(expf, exp)
TG_DEFINE(expm1f, expm1)
TG_DEFINE(tg_short_erff, short_erf)
TG_DEFINE(tg_short_expf, short_exp)
TG_DEFINE(logf, log)
TG_DEFINE(tg_short_logf, short_log)
TG_DEFINE(tg_short_normal_cdff, short_normal_cdf)
TG_DEFINE(tanhf, tanh)
TG_DEFINE(tg_normal_cdff, normal_cdf)
TG_DEFINE(tg_gelu_slopef, gelu_slope)
}

#endif  // an instruction set with forms of these
