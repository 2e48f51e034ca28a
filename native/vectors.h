/* Vectors of the compiled level's register width, and operations on them. Sums are in the order written here,
   never in one chosen by a compiler. */
#ifndef HEEDFUL_VECTORS_H
#define HEEDFUL_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define LANES 16 /* float32 numbers of a register */
#define REGISTERS 32
#elif defined(__AVX2__)
#define LANES 8
#define REGISTERS 16
#elif defined(__aarch64__)
#define LANES 4
#define REGISTERS 32
#else
#define LANES 4
#define REGISTERS 16
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Bits __attribute__((vector_size(4 * LANES)));

static inline Floats load(const float *x) {
    Floats v;
    memcpy(&v, x, sizeof v);
    return v;
}

static inline void store(float *x, Floats v) { memcpy(x, &v, sizeof v); }

/* The first n numbers, fewer than LANES, and `fill` in the other lanes. */
static inline Floats load_some(const float *x, int64_t n, float fill) {
    float lanes[LANES];
    for (int64_t i = 0; i < LANES; i++) lanes[i] = i < n ? x[i] : fill;
    return load(lanes);
}

static inline Floats all(float x) { return x - (Floats){0}; } /* x + 0 is not -0 for x = -0 */

/* a b + c; rounded once if the level has a fused instruction. */
static inline Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

static inline Floats blend(Ints mask, Floats yes, Floats no) {
    return (Floats)(((Ints)yes & mask) | ((Ints)no & ~mask));
}

/* The maximum; b if one is NaN. */
static inline Floats larger_of(Floats a, Floats b) { return blend((Ints)(a > b), a, b); }

/* The sum of all lanes: halves are added until one lane is left. */
static inline float sum_of(Floats v) {
#if defined(__AVX512F__)
    __m256 upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd((__m512)v), 1));
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256((__m512)v), upper);
#elif defined(__AVX2__)
    __m256 eight = (__m256)v;
#endif
#if defined(__x86_64__)
#if defined(__AVX2__)
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
#else
    __m128 four = (__m128)v;
#endif
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
#else
    float lanes[LANES];
    memcpy(lanes, &v, sizeof lanes);
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
    return lanes[0];
#endif
}

/* The sums of LANES vectors, one in each lane. */
static inline Floats sums_of(const Floats *v) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    __m256 pairs[4], fours[2];
    for (int i = 0; i < 4; i++) pairs[i] = _mm256_hadd_ps((__m256)v[2 * i], (__m256)v[2 * i + 1]);
    for (int i = 0; i < 2; i++) fours[i] = _mm256_hadd_ps(pairs[2 * i], pairs[2 * i + 1]);
    return (Floats)_mm256_add_ps(_mm256_permute2f128_ps(fours[0], fours[1], 0x20),
                                 _mm256_permute2f128_ps(fours[0], fours[1], 0x31));
#else
    Floats sums = {0};
    for (int i = 0; i < LANES; i++) sums[i] = sum_of(v[i]);
    return sums;
#endif
}

static inline float largest_of(Floats v) {
    float lanes[LANES], highest;
    memcpy(lanes, &v, sizeof lanes);
    highest = lanes[0];
    for (int i = 1; i < LANES; i++) highest = lanes[i] > highest ? lanes[i] : highest;
    return highest;
}

/* The maximum of n numbers, -inf for none; NaN may be ignored. */
static inline float largest(const float *x, int64_t n) {
    Floats most = all(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) most = larger_of(load(x + i), most);
    if (i < n) most = larger_of(load_some(x + i, n - i, -INFINITY), most);
    return largest_of(most);
}

static inline float total(const float *x, int64_t n) {
    Floats sum = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) sum += load(x + i);
    if (i < n) sum += load_some(x + i, n - i, 0.0f);
    return sum_of(sum);
}

#define ROUND 12582912.0f /* 1.5 x 2^23: a small number added to it is rounded to the nearest whole one */

/* exp(x) for x <= 0, at most 1 ulp from the exact value: x = n ln 2 + r, and a polynomial in r. Results below
   the smallest normal number are 0; NaN stays NaN. */
static inline Floats exponential(Floats x) {
    Floats shifted = multiply_add(x, all(1.44269504088896341f), all(ROUND)), n = shifted - ROUND;
    Floats r = multiply_add(n, all(-0.693359375f), x); /* ln 2 in two parts; the first product is exact */
    r = multiply_add(n, all(2.12194440e-4f), r);
    Floats p = all(1.9728979e-4f);
    p = multiply_add(p, r, all(1.3934422e-3f));
    p = multiply_add(p, r, all(8.3335834e-3f));
    p = multiply_add(p, r, all(4.1666470e-2f));
    p = multiply_add(p, r, all(1.6666666e-1f));
    p = multiply_add(p, r, all(0.5f));
    p = multiply_add(p, r * r, r) + 1.0f;
    Bits power = ((Bits)shifted << 23) + 0x3f800000u; /* 2^n: the last bits of the sum above are n */
    Floats result = p * (Floats)power;
    return (Floats)((Ints)result & ~(Ints)(x < -87.33654f));
}

/* Replace x by exp(x - least); returns the sum. */
static inline float exponentials_of(float *x, int64_t n, float least) {
    Floats sum = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        Floats e = exponential(load(x + i) - least);
        store(x + i, e);
        sum += e;
    }
    if (i < n) {
        Floats e = exponential(load_some(x + i, n - i, -INFINITY) - least);
        memcpy(x + i, &e, (size_t)(n - i) * sizeof(float));
        sum += e;
    }
    return sum_of(sum);
}

/* The dot product of n numbers. */
static inline float dot(const float *x, const float *y, int64_t n) {
    Floats sum = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) sum = multiply_add(load(x + i), load(y + i), sum);
    if (i < n) sum = multiply_add(load_some(x + i, n - i, 0.0f), load_some(y + i, n - i, 0.0f), sum);
    return sum_of(sum);
}

/* The sum of squared differences from a mean. */
static inline float squares(const float *x, int64_t n, float mean) {
    Floats sum = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        Floats difference = load(x + i) - mean;
        sum = multiply_add(difference, difference, sum);
    }
    if (i < n) {
        Floats difference = load_some(x + i, n - i, mean) - mean;
        sum = multiply_add(difference, difference, sum);
    }
    return sum_of(sum);
}

static inline float float_of_bf16(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint16_t bf16_of(float x) { /* to the nearest, ties to even; NaN stays NaN */
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
}

#endif
