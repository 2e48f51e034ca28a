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
static void become_values(float *y, int64_t stride, int64_t rows, const float *row_scales,
                          const Linear *layer, int64_t first) {
    for (int64_t r = 0; r < rows; r++, y += stride)
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
        become_values(y, layer->out, R, row_scales, layer, first);                                           \
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

#if defined(__AMX_BF16__) && defined(__AMX_INT8__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

/* Some processors multiply tiles (AMX), of 16 rows of 64 bytes, several times as fast as vectors. A panel's
   weights are two tiles wide as they are. */
#define TILE 16
#define FEW 8 /* rows, for which vectors of INT8 are as fast */
static int has_tiles = 0;

/* Linux gives tiles to processes that have asked for them. */
__attribute__((constructor)) static void ask_for_tiles(void) {
    long request_permission = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    has_tiles = syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

/* For bfloat16 whatever the number of rows, as a row's sums would depend on it; those of INT8 are exact. */
static int fits_tiles(const Product *p) {
    int64_t bytes = p->layer->in * sizes[p->precision];
    return has_tiles && bytes % 64 == 0 && p->precision != FLOAT32 &&
           p->rows >= (p->precision == INT8 ? FEW : 1);
}

/* All is written that may be read there: compilers do not see what tiles are loaded from. */
static inline void settle(const void *there) { __asm__ volatile("" : : "r"(there) : "memory"); }

/* Tiles 0 and 1 are for sums of some rows, 2 and 3 for those of more rows, 4 and 5 for what is summed of
   either, and 6 and 7 for weights. */
static void shape_tiles(int64_t rows) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shapes = {.palette = 1};
    uint8_t some = (uint8_t)(rows < TILE ? rows : TILE), more = (uint8_t)(rows > TILE ? rows - TILE : 1);
    uint8_t each[] = {some, some, more, more, some, more, TILE, TILE};
    for (int tile = 0; tile < 8; tile++) {
        shapes.bytes[tile] = 64;
        shapes.rows[tile] = each[tile];
    }
    settle(&shapes);
    _tile_loadconfig(&shapes);
}

/* Sums of up to two tiles of rows with a panel, (rows, PANEL), from `begin`, a row of what they begin with.
 */
#define SUM_TILES(precision, DOT)                                                                            \
    static void precision##_tiles(const char *x, const char *w, int64_t bytes, const void *begin,            \
                                  float *sums, int has_more, int is_first) {                                 \
        const char *begin_too = (const char *)begin + 64, *x_too = x + TILE * bytes;                         \
        _tile_loadd(0, begin, 0);                                                                            \
        _tile_loadd(1, begin_too, 0);                                                                        \
        _tile_loadd(2, begin, 0);                                                                            \
        _tile_loadd(3, begin_too, 0);                                                                        \
        for (int64_t k = 0; k < bytes; k += 64, w += 2 * TILE * 64) {                                        \
            if (is_first)                                                                                    \
                for (int row = 0; row < TILE; row++) {                                                       \
                    FETCH(w + 128 * row);                                                                    \
                }                                                                                            \
            _tile_loadd(4, x + k, bytes);                                                                    \
            _tile_loadd(6, w, 128);                                                                          \
            _tile_loadd(7, w + 64, 128);                                                                     \
            DOT(0, 4, 6);                                                                                    \
            DOT(1, 4, 7);                                                                                    \
            if (!has_more) continue;                                                                         \
            _tile_loadd(5, x_too + k, bytes);                                                                \
            DOT(2, 5, 6);                                                                                    \
            DOT(3, 5, 7);                                                                                    \
        }                                                                                                    \
        _tile_stored(0, sums, 4 * PANEL);                                                                    \
        _tile_stored(1, sums + 16, 4 * PANEL);                                                               \
        if (!has_more) return;                                                                               \
        _tile_stored(2, sums + TILE * PANEL, 4 * PANEL);                                                     \
        _tile_stored(3, sums + TILE * PANEL + 16, 4 * PANEL);                                                \
    }
SUM_TILES(bfloat16, _tile_dpbf16ps)
SUM_TILES(int8, _tile_dpbusd)

/* Panels of a product. Blocks of rows are of one size: the last one repeats some of the one before. */
static void multiply_tiles(const Product *p, int64_t first, int64_t end) {
    const Linear *layer = p->layer;
    int64_t bytes = layer->in * sizes[p->precision], out = layer->out, rows = p->rows;
    int64_t blocks = (rows + 2 * TILE - 1) / (2 * TILE), size = (rows + blocks - 1) / blocks;
    _Alignas(64) float sums[2 * TILE * PANEL];
    shape_tiles(size);
    settle(p->x);
    for (int64_t n = first * PANEL; n < end * PANEL; n += PANEL)
        for (int64_t block = 0; block < blocks; block++) {
            int64_t r = block + 1 < blocks ? block * size : rows - size;
            const char *x = (const char *)p->x + r * bytes, *w = (const char *)layer->weight + n * bytes;
            if (p->precision == BFLOAT16) {
                bfloat16_tiles(x, w, bytes, layer->bias + n, sums, size > TILE, block == 0);
            } else {
                int8_tiles(x, w, bytes, layer->sums + n, sums, size > TILE, block == 0);
                become_values(sums, PANEL, size, p->row_scales + r, layer, n);
            }
            activate(p->activation, sums, size * PANEL);
            for (int64_t i = 0; i < size; i++) memcpy(p->y + (r + i) * out + n, sums + i * PANEL, 4 * PANEL);
        }
    _tile_release();
}
#endif

/* A piece of the outputs of a product: some panels. */
static void multiply(void *task, int64_t piece, int64_t thread) {
    (void)thread;
    const Product *p = task;
    const Linear *layer = p->layer;
    int64_t out = layer->out, panels = out / PANEL;
    int64_t first = panels * piece / p->pieces, end = panels * (piece + 1) / p->pieces;
#ifdef TILE
    if (fits_tiles(p)) {
        multiply_tiles(p, first, end);
        return;
    }
#endif
    for (int64_t n = first * PANEL; n < end * PANEL; n += PANEL)
        for (int64_t r = 0; r < p->rows; r += BLOCK) {
            int64_t some = p->rows - r < BLOCK ? p->rows - r : BLOCK;
            float *y = p->y + r * out + n;
            const char *x = (const char *)p->x + r * layer->in * sizes[p->precision];
            blocks[p->precision][some - 1](x, p->row_scales + r, layer, n, y);
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
