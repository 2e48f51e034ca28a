/* Attention and layer norm: the parts of a layer between its matrix multiplications. */
#ifndef HEEDFUL_ATTENTION_H
#define HEEDFUL_ATTENTION_H

#include "heedful.h"
#include "vectors.h"

static void normalise(const HeedfulNorm *norm, const float *x, float *y, int64_t rows, int64_t width,
                      float eps) {
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        float mean = norm->shift ? total(x, width) / (float)width : 0.0f;
        float inverse = 1.0f / sqrtf(squares(x, width, mean) / (float)width + eps);
        if (!norm->shift)
            for (int64_t i = 0; i < width; i++) y[i] = x[i] * inverse * norm->gain[i];
        else
            for (int64_t i = 0; i < width; i++)
                y[i] = (x[i] - mean) * inverse * norm->gain[i] + norm->shift[i];
    }
}

/* Softmax of the scores of n keys, in place. */
static void softmax(float *scores, int64_t n) {
    float sum = exponentials_of(scores, n, largest(scores, n));
    float share = 1.0f / sum;
    for (int64_t j = 0; j < n; j++) scores[j] *= share;
}

/* What is added to the scores of a query at a position: table[head][distance + reach], distances up to reach.
 */
typedef struct {
    const float *table; /* NULL: nothing */
    int64_t reach, position;
} Biases;

static void add_biases(float *scores, int64_t n, Biases biases, int64_t head) {
    const float *table = biases.table + head * (2 * biases.reach + 1);
    int64_t first = biases.position - biases.reach, end = biases.position + biases.reach + 1, j = 0;
    for (; j < n && j < first; j++) scores[j] += table[0];
    for (; j < n && j < end; j++) scores[j] += table[j - first];
    for (; j < n; j++) scores[j] += table[2 * biases.reach];
}

/* Where the weights of a query go: as a mean over the heads, (width), and of each head, (heads, width); NULL:
   nowhere. */
typedef struct {
    float *mean, *of_heads;
    int64_t width;
} Weights;

/* Attention of one query over n keys and values, given by pointers to their rows. `scores` is a buffer for n
   rounded up to whole vectors. Each head has its own part of a row, `size` wide. */
static inline __attribute__((always_inline)) void attend_heads(const float *query, const float **keys,
                                                               const float **values, int64_t n, int64_t heads,
                                                               int64_t size, Biases biases, float *scores,
                                                               float *result, Weights weights) {
    float scale = 1.0f / sqrtf((float)size);
    int64_t whole = size - size % LANES, rest = size % LANES;
    for (int64_t h = 0; h < heads; h++) {
        const float *q = query + h * size;
        for (int64_t first = 0; first < n; first += LANES) {
            Floats dots[LANES];
            for (int64_t j = 0; j < LANES; j++) { /* the last key pads the vector */
                const float *key = keys[first + j < n ? first + j : n - 1] + h * size;
                dots[j] = (Floats){0};
                for (int64_t i = 0; i < whole; i += LANES)
                    dots[j] = multiply_add(load(q + i), load(key + i), dots[j]);
                if (rest)
                    dots[j] = multiply_add(load_some(q + whole, rest, 0.0f),
                                           load_some(key + whole, rest, 0.0f), dots[j]);
            }
            store(scores + first, sums_of(dots) * scale);
        }
        if (biases.table) add_biases(scores, n, biases, h);
        softmax(scores, n);
        if (weights.mean)
            for (int64_t j = 0; j < n; j++)
                weights.mean[j] = (h ? weights.mean[j] : 0.0f) + scores[j] / (float)heads;
        if (weights.of_heads) memcpy(weights.of_heads + h * weights.width, scores, (size_t)n * sizeof(float));
        int64_t i = 0;
        for (; i + 4 * LANES <= whole; i += 4 * LANES) { /* four independent sums, to hide latency */
            Floats sum[4] = {{0}};
            for (int64_t j = 0; j < n; j++)
                for (int c = 0; c < 4; c++)
                    sum[c] = multiply_add(all(scores[j]), load(values[j] + h * size + i + c * LANES), sum[c]);
            for (int c = 0; c < 4; c++) store(result + h * size + i + c * LANES, sum[c]);
        }
        for (; i < whole; i += LANES) {
            Floats sum = {0};
            for (int64_t j = 0; j < n; j++)
                sum = multiply_add(all(scores[j]), load(values[j] + h * size + i), sum);
            store(result + h * size + i, sum);
        }
        for (; i < size; i++) {
            float sum = 0.0f;
            for (int64_t j = 0; j < n; j++) sum += scores[j] * values[j][h * size + i];
            result[h * size + i] = sum;
        }
    }
}

/* The same, compiled for the usual sizes of heads. */
static void attend(const float *query, const float **keys, const float **values, int64_t n, int64_t heads,
                   int64_t size, Biases biases, float *scores, float *result, Weights weights) {
    if (size == 32)
        attend_heads(query, keys, values, n, heads, 32, biases, scores, result, weights);
    else if (size == 64)
        attend_heads(query, keys, values, n, heads, 64, biases, scores, result, weights);
    else
        attend_heads(query, keys, values, n, heads, size, biases, scores, result, weights);
}

#endif
