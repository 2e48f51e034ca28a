/* What the C sources of heedful share: bfloat16, and arithmetic on vectors of 16 floats. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define LANES 16 /* numbers in a vector */
typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));

static inline float float_of_bf16(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint16_t bf16_of(float x) { /* to the nearest, ties to even */
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static inline Floats floats_at(const float *x) {
    Floats some;
    memcpy(&some, x, sizeof some);
    return some;
}

static inline float sum_of(Floats some) {
#ifdef __AVX512F__
    return _mm512_reduce_add_ps((__m512)some);
#else
    float sum = 0.0f;
    for (int lane = 0; lane < LANES; lane++) sum += some[lane];
    return sum;
#endif
}

/* The largest of some numbers. Compilers do not vectorise it by themselves: order matters where one is NaN.
 */
static inline float largest(const float *x, int64_t count) {
    float highest = -INFINITY;
    int64_t i = 0;
    if (count >= LANES) {
        Floats most = floats_at(x);
        for (i = LANES; i + LANES <= count; i += LANES) {
            Floats some = floats_at(x + i);
            Ints is_more = some > most;
            most = (Floats)(((Ints)some & is_more) | ((Ints)most & ~is_more));
        }
#ifdef __AVX512F__
        highest = _mm512_reduce_max_ps((__m512)most);
#else
        for (int lane = 0; lane < LANES; lane++) highest = most[lane] > highest ? most[lane] : highest;
#endif
    }
    for (; i < count; i++) highest = x[i] > highest ? x[i] : highest;
    return highest;
}

/* exp(x) of x <= 0, to float32's precision: x = n ln 2 + r, and a polynomial in r. */
static inline float exp_of_negative(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = rintf(x * 1.44269504f);
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, 4);
    return p * power;
}
