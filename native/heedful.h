/* The C interface of heedful's native library: what Python calls through ctypes
   (src/heedful/runtime/native.py).

   Every function exists once for each level of the instruction set, in a table of function pointers. Arrays
   are contiguous; numbers of rows, ids and positions are checked before anything is read. */
#ifndef HEEDFUL_H
#define HEEDFUL_H

#include <stdint.h>

#define HEEDFUL_VERSION 6 /* of this interface; native.py has the same number */

#if defined(_WIN32)
#define HEEDFUL_EXPORT __declspec(dllexport)
#else
#define HEEDFUL_EXPORT __attribute__((visibility("default")))
#endif

enum { HEEDFUL_OK, HEEDFUL_NO_MEMORY, HEEDFUL_BAD_ARGUMENT }; /* what functions return */
enum { FLOAT32, BFLOAT16, INT8, PRECISIONS };                 /* of matrix multiplications */
enum { IDENTITY, RELU, GELU, SWISH, GELU_TANH, ACTIVATIONS };

/* A linear layer with weights packed in panels of outputs. */
typedef struct {
    int64_t in, out;     /* out rounded up to whole panels */
    const void *weight;  /* [out / panel][in / group][panel][group] */
    const float *bias;   /* (out,), zeros without a bias */
    const float *scale;  /* INT8: (out,), the scale of each output's weights */
    const int32_t *sums; /* INT8: (out,), sums of each output's weights, times -128 */
    int64_t number;      /* among the layers that adapters change, from 1; 0: none changes it */
} HeedfulLinear;

/* A low-rank change of some outputs of a linear layer, from `first` on: y += (x down^T) up. */
typedef struct {
    int64_t first, out, rank;
    const float *down, *up; /* (rank, in), (rank, out) */
} HeedfulChange;

/* The changes of all layers; those of the layer with a number are from firsts[number - 1] to firsts[number].
 */
typedef struct {
    const HeedfulChange *changes;
    const int64_t *firsts;
} HeedfulAdapter;

typedef struct {
    const float *gain, *shift; /* (D,); RMSNorm has no shift */
} HeedfulNorm;

/* The encoder's layers have neither query nor cross_output nor cross_norm. Without a gate its weight is NULL.
   A recurrent decoder has the forget gate and the input of an SSRU, (2 D), as query_key_value, and no
   self_output. */
typedef struct {
    HeedfulLinear query_key_value, self_output, query, cross_output, inner, outer, gate;
    HeedfulNorm self_norm, cross_norm, outer_norm;
    const float *biases; /* of self-attention, NULL or (H, 2 reach + 1): by key minus query, from -reach on */
} HeedfulLayer;

/* A is attention_width, that of all heads together. */
typedef struct {
    int64_t d_model, d_ff, num_heads, attention_width, reach, src_vocabulary, tgt_vocabulary;
    int64_t num_encoder_layers, num_decoder_layers;
    int32_t precision, activation, norm_first, has_final_norm, is_recurrent;
    float eps, embedding_scale;
    const float *src_embedding, *tgt_embedding; /* (V, D) */
    const HeedfulLayer *encoder, *decoder;
    const HeedfulLinear *memory; /* of each decoder layer: source states to keys and values, (2 A) */
    HeedfulNorm encoder_norm, decoder_norm;
    HeedfulLinear output;
    const float *output_weight; /* (V, D), not packed */
} HeedfulModel;

/* The cache of a decoder. */
typedef struct {
    int64_t num_outputs, num_sources, stride;
    const int64_t *sources; /* (num_outputs,): the source of each output */
    const int64_t *starts;  /* (num_sources + 1,): first rows of the sources in `memory` */
    float *const *memory;   /* of each layer, (R, 2 A) */
    float **cache; /* (num_outputs, stride): where keys and values (layers, 2 A) of each position are; of a
                      recurrent decoder its states (layers, D), of which only the latest are read */
    const HeedfulAdapter *const *adapters; /* of each source, NULL: none; NULL: of no source */
} HeedfulPast;

/* Where to write attention weights; those of a row are 0 beyond its keys. NULL: nowhere. */
typedef struct {
    int64_t layer, width;
    float *weights;      /* (rows, width): the cross-attention of that layer, as means over its heads */
    float *self, *cross; /* (rows, layers, H, width): of each head, over its own sentence or the source */
} HeedfulAttention;

/* The shortlists of a batch: the target ids of each sentence. A few consecutive sentences are a group: logits
   are computed for the union of their ids. */
typedef struct {
    int64_t group_size, num_sentences;
    const HeedfulLinear *outputs; /* of each group */
    const int64_t *ids;           /* of those outputs, ascending in each group */
    const int64_t *firsts;        /* of each group in `ids` */
    const int32_t *columns;       /* indices of each sentence's ids among its group's outputs, ascending */
    const int64_t *starts;        /* of each sentence in `columns` */
} HeedfulShortlist;

typedef struct {
    int64_t panel;              /* outputs of a panel */
    int64_t groups[PRECISIONS]; /* consecutive inputs that are packed together; 0: no such precision */
    int64_t weight_limit;       /* INT8: the largest absolute weight */

    /* Encode concatenated sentences without padding: ids (R,), of sentence b from starts[b] to starts[b + 1];
       positions (num_positions, D). memory[l] gets keys and values (R, 2 A) for layer l of the decoder, and
       attention->self the attention weights, unless `attention` is NULL. Adapters are as in HeedfulPast. */
    int32_t (*encode)(const HeedfulModel *model, int64_t threads, const int64_t *ids, const int64_t *starts,
                      int64_t num_sentences, const float *positions, int64_t num_positions,
                      float *const *memory, const HeedfulAttention *attention,
                      const HeedfulAdapter *const *adapters);

    /* Decode one id for each row, at a position of an output; rows of one output have consecutive positions.
       Keys and values of the rows (of a recurrent decoder its states) go to cache (rows, layers, 2 A or D),
       states to (rows, D), and attention weights to `attention`, unless it is NULL. A recurrent decoder has
       no self-attention. */
    int32_t (*step)(const HeedfulModel *model, int64_t threads, const HeedfulPast *past, const int64_t *ids,
                    const int64_t *outputs, const int64_t *at, int64_t rows, const float *positions,
                    int64_t num_positions, float *cache, float *states, const HeedfulAttention *attention);

    /* The `count` most probable next ids of each row, best first, ties by id, and their log-probabilities.
       Suppressed ids are excluded; with `renormalize` their probability goes to the others. With a shortlist
       only the ids of the row's sentence are possible; fewer than `count` are padded with -inf. */
    int32_t (*top)(const HeedfulModel *model, int64_t threads, const float *states, int64_t rows,
                   const HeedfulShortlist *shortlist, const int64_t *sentences, int64_t count,
                   const int64_t *suppressed, int64_t num_suppressed, int32_t renormalize, float *values,
                   int64_t *ids);

    /* The log-probabilities of the next id, (rows, V); -inf outside of the shortlist. */
    int32_t (*log_probs)(const HeedfulModel *model, int64_t threads, const float *states, int64_t rows,
                         const HeedfulShortlist *shortlist, const int64_t *sentences, float *result);

    /* Pack the output layer of some ids only, into arrays of the right sizes. Its last panel is padded. */
    int32_t (*pick)(const HeedfulModel *model, const int64_t *ids, int64_t count, void *weight, float *bias,
                    float *scale, int32_t *sums);

    /* A linear layer: y (rows, out) = f(x (rows, in) W + bias). */
    int32_t (*linear)(const HeedfulLinear *layer, int32_t precision, int32_t activation, int64_t threads,
                      const float *x, int64_t rows, float *y);

    /* exp(x) of each of n numbers that are at most 0, in place. */
    void (*exponentials)(float *x, int64_t n);

    /* Parts of a training step, in float32 and bfloat16 (as uint16_t): training.h. Rows of more than WIDEST
       elements, and sizes below 0, are refused. */
    int32_t (*residual_norm_float32)(const float *x, const float *h, const float *gain, const float *shift,
                                     float *y, float *normed, float *inverse, int64_t rows, int64_t width,
                                     float eps, uint64_t seed, uint32_t threshold, float scale);
    int32_t (*residual_norm_bfloat16)(const uint16_t *x, const uint16_t *h, const float *gain,
                                      const float *shift, uint16_t *y, uint16_t *normed, float *inverse,
                                      int64_t rows, int64_t width, float eps, uint64_t seed,
                                      uint32_t threshold, float scale);
    int32_t (*residual_norm_backward_float32)(const float *dy, const float *normed, const float *inverse,
                                              const float *gain, float *dx, float *dh, float *dgain,
                                              float *dshift, int64_t rows, int64_t width, uint64_t seed,
                                              uint32_t threshold, float scale);
    int32_t (*residual_norm_backward_bfloat16)(const uint16_t *dy, const uint16_t *normed,
                                               const float *inverse, const float *gain, uint16_t *dx,
                                               uint16_t *dh, float *dgain, float *dshift, int64_t rows,
                                               int64_t width, uint64_t seed, uint32_t threshold, float scale);
    int32_t (*masked_softmax_float32)(float *scores, const uint8_t *mask, int64_t rows, int64_t heads,
                                      int64_t queries, int64_t keys, int64_t mask_row, int64_t mask_query,
                                      float scale);
    int32_t (*masked_softmax_bfloat16)(uint16_t *scores, const uint8_t *mask, int64_t rows, int64_t heads,
                                       int64_t queries, int64_t keys, int64_t mask_row, int64_t mask_query,
                                       float scale);
    int32_t (*masked_softmax_backward_float32)(const float *dweights, const float *weights, float *dscores,
                                               int64_t rows, int64_t keys, float scale);
    int32_t (*masked_softmax_backward_bfloat16)(const uint16_t *dweights, const uint16_t *weights,
                                                uint16_t *dscores, int64_t rows, int64_t keys, float scale);
    int32_t (*loss_rows_float32)(float *logits, const int64_t *targets, float *nll, float *norms,
                                 int64_t rows, int64_t width, float confidence);
    int32_t (*loss_rows_bfloat16)(uint16_t *logits, const int64_t *targets, float *nll, float *norms,
                                  int64_t rows, int64_t width, float confidence);
    void (*add_bfloat16)(float *total, const uint16_t *addend, int64_t count);
} HeedfulFunctions;

/* HEEDFUL_VERSION when the library was built. */
HEEDFUL_EXPORT int32_t heedful_version(void);

/* The bytes of HeedfulLinear, Norm, Layer, Model, Past, Attention, Shortlist, Functions, Change and Adapter,
   in this order; 0 beyond. */
HEEDFUL_EXPORT int64_t heedful_size(int32_t structure);

/* The name of a level of the library, from the slowest, 0; NULL beyond the last. */
HEEDFUL_EXPORT const char *heedful_level(int32_t level);

/* Why this machine cannot run a level; NULL if it can. */
HEEDFUL_EXPORT const char *heedful_why_not(int32_t level);

/* The functions of a level; NULL beyond the last. Calling those of a level that this machine lacks ends the
   process. */
HEEDFUL_EXPORT const HeedfulFunctions *heedful_functions(int32_t level);

#endif
