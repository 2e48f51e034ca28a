/* Products of rows with packed weights, in several precisions: what most of an engine's time goes to.

   Each output is summed over the inputs in one fixed order, whatever stands in the other rows and whoever
   computes it, so that a row's result depends on nothing but the row. */
#include "sharing.h"
#include "vectors.h"

enum { FLOAT32, BFLOAT16, INT8, PRECISIONS };
enum { IDENTITY, RELU, GELU, SWISH };
#define PANEL 32 /* outputs computed together; packed weights are filled up to a multiple of it */
#define BLOCK 12 /* rows computed together: 24 accumulators of a processor's 32 vector registers */

typedef struct {
    int64_t in, out;     /* out as filled up */
    const void *weight;  /* [out / PANEL][in / g][PANEL][g], g = 1, 2, 4 for FLOAT32, BFLOAT16, INT8 */
    const float *bias;   /* (out,), zeros where the layer has none */
    const float *scale;  /* INT8: (out,) of each output's weights */
    const int32_t *sums; /* INT8: (out,) sums of each output's weights, times -128 */
} Linear;

/* Unless these loops are unrolled before the compiler looks at arrays, gcc leaves the sums of INT8 in memory,
   at half the speed. */
#define EACH_ROW(r, R) _Pragma("GCC unroll 12") for (int r = 0; r < R; r++)

/* Two cache lines of weights that come soon: the processor sees too late by itself that a panel is followed
   by the next one. */
#define AHEAD 16384
#define FETCH(w)                                                                                             \
    __builtin_prefetch((const char *)(w) + AHEAD);                                                           \
    __builtin_prefetch((const char *)(w) + AHEAD + 64)

#define FLOAT32_BLOCK(R)                                                                                     \
    static void float32_block_##R(const void *rows, const float *row_scales, const Linear *layer,            \
                                  int64_t first, float *y) {                                                 \
        (void)row_scales;                                                                                    \
        int64_t in = layer->in;                                                                              \
        const float *x = rows, *w = (const float *)layer->weight + first * in, *bias = layer->bias + first;  \
        Floats sum[R][2];                                                                                    \
        EACH_ROW(r, R) {                                                                                     \
            sum[r][0] = floats_at(bias);                                                                     \
            sum[r][1] = floats_at(bias + 16);                                                                \
        }                                                                                                    \
        for (int64_t k = 0; k < in; k++, w += PANEL) {                                                       \
            FETCH(w);                                                                                        \
            Floats w0 = floats_at(w), w1 = floats_at(w + 16);                                                \
            EACH_ROW(r, R) {                                                                                 \
                sum[r][0] += x[r * in + k] * w0;                                                             \
                sum[r][1] += x[r * in + k] * w1;                                                             \
            }                                                                                                \
        }                                                                                                    \
        EACH_ROW(r, R) {                                                                                     \
            memcpy(y + r * layer->out, &sum[r][0], 64);                                                      \
            memcpy(y + r * layer->out + 16, &sum[r][1], 64);                                                 \
        }                                                                                                    \
    }

#ifdef __AVX512BF16__
#define BFLOAT16_BLOCK(R)                                                                                    \
    static void bfloat16_block_##R(const void *rows, const float *row_scales, const Linear *layer,           \
                                   int64_t first, float *y) {                                                \
        (void)row_scales;                                                                                    \
        int64_t in = layer->in;                                                                              \
        const uint16_t *x = rows, *w = (const uint16_t *)layer->weight + first * in;                         \
        const float *bias = layer->bias + first;                                                             \
        __m512 sum[R][2];                                                                                    \
        EACH_ROW(r, R) {                                                                                     \
            sum[r][0] = _mm512_loadu_ps(bias);                                                               \
            sum[r][1] = _mm512_loadu_ps(bias + 16);                                                          \
        }                                                                                                    \
        for (int64_t k = 0; k < in; k += 2, w += 2 * PANEL) {                                                \
            FETCH(w);                                                                                        \
            __m512bh w0 = (__m512bh)_mm512_loadu_si512(w), w1 = (__m512bh)_mm512_loadu_si512(w + PANEL);     \
            EACH_ROW(r, R) {                                                                                 \
                int32_t pair;                                                                                \
                memcpy(&pair, x + r * in + k, 4);                                                            \
                __m512bh both = (__m512bh)_mm512_set1_epi32(pair);                                           \
                sum[r][0] = _mm512_dpbf16_ps(sum[r][0], both, w0);                                           \
                sum[r][1] = _mm512_dpbf16_ps(sum[r][1], both, w1);                                           \
            }                                                                                                \
        }                                                                                                    \
        EACH_ROW(r, R) {                                                                                     \
            _mm512_storeu_ps(y + r * layer->out, sum[r][0]);                                                 \
            _mm512_storeu_ps(y + r * layer->out + 16, sum[r][1]);                                            \
        }                                                                                                    \
    }
#endif

#ifdef __AVX512VNNI__
/* Sums of a panel's outputs become what they stand for, in their place. Rounded once after the second
   product, whatever the number of rows: left to itself, the compiler decides that for each. */
static void become_values(float *y, int64_t rows, const float *row_scales, const Linear *layer,
                          int64_t first) {
    for (int64_t r = 0; r < rows; r++, y += layer->out)
        for (int64_t i = 0; i < PANEL; i++) {
            int32_t sum;
            memcpy(&sum, y + i, 4);
            y[i] = fmaf((float)sum * row_scales[r], layer->scale[first + i], layer->bias[first + i]);
        }
}

#define INT8_BLOCK(R)                                                                                        \
    static void int8_block_##R(const void *rows, const float *row_scales, const Linear *layer,               \
                               int64_t first, float *y) {                                                    \
        int64_t in = layer->in;                                                                              \
        const uint8_t *x = rows;                                                                             \
        const int8_t *w = (const int8_t *)layer->weight + first * in;                                        \
        const int32_t *sums = layer->sums + first;                                                           \
        __m512i sum[R][2];                                                                                   \
        EACH_ROW(r, R) {                                                                                     \
            sum[r][0] = _mm512_loadu_si512(sums);                                                            \
            sum[r][1] = _mm512_loadu_si512(sums + 16);                                                       \
        }                                                                                                    \
        for (int64_t k = 0; k < in; k += 4, w += 4 * PANEL) {                                                \
            FETCH(w);                                                                                        \
            __m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + 2 * PANEL);                      \
            EACH_ROW(r, R) {                                                                                 \
                int32_t four;                                                                                \
                memcpy(&four, x + r * in + k, 4);                                                            \
                __m512i all = _mm512_set1_epi32(four);                                                       \
                sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], all, w0);                                         \
                sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], all, w1);                                         \
            }                                                                                                \
        }                                                                                                    \
        EACH_ROW(r, R) {                                                                                     \
            _mm512_storeu_si512(y + r * layer->out, sum[r][0]);                                              \
            _mm512_storeu_si512(y + r * layer->out + 16, sum[r][1]);                                         \
        }                                                                                                    \
        become_values(y, R, row_scales, layer, first);                                                       \
    }
#endif

/* The product of R rows with the panel of the outputs from `first` on. */
typedef void (*Block)(const void *rows, const float *row_scales, const Linear *layer, int64_t first,
                      float *y);

#define EACH(B) B(1) B(2) B(3) B(4) B(5) B(6) B(7) B(8) B(9) B(10) B(11) B(12)
#define ALL(P)                                                                                               \
    {P##_block_1, P##_block_2, P##_block_3, P##_block_4,  P##_block_5,  P##_block_6,                         \
     P##_block_7, P##_block_8, P##_block_9, P##_block_10, P##_block_11, P##_block_12}
EACH(FLOAT32_BLOCK)
#ifdef BFLOAT16_BLOCK
EACH(BFLOAT16_BLOCK)
#endif
#ifdef INT8_BLOCK
EACH(INT8_BLOCK)
#endif
static const Block blocks[][BLOCK] = {
    [FLOAT32] = ALL(float32),
#ifdef BFLOAT16_BLOCK
    [BFLOAT16] = ALL(bfloat16),
#endif
#ifdef INT8_BLOCK
    [INT8] = ALL(int8),
#endif
    [PRECISIONS] = {NULL},
};
static const int64_t sizes[] = {[FLOAT32] = 4, [BFLOAT16] = 2, [INT8] = 1}; /* of a number */

/* Whether this processor's build multiplies in that precision. */
int32_t supports(int32_t precision) { return blocks[precision][0] != NULL; }

/* A row as whole numbers from -127 to 127, with 128 added; returns what one of them stands for. */
static float quantised(const float *x, int64_t count, uint8_t *to) {
    int32_t most = 0; /* floats without their signs are ordered as integers are */
    for (int64_t i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, x + i, 4);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float highest;
    memcpy(&highest, &most, 4);
    float scale = highest > 0.0f ? highest / 127.0f : 1.0f, inverse = 1.0f / scale;
    for (int64_t i = 0; i < count; i++) to[i] = (uint8_t)((int32_t)rintf(x[i] * inverse) + 128);
    return scale;
}

static void activate(int32_t kind, float *x, int64_t count) {
    if (kind == RELU)
        for (int64_t i = 0; i < count; i++) x[i] = x[i] > 0.0f ? x[i] : 0.0f;
    else if (kind == GELU)
        for (int64_t i = 0; i < count; i++) x[i] *= 0.5f * (1.0f + erff(x[i] * 0.70710678f));
    else if (kind == SWISH)
        for (int64_t i = 0; i < count; i++) x[i] /= 1.0f + expf(-x[i]);
}

#define PIECES 4 /* of a product, for each thread: one may begin late */

/* How many threads so many multiplications are worth. Others must be told, and what they write must come
   back, so one is sooner done with what takes less than some ten microseconds. */
static int64_t worth(int64_t threads, int64_t multiplications) {
    return multiplications < 3000000 ? 1 : threads;
}

/* Those of a product; to read a weight takes as long as to multiply four times with it. */
static int64_t cost(int64_t in, int64_t out, int64_t rows) { return in * out * (rows + 4); }

typedef struct {
    const Linear *layer;
    int32_t precision, activation;
    const void *x;           /* in that precision */
    const float *row_scales; /* INT8 */
    int64_t rows, pieces;
    float *y;
} Product;

/* A piece of the outputs of a product: some panels. */
static void multiply(void *task, int64_t piece, int64_t thread) {
    (void)thread;
    const Product *p = task;
    const Linear *layer = p->layer;
    int64_t out = layer->out, panels = out / PANEL;
    int64_t first = panels * piece / p->pieces, end = panels * (piece + 1) / p->pieces;
    for (int64_t n = first * PANEL; n < end * PANEL; n += PANEL)
        for (int64_t r = 0; r < p->rows; r += BLOCK) {
            int64_t some = p->rows - r < BLOCK ? p->rows - r : BLOCK;
            float *y = p->y + r * out + n;
            const char *x = (const char *)p->x + r * layer->in * sizes[p->precision];
            blocks[p->precision][some - 1](x, p->row_scales + r, layer, n, y);
            if (p->activation != IDENTITY)
                for (int64_t i = 0; i < some; i++) activate(p->activation, y + i * out, PANEL);
        }
}

/* y (rows, out) = f(x (rows, in) W + bias). `room` holds rows * in of x in the weights' precision, and for
   INT8 the rows' scales. */
static void linear(const Linear *layer, int32_t precision, int32_t activation, const float *x, int64_t rows,
                   float *y, void *room, int64_t threads) {
    int64_t in = layer->in, panels = layer->out / PANEL;
    threads = worth(threads, cost(in, layer->out, rows));
    Product product = {layer, precision, activation, x, room, rows, 1, y};
    if (threads > 1) product.pieces = panels < PIECES * threads ? panels : PIECES * threads;
    if (precision == BFLOAT16) {
        uint16_t *to = room;
        for (int64_t i = 0; i < rows * in; i++) to[i] = bf16_of(x[i]);
        product.x = to;
    } else if (precision == INT8) {
        float *row_scales = room;
        uint8_t *to = (uint8_t *)(row_scales + rows);
        for (int64_t r = 0; r < rows; r++) row_scales[r] = quantised(x + r * in, in, to + r * in);
        product.x = to;
    }
    share(threads, multiply, &product, product.pieces);
}
