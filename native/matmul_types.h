/* For each precision of matrix multiplications: what inputs and weights are at this level, and how they are
   multiplied. Each has

     NAME_input, NAME_weight  types of a number
     NAME_GROUP               consecutive inputs that one instruction takes
     NAME_inputs, NAME_weights, NAME_sum  registers
     NAME_broadcast, NAME_load, NAME_begin, NAME_dot, NAME_finish  see `KERNEL` in matmul_kernels.h */
#ifndef HEEDFUL_MATMUL_TYPES_H
#define HEEDFUL_MATMUL_TYPES_H

#include "heedful.h"
#include "vectors.h"

/* ---- float32 ---- */

typedef float float32_input, float32_weight;
typedef Floats float32_inputs, float32_weights, float32_sum;
#define float32_GROUP 1

static inline Floats float32_broadcast(const float *x) { return all(*x); }
static inline Floats float32_load(const float *w) { return load(w); }
static inline Floats float32_dot(Floats sum, Floats x, Floats w) { return multiply_add(x, w, sum); }
static inline Floats float32_begin(const HeedfulLinear *layer, int64_t first) {
    return load(layer->bias + first);
}
static inline void float32_finish(Floats sum, float row_scale, const HeedfulLinear *layer, int64_t first,
                                  float *y) {
    (void)row_scale, (void)layer, (void)first;
    store(y, sum);
}

/* ---- bfloat16, where there are instructions for it ---- */

#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
typedef uint16_t bfloat16_input, bfloat16_weight;
typedef Floats bfloat16_sum;
#define bfloat16_GROUP 2
#define bfloat16_begin float32_begin
#define bfloat16_finish float32_finish
#if defined(__AVX512BF16__)
typedef __m512bh bfloat16_inputs, bfloat16_weights;

static inline __m512bh bfloat16_broadcast(const uint16_t *x) {
    int32_t pair;
    memcpy(&pair, x, 4);
    return (__m512bh)_mm512_set1_epi32(pair);
}
static inline __m512bh bfloat16_load(const uint16_t *w) { return (__m512bh)_mm512_loadu_si512(w); }
static inline Floats bfloat16_dot(Floats sum, __m512bh x, __m512bh w) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, x, w);
}
#else
typedef bfloat16x8_t bfloat16_inputs, bfloat16_weights;

static inline bfloat16x8_t bfloat16_broadcast(const uint16_t *x) {
    uint32_t pair;
    memcpy(&pair, x, 4);
    return vreinterpretq_bf16_u32(vdupq_n_u32(pair));
}
static inline bfloat16x8_t bfloat16_load(const uint16_t *w) { return vreinterpretq_bf16_u16(vld1q_u16(w)); }
static inline Floats bfloat16_dot(Floats sum, bfloat16x8_t x, bfloat16x8_t w) {
    return (Floats)vbfdotq_f32((float32x4_t)sum, x, w);
}
#endif
#endif

/* ---- int8: exact sums in int32 at every level ---- */

/* The largest weight. Two products of an input up to 255 and such a weight fit into 16 bits, if an
   instruction adds them in 16 bits. */
#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(__AVXVNNI__)
#define INT8_LIMIT 63
#else
#define INT8_LIMIT 127
#endif

typedef int8_t int8_weight;
typedef Ints int8_sum;

#if defined(__AVX2__) /* unsigned inputs (128 added), in fours */
#define INT8_IS_SIGNED 0
#define int8_GROUP 4
typedef uint8_t int8_input;
typedef Ints int8_inputs, int8_weights;

static inline Ints int8_broadcast(const uint8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return (Ints){0} + four;
}
static inline Ints int8_load(const int8_t *w) {
    Ints v;
    memcpy(&v, w, sizeof v);
    return v;
}
static inline Ints int8_dot(Ints sum, Ints x, Ints w) {
#if defined(__AVX512VNNI__)
    return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)x, (__m512i)w);
#elif defined(__AVXVNNI__)
    return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)x, (__m256i)w);
#elif defined(__AVX512F__)
    __m512i pairs = _mm512_maddubs_epi16((__m512i)x, (__m512i)w);
    return sum + (Ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#else
    __m256i pairs = _mm256_maddubs_epi16((__m256i)x, (__m256i)w);
    return sum + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
}

#elif defined(__x86_64__) /* weights are widened when loaded; pairs of 16 bits are multiplied and added */
#define INT8_IS_SIGNED 1
#define int8_GROUP 2
typedef int16_t int8_input;
typedef Ints int8_inputs, int8_weights;

static inline Ints int8_broadcast(const int16_t *x) {
    int32_t pair;
    memcpy(&pair, x, 4);
    return (Ints){0} + pair;
}
static inline Ints int8_load(const int8_t *w) {
    __m128i eight = _mm_loadl_epi64((const __m128i *)w);
    return (Ints)_mm_srai_epi16(_mm_unpacklo_epi8(eight, eight), 8);
}
static inline Ints int8_dot(Ints sum, Ints x, Ints w) {
    return sum + (Ints)_mm_madd_epi16((__m128i)x, (__m128i)w);
}

#else /* aarch64 */
#define INT8_IS_SIGNED 1
typedef int8_t int8_input;
#if defined(__ARM_FEATURE_DOTPROD)
#define int8_GROUP 4
typedef int8x16_t int8_inputs, int8_weights;

static inline int8x16_t int8_broadcast(const int8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}
static inline int8x16_t int8_load(const int8_t *w) { return vld1q_s8(w); }
static inline Ints int8_dot(Ints sum, int8x16_t x, int8x16_t w) {
    return (Ints)vdotq_s32((int32x4_t)sum, x, w);
}
#else
#define int8_GROUP 2
typedef int8x8_t int8_inputs, int8_weights;

static inline int8x8_t int8_broadcast(const int8_t *x) {
    int16_t pair;
    memcpy(&pair, x, 2);
    return vreinterpret_s8_s16(vdup_n_s16(pair));
}
static inline int8x8_t int8_load(const int8_t *w) { return vld1_s8(w); }
static inline Ints int8_dot(Ints sum, int8x8_t x, int8x8_t w) {
    return (Ints)vpadalq_s16((int32x4_t)sum, vmull_s8(x, w));
}
#endif
#endif

static inline Ints int8_begin(const HeedfulLinear *layer, int64_t first) {
    Ints sums = {0};
    if (!INT8_IS_SIGNED) memcpy(&sums, layer->sums + first, sizeof sums);
    return sums;
}

static inline Floats floats_of(Ints v) { return __builtin_convertvector(v, Floats); }

/* Dequantise the sums. */
static inline void int8_finish(Ints sum, float row_scale, const HeedfulLinear *layer, int64_t first,
                               float *y) {
    Floats scaled = floats_of(sum) * row_scale;
    store(y, multiply_add(scaled, load(layer->scale + first), load(layer->bias + first)));
}

/* Quantise a row to -127..127 (plus 128 for unsigned inputs); returns the scale, NaN if the row is not
   finite. */
static float quantise(const float *x, int64_t n, int8_input *to) {
    int32_t most = 0; /* the bits of non-negative floats are ordered like integers */
    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, x + i, 4);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float highest;
    memcpy(&highest, &most, 4);
    int is_finite = most < 0x7f800000;
    float scale = highest > 0.0f && is_finite ? highest / 127.0f : 1.0f, inverse = 1.0f / scale;
    if (highest < 1e-30f || !is_finite) inverse = 0.0f; /* its inverse might not be finite */
    for (int64_t i = 0; i < n; i++) {
        float shifted = (is_finite ? x[i] * inverse : 0.0f) + ROUND;
        int32_t bits;
        memcpy(&bits, &shifted, 4);
        to[i] = (int8_input)(bits - 0x4b400000 + (INT8_IS_SIGNED ? 0 : 128));
    }
    return is_finite ? scale : NAN;
}

#endif
