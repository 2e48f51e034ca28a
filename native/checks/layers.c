/* Linear layers: packing, and what they compute in double precision. */
#include "checks.h"

float round_row(int32_t precision, const float *x, int64_t n, float *rounded) {
    float highest = 0.0f;
    if (precision != INT8) {
        for (int64_t i = 0; i < n; i++)
            rounded[i] = precision == BFLOAT16 ? bf16_value(bf16_rounded(x[i])) : x[i];
        return 1.0f;
    }
    for (int64_t i = 0; i < n; i++) highest = fabsf(x[i]) > highest ? fabsf(x[i]) : highest;
    float scale = highest > 0.0f ? highest / 127.0f : 1.0f, inverse = highest < 1e-30f ? 0.0f : 1.0f / scale;
    for (int64_t i = 0; i < n; i++) rounded[i] = rintf(x[i] * inverse);
    return scale;
}

/* The same of an output's weights. */
static float round_weights(int32_t precision, const float *x, int64_t n, float *rounded) {
    float highest = 1e-30f;
    if (precision != INT8) return round_row(precision, x, n, rounded);
    for (int64_t i = 0; i < n; i++) highest = fabsf(x[i]) > highest ? fabsf(x[i]) : highest;
    float scale = highest / (float)level.functions->weight_limit;
    for (int64_t i = 0; i < n; i++) rounded[i] = rintf(x[i] / scale);
    return scale;
}

/* Write a weight where a level expects it. */
static void put_weight(Dense *layer, void *packed, int64_t output, int64_t input) {
    int64_t panel = level.functions->panel, group = level.functions->groups[layer->precision];
    int64_t at = output / panel * (layer->in / group) + input / group;
    float weight = layer->rounded[output * layer->in + input];
    at = (at * panel + output % panel) * group + input % group;
    if (layer->precision == FLOAT32) ((float *)packed)[at] = weight;
    if (layer->precision == BFLOAT16) ((uint16_t *)packed)[at] = bf16_rounded(weight);
    if (layer->precision == INT8) ((int8_t *)packed)[at] = (int8_t)weight;
}

Dense pack_layer(int64_t in, int64_t out, int32_t precision, float *weight, const float *bias) {
    static const size_t sizes[PRECISIONS] = {sizeof(float), sizeof(uint16_t), sizeof(int8_t)};
    int64_t filled = out + (level.functions->panel - out % level.functions->panel) % level.functions->panel;
    Dense layer = {.precision = precision, .in = in, .out = out, .weight = weight};
    layer.rounded = allocate((size_t)(out * in) * sizeof(float));
    layer.scale = allocate((size_t)filled * sizeof(float));
    float *biases = allocate((size_t)filled * sizeof(float));
    int32_t *sums = allocate((size_t)filled * sizeof(int32_t));
    size_t bytes = (size_t)(filled * in) * sizes[precision];
    void *packed = memset(allocate(bytes), 0, bytes);
    for (int64_t j = 0; j < filled; j++) {
        biases[j] = j < out ? bias[j] : 0.0f;
        layer.scale[j] =
            j < out ? round_weights(precision, weight + j * in, in, layer.rounded + j * in) : 1.0f;
        sums[j] = 0;
        for (int64_t k = 0; k < in && j < out; k++) {
            if (precision == INT8) sums[j] -= 128 * (int32_t)layer.rounded[j * in + k];
            put_weight(&layer, packed, j, k);
        }
    }
    layer.packed = (HeedfulLinear){in, filled, packed, biases, NULL, NULL, 0};
    if (precision == INT8) {
        layer.packed.scale = layer.scale;
        layer.packed.sums = sums;
    }
    return layer;
}

Dense random_layer(int64_t in, int64_t out, int32_t precision) {
    float *weight = random_normals(out * in, 0.0, 1.0 / sqrt((double)in));
    return pack_layer(in, out, precision, weight, random_normals(out, 0.0, 0.1));
}

double reference_activation(int32_t activation, double x) {
    if (activation == RELU) return x < 0.0 ? 0.0 : x;
    if (activation == GELU_TANH) return 0.5 * x * (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    if (activation == GELU) return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    return activation == SWISH ? x / (1.0 + exp(-x)) : x;
}

void reference_linear(const Dense *layer, int32_t activation, const double *x, int64_t rows, double *y) {
    int64_t in = layer->in, out = layer->out;
    float *row = malloc((size_t)in * 2 * sizeof(float)), *rounded = row + in;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t k = 0; k < in; k++) row[k] = (float)x[r * in + k];
        double scale = (double)round_row(layer->precision, row, in, rounded);
        for (int64_t j = 0; j < out; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < in; k++) {
                double input = layer->precision == FLOAT32 ? x[r * in + k] : (double)rounded[k];
                sum += input * (double)layer->rounded[j * in + k];
            }
            sum = sum * scale * (double)layer->scale[j] + (double)layer->packed.bias[j];
            y[r * out + j] = reference_activation(activation, sum);
        }
    }
    free(row);
}
