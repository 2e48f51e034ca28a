/* Parts of a training step in one pass over memory each, where torch takes several: see kernels.py.

   Every function works on contiguous rows, in float32 or bfloat16 (as uint16_t); sums are float32 always. */
#include "vectors.h"

#define WIDEST 65536 /* elements of a row; MAX_WIDTH in kernels.py */

static inline float float_of(float x) { return x; }

/* Random bits of an element are a hash of its place and a seed: backward asks again and nothing is stored. */
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
    void NAME(const T *restrict x, const T *restrict h, const float *restrict gain,                          \
              const float *restrict shift, T *restrict y, T *restrict normed, float *restrict inverse,       \
              int64_t rows, int64_t width, float eps, uint64_t seed, uint32_t threshold, float scale) {      \
        float s[WIDEST];                                                                                     \
        for (int64_t row = 0; row < rows; row++, x += width, h += width, y += width, normed += width) {      \
            uint32_t key = row_key(seed, row);                                                               \
            float sum = 0.0f, squares = 0.0f;                                                                \
            if (threshold) {                                                                                 \
                for (int64_t i = 0; i < width; i++)                                                          \
                    s[i] = IN(x[i]) + IN(h[i]) * kept(key, i, threshold, scale);                             \
            } else {                                                                                         \
                for (int64_t i = 0; i < width; i++) s[i] = IN(x[i]) + IN(h[i]);                              \
            }                                                                                                \
            for (int64_t i = 0; i < width; i++) sum += s[i];                                                 \
            float mean = sum / (float)width;                                                                 \
            for (int64_t i = 0; i < width; i++) squares += (s[i] - mean) * (s[i] - mean);                    \
            inverse[row] = 1.0f / sqrtf(squares / (float)width + eps);                                       \
            for (int64_t i = 0; i < width; i++) {                                                            \
                float n = (s[i] - mean) * inverse[row];                                                      \
                normed[i] = OUT(n);                                                                          \
                y[i] = OUT(n * gain[i] + shift[i]);                                                          \
            }                                                                                                \
        }                                                                                                    \
    }
RESIDUAL_NORM(residual_norm_float32, float, float_of, float_of)
RESIDUAL_NORM(residual_norm_bfloat16, uint16_t, float_of_bf16, bf16_of)

/* Gradients by x, h, gain and shift (the latter two are added to); dh may be NULL where nothing is dropped.
 */
#define RESIDUAL_NORM_BACKWARD(NAME, T, IN, OUT)                                                             \
    void NAME(const T *restrict dy, const T *restrict normed, const float *restrict inverse,                 \
              const float *restrict gain, T *restrict dx, T *restrict dh, float *restrict dgain,             \
              float *restrict dshift, int64_t rows, int64_t width, uint64_t seed, uint32_t threshold,        \
              float scale) {                                                                                 \
        float dn[WIDEST];                                                                                    \
        for (int64_t row = 0; row < rows; row++, dy += width, normed += width, dx += width) {                \
            float sum = 0.0f, along = 0.0f;                                                                  \
            for (int64_t i = 0; i < width; i++) {                                                            \
                float d = IN(dy[i]), n = IN(normed[i]);                                                      \
                dgain[i] += d * n;                                                                           \
                dshift[i] += d;                                                                              \
                dn[i] = d * gain[i];                                                                         \
                sum += dn[i];                                                                                \
                along += dn[i] * n;                                                                          \
            }                                                                                                \
            sum /= (float)width;                                                                             \
            along /= (float)width;                                                                           \
            for (int64_t i = 0; i < width; i++) {                                                            \
                dn[i] = inverse[row] * (dn[i] - sum - IN(normed[i]) * along);                                \
                dx[i] = OUT(dn[i]);                                                                          \
            }                                                                                                \
            if (threshold) {                                                                                 \
                uint32_t key = row_key(seed, row);                                                           \
                for (int64_t i = 0; i < width; i++) dh[i] = OUT(dn[i] * kept(key, i, threshold, scale));     \
                dh += width;                                                                                 \
            }                                                                                                \
        }                                                                                                    \
    }
RESIDUAL_NORM_BACKWARD(residual_norm_backward_float32, float, float_of, float_of)
RESIDUAL_NORM_BACKWARD(residual_norm_backward_bfloat16, uint16_t, float_of_bf16, bf16_of)

/* Scores (B, H, T, S) become softmax(scale scores) where the mask allows; a row without any choice is zero.
   The mask (B or 1, 1, T or 1, S) is read with a stride of 0 where it says the same for all. */
#define MASKED_SOFTMAX(NAME, T, IN, OUT)                                                                     \
    void NAME(T *restrict scores, const uint8_t *restrict mask, int64_t rows, int64_t heads,                 \
              int64_t queries, int64_t keys, int64_t mask_row, int64_t mask_query, float scale) {            \
        float s[WIDEST];                                                                                     \
        int64_t filled = (keys + LANES - 1) / LANES * LANES;                                                 \
        for (int64_t i = keys; i < filled; i++) s[i] = -INFINITY;                                            \
        for (int64_t place = 0; place < rows * heads * queries; place++, scores += keys) {                   \
            int64_t row = place / (heads * queries), query = place % queries;                                \
            const uint8_t *allowed = mask + row * mask_row + query * mask_query;                             \
            for (int64_t i = 0; i < keys; i++) s[i] = allowed[i] ? IN(scores[i]) * scale : -INFINITY;        \
            float highest = largest(s, filled), sum = 0.0f;                                                  \
            float least = highest == -INFINITY ? 0.0f : highest;                                             \
            for (int64_t i = 0; i < filled; i++) {                                                           \
                float e = exp_of_negative(s[i] - least);                                                     \
                s[i] = s[i] == -INFINITY ? 0.0f : e;                                                         \
                sum += s[i];                                                                                 \
            }                                                                                                \
            float share = sum == 0.0f ? 0.0f : 1.0f / sum;                                                   \
            for (int64_t i = 0; i < keys; i++) scores[i] = OUT(s[i] * share);                                \
            for (int64_t i = keys; i < filled; i++) s[i] = -INFINITY;                                        \
        }                                                                                                    \
    }
MASKED_SOFTMAX(masked_softmax_float32, float, float_of, float_of)
MASKED_SOFTMAX(masked_softmax_bfloat16, uint16_t, float_of_bf16, bf16_of)

#define MASKED_SOFTMAX_BACKWARD(NAME, T, IN, OUT)                                                            \
    void NAME(const T *restrict dweights, const T *restrict weights, T *restrict dscores, int64_t rows,      \
              int64_t keys, float scale) {                                                                   \
        for (int64_t row = 0; row < rows; row++, dweights += keys, weights += keys, dscores += keys) {       \
            float along = 0.0f;                                                                              \
            for (int64_t i = 0; i < keys; i++) along += IN(dweights[i]) * IN(weights[i]);                    \
            for (int64_t i = 0; i < keys; i++)                                                               \
                dscores[i] = OUT((IN(dweights[i]) - along) * IN(weights[i]) * scale);                        \
        }                                                                                                    \
    }
MASKED_SOFTMAX_BACKWARD(masked_softmax_backward_float32, float, float_of, float_of)
MASKED_SOFTMAX_BACKWARD(masked_softmax_backward_bfloat16, uint16_t, float_of_bf16, bf16_of)

/* Logits become softmax(logits) less `sure` at the wanted id: the gradient of the loss by them, but for what
   is the same in every row. nll gets Z - z_w of each row, norms Z, where Z = log sum exp. */
#define LOSS_ROWS(NAME, T, IN, OUT)                                                                          \
    void NAME(T *restrict logits, const int64_t *restrict wanted, float *restrict nll,                       \
              float *restrict norms, int64_t rows, int64_t width, float sure) {                              \
        float s[WIDEST];                                                                                     \
        for (int64_t row = 0; row < rows; row++, logits += width) {                                          \
            for (int64_t i = 0; i < width; i++) s[i] = IN(logits[i]);                                        \
            float highest = largest(s, width), sum = 0.0f, z = s[wanted[row]];                               \
            for (int64_t i = 0; i < width; i++) {                                                            \
                s[i] = exp_of_negative(s[i] - highest);                                                      \
                sum += s[i];                                                                                 \
            }                                                                                                \
            float share = 1.0f / sum;                                                                        \
            norms[row] = highest + logf(sum);                                                                \
            nll[row] = norms[row] - z;                                                                       \
            s[wanted[row]] -= sure * sum;                                                                    \
            for (int64_t i = 0; i < width; i++) logits[i] = OUT(s[i] * share);                               \
        }                                                                                                    \
    }
LOSS_ROWS(loss_rows_float32, float, float_of, float_of)
LOSS_ROWS(loss_rows_bfloat16, uint16_t, float_of_bf16, bf16_of)

/* Add a bfloat16 matrix to a float32 one. */
void add_bfloat16(float *restrict sum, const uint16_t *restrict addend, int64_t count) {
    for (int64_t i = 0; i < count; i++) sum[i] += float_of_bf16(addend[i]);
}
