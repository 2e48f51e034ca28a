/* Multiplication with tiles of 16 rows of 64 bytes (AMX), several times as fast as with vectors. A panel's
   weights are two tiles wide. */
#ifndef HEEDFUL_MATMUL_TILES_H
#define HEEDFUL_MATMUL_TILES_H

#include "matmul_kernels.h"

#define HEEDFUL_TILES
#define TILE 16
#define TILES_FROM 8 /* rows; with fewer, INT8 vectors are as fast */

/* bfloat16 for any number of rows, or a row's sums would depend on it; those of INT8 are exact. */
static int fits_tiles(const Multiplication *m) {
    int64_t bytes = m->layer->in * types[m->precision].weight_size;
    if (bytes % 64 || m->precision == FLOAT32) return 0;
    return m->precision == BFLOAT16 || m->rows >= TILES_FROM;
}

/* Initialise everything: compilers do not see which memory tiles are loaded from. */
static inline void settle(const void *there) { __asm__ volatile("" : : "r"(there) : "memory"); }

/* Tiles 0 to 3 are sums of two blocks of rows, 4 and 5 inputs of either, 6 and 7 weights. */
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

/* Sums of up to two tiles of rows with a panel, (rows, PANEL), starting from the values of the row `begin`.
 */
#define SUM_TILES(TYPE, DOT)                                                                                 \
    static void TYPE##_tiles(const char *x, const char *w, int64_t bytes, const void *begin, float *sums,    \
                             int has_more, int is_first) {                                                   \
        const char *begin_too = (const char *)begin + 64, *x_too = x + TILE * bytes;                         \
        _tile_loadd(0, begin, 0);                                                                            \
        _tile_loadd(1, begin_too, 0);                                                                        \
        _tile_loadd(2, begin, 0);                                                                            \
        _tile_loadd(3, begin_too, 0);                                                                        \
        for (int64_t k = 0; k < bytes; k += 64, w += 2 * TILE * 64) {                                        \
            for (int line = 0; is_first && line < 2 * TILE; line++)                                          \
                __builtin_prefetch(w + AHEAD + 64 * line);                                                   \
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
        if (has_more) {                                                                                      \
            _tile_stored(2, sums + TILE * PANEL, 4 * PANEL);                                                 \
            _tile_stored(3, sums + TILE * PANEL + 16, 4 * PANEL);                                            \
        }                                                                                                    \
        settle(sums);                                                                                        \
    }
SUM_TILES(bfloat16, _tile_dpbf16ps)
SUM_TILES(int8, _tile_dpbusd)

/* Dequantise the sums of a panel's outputs in place. */
static void finish_tiles(float *sums, int64_t rows, const float *row_scales, const HeedfulLinear *layer,
                         int64_t first) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < PANEL; i += LANES) {
            Ints each;
            memcpy(&each, sums + r * PANEL + i, sizeof each);
            int8_finish(each, row_scales[r], layer, first + i, sums + r * PANEL + i);
        }
}

/* Panels of a multiplication. Blocks of rows have one size: the last one overlaps the one before. */
static void multiply_tiles(const Multiplication *m, int64_t first, int64_t end) {
    const HeedfulLinear *layer = m->layer;
    int64_t bytes = layer->in * types[m->precision].weight_size, out = layer->out, rows = m->rows;
    int64_t blocks = (rows + 2 * TILE - 1) / (2 * TILE), size = (rows + blocks - 1) / blocks;
    _Alignas(64) float sums[2 * TILE * PANEL];
    shape_tiles(size);
    settle(m->x);
    for (int64_t n = first * PANEL; n < end * PANEL; n += PANEL)
        for (int64_t block = 0; block < blocks; block++) {
            int64_t r = block + 1 < blocks ? block * size : rows - size;
            const char *x = (const char *)m->x + r * bytes, *w = (const char *)layer->weight + n * bytes;
            if (m->precision == BFLOAT16) {
                bfloat16_tiles(x, w, bytes, layer->bias + n, sums, size > TILE, block == 0);
            } else {
                int8_tiles(x, w, bytes, layer->sums + n, sums, size > TILE, block == 0);
                finish_tiles(sums, size, m->row_scales + r, layer, n);
            }
            activate(m->activation, sums, size * PANEL);
            for (int64_t i = 0; i < size; i++) memcpy(m->y + (r + i) * out + n, sums + i * PANEL, 4 * PANEL);
        }
    _tile_release();
}

#endif
