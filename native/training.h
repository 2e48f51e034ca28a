/* Parts of a training step in one pass over memory, where torch needs several: src/heedful/ops/kernels.py.
   Every function works on contiguous rows, in float32 or bfloat16 (as uint16_t); sums are always float32. */
#ifndef HEEDFUL_TRAINING_H
#define HEEDFUL_TRAINING_H

#include "heedful.h"
#include "vectors.h"

#define WIDEST 65536 /* elements of a row; MAX_WIDTH in kernels.py */

static inline int are_sizes(int64_t rows, int64_t width) { return rows >= 0 && width > 0 && width <= WIDEST; }

static inline float float_of(float x) { return x; }

/* Random bits of an element are a hash of its index and a seed: the backward pass recomputes them. */
static inline uint32_t hashed(uint32_t x) {
    x ^= x >> 16;
    x *= 0x21f0aaadu;
    x ^= x >> 15;
    x *= 0x735a2d97u;
    x ^= x >> 15;
    return x;
}
static inline uint32_t row_key(uint64_t seed, int64_t row) {
    return hashed(hashed((uint32_t)seed + (uint32_t)row * 0x9e3779b9u) ^ (uint32_t)(seed >> 32));
}
static inline float kept(uint32_t key, int64_t element, uint32_t threshold, float scale) {
    return hashed(key + (uint32_t)element * 0x85ebca6bu) >= threshold ? scale : 0.0f;
}

/* y = gain (s - mean) / deviation + shift, where s = x + dropout(h), row by row. */
#define RESIDUAL_NORM(NAME, T, IN, OUT)                                                                      \
    static int32_t NAME(const T *restrict x, const T *restrict h, const float *restrict gain,                \
                        const float *restrict shift, T *restrict y, T *restrict normed,                      \
                        float *restrict inverse, int64_t rows, int64_t width, float eps, uint64_t seed,      \
                        uint32_t threshold, float scale) {                                                   \
        if (!are_sizes(rows, width)) return HEEDFUL_BAD_ARGUMENT;                                            \
        float s[WIDEST];                                                                                     \
        for (int64_t row = 0; row < rows; row++, x += width, h += width, y += width, normed += width) {      \
            uint32_t key = row_key(seed, row);                                                               \
            if (threshold) {                                                                                 \
                for (int64_t i = 0; i < width; i++)                                                          \
                    s[i] = IN(x[i]) + IN(h[i]) * kept(key, i, threshold, scale);                             \
            } else {                                                                                         \
                for (int64_t i = 0; i < width; i++) s[i] = IN(x[i]) + IN(h[i]);                              \
            }                                                                                                \
            float mean = total(s, width) / (float)width;                                                     \
            float share = 1.0f / sqrtf(squares(s, width, mean) / (float)width + eps);                        \
            inverse[row] = share;                                                                            \
            for (int64_t i = 0; i < width; i++) {                                                            \
                float n = (s[i] - mean) * share;                                                             \
                normed[i] = OUT(n);                                                                          \
                y[i] = OUT(n * gain[i] + shift[i]);                                                          \
            }                                                                                                \
        }                                                                                                    \
        return HEEDFUL_OK;                                                                                   \
    }
RESIDUAL_NORM(residual_norm_float32, float, float_of, float_of)
RESIDUAL_NORM(residual_norm_bfloat16, uint16_t, float_of_bf16, bf16_of)

/* Gradients by x, h, gain and shift (the last two are accumulated); dh may be NULL without dropout. */
#define RESIDUAL_NORM_BACKWARD(NAME, T, IN, OUT)                                                             \
    static int32_t NAME(const T *restrict dy, const T *restrict normed, const float *restrict inverse,       \
                        const float *restrict gain, T *restrict dx, T *restrict dh, float *restrict dgain,   \
                        float *restrict dshift, int64_t rows, int64_t width, uint64_t seed,                  \
                        uint32_t threshold, float scale) {                                                   \
        if (!are_sizes(rows, width)) return HEEDFUL_BAD_ARGUMENT;                                            \
        float dn[WIDEST], n[WIDEST];                                                                         \
        for (int64_t row = 0; row < rows; row++, dy += width, normed += width, dx += width) {                \
            for (int64_t i = 0; i < width; i++) {                                                            \
                float d = IN(dy[i]);                                                                         \
                n[i] = IN(normed[i]);                                                                        \
                dgain[i] += d * n[i];                                                                        \
                dshift[i] += d;                                                                              \
                dn[i] = d * gain[i];                                                                         \
            }                                                                                                \
            float mean = total(dn, width) / (float)width, along = dot(dn, n, width) / (float)width;          \
            float share = inverse[row];                                                                      \
            for (int64_t i = 0; i < width; i++) {                                                            \
                dn[i] = share * (dn[i] - mean - n[i] * along);                                               \
                dx[i] = OUT(dn[i]);                                                                          \
            }                                                                                                \
            if (threshold) {                                                                                 \
                uint32_t key = row_key(seed, row);                                                           \
                for (int64_t i = 0; i < width; i++) dh[i] = OUT(dn[i] * kept(key, i, threshold, scale));     \
                dh += width;                                                                                 \
            }                                                                                                \
        }                                                                                                    \
        return HEEDFUL_OK;                                                                                   \
    }
RESIDUAL_NORM_BACKWARD(residual_norm_backward_float32, float, float_of, float_of)
RESIDUAL_NORM_BACKWARD(residual_norm_backward_bfloat16, uint16_t, float_of_bf16, bf16_of)

/* Replace scores (B, H, T, S) by softmax(scale scores) where the mask allows; a fully masked row is zero. The
   mask (B or 1, 1, T or 1, S) is read with a stride of 0 along broadcast dimensions. */
#define MASKED_SOFTMAX(NAME, T, IN, OUT)                                                                     \
    static int32_t NAME(T *restrict scores, const uint8_t *restrict mask, int64_t rows, int64_t heads,       \
                        int64_t queries, int64_t keys, int64_t mask_row, int64_t mask_query, float scale) {  \
        if (!are_sizes(rows, keys) || heads < 0 || queries < 0 || mask_row < 0 || mask_query < 0)            \
            return HEEDFUL_BAD_ARGUMENT;                                                                     \
        float s[WIDEST];                                                                                     \
        for (int64_t at = 0; at < rows * heads * queries; at++, scores += keys) {                            \
            int64_t row = at / (heads * queries), query = at % queries;                                      \
            const uint8_t *allowed = mask + row * mask_row + query * mask_query;                             \
            for (int64_t i = 0; i < keys; i++) s[i] = allowed[i] ? IN(scores[i]) * scale : -INFINITY;        \
            float highest = largest(s, keys);                                                                \
            float sum = exponentials_of(s, keys, highest == -INFINITY ? 0.0f : highest);                     \
            float share = sum == 0.0f ? 0.0f : 1.0f / sum;                                                   \
            for (int64_t i = 0; i < keys; i++) scores[i] = OUT(s[i] * share);                                \
        }                                                                                                    \
        return HEEDFUL_OK;                                                                                   \
    }
MASKED_SOFTMAX(masked_softmax_float32, float, float_of, float_of)
MASKED_SOFTMAX(masked_softmax_bfloat16, uint16_t, float_of_bf16, bf16_of)

#define MASKED_SOFTMAX_BACKWARD(NAME, T, IN, OUT)                                                            \
    static int32_t NAME(const T *restrict dweights, const T *restrict weights, T *restrict dscores,          \
                        int64_t rows, int64_t keys, float scale) {                                           \
        if (!are_sizes(rows, keys)) return HEEDFUL_BAD_ARGUMENT;                                             \
        float d[WIDEST], w[WIDEST];                                                                          \
        for (int64_t row = 0; row < rows; row++, dweights += keys, weights += keys, dscores += keys) {       \
            for (int64_t i = 0; i < keys; i++) {                                                             \
                d[i] = IN(dweights[i]);                                                                      \
                w[i] = IN(weights[i]);                                                                       \
            }                                                                                                \
            float along = dot(d, w, keys);                                                                   \
            for (int64_t i = 0; i < keys; i++) dscores[i] = OUT((d[i] - along) * w[i] * scale);              \
        }                                                                                                    \
        return HEEDFUL_OK;                                                                                   \
    }
MASKED_SOFTMAX_BACKWARD(masked_softmax_backward_float32, float, float_of, float_of)
MASKED_SOFTMAX_BACKWARD(masked_softmax_backward_bfloat16, uint16_t, float_of_bf16, bf16_of)

/* Replace logits by softmax(logits) minus `confidence` at the target: the gradient of the loss, except for
   the part that is equal in every row. nll gets Z - z_target of each row, norms Z, where Z = log sum exp. */
#define LOSS_ROWS(NAME, T, IN, OUT)                                                                          \
    static int32_t NAME(T *restrict logits, const int64_t *restrict targets, float *restrict nll,            \
                        float *restrict norms, int64_t rows, int64_t width, float confidence) {              \
        float s[WIDEST];                                                                                     \
        if (!are_sizes(rows, width)) return HEEDFUL_BAD_ARGUMENT;                                            \
        for (int64_t row = 0; row < rows; row++)                                                             \
            if (targets[row] < 0 || targets[row] >= width) return HEEDFUL_BAD_ARGUMENT;                      \
        for (int64_t row = 0; row < rows; row++, logits += width) {                                          \
            for (int64_t i = 0; i < width; i++) s[i] = IN(logits[i]);                                        \
            float highest = largest(s, width), z = s[targets[row]];                                          \
            float sum = exponentials_of(s, width, highest), share = 1.0f / sum;                              \
            norms[row] = highest + logf(sum);                                                                \
            nll[row] = norms[row] - z;                                                                       \
            s[targets[row]] -= confidence * sum;                                                             \
            for (int64_t i = 0; i < width; i++) logits[i] = OUT(s[i] * share);                               \
        }                                                                                                    \
        return HEEDFUL_OK;                                                                                   \
    }
LOSS_ROWS(loss_rows_float32, float, float_of, float_of)
LOSS_ROWS(loss_rows_bfloat16, uint16_t, float_of_bf16, bf16_of)

/* Add a bfloat16 matrix to a float32 one. */
static void add_bfloat16(float *restrict sum, const uint16_t *restrict addend, int64_t count) {
    for (int64_t i = 0; i < count; i++) sum[i] += float_of_bf16(addend[i]);
}

#endif
