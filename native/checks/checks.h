/* What the parts of the check program share: the level that is checked, reports of differences, random
   numbers, and layers and models together with their references in double precision. */
#ifndef HEEDFUL_CHECKS_H
#define HEEDFUL_CHECKS_H

#include "../heedful.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    const HeedfulFunctions *functions;
    int is_fused; /* a b + c is rounded once */
} Level;

extern Level level;

/* ---- support.c ---- */

/* Name what is checked next, for the message of a failure. */
void describe(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Report a difference and end the program. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

void expect(int is_true, const char *message);
void expect_status(int32_t status, int32_t expected, const char *name);

/* |x - y| <= tolerance (1 + |y|) for each of n numbers; those that are not numbers are equal. */
void expect_close(const float *x, const double *y, int64_t n, double tolerance, const char *name);

/* The same bits. */
void expect_same(const float *x, const float *y, int64_t n, const char *name);

/* Report accesses out of bounds as a difference. */
void watch_memory(void);

/* Memory that ends where reading is noticed, filled with NaN; all of it is given back at once. */
void *allocate(size_t bytes);
void release_memory(void);

void seed_random(uint64_t seed);
int64_t random_below(int64_t end);
float random_normal(void);
float *random_normals(int64_t n, double mean, double deviation);
int64_t *random_ids(int64_t n, int64_t vocabulary);

float float_of_bits(uint32_t bits);
uint16_t bf16_rounded(float x);
float bf16_value(uint16_t x);

/* ---- layers.c ---- */

/* A linear layer, packed, and what its packed weights stand for. */
typedef struct {
    HeedfulLinear packed;
    int32_t precision;
    int64_t in, out; /* out without what panels are filled up with */
    float *weight;   /* (out, in) */
    float *rounded;  /* (out, in): whole numbers in INT8 */
    float *scale;    /* (out,): what one step of `rounded` stands for; 1 but in INT8 */
} Dense;

Dense pack_layer(int64_t in, int64_t out, int32_t precision, float *weight, const float *bias);
Dense random_layer(int64_t in, int64_t out, int32_t precision);

/* Round a row as the precision does; returns what one step of the result stands for. */
float round_row(int32_t precision, const float *x, int64_t n, float *rounded);

double reference_activation(int32_t activation, double x);
void reference_linear(const Dense *layer, int32_t activation, const double *x, int64_t rows, double *y);

/* ---- model.c ---- */

enum { LAYERS = 2, POSITIONS = 24 };

typedef struct {
    Dense query_key_value, self_output, query, cross_output, inner, outer, gate;
} DenseLayer;

/* A random model with its parts as they are before packing. */
typedef struct {
    HeedfulModel model;
    DenseLayer encoder[LAYERS], decoder[LAYERS];
    Dense memory[LAYERS], output;
    HeedfulLayer packed_encoder[LAYERS], packed_decoder[LAYERS];
    HeedfulLinear packed_memory[LAYERS];
    float *positions; /* (POSITIONS, D) */
} SmallModel;

/* What models of the checks are like: numbers and options of `model` are used, the rest is added. With a
   reach a model is like T5: RMSNorm, gates, relative biases of each layer. */
SmallModel *random_model(HeedfulModel settings);
HeedfulModel small_settings(int32_t precision, int64_t num_heads, int32_t activation, int32_t norm_first);

/* memory[l] gets keys and values (n, 2 A) of a sentence; states those of an output, (n, D). weights[l] gets
   the mean of the heads' cross-attention, (n, src_len), and self[l] that of their self-attention, (n, n). */
void reference_encode(const SmallModel *m, const int64_t *ids, int64_t n, double **memory, double **self);
void reference_decode(const SmallModel *m, double **memory, int64_t src_len, const int64_t *ids, int64_t n,
                      double *states, double **weights, double **self);

/* ---- the checks ---- */

double check_exponentials(int is_exhaustive); /* returns the largest error in ulp */
void check_linear(int32_t precision);
void check_decoding(int32_t precision);
void check_candidates(int32_t precision);
void check_concurrency(int may_fork);
void check_training(void);

#endif
