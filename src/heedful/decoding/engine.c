/* Encoder and decoder steps of a trained model on one thread; engine.py says what it is for and calls it.

   Activations are float32. A linear layer multiplies in the precision its weights were packed in: each output
   is summed over the inputs in one fixed order, whatever stands in the other rows, so that a sentence's
   result depends on nothing but the sentence. */
#include "vectors.h"

enum { FLOAT32, BFLOAT16, INT8 };
enum { IDENTITY, RELU, GELU, SWISH };
#define PANEL 32 /* outputs computed together; packed weights are filled up to a multiple of it */
#define BLOCK 12 /* rows computed together: 24 accumulators of a processor's 32 vector registers */

typedef struct {
    int64_t in, out;     /* out as filled up */
    const void *weight;  /* [out / PANEL][in / g][PANEL][g], g = 1, 2, 4 for FLOAT32, BFLOAT16, INT8 */
    const float *bias;   /* (out,), zeros where the layer has none */
    const float *scale;  /* INT8: (out,) of each output's weights */
    const int32_t *sums; /* INT8: (out,) sums of each output's weights, times 128 */
} Linear;

typedef struct {
    const float *gain, *shift;
} Norm;

typedef struct {
    Linear query_key_value, self_output, query, cross_output, inner, outer;
    Norm self_norm, cross_norm, outer_norm;
} Layer; /* the encoder's have neither query nor cross_output nor cross_norm */

typedef struct {
    int64_t width, inner, heads, vocabulary;
    int64_t num_encoder_layers, num_decoder_layers;
    int32_t precision, activation, norm_first, has_final_norm;
    float eps, embedding_scale;
    const float *src_embedding, *tgt_embedding; /* (V, D) */
    const Layer *encoder, *decoder;
    const Linear *memory; /* of each decoder layer: source states to keys and values, (2 D) */
    Norm encoder_norm, decoder_norm;
    Linear output;
} Model;

/* ---- products ---- */

#define FLOAT32_BLOCK(R)                                                                                     \
    static void float32_block_##R(const float *x, int64_t in, const float *w, const float *bias, float *y,   \
                                  int64_t out) {                                                             \
        Floats sum[R][2];                                                                                    \
        for (int r = 0; r < R; r++) {                                                                        \
            memcpy(&sum[r][0], bias, 64);                                                                    \
            memcpy(&sum[r][1], bias + 16, 64);                                                               \
        }                                                                                                    \
        for (int64_t k = 0; k < in; k++, w += PANEL) {                                                       \
            Floats w0, w1;                                                                                   \
            memcpy(&w0, w, 64);                                                                              \
            memcpy(&w1, w + 16, 64);                                                                         \
            for (int r = 0; r < R; r++) {                                                                    \
                sum[r][0] += x[r * in + k] * w0;                                                             \
                sum[r][1] += x[r * in + k] * w1;                                                             \
            }                                                                                                \
        }                                                                                                    \
        for (int r = 0; r < R; r++) {                                                                        \
            memcpy(y + r * out, &sum[r][0], 64);                                                             \
            memcpy(y + r * out + 16, &sum[r][1], 64);                                                        \
        }                                                                                                    \
    }

#ifdef __AVX512BF16__
#define BFLOAT16_BLOCK(R)                                                                                    \
    static void bfloat16_block_##R(const uint16_t *x, int64_t in, const uint16_t *w, const float *bias,      \
                                   float *y, int64_t out) {                                                  \
        __m512 sum[R][2];                                                                                    \
        for (int r = 0; r < R; r++) {                                                                        \
            sum[r][0] = _mm512_loadu_ps(bias);                                                               \
            sum[r][1] = _mm512_loadu_ps(bias + 16);                                                          \
        }                                                                                                    \
        for (int64_t k = 0; k < in; k += 2, w += 2 * PANEL) {                                                \
            __m512bh w0 = (__m512bh)_mm512_loadu_si512(w), w1 = (__m512bh)_mm512_loadu_si512(w + PANEL);     \
            for (int r = 0; r < R; r++) {                                                                    \
                int32_t pair;                                                                                \
                memcpy(&pair, x + r * in + k, 4);                                                            \
                __m512bh both = (__m512bh)_mm512_set1_epi32(pair);                                           \
                sum[r][0] = _mm512_dpbf16_ps(sum[r][0], both, w0);                                           \
                sum[r][1] = _mm512_dpbf16_ps(sum[r][1], both, w1);                                           \
            }                                                                                                \
        }                                                                                                    \
        for (int r = 0; r < R; r++) {                                                                        \
            _mm512_storeu_ps(y + r * out, sum[r][0]);                                                        \
            _mm512_storeu_ps(y + r * out + 16, sum[r][1]);                                                   \
        }                                                                                                    \
    }
#else
#define BFLOAT16_BLOCK(R)
#endif

#ifdef __AVX512VNNI__
#define INT8_BLOCK(R)                                                                                        \
    static void int8_block_##R(const uint8_t *x, int64_t in, const int8_t *w, int32_t *y, int64_t out) {     \
        __m512i sum[R][2];                                                                                   \
        for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = _mm512_setzero_si512();                          \
        for (int64_t k = 0; k < in; k += 4, w += 4 * PANEL) {                                                \
            __m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + 2 * PANEL);                      \
            for (int r = 0; r < R; r++) {                                                                    \
                int32_t four;                                                                                \
                memcpy(&four, x + r * in + k, 4);                                                            \
                __m512i all = _mm512_set1_epi32(four);                                                       \
                sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], all, w0);                                         \
                sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], all, w1);                                         \
            }                                                                                                \
        }                                                                                                    \
        for (int r = 0; r < R; r++) {                                                                        \
            _mm512_storeu_si512(y + r * out, sum[r][0]);                                                     \
            _mm512_storeu_si512(y + r * out + 16, sum[r][1]);                                                \
        }                                                                                                    \
    }
#else
#define INT8_BLOCK(R)
#endif

#define EACH(B) B(1) B(2) B(3) B(4) B(5) B(6) B(7) B(8) B(9) B(10) B(11) B(12)
EACH(FLOAT32_BLOCK)
EACH(BFLOAT16_BLOCK)
EACH(INT8_BLOCK)
#define ALL(P)                                                                                               \
    {P##_block_1, P##_block_2, P##_block_3, P##_block_4,  P##_block_5,  P##_block_6,                         \
     P##_block_7, P##_block_8, P##_block_9, P##_block_10, P##_block_11, P##_block_12}
static void (*const float32_blocks[])(const float *, int64_t, const float *, const float *, float *,
                                      int64_t) = ALL(float32);
#ifdef __AVX512BF16__
static void (*const bfloat16_blocks[])(const uint16_t *, int64_t, const uint16_t *, const float *, float *,
                                       int64_t) = ALL(bfloat16);
#endif
#ifdef __AVX512VNNI__
static void (*const int8_blocks[])(const uint8_t *, int64_t, const int8_t *, int32_t *, int64_t) = ALL(int8);
#endif

/* Whether this processor's build multiplies in that precision. */
int32_t supports(int32_t precision) {
    if (precision == FLOAT32) return 1;
#ifdef __AVX512BF16__
    if (precision == BFLOAT16) return 1;
#endif
#ifdef __AVX512VNNI__
    if (precision == INT8) return 1;
#endif
    return 0;
}

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

/* y (rows, out) = x (rows, in) W + bias. `room` holds rows * in of x in the weights' precision, and for INT8
   the rows' scales. */
static void linear(const Linear *layer, int32_t precision, const float *x, int64_t rows, float *y,
                   void *room) {
    int64_t in = layer->in, out = layer->out;
    const void *narrow = x;
    float *row_scales = NULL;
    if (precision == BFLOAT16) {
        uint16_t *to = room;
        for (int64_t i = 0; i < rows * in; i++) to[i] = bf16_of(x[i]);
        narrow = to;
    } else if (precision == INT8) {
        row_scales = room;
        uint8_t *to = (uint8_t *)(row_scales + rows);
        for (int64_t r = 0; r < rows; r++) row_scales[r] = quantised(x + r * in, in, to + r * in);
        narrow = to;
    }
    for (int64_t n = 0; n < out; n += PANEL)
        for (int64_t r = 0; r < rows; r += BLOCK) {
            int64_t some = rows - r < BLOCK ? rows - r : BLOCK;
            float *to = y + r * out + n;
            if (precision == FLOAT32)
                float32_blocks[some - 1]((const float *)narrow + r * in, in,
                                         (const float *)layer->weight + n * in, layer->bias + n, to, out);
#ifdef __AVX512BF16__
            else if (precision == BFLOAT16)
                bfloat16_blocks[some - 1]((const uint16_t *)narrow + r * in, in,
                                          (const uint16_t *)layer->weight + n * in, layer->bias + n, to, out);
#endif
#ifdef __AVX512VNNI__
            else if (precision == INT8) {
                int8_blocks[some - 1]((const uint8_t *)narrow + r * in, in,
                                      (const int8_t *)layer->weight + n * in, (int32_t *)to, out);
                for (int64_t i = 0; i < some; i++)
                    for (int64_t j = 0; j < PANEL; j++) {
                        int32_t sum;
                        memcpy(&sum, to + i * out + j, 4);
                        to[i * out + j] =
                            (float)(sum - layer->sums[n + j]) * row_scales[r + i] * layer->scale[n + j] +
                            layer->bias[n + j];
                    }
            }
#endif
        }
}

/* ---- what stands between the products ---- */

static void activate(int32_t kind, float *x, int64_t count) {
    if (kind == RELU)
        for (int64_t i = 0; i < count; i++) x[i] = x[i] > 0.0f ? x[i] : 0.0f;
    else if (kind == GELU)
        for (int64_t i = 0; i < count; i++) x[i] *= 0.5f * (1.0f + erff(x[i] * 0.70710678f));
    else if (kind == SWISH)
        for (int64_t i = 0; i < count; i++) x[i] /= 1.0f + expf(-x[i]);
}

static void normalise(const Norm *norm, const float *x, float *y, int64_t rows, int64_t width, float eps) {
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        float sum = 0.0f, squares = 0.0f;
        for (int64_t i = 0; i < width; i++) sum += x[i];
        float mean = sum / (float)width;
        for (int64_t i = 0; i < width; i++) squares += (x[i] - mean) * (x[i] - mean);
        float inverse = 1.0f / sqrtf(squares / (float)width + eps);
        for (int64_t i = 0; i < width; i++) y[i] = (x[i] - mean) * inverse * norm->gain[i] + norm->shift[i];
    }
}

/* scores of n keys become weights that sum to 1 */
static void softmax(float *scores, int64_t n) {
    float highest = largest(scores, n), sum = 0.0f;
    for (int64_t j = 0; j < n; j++) scores[j] = exp_of_negative(scores[j] - highest);
    for (int64_t j = 0; j < n; j++) sum += scores[j];
    float share = 1.0f / sum;
    for (int64_t j = 0; j < n; j++) scores[j] *= share;
}

/* One query over n keys and values, given by pointers to their rows; `scores` has room for n. Heads of N
   vectors stay in registers. */
#define ATTEND(N)                                                                                            \
    static void attend_##N(const float *query, const float **keys, const float **values, int64_t n,          \
                           int64_t heads, float scale, float *scores, float *result) {                       \
        for (int64_t h = 0; h < heads; h++) {                                                                \
            Floats q[N], sum[N];                                                                             \
            for (int i = 0; i < N; i++) {                                                                    \
                q[i] = floats_at(query + (h * N + i) * 16) * scale;                                          \
                sum[i] = (Floats){0};                                                                        \
            }                                                                                                \
            for (int64_t j = 0; j < n; j++) {                                                                \
                Floats dot = q[0] * floats_at(keys[j] + h * N * 16);                                         \
                for (int i = 1; i < N; i++) dot += q[i] * floats_at(keys[j] + (h * N + i) * 16);             \
                scores[j] = sum_of(dot);                                                                     \
            }                                                                                                \
            softmax(scores, n);                                                                              \
            for (int64_t j = 0; j < n; j++)                                                                  \
                for (int i = 0; i < N; i++) sum[i] += scores[j] * floats_at(values[j] + (h * N + i) * 16);   \
            for (int i = 0; i < N; i++) memcpy(result + (h * N + i) * 16, &sum[i], 64);                      \
        }                                                                                                    \
    }
ATTEND(1)
ATTEND(2)
ATTEND(4)
ATTEND(8)

static void attend(const float *query, const float **keys, const float **values, int64_t n, int64_t heads,
                   int64_t size, float *scores, float *result) {
    float scale = 1.0f / sqrtf((float)size);
    switch (size) {
    case 16:
        attend_1(query, keys, values, n, heads, scale, scores, result);
        return;
    case 32:
        attend_2(query, keys, values, n, heads, scale, scores, result);
        return;
    case 64:
        attend_4(query, keys, values, n, heads, scale, scores, result);
        return;
    case 128:
        attend_8(query, keys, values, n, heads, scale, scores, result);
        return;
    }
    for (int64_t h = 0; h < heads; h++, query += size, result += size) {
        for (int64_t j = 0; j < n; j++) {
            float dot = 0.0f;
            for (int64_t i = 0; i < size; i++) dot += query[i] * keys[j][h * size + i];
            scores[j] = dot * scale;
        }
        softmax(scores, n);
        memset(result, 0, size * sizeof(float));
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < size; i++) result[i] += scores[j] * values[j][h * size + i];
    }
}

/* ---- the model ---- */

/* Room for the activations of some rows, and for one attention. */
typedef struct {
    float *x, *normed, *wide, *heads, *out, *scores;
    const float **keys, **values;
    void *narrow, *memory;
} Room;

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int make_room(Room *room, const Model *m, int64_t rows, int64_t longest) {
    int64_t width = m->width, widest = larger(3 * width, m->inner);
    size_t floats = (size_t)(rows * (4 * width + widest) + longest + 16);
    size_t narrow = (size_t)(rows * widest) * sizeof(float) + (size_t)rows * sizeof(float) + 64;
    char *memory = malloc(floats * sizeof(float) + narrow + 2 * (size_t)longest * sizeof(float *));
    room->memory = memory;
    if (!memory) return 0;
    room->keys = (const float **)memory;
    room->values = room->keys + longest;
    room->x = (float *)(room->values + longest);
    room->normed = room->x + rows * width;
    room->heads = room->normed + rows * width;
    room->out = room->heads + rows * width;
    room->wide = room->out + rows * width;
    room->scores = room->wide + rows * widest;
    room->narrow = room->scores + longest + 16;
    return 1;
}

static void embed(const Model *m, const float *table, const int64_t *ids, const float *positions,
                  int64_t position_step, int64_t rows, float *x) {
    for (int64_t r = 0; r < rows; r++, positions += position_step)
        for (int64_t i = 0; i < m->width; i++)
            x[r * m->width + i] = table[ids[r] * m->width + i] * m->embedding_scale + positions[i];
}

/* What a sub-layer reads: the stream itself, or normalised. */
static const float *opened(const Model *m, const Norm *norm, Room *room, int64_t rows) {
    if (!m->norm_first) return room->x;
    normalise(norm, room->x, room->normed, rows, m->width, m->eps);
    return room->normed;
}

/* What it has written joins the stream. */
static void joined(const Model *m, const Norm *norm, Room *room, int64_t rows) {
    for (int64_t i = 0; i < rows * m->width; i++) room->x[i] += room->out[i];
    if (!m->norm_first) normalise(norm, room->x, room->x, rows, m->width, m->eps);
}

static void feed_forward(const Model *m, const Layer *layer, Room *room, int64_t rows) {
    linear(&layer->inner, m->precision, opened(m, &layer->outer_norm, room, rows), rows, room->wide,
           room->narrow);
    activate(m->activation, room->wide, rows * m->inner);
    linear(&layer->outer, m->precision, room->wide, rows, room->out, room->narrow);
    joined(m, &layer->outer_norm, room, rows);
}

/* Encode sentences that stand one after the other, without padding: ids (R,), of which sentence b has those
   from starts[b] to starts[b + 1]; positions (longest, D). memory[l] gets keys and values (R, 2 D) for layer
   l of the decoder. Returns 0 where there is no memory left. */
int32_t encode(const Model *m, const int64_t *ids, const int64_t *starts, int64_t sentences,
               const float *positions, float *const *memory) {
    int64_t rows = starts[sentences], width = m->width, longest = 0;
    for (int64_t b = 0; b < sentences; b++) longest = larger(longest, starts[b + 1] - starts[b]);
    Room room;
    if (!make_room(&room, m, rows, longest)) return 0;
    for (int64_t b = 0; b < sentences; b++)
        embed(m, m->src_embedding, ids + starts[b], positions, width, starts[b + 1] - starts[b],
              room.x + starts[b] * width);
    for (const Layer *layer = m->encoder; layer < m->encoder + m->num_encoder_layers; layer++) {
        linear(&layer->query_key_value, m->precision, opened(m, &layer->self_norm, &room, rows), rows,
               room.wide, room.narrow);
        for (int64_t b = 0; b < sentences; b++) {
            int64_t first = starts[b], n = starts[b + 1] - first;
            for (int64_t j = 0; j < n; j++) {
                room.keys[j] = room.wide + (first + j) * 3 * width + width;
                room.values[j] = room.keys[j] + width;
            }
            for (int64_t j = 0; j < n; j++)
                attend(room.wide + (first + j) * 3 * width, room.keys, room.values, n, m->heads,
                       width / m->heads, room.scores, room.heads + (first + j) * width);
        }
        linear(&layer->self_output, m->precision, room.heads, rows, room.out, room.narrow);
        joined(m, &layer->self_norm, &room, rows);
        feed_forward(m, layer, &room, rows);
    }
    if (m->has_final_norm) normalise(&m->encoder_norm, room.x, room.x, rows, width, m->eps);
    for (int64_t l = 0; l < m->num_decoder_layers; l++)
        linear(&m->memory[l], m->precision, room.x, rows, memory[l], room.narrow);
    free(room.memory);
    return 1;
}

/* What the rows of a decoder stand on. Place t of row r was computed in row ancestors[r * stride + t] of its
   time; planes[t] has keys and values (layers, plane_rows[t], 2 D) of that time. */
typedef struct {
    const int64_t *sentences; /* (rows,): of each row */
    const int64_t *starts;
    float *const *memory;
    const int32_t *ancestors;
    int64_t stride;
    float *const *planes;
    const int64_t *plane_rows;
} Past;

/* Feed one more id to each row, at place t; planes[t] is filled. states (rows, D). */
int32_t step(const Model *m, const Past *past, const int64_t *ids, int64_t rows, int64_t t,
             const float *position, float *states) {
    int64_t width = m->width, longest = t + 1;
    for (int64_t r = 0; r < rows; r++) {
        int64_t b = past->sentences[r];
        longest = larger(longest, past->starts[b + 1] - past->starts[b]);
    }
    Room room;
    if (!make_room(&room, m, rows, longest)) return 0;
    embed(m, m->tgt_embedding, ids, position, 0, rows, room.x);
    for (int64_t l = 0; l < m->num_decoder_layers; l++) {
        const Layer *layer = &m->decoder[l];
        linear(&layer->query_key_value, m->precision, opened(m, &layer->self_norm, &room, rows), rows,
               room.wide, room.narrow);
        for (int64_t r = 0; r < rows; r++)
            memcpy(past->planes[t] + (l * rows + r) * 2 * width, room.wide + r * 3 * width + width,
                   2 * width * sizeof(float));
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t j = 0; j <= t; j++) {
                int64_t row = j < t ? past->ancestors[r * past->stride + j] : r;
                room.keys[j] = past->planes[j] + (l * past->plane_rows[j] + row) * 2 * width;
                room.values[j] = room.keys[j] + width;
            }
            attend(room.wide + r * 3 * width, room.keys, room.values, t + 1, m->heads, width / m->heads,
                   room.scores, room.heads + r * width);
        }
        linear(&layer->self_output, m->precision, room.heads, rows, room.out, room.narrow);
        joined(m, &layer->self_norm, &room, rows);
        linear(&layer->query, m->precision, opened(m, &layer->cross_norm, &room, rows), rows, room.wide,
               room.narrow);
        for (int64_t r = 0; r < rows; r++) {
            int64_t first = past->starts[past->sentences[r]],
                    n = past->starts[past->sentences[r] + 1] - first;
            for (int64_t j = 0; j < n; j++) {
                room.keys[j] = past->memory[l] + (first + j) * 2 * width;
                room.values[j] = room.keys[j] + width;
            }
            attend(room.wide + r * width, room.keys, room.values, n, m->heads, width / m->heads, room.scores,
                   room.heads + r * width);
        }
        linear(&layer->cross_output, m->precision, room.heads, rows, room.out, room.narrow);
        joined(m, &layer->cross_norm, &room, rows);
        feed_forward(m, layer, &room, rows);
    }
    if (m->has_final_norm) normalise(&m->decoder_norm, room.x, room.x, rows, width, m->eps);
    memcpy(states, room.x, rows * width * sizeof(float));
    free(room.memory);
    return 1;
}

#define ROWS_OF_LOGITS 24

/* log sum exp of a row */
static float log_sum(const float *z, int64_t count) {
    float highest = largest(z, count), sum = 0.0f;
    for (int64_t i = 0; i < count; i++) sum += z[i] == -INFINITY ? 0.0f : exp_of_negative(z[i] - highest);
    return highest + logf(sum);
}

/* The `count` most probable next ids of each row, best first, equal ones by id, and their log-probabilities.
   Banned ids are never among them; their probability is that of the others where `renormalize`. */
int32_t top(const Model *m, const float *states, int64_t rows, int64_t count, const int64_t *banned,
            int64_t num_banned, int32_t renormalize, float *values, int64_t *ids) {
    int64_t width = m->width, vocabulary = m->vocabulary, out = m->output.out;
    float *logits = malloc((size_t)(ROWS_OF_LOGITS * (out + 2 * width)) * sizeof(float));
    if (!logits) return 0;
    void *narrow = logits + ROWS_OF_LOGITS * out;
    for (int64_t first = 0; first < rows; first += ROWS_OF_LOGITS) {
        int64_t some = rows - first < ROWS_OF_LOGITS ? rows - first : ROWS_OF_LOGITS;
        linear(&m->output, m->precision, states + first * width, some, logits, narrow);
        for (int64_t r = first; r < first + some; r++, values += count, ids += count) {
            float *z = logits + (r - first) * out;
            for (int64_t i = vocabulary; i < out; i++) z[i] = -INFINITY;
            float norm = log_sum(z, vocabulary);
            for (int64_t i = 0; i < num_banned; i++) z[banned[i]] = -INFINITY;
            if (renormalize) norm = log_sum(z, vocabulary);
            int64_t found = 0;
            float least = -INFINITY; /* of those found, once there are `count` */
            for (int64_t i = 0; i < out; i += PANEL) {
                if (found == count && !(largest(z + i, PANEL) > least)) continue;
                for (int64_t j = i; j < i + PANEL && j < vocabulary; j++) {
                    if (found == count && !(z[j] > least)) continue;
                    int64_t place = found < count ? found++ : count - 1;
                    for (; place > 0 && values[place - 1] < z[j]; place--) {
                        values[place] = values[place - 1];
                        ids[place] = ids[place - 1];
                    }
                    values[place] = z[j];
                    ids[place] = j;
                    least = found == count ? values[count - 1] : -INFINITY;
                }
            }
            for (int64_t i = 0; i < count; i++) values[i] -= norm;
        }
    }
    free(logits);
    return 1;
}

/* All log-probabilities of what comes next, (rows, vocabulary). */
int32_t log_probs(const Model *m, const float *states, int64_t rows, float *result) {
    int64_t width = m->width, out = m->output.out;
    float *logits = malloc((size_t)(ROWS_OF_LOGITS * (out + 2 * width)) * sizeof(float));
    if (!logits) return 0;
    for (int64_t first = 0; first < rows; first += ROWS_OF_LOGITS) {
        int64_t some = rows - first < ROWS_OF_LOGITS ? rows - first : ROWS_OF_LOGITS;
        linear(&m->output, m->precision, states + first * width, some, logits, logits + ROWS_OF_LOGITS * out);
        for (int64_t r = 0; r < some; r++, result += m->vocabulary) {
            float norm = log_sum(logits + r * out, m->vocabulary);
            for (int64_t i = 0; i < m->vocabulary; i++) result[i] = logits[r * out + i] - norm;
        }
    }
    free(logits);
    return 1;
}
