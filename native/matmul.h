/* Multiplication of rows with packed weights, in several precisions: most of a search's time. Each output is
   summed over the inputs in a fixed order, independent of the other rows and of the thread, so that a row's
   result depends only on the row. */
#ifndef HEEDFUL_MATMUL_H
#define HEEDFUL_MATMUL_H

#include "matmul_types.h"
#include "workers.h"

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
}

#define CHUNKS 4 /* of a multiplication, for each thread: one may start late */

/* The number of threads for that many multiplications. Waking threads and moving their results between caches
   costs more than one thread needs for some ten microseconds of work. */
static int64_t worth(int64_t threads, int64_t multiplications) {
    return multiplications < 3000000 ? 1 : threads;
}

/* The cost of a layer in multiplications; reading a weight takes as long as four of them. */
static int64_t cost(int64_t in, int64_t out, int64_t rows) { return in * out * (rows + 4); }

typedef struct {
    const HeedfulLinear *layer;
    int32_t precision, activation;
    const void *x;           /* (rows, in), inputs of that precision */
    const float *row_scales; /* INT8 */
    int64_t rows, chunks;
    float *y; /* (rows, out) */
} Multiplication;

#if defined(__AMX_BF16__) && defined(__AMX_INT8__) && defined(__linux__)
#include "matmul_tiles.h"
#endif

/* Multiply some rows with the panels from `first` to `end`. */
static void multiply_rows(const Multiplication *m, int64_t row, int64_t rows, int64_t first, int64_t end) {
    const HeedfulLinear *layer = m->layer;
    const char *x = (const char *)m->x + row * layer->in * types[m->precision].input_size;
    const float *row_scales = m->row_scales + row;
    float *y = m->y + row * layer->out;
    for (int64_t panel = first, some; panel < end; panel += some) {
        some = rows <= FEW && end - panel >= panels_of[rows] ? panels_of[rows] : 1;
        Kernel kernel = some > 1 ? types[m->precision].wide[rows - 1] : types[m->precision].narrow[rows - 1];
        kernel(x, row_scales, layer, panel * PANEL, y + panel * PANEL);
        for (int64_t r = 0; r < rows; r++)
            activate(m->activation, y + r * layer->out + panel * PANEL, some * PANEL);
    }
}

/* One chunk: some panels of outputs. Blocks of rows have about equal sizes. */
static void multiply(void *task, int64_t chunk, int64_t thread) {
    (void)thread;
    const Multiplication *m = task;
    int64_t panels = m->layer->out / PANEL;
    int64_t first = panels * chunk / m->chunks, end = panels * (chunk + 1) / m->chunks;
#ifdef HEEDFUL_TILES
    if (fits_tiles(m)) {
        multiply_tiles(m, first, end);
        return;
    }
#endif
    int64_t blocks = (m->rows + BLOCK - 1) / BLOCK;
    if (blocks < 2) {
        multiply_rows(m, 0, m->rows, first, end);
        return;
    }
    for (int64_t panel = first; panel < end; panel++) /* its weights stay in the cache */
        for (int64_t b = 0; b < blocks; b++) {
            int64_t row = m->rows * b / blocks;
            multiply_rows(m, row, m->rows * (b + 1) / blocks - row, panel, panel + 1);
        }
}

/* The size in bytes of the buffer of `linear`. */
static size_t narrow_bytes(int64_t rows, int64_t in) {
    return (size_t)rows * ((size_t)in + 1) * sizeof(float) + 64;
}

/* y (rows, out) = f(x (rows, in) W + bias); `narrow` is a buffer of `narrow_bytes`. */
static void linear(const HeedfulLinear *layer, int32_t precision, int32_t activation, const float *x,
                   int64_t rows, float *y, void *narrow, int64_t threads) {
    int64_t in = layer->in, panels = layer->out / PANEL;
    threads = worth(threads, cost(in, layer->out, rows));
    Multiplication m = {layer, precision, activation, x, narrow, rows, 1, y};
    if (threads > 1) m.chunks = panels < CHUNKS * threads ? panels : CHUNKS * threads;
#ifdef bfloat16_GROUP
    if (precision == BFLOAT16) {
        uint16_t *to = narrow;
        for (int64_t i = 0; i < rows * in; i++) to[i] = bf16_of(x[i]);
        m.x = to;
    }
#endif
    if (precision == INT8) {
        float *row_scales = narrow;
        int8_input *to = (int8_input *)(row_scales + rows);
        for (int64_t r = 0; r < rows; r++) row_scales[r] = quantise(x + r * in, in, to + r * in);
        m.x = to;
    }
    heedful_parallel_for(threads, multiply, &m, m.chunks);
}

#endif
