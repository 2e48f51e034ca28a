/* Small random models, and what they compute, one sentence at a time in double precision. */
#include "checks.h"

enum { D_MODEL = 64, D_FF = 96, SRC_VOCABULARY = 57, TGT_VOCABULARY = 61 };

HeedfulModel small_settings(int32_t precision, int64_t num_heads, int32_t activation, int32_t norm_first) {
    return (HeedfulModel){.d_model = D_MODEL,
                          .d_ff = D_FF,
                          .num_heads = num_heads,
                          .src_vocabulary = SRC_VOCABULARY,
                          .tgt_vocabulary = TGT_VOCABULARY,
                          .num_encoder_layers = LAYERS,
                          .num_decoder_layers = LAYERS,
                          .precision = precision,
                          .activation = activation,
                          .norm_first = norm_first,
                          .has_final_norm = norm_first,
                          .eps = 0.05f, /* so large that it matters */
                          .embedding_scale = sqrtf(D_MODEL)};
}

static HeedfulNorm random_norm(const HeedfulModel *m) {
    float *gain = random_normals(m->d_model, 1.0, 0.1);
    return (HeedfulNorm){gain, m->reach ? NULL : random_normals(m->d_model, 0.0, 0.1)};
}

static HeedfulLayer random_sublayers(const HeedfulModel *m, DenseLayer *dense, int is_decoder) {
    int64_t width = m->d_model, heads = m->attention_width;
    HeedfulLayer packed = {.self_norm = random_norm(m), .outer_norm = random_norm(m)};
    if (m->reach) {
        dense->gate = random_layer(width, m->d_ff, m->precision);
        packed.gate = dense->gate.packed;
        packed.biases = random_normals(m->num_heads * (2 * m->reach + 1), 0.0, 1.0);
    }
    dense->query_key_value = random_layer(width, 3 * heads, m->precision);
    dense->self_output = random_layer(heads, width, m->precision);
    dense->inner = random_layer(width, m->d_ff, m->precision);
    dense->outer = random_layer(m->d_ff, width, m->precision);
    packed.query_key_value = dense->query_key_value.packed;
    packed.self_output = dense->self_output.packed;
    packed.inner = dense->inner.packed;
    packed.outer = dense->outer.packed;
    if (!is_decoder) return packed;
    dense->query = random_layer(width, heads, m->precision);
    dense->cross_output = random_layer(heads, width, m->precision);
    packed.query = dense->query.packed;
    packed.cross_output = dense->cross_output.packed;
    packed.cross_norm = random_norm(m);
    return packed;
}

/* Some outputs have the same weights, so that they are equally probable. */
static Dense random_output(const HeedfulModel *m) {
    int64_t in = m->d_model, out = m->tgt_vocabulary;
    float *weight = random_normals(out * in, 0.0, 1.0 / sqrt((double)in)),
          *bias = random_normals(out, 0.0, 0.1);
    for (int64_t j = 5; j < out; j += 17) {
        memcpy(weight + j * in, weight + 3 * in, (size_t)in * sizeof(float));
        bias[j] = bias[3];
    }
    return pack_layer(in, out, m->precision, weight, bias);
}

SmallModel *random_model(HeedfulModel settings) {
    SmallModel *small = allocate(sizeof *small);
    int64_t width = settings.d_model;
    if (!settings.attention_width) settings.attention_width = width;
    for (int64_t l = 0; l < LAYERS; l++) {
        small->packed_encoder[l] = random_sublayers(&settings, &small->encoder[l], 0);
        small->packed_decoder[l] = random_sublayers(&settings, &small->decoder[l], 1);
        small->memory[l] = random_layer(width, 2 * settings.attention_width, settings.precision);
        small->packed_memory[l] = small->memory[l].packed;
    }
    small->output = random_output(&settings);
    small->positions = random_normals(POSITIONS * width, 0.0, 1.0);
    settings.src_embedding = random_normals(settings.src_vocabulary * width, 0.0, 0.125);
    settings.tgt_embedding = random_normals(settings.tgt_vocabulary * width, 0.0, 0.125);
    settings.encoder = small->packed_encoder;
    settings.decoder = small->packed_decoder;
    settings.memory = small->packed_memory;
    settings.encoder_norm = random_norm(&settings);
    settings.decoder_norm = random_norm(&settings);
    settings.output = small->output.packed;
    settings.output_weight = small->output.weight;
    small->model = settings;
    return small;
}

/* ---- the reference ---- */

static void reference_norm(const HeedfulModel *m, const HeedfulNorm *norm, const double *x, int64_t rows,
                           double *y) {
    int64_t width = m->d_model;
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        double mean = 0.0, variance = 0.0;
        for (int64_t i = 0; norm->shift && i < width; i++) mean += x[i] / (double)width;
        for (int64_t i = 0; i < width; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)width;
        double inverse = 1.0 / sqrt(variance + (double)m->eps);
        for (int64_t i = 0; i < width; i++)
            y[i] = (x[i] - mean) * inverse * (double)norm->gain[i] +
                   (norm->shift ? (double)norm->shift[i] : 0.0);
    }
}

/* softmax(Q K^T / sqrt(d_k) + biases) V of each head; a causal query sees keys up to its own position. `mean`
   gets the mean of the heads' weights, (rows, num_keys), unless it is NULL. */
static void reference_attention(const HeedfulModel *m, const double *queries, int64_t query_stride,
                                int64_t rows, const double *keys, int64_t key_stride, int64_t num_keys,
                                int is_causal, const float *biases, double *result, double *mean) {
    int64_t size = m->attention_width / m->num_heads, reach = m->reach;
    double *weights = malloc((size_t)(num_keys + 1) * sizeof(double));
    if (mean) memset(mean, 0, (size_t)(rows * num_keys) * sizeof(double));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < m->num_heads; h++) {
            const double *query = queries + r * query_stride + h * size, *key = keys + h * size;
            int64_t seen = is_causal ? r + 1 : num_keys;
            double highest = -INFINITY, sum = 0.0;
            for (int64_t j = 0; j < seen; j++) {
                weights[j] = 0.0;
                for (int64_t i = 0; i < size; i++) weights[j] += query[i] * key[j * key_stride + i];
                weights[j] /= sqrt((double)size);
                int64_t distance = j - r < -reach ? -reach : j - r > reach ? reach : j - r;
                if (biases) weights[j] += (double)biases[h * (2 * reach + 1) + distance + reach];
                highest = weights[j] > highest ? weights[j] : highest;
            }
            for (int64_t j = 0; j < seen; j++) sum += weights[j] = exp(weights[j] - highest);
            for (int64_t j = 0; mean && j < seen; j++)
                mean[r * num_keys + j] += weights[j] / sum / (double)m->num_heads;
            for (int64_t i = 0; i < size; i++) {
                double mixed = 0.0;
                for (int64_t j = 0; j < seen; j++)
                    mixed += weights[j] / sum * key[j * key_stride + m->attention_width + i];
                result[r * m->attention_width + h * size + i] = mixed;
            }
        }
    free(weights);
}

/* Buffers for n rows: the residual stream, what goes into a sub-layer, its output, and what is wide. */
typedef struct {
    const HeedfulModel *m;
    int64_t rows;
    double *x, *input, *out, *heads, *wide, *gates;
} Reference;

static Reference open_reference(const HeedfulModel *m, int64_t rows, const float *table, const int64_t *ids,
                                const float *positions) {
    int64_t width = m->d_model, n = rows * width;
    int64_t heads = rows * m->attention_width, gates = rows * m->d_ff;
    double *memory = malloc((size_t)(3 * n + 4 * heads + 2 * gates + 1) * sizeof(double));
    for (int64_t i = 0; i < n; i++) {
        double element = (double)table[ids[i / width] * width + i % width];
        memory[i] = element * (double)m->embedding_scale + (double)positions[i];
    }
    return (Reference){m,
                       rows,
                       memory,
                       memory + n,
                       memory + 2 * n,
                       memory + 3 * n,
                       memory + 3 * n + heads,
                       memory + 3 * n + 4 * heads + gates};
}

static void open_sublayer(Reference *r, const HeedfulNorm *norm) {
    if (r->m->norm_first)
        reference_norm(r->m, norm, r->x, r->rows, r->input);
    else
        memcpy(r->input, r->x, (size_t)(r->rows * r->m->d_model) * sizeof(double));
}

static void close_sublayer(Reference *r, const HeedfulNorm *norm) {
    for (int64_t i = 0; i < r->rows * r->m->d_model; i++) r->x[i] += r->out[i];
    if (!r->m->norm_first) reference_norm(r->m, norm, r->x, r->rows, r->x);
}

static void reference_self_attention(Reference *r, const DenseLayer *dense, const HeedfulLayer *layer,
                                     int is_causal, double *weights) {
    int64_t width = r->m->attention_width;
    open_sublayer(r, &layer->self_norm);
    reference_linear(&dense->query_key_value, IDENTITY, r->input, r->rows, r->wide);
    reference_attention(r->m, r->wide, 3 * width, r->rows, r->wide + width, 3 * width, r->rows, is_causal,
                        layer->biases, r->heads, weights);
    reference_linear(&dense->self_output, IDENTITY, r->heads, r->rows, r->out);
    close_sublayer(r, &layer->self_norm);
}

static void reference_feed_forward(Reference *r, const DenseLayer *dense, const HeedfulLayer *layer) {
    open_sublayer(r, &layer->outer_norm);
    int has_gate = layer->gate.weight != NULL;
    reference_linear(&dense->inner, has_gate ? IDENTITY : r->m->activation, r->input, r->rows, r->wide);
    if (has_gate) {
        reference_linear(&dense->gate, r->m->activation, r->input, r->rows, r->gates);
        for (int64_t i = 0; i < r->rows * r->m->d_ff; i++) r->wide[i] *= r->gates[i];
    }
    reference_linear(&dense->outer, IDENTITY, r->wide, r->rows, r->out);
    close_sublayer(r, &layer->outer_norm);
}

void reference_encode(const SmallModel *small, const int64_t *ids, int64_t n, double **memory,
                      double **self) {
    const HeedfulModel *m = &small->model;
    Reference r = open_reference(m, n, m->src_embedding, ids, small->positions);
    for (int64_t l = 0; l < LAYERS; l++) {
        reference_self_attention(&r, &small->encoder[l], &m->encoder[l], 0, self[l]);
        reference_feed_forward(&r, &small->encoder[l], &m->encoder[l]);
    }
    if (m->has_final_norm) reference_norm(m, &m->encoder_norm, r.x, n, r.x);
    for (int64_t l = 0; l < LAYERS; l++) reference_linear(&small->memory[l], IDENTITY, r.x, n, memory[l]);
    free(r.x);
}

void reference_decode(const SmallModel *small, double **memory, int64_t src_len, const int64_t *ids,
                      int64_t n, double *states, double **weights, double **self) {
    const HeedfulModel *m = &small->model;
    int64_t width = m->attention_width;
    Reference r = open_reference(m, n, m->tgt_embedding, ids, small->positions);
    for (int64_t l = 0; l < LAYERS; l++) {
        const DenseLayer *dense = &small->decoder[l];
        reference_self_attention(&r, dense, &m->decoder[l], 1, self[l]);
        open_sublayer(&r, &m->decoder[l].cross_norm);
        reference_linear(&dense->query, IDENTITY, r.input, n, r.wide);
        reference_attention(m, r.wide, width, n, memory[l], 2 * width, src_len, 0, NULL, r.heads, weights[l]);
        reference_linear(&dense->cross_output, IDENTITY, r.heads, n, r.out);
        close_sublayer(&r, &m->decoder[l].cross_norm);
        reference_feed_forward(&r, dense, &m->decoder[l]);
    }
    if (m->has_final_norm) reference_norm(m, &m->decoder_norm, r.x, n, r.x);
    memcpy(states, r.x, (size_t)(n * m->d_model) * sizeof(double));
    free(r.x);
}
