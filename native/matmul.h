/* Multiplication of rows with packed weights, in several precisions: most of a search's time. Each output is
   summed over the inputs in a fixed order, independent of the other rows and of the thread, so that a row's
   result depends only on the row. */
#ifndef HEEDFUL_MATMUL_H
#define HEEDFUL_MATMUL_H

#include "matmul_kernels.h"
#include "workers.h"

#if defined(__AMX_BF16__) && defined(__AMX_INT8__) && defined(__linux__)
#include "matmul_tiles.h"
#endif

#define CHUNKS 4 /* of a multiplication, for each thread: one may start late */

/* The number of threads for that many multiplications. Waking threads and moving their results between caches
   costs more than one thread needs for some ten microseconds of work. */
static int64_t worth(int64_t threads, int64_t multiplications) {
    return multiplications < 3000000 ? 1 : threads;
}

/* The cost of a layer in multiplications; reading a weight takes as long as four of them. */
static int64_t cost(int64_t in, int64_t out, int64_t rows) { return in * out * (rows + 4); }

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
