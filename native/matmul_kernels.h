/* The kernels of matrix multiplications, for each precision and number of rows, and what one multiplication
   is: tiles (matmul_tiles.h) and vectors (matmul.h) compute the same. */
#ifndef HEEDFUL_MATMUL_KERNELS_H
#define HEEDFUL_MATMUL_KERNELS_H

#include "matmul_types.h"

#define PANEL (2 * LANES) /* outputs computed in one pass; packed weights are padded to a multiple of it */
#define BLOCK (REGISTERS == 32 ? 12 : 6) /* rows computed in one pass: their sums stay in registers */

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16") /* before gcc optimises arrays, or it keeps sums in memory */
#endif
#define EACH(i, n) UNROLL for (int i = 0; i < n; i++)

#define AHEAD 16384 /* bytes to prefetch: hardware detects the next panel too late */

/* Multiply R rows with the weights of P panels, from output `first` on. */
#define KERNEL(TYPE, R, P)                                                                                   \
    static void TYPE##_##R##_##P(const void *rows, const float *row_scales, const HeedfulLinear *layer,      \
                                 int64_t first, float *y) {                                                  \
        int64_t in = layer->in;                                                                              \
        const TYPE##_input *x = rows;                                                                        \
        const TYPE##_weight *w = (const TYPE##_weight *)layer->weight + first * in;                          \
        TYPE##_sum sum[R][2 * P];                                                                            \
        EACH(r, R) EACH(c, 2 * P) sum[r][c] = TYPE##_begin(layer, first + c * LANES);                        \
        for (int64_t k = 0; k < in; k += TYPE##_GROUP, w += PANEL * TYPE##_GROUP) {                          \
            TYPE##_weights some[2 * P];                                                                      \
            EACH(c, 2 * P) {                                                                                 \
                const TYPE##_weight *from = w + c / 2 * in * PANEL + c % 2 * LANES * TYPE##_GROUP;           \
                if (c % 2 == 0 || LANES * TYPE##_GROUP * sizeof(TYPE##_weight) == 64)                        \
                    __builtin_prefetch((const char *)from + AHEAD);                                          \
                some[c] = TYPE##_load(from);                                                                 \
            }                                                                                                \
            EACH(r, R) {                                                                                     \
                TYPE##_inputs inputs = TYPE##_broadcast(x + r * in + k);                                     \
                EACH(c, 2 * P) sum[r][c] = TYPE##_dot(sum[r][c], inputs, some[c]);                           \
            }                                                                                                \
        }                                                                                                    \
        EACH(r, R) EACH(c, 2 * P) {                                                                          \
            int64_t at = first + c * LANES;                                                                  \
            TYPE##_finish(sum[r][c], row_scales[r], layer, at, y + r * layer->out + c * LANES);              \
        }                                                                                                    \
    }

typedef void (*Kernel)(const void *rows, const float *row_scales, const HeedfulLinear *layer, int64_t first,
                       float *y);

/* Few rows leave registers for several panels at a time, which hides the latency of the sums. */
#define FEW 3
static const int64_t panels_of[FEW + 1] = {0, 4, 2, 2}; /* by rows */
/* clang-format off */
#define KERNELS(T) KERNEL(T, 1, 4) KERNEL(T, 2, 2) KERNEL(T, 3, 2) KERNEL(T, 1, 1) KERNEL(T, 2, 1)           \
    KERNEL(T, 3, 1) KERNEL(T, 4, 1) KERNEL(T, 5, 1) KERNEL(T, 6, 1)
#define WIDE(T) {T##_1_4, T##_2_2, T##_3_2}
#if REGISTERS == 32
#define MORE_KERNELS(T) KERNEL(T, 7, 1) KERNEL(T, 8, 1) KERNEL(T, 9, 1) KERNEL(T, 10, 1) KERNEL(T, 11, 1)    \
    KERNEL(T, 12, 1)
#define NARROW(T) {T##_1_1, T##_2_1, T##_3_1, T##_4_1, T##_5_1, T##_6_1, T##_7_1, T##_8_1, T##_9_1,          \
                   T##_10_1, T##_11_1, T##_12_1}
#else
#define MORE_KERNELS(T)
#define NARROW(T) {T##_1_1, T##_2_1, T##_3_1, T##_4_1, T##_5_1, T##_6_1}
#endif
/* clang-format on */

KERNELS(float32)
MORE_KERNELS(float32)
KERNELS(int8)
MORE_KERNELS(int8)
#ifdef bfloat16_GROUP
KERNELS(bfloat16)
MORE_KERNELS(bfloat16)
#endif

static const struct {
    int64_t group, input_size, weight_size; /* bytes of a number */
    Kernel narrow[BLOCK], wide[FEW];        /* by rows - 1: of one panel, and of several */
} types[PRECISIONS] = {
    [FLOAT32] = {1, 4, 4, NARROW(float32), WIDE(float32)},
#ifdef bfloat16_GROUP
    [BFLOAT16] = {bfloat16_GROUP, 2, 2, NARROW(bfloat16), WIDE(bfloat16)},
#endif
    [INT8] = {int8_GROUP, sizeof(int8_input), 1, NARROW(int8), WIDE(int8)},
};

static void activate(int32_t kind, float *x, int64_t n) {
    if (kind == RELU)
        for (int64_t i = 0; i < n; i++) x[i] = x[i] < 0.0f ? 0.0f : x[i]; /* NaN stays NaN */
    else if (kind == GELU)
        for (int64_t i = 0; i < n; i++) x[i] *= 0.5f * (1.0f + erff(x[i] * 0.70710678f));
    else if (kind == SWISH)
        for (int64_t i = 0; i < n; i++) x[i] /= 1.0f + expf(-x[i]);
    else if (kind == GELU_TANH) /* 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)) */
        for (int64_t i = 0; i < n; i++)
            x[i] /= 1.0f + expf(-1.5957691f * (x[i] + 0.044715f * x[i] * x[i] * x[i]));
}

typedef struct {
    const HeedfulLinear *layer;
    int32_t precision, activation;
    const void *x;           /* (rows, in), inputs of that precision */
    const float *row_scales; /* INT8 */
    int64_t rows, chunks;
    float *y; /* (rows, out) */
} Multiplication;

#endif
