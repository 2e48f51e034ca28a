/* Stand-ins for instructions that a machine lacks, so that their levels can be checked on any with AVX2: put
   before level.c, with EMULATED one of the levels below. They compute what Intel's manual says, one number at
   a time. Results have the right bits but for sums of bfloat16, whose order of rounding is left to CPUs. */
#ifndef HEEDFUL_EMULATION_H
#define HEEDFUL_EMULATION_H

#include <immintrin.h> /* before the names of the instruction sets are defined */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define AVX_VNNI_LEVEL 1
#define AVX512_LEVEL 2
#define AVX512_VNNI_LEVEL 3
#define AVX512_BF16_LEVEL 4
#define AMX_LEVEL 5

static inline int32_t emulated_dot(int32_t sum, const void *x, const void *w) {
    const uint8_t *inputs = x;
    const int8_t *weights = w;
    for (int i = 0; i < 4; i++) sum += inputs[i] * weights[i];
    return sum;
}

static inline float emulated_bf16(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline float emulated_bf16_dot(float sum, const void *x, const void *w) {
    uint16_t inputs[2], weights[2];
    memcpy(inputs, x, 4);
    memcpy(weights, w, 4);
    for (int i = 1; i >= 0; i--) sum = fmaf(emulated_bf16(inputs[i]), emulated_bf16(weights[i]), sum);
    return sum;
}

/* A register as what is in it. */
typedef union {
    __m256i eight;
    int32_t sums[8];
    uint8_t inputs[32];
    int8_t weights[32];
} Emulated256;

typedef union {
    __m512 floats;
    __m512i whole;
    __m512d wide;
    __m256 half[2];
    __m256i whole_half[2];
    __m256d wide_half[2];
    float sums[16];
    int32_t whole_sums[16];
    uint16_t pairs[32];
    uint8_t inputs[64];
    int8_t weights[64];
} Emulated512;

static inline __m256i emulated_dpbusd_256(__m256i sum, __m256i x, __m256i w) {
    Emulated256 s = {sum}, a = {x}, b = {w};
    for (int i = 0; i < 8; i++) s.sums[i] = emulated_dot(s.sums[i], a.inputs + 4 * i, b.weights + 4 * i);
    return s.eight;
}

static inline __m512 emulated_fmadd(__m512 a, __m512 b, __m512 c) {
    Emulated512 x = {a}, y = {b}, z = {c};
    for (int i = 0; i < 2; i++) z.half[i] = _mm256_fmadd_ps(x.half[i], y.half[i], z.half[i]);
    return z.floats;
}

static inline __m512i emulated_maddubs(__m512i a, __m512i b) {
    Emulated512 x = {.whole = a}, y = {.whole = b};
    for (int i = 0; i < 2; i++) x.whole_half[i] = _mm256_maddubs_epi16(x.whole_half[i], y.whole_half[i]);
    return x.whole;
}

static inline __m512i emulated_madd(__m512i a, __m512i b) {
    Emulated512 x = {.whole = a}, y = {.whole = b};
    for (int i = 0; i < 2; i++) x.whole_half[i] = _mm256_madd_epi16(x.whole_half[i], y.whole_half[i]);
    return x.whole;
}

static inline __m512i emulated_dpbusd(__m512i sum, __m512i x, __m512i w) {
    Emulated512 s = {.whole = sum}, a = {.whole = x}, b = {.whole = w};
    for (int i = 0; i < 16; i++)
        s.whole_sums[i] = emulated_dot(s.whole_sums[i], a.inputs + 4 * i, b.weights + 4 * i);
    return s.whole;
}

static inline __m512 emulated_dpbf16(__m512 sum, __m512i x, __m512i w) {
    Emulated512 s = {sum}, a = {.whole = x}, b = {.whole = w};
    for (int i = 0; i < 16; i++) s.sums[i] = emulated_bf16_dot(s.sums[i], a.pairs + 2 * i, b.pairs + 2 * i);
    return s.floats;
}

static inline __m256d emulated_half(__m512d x, int number) {
    Emulated512 v = {.wide = x};
    return v.wide_half[number];
}

static inline __m256 emulated_lower(__m512 x) {
    Emulated512 v = {x};
    return v.half[0];
}

static inline __m512i emulated_load(const void *x) {
    Emulated512 v;
    memcpy(&v, x, sizeof v);
    return v.whole;
}

static inline __m512i emulated_all_16(int16_t x) {
    Emulated512 v;
    for (int i = 0; i < 32; i++) memcpy(&v.pairs[i], &x, 2);
    return v.whole;
}

static inline __m512i emulated_all_32(int32_t x) {
    Emulated512 v;
    for (int i = 0; i < 16; i++) v.whole_sums[i] = x;
    return v.whole;
}

#define _mm256_dpbusd_avx_epi32 emulated_dpbusd_256
#define _mm512_castps512_ps256 emulated_lower
#define _mm512_castps_pd(x) ((__m512d)(x))
#undef _mm512_extractf64x4_pd
#define _mm512_extractf64x4_pd emulated_half
#define _mm512_fmadd_ps emulated_fmadd
#define _mm512_maddubs_epi16 emulated_maddubs
#define _mm512_madd_epi16 emulated_madd
#define _mm512_set1_epi16 emulated_all_16
#define _mm512_set1_epi32 emulated_all_32
#define _mm512_loadu_si512 emulated_load
#define _mm512_dpbusd_epi32 emulated_dpbusd
#define _mm512_dpbf16_ps emulated_dpbf16
#define __m512bh __m512i

/* ---- tiles: those of a thread; none has a shape before it is given one ---- */

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} EmulatedShapes;

static __thread EmulatedShapes emulated_shapes;
static __thread uint8_t emulated_tiles[8][16][64];

static inline void emulated_shape(const void *shapes) {
    memcpy(&emulated_shapes, shapes, sizeof emulated_shapes);
    memset(emulated_tiles, 0, sizeof emulated_tiles);
}

static inline void emulated_release(void) { memset(&emulated_shapes, 0, sizeof emulated_shapes); }

static inline void emulated_tile_load(int tile, const void *from, int64_t stride) {
    if (emulated_shapes.palette != 1) __builtin_trap();
    memset(emulated_tiles[tile], 0, sizeof emulated_tiles[tile]);
    for (int r = 0; r < emulated_shapes.rows[tile]; r++)
        memcpy(emulated_tiles[tile][r], (const char *)from + r * stride, emulated_shapes.bytes[tile]);
}

static inline void emulated_tile_store(int tile, void *to, int64_t stride) {
    if (emulated_shapes.palette != 1) __builtin_trap();
    for (int r = 0; r < emulated_shapes.rows[tile]; r++)
        memcpy((char *)to + r * stride, emulated_tiles[tile][r], emulated_shapes.bytes[tile]);
}

/* sums (M, N) += x (M, K) w (K, N), elements of four bytes, by what `dot` makes of two of them. Shapes must
 * fit. */
#define EMULATED_TILE_DOT(NAME, SUM, DOT)                                                                    \
    static inline void NAME(int sums, int x, int w) {                                                        \
        const EmulatedShapes *s = &emulated_shapes;                                                          \
        if (s->rows[sums] != s->rows[x] || s->bytes[sums] != s->bytes[w] || s->bytes[x] != 4 * s->rows[w])   \
            __builtin_trap();                                                                                \
        for (int m = 0; m < s->rows[sums]; m++)                                                              \
            for (int n = 0; n < s->bytes[sums]; n += 4) {                                                    \
                SUM sum;                                                                                     \
                memcpy(&sum, &emulated_tiles[sums][m][n], 4);                                                \
                for (int k = 0; k < s->rows[w]; k++)                                                         \
                    sum = DOT(sum, &emulated_tiles[x][m][4 * k], &emulated_tiles[w][k][n]);                  \
                memcpy(&emulated_tiles[sums][m][n], &sum, 4);                                                \
            }                                                                                                \
    }
EMULATED_TILE_DOT(emulated_tile_dpbusd, int32_t, emulated_dot)
EMULATED_TILE_DOT(emulated_tile_dpbf16, float, emulated_bf16_dot)

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbusd
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated_shape
#define _tile_release emulated_release
#define _tile_loadd emulated_tile_load
#define _tile_stored emulated_tile_store
#define _tile_dpbusd emulated_tile_dpbusd
#define _tile_dpbf16ps emulated_tile_dpbf16

/* ---- what compilers say of the level ---- */

#if EMULATED == AVX_VNNI_LEVEL
#define __AVXVNNI__ 1
#endif
#if EMULATED >= AVX512_LEVEL
#define __AVX512F__ 1
#endif
#if EMULATED >= AVX512_VNNI_LEVEL
#define __AVX512VNNI__ 1
#endif
#if EMULATED >= AVX512_BF16_LEVEL
#define __AVX512BF16__ 1
#endif
#if EMULATED >= AMX_LEVEL
#define __AMX_INT8__ 1
#define __AMX_BF16__ 1
#endif

#endif
