/* SPDX-License-Identifier: Apache-2.0 */
/* One case per kernel: operands, tolerance with its reason, a shape to time. Tolerances are relative; a single
 * rounding is 6e-8. `floor` 1 is for sums, whose error follows the largest terms; 0 asks for relative accuracy of
 * each element. */
#include "kernels/cases.h"
#include "base/memory.h"
#include "kernels/half.h"
#include "kernels/scratch.h"
#include <math.h>
#include <string.h>

#define ALL_INPUTS (SLUICE__CASE_LARGE | SLUICE__CASE_TINY | SLUICE__CASE_NONFINITE)
#define FINITE_INPUTS (SLUICE__CASE_LARGE | SLUICE__CASE_TINY)

/* Element-wise arithmetic without a sum: the same operations in the same order, but for fused multiply-add. */
#define TOLERANCE_EXACT 0
#define TOLERANCE_ROUNDED 2.5e-7
/* Measured largest errors of the approximations are 2 to 4 units in the last place. */
#define TOLERANCE_ELEMENTARY 4e-7
/* exp gives 0 below the smallest normal float, 1e-38; kernels multiply that by ordinary numbers. */
#define ABSOLUTE_FLUSH 1e-34
/* 1 + erf and 1 + tanh cancel below -2: half a unit of 1, times |x| up to 6 where it matters. PyTorch has the same. */
#define ABSOLUTE_GELU 1e-6
/* p - 1 cancels where the label is all but certain; so does log(1 + rest). */
#define ABSOLUTE_NLL 2e-7
/* An activation, its mean over two heads, a product. */
#define TOLERANCE_GATE 1e-6
/* Float sums of a few thousand terms in 16 or more lanes. */
#define TOLERANCE_SUM 2e-6

/* Columns of a matrix in blocks of any type. */
static int64_t quant_depth(const sluice__case_shape *s) {
    return (s->depth + 255) / 256 * 256;
}

int64_t sluice__case_count(const sluice__case_shape *s, char letter) {
    switch (letter) {
    case 'n': return s->rows * s->dim;
    case 'w': return 2 * s->rows * s->dim;
    case 'r': return s->rows;
    case 'R': return 2 * s->rows;
    case 'd': return s->dim;
    case 't': return 4 * s->dim;
    case 'a': return s->rows * s->depth;
    case 'b': return s->dim * s->depth;
    case 'h': return s->rows * (2 * s->dim + 3);
    case 'p': return s->dim * quant_depth(s);
    case 'q': return s->rows * quant_depth(s);
    default: return 1;
    }
}

typedef const sluice__case_shape shape;
typedef const sluice__kernels table;

static int64_t count_of(shape *s) {
    return s->rows * s->dim;
}

/* Factors must be ordinary numbers where terms cancel, or their rounding sticks out of every tolerance. */
static void limit(float *x, int64_t count, float most) {
    for (int64_t i = 0; i < count; i++) x[i] = fmodf(x[i], most);
}

/* |x| + least, for operands that must be positive. */
static void make_positive(float *x, int64_t count, float least) {
    for (int64_t i = 0; i < count; i++) x[i] = fabsf(x[i]) + least;
}

/* Replaces random floats by numbers 0..limit-1 derived from them, every fifth one negative when `holes`. */
static void make_ids(void *op, int64_t count, int64_t limit, bool holes) {
    for (int64_t i = 0; i < count; i++) {
        float x;
        memcpy(&x, (char *)op + 4 * i, 4);
        int32_t id = (int32_t)((int64_t)(fabsf(isfinite(x) && fabsf(x) < 1e6f ? x : 3) * 1000) % limit);
        if (holes && i % 5 == 4) id = -100;
        memcpy((char *)op + 4 * i, &id, 4);
    }
}

static void run_exp(table *k, shape *s, void **op) { k->exp_f32(op[0], op[1], count_of(s)); }
static void run_sigmoid(table *k, shape *s, void **op) { k->sigmoid_f32(op[0], op[1], count_of(s)); }
static void run_tanh(table *k, shape *s, void **op) { k->tanh_f32(op[0], op[1], count_of(s)); }
static void run_erf(table *k, shape *s, void **op) { k->erf_f32(op[0], op[1], count_of(s)); }
#define ELEMENTARY(name)                                                                           \
    const sluice__kernel_case sluice__case_##name##_f32 = {                                        \
        "nn", 1, ALL_INPUTS, TOLERANCE_ELEMENTARY, 0, ABSOLUTE_FLUSH, 8, {16, 1024, 0, 0}, NULL, run_##name}
ELEMENTARY(exp);
ELEMENTARY(sigmoid);
ELEMENTARY(tanh);
ELEMENTARY(erf);

static void run_add(table *k, shape *s, void **op) { k->add_f32(op[0], op[1], count_of(s)); }
const sluice__kernel_case sluice__case_add_f32 = {
    "nn", 1, ALL_INPUTS, TOLERANCE_EXACT, 0, 0, 12, {16, 1024, 0, 0}, NULL, run_add};

static void run_scale(table *k, shape *s, void **op) { k->scale_f32(op[0], 0.37f, count_of(s)); }
const sluice__kernel_case sluice__case_scale_f32 = {
    "n", 1, ALL_INPUTS, TOLERANCE_EXACT, 0, 0, 8, {16, 1024, 0, 0}, NULL, run_scale};

static void run_axpy(table *k, shape *s, void **op) { k->axpy_f32(op[0], 0.37f, op[1], count_of(s)); }
const sluice__kernel_case sluice__case_axpy_f32 = {
    "nn", 1, FINITE_INPUTS, TOLERANCE_ROUNDED, 1, 0, 12, {16, 1024, 0, 0}, NULL, run_axpy};

static void run_clip(table *k, shape *s, void **op) { k->clip_f32(op[0], op[1], 0.8f, count_of(s)); }
const sluice__kernel_case sluice__case_clip_f32 = {
    "nn", 1, ALL_INPUTS, TOLERANCE_EXACT, 0, 0, 8, {16, 1024, 0, 0}, NULL, run_clip};

static void run_clip_backward(table *k, shape *s, void **op) {
    k->clip_backward_f32(op[0], op[1], op[2], 0.8f, count_of(s));
}
const sluice__kernel_case sluice__case_clip_backward_f32 = {
    "nnn", 1, ALL_INPUTS, TOLERANCE_EXACT, 0, 0, 12, {16, 1024, 0, 0}, NULL, run_clip_backward};

static void run_column_sums(table *k, shape *s, void **op) {
    k->column_sums_f32(op[0], op[1], s->dim, s->rows, s->dim);
}
const sluice__kernel_case sluice__case_column_sums_f32 = {
    "dn", 1, FINITE_INPUTS, TOLERANCE_SUM, 1, 0, 4, {256, 768, 0, 0}, NULL, run_column_sums};

static void run_sum_squares(table *k, shape *s, void **op) {
    *(float *)op[0] = (float)k->sum_squares_f32(op[1], count_of(s));
}
const sluice__kernel_case sluice__case_sum_squares_f32 = {
    "1n", 1, ALL_INPUTS, TOLERANCE_ROUNDED, 0, 0, 4, {16, 1024, 0, 0}, NULL, run_sum_squares};

/* One result: terms must not cancel for it to have a relative error. */
static void prepare_dot(shape *s, void **op) {
    make_positive(op[1], count_of(s), 0);
    make_positive(op[2], count_of(s), 0);
}
static void run_dot(table *k, shape *s, void **op) { *(float *)op[0] = k->dot_f32(op[1], op[2], count_of(s)); }
const sluice__kernel_case sluice__case_dot_f32 = {
    "1nn", 1, FINITE_INPUTS, TOLERANCE_SUM, 0, 1e-30, 8, {16, 1024, 0, 0}, prepare_dot, run_dot};

static void run_max_abs(table *k, shape *s, void **op) { *(float *)op[0] = k->max_abs_f32(op[1], count_of(s)); }
const sluice__kernel_case sluice__case_max_abs_f32 = {
    "1n", 1, ALL_INPUTS, TOLERANCE_EXACT, 0, 0, 4, {16, 1024, 0, 0}, NULL, run_max_abs};

static void run_first_nonfinite(table *k, shape *s, void **op) {
    *(float *)op[0] = (float)k->first_nonfinite_f32(op[1], count_of(s));
}
const sluice__kernel_case sluice__case_first_nonfinite_f32 = {
    "1n", 1, ALL_INPUTS, TOLERANCE_EXACT, 0, 0, 4, {16, 1024, 0, 0}, NULL, run_first_nonfinite};

/* variant: bit 0 without weight, bit 1 the 1 + w flavour, bit 2 without rstd */
static void run_rms_norm(table *k, shape *s, void **op) {
    k->rms_norm_f32(op[0], s->variant & 4 ? NULL : op[1], op[2], s->variant & 1 ? NULL : op[3], s->rows, s->dim,
                    1e-6f, s->variant & 2 ? 1 : 0);
}
const sluice__kernel_case sluice__case_rms_norm_f32 = {
    "nrnd", 8, FINITE_INPUTS, 1e-6, 0, 0, 8, {64, 768, 0, 0}, NULL, run_rms_norm};

static void run_add_rms_norm(table *k, shape *s, void **op) {
    k->add_rms_norm_f32(op[0], op[1], s->variant & 4 ? NULL : op[2], op[3], op[4], s->variant & 1 ? NULL : op[5],
                        s->rows, s->dim, 1e-6f, s->variant & 2 ? 1 : 0);
}
const sluice__kernel_case sluice__case_add_rms_norm_f32 = {
    "nnrnnd", 8, FINITE_INPUTS, 1e-6, 0, 0, 16, {64, 768, 0, 0}, NULL, run_add_rms_norm};

/* variant: bit 0 without weight, bit 1 the 1 + w flavour, bit 2 accumulate, bit 3 without dweight */
static void run_rms_norm_backward(table *k, shape *s, void **op) {
    k->rms_norm_backward_f32(op[0], s->variant & 8 ? NULL : op[1], op[2], op[3], s->variant & 1 ? NULL : op[4], op[5],
                             s->rows, s->dim, s->variant & 2 ? 1 : 0, s->variant & 4);
}
static void prepare_rms_norm_backward(shape *s, void **op) {
    float *scratch = op[0]; /* dx: any values do */
    sluice_rms_norm_f32_ref(scratch, op[5], op[3], NULL, s->rows, s->dim, 1e-6f, 0);
    limit(op[4], s->dim, 3);
    limit(op[5], s->rows, 3);
}
const sluice__kernel_case sluice__case_rms_norm_backward_f32 = {
    "ndnndr", 16, FINITE_INPUTS, TOLERANCE_SUM, 1, 0, 16, {64, 768, 0, 0}, prepare_rms_norm_backward,
    run_rms_norm_backward};

/* variant: bit 0 norm, bit 1 without weight, bits 2-3 rotation: none, a quarter, all but the last pair, all */
static sluice__norm_rope norm_rope_of(shape *s, const float *weight, const float *cosine, const float *sine,
                                      const int32_t *position) {
    int rotation = s->variant >> 2 & 3, pairs = (int)s->dim / 2;
    int half = rotation == 1 ? pairs / 4 : rotation == 2 && pairs > 1 ? pairs - 1 : pairs;
    bool rotate = rotation && half;
    return (sluice__norm_rope){.rows = s->rows, .heads = 2, .head_dim = (int)s->dim, .rotary_dim = 2 * half,
                               .norm = s->variant & 1, .weight = s->variant & 2 ? NULL : weight, .eps = 1e-6f,
                               .offset = 1, .cos = rotate ? cosine : NULL, .sin = rotate ? sine : NULL, .position = position};
}

static void run_norm_rope(table *k, shape *s, void **op) {
    sluice__norm_rope p = norm_rope_of(s, op[3], op[4], op[5], op[6]);
    k->norm_rope_f32(&p, op[0], 2 * s->dim + 3, op[1], op[2], 2 * s->dim + 3, 0, s->rows);
}
static void prepare_norm_rope(shape *s, void **op) { make_ids(op[6], s->rows, 4, false); }
const sluice__kernel_case sluice__case_norm_rope_f32 = {
    "hRhdttr", 16, FINITE_INPUTS, 1e-6, 1, 0, 16, {64, 64, 0, 13}, prepare_norm_rope, run_norm_rope};

static void run_norm_rope_backward(table *k, shape *s, void **op) {
    sluice__norm_rope p = norm_rope_of(s, op[4], op[5], op[6], op[7]);
    const float *rstd = op[0];
    bool norm = p.norm;
    float *dweight = norm && p.weight ? op[2] : NULL;
    int64_t stride = 2 * s->dim + 3;
    k->norm_rope_backward_f32(&p, op[1], stride, dweight, op[3], stride, op[3], stride, rstd, 0, s->rows);
}
static void prepare_norm_rope_backward(shape *s, void **op) {
    sluice__norm_rope p = norm_rope_of(s, NULL, NULL, NULL, NULL);
    p.norm = true;
    sluice_norm_rope_f32_ref(&p, op[1], 2 * s->dim + 3, op[0], op[3], 2 * s->dim + 3, 0, s->rows);
    limit(op[0], 2 * s->rows, 3);
    limit(op[4], s->dim, 3);
    make_ids(op[7], s->rows, 4, false);
}
const sluice__kernel_case sluice__case_norm_rope_backward_f32 = {
    "Rhdhdttr", 16, FINITE_INPUTS, TOLERANCE_SUM, 1, 0, 24, {64, 64, 0, 13}, prepare_norm_rope_backward,
    run_norm_rope_backward};

static void run_swiglu(table *k, shape *s, void **op) { k->swiglu_f32(op[0], op[1], s->rows, s->dim); }
const sluice__kernel_case sluice__case_swiglu_f32 = {
    "nw", 1, ALL_INPUTS, 1e-6, 0, ABSOLUTE_FLUSH, 12, {16, 2048, 0, 0}, NULL, run_swiglu};

static void run_swiglu_backward(table *k, shape *s, void **op) {
    k->swiglu_backward_f32(op[0], op[1], op[2], s->rows, s->dim);
}
const sluice__kernel_case sluice__case_swiglu_backward_f32 = {
    "wnw", 1, ALL_INPUTS, 1e-6, 1, ABSOLUTE_FLUSH, 20, {16, 2048, 0, 0}, NULL, run_swiglu_backward};

/* variant: activation, operation, sharing, width of the logits; logits are a weight in every other shape. */
enum { GATE_VARIANTS = 5 * 2 * 3 * 2 };
static sluice__gating gate_of(shape *s) {
    int v = s->variant, sharing = v / 10 % 3;
    return (sluice__gating){.rows = s->rows, .heads = 2, .head_dim = (int)s->dim, .width = v / 30 ? 1 : (int)s->dim,
                          .shared = sharing > 0, .share_mean_logit = sharing == 2, .input_none = (s->rows + s->dim) % 2,
                          .act = (sluice_gate_act)(v % 5), .op = (sluice_gate_op)(v / 5 % 2)};
}

static void run_gate(table *k, shape *s, void **op) {
    sluice__gating g = gate_of(s);
    int64_t stride = 2 * s->dim + 3;
    k->gate_f32(&g, op[0], stride, op[1], stride, op[2], stride, 0, s->rows);
}
const sluice__kernel_case sluice__case_gate_f32 = {
    "hhh", GATE_VARIANTS, ALL_INPUTS, TOLERANCE_GATE, 1, ABSOLUTE_FLUSH, 24, {64, 1024, 0, 0}, NULL, run_gate};

static void run_gate_backward(table *k, shape *s, void **op) {
    sluice__gating g = gate_of(s);
    int64_t stride = 2 * s->dim + 3;
    k->gate_backward_f32(&g, op[0], stride, op[1], stride, op[2], stride, op[3], stride, op[4], stride, 0, s->rows);
}
/* Up to 18000 products are summed for one logit: of one sign, or what cancels leaves only their rounding. */
static void prepare_gate_backward(shape *s, void **op) {
    make_positive(op[2], s->rows * (2 * s->dim + 3), 0);
    make_positive(op[3], s->rows * (2 * s->dim + 3), 0);
}
const sluice__kernel_case sluice__case_gate_backward_f32 = {
    "hhhhh", GATE_VARIANTS, FINITE_INPUTS, TOLERANCE_SUM, 1, ABSOLUTE_FLUSH, 40, {64, 1024, 0, 0}, prepare_gate_backward,
    run_gate_backward};

/* variant: bit 0 the tanh form */
static void run_gelu(table *k, shape *s, void **op) { k->gelu_f32(op[0], op[1], count_of(s), s->variant); }
const sluice__kernel_case sluice__case_gelu_f32 = {
    "nn", 2, ALL_INPUTS, 5e-7, 0, ABSOLUTE_GELU, 8, {16, 2048, 0, 0}, NULL, run_gelu};

static void run_gelu_backward(table *k, shape *s, void **op) {
    k->gelu_backward_f32(op[0], op[1], op[2], count_of(s), s->variant);
}
const sluice__kernel_case sluice__case_gelu_backward_f32 = {
    "nnn", 2, ALL_INPUTS, 1e-6, 1, ABSOLUTE_GELU, 12, {16, 2048, 0, 0}, NULL, run_gelu_backward};

/* variant: bit 0 without gradient, bit 1 without `correct` */
static void run_softmax_nll(table *k, shape *s, void **op) {
    k->softmax_nll_f32(op[0], op[1], op[2], s->variant & 2 ? NULL : op[3], s->rows, s->dim,
                       s->variant & 1 ? 0 : 0.25f);
}
static void prepare_softmax_nll(shape *s, void **op) { make_ids(op[1], s->rows, s->dim, true); }
const sluice__kernel_case sluice__case_softmax_nll_f32 = {
    "nrrr", 4, ALL_INPUTS, 1e-6, 0, ABSOLUTE_NLL, 24, {4, 50304, 0, 0}, prepare_softmax_nll, run_softmax_nll};

/* variant: bit 0 clears the gradient */
static void run_adamw(table *k, shape *s, void **op) {
    sluice__adamw_factors f = {.grad_scale = 0.9f, .decay = 0.999f, .beta1 = 0.9f, .one_minus_beta1 = 0.1f,
                               .beta2 = 0.95f, .one_minus_beta2 = 0.05f, .step_size = 0.003f,
                               .inv_sqrt_correction2 = 1.7f, .eps = 1e-8f, .zero_grad = s->variant};
    k->adamw_f32(&f, op[0], op[1], op[2], op[3], count_of(s));
}
static void prepare_adamw(shape *s, void **op) { make_positive(op[2], count_of(s), 0); }
const sluice__kernel_case sluice__case_adamw_f32 = {
    "nnnn", 2, FINITE_INPUTS, 1e-6, 0.1, 0, 28, {1, 1 << 22, 0, 0}, prepare_adamw, run_adamw};

/* variant: bit 0 clears the gradient. NaN and zeros included: every version rounds alike. */
static void run_lion(table *k, shape *s, void **op) {
    sluice__lion_factors f = {.grad_scale = 0.9f, .decay = 0.999f, .lr = 0.003f, .beta1 = 0.9f, .one_minus_beta1 = 0.1f,
                              .beta2 = 0.99f, .one_minus_beta2 = 0.01f, .zero_grad = s->variant};
    k->lion_f32(&f, op[0], op[1], op[2], count_of(s));
}
const sluice__kernel_case sluice__case_lion_f32 = {
    "nnn", 2, ALL_INPUTS, TOLERANCE_EXACT, 0, ABSOLUTE_FLUSH, 20, {1, 1 << 22, 0, 0}, NULL, run_lion};

/* variant: bit 0 A transposed, bit 1 B transposed, bits 2-3 (alpha, beta): (1,0) (1,1) (-0.5,0) (0.5,2) */
static void run_gemm(table *k, shape *s, void **op) {
    static const float alpha[4] = {1, 1, -0.5f, 0.5f}, beta[4] = {0, 1, 0, 2};
    bool ta = s->variant & 1, tb = s->variant & 2;
    int scale = s->variant >> 2 & 3;
    k->gemm_f32(ta, tb, s->rows, s->dim, s->depth, alpha[scale], op[1], ta ? s->rows : s->depth, op[2],
                tb ? s->depth : s->dim, beta[scale], op[0], s->dim);
}
const sluice__kernel_case sluice__case_gemm_f32 = {
    "nab", 16, FINITE_INPUTS, TOLERANCE_SUM, 1, 0, 0, {512, 256, 64, 2}, NULL, run_gemm};

static void run_linear_thin(table *k, shape *s, void **op) {
    k->linear_thin_f32(op[0], s->dim, op[1], s->depth, op[2], s->rows, s->dim, s->depth);
}
const sluice__kernel_case sluice__case_linear_thin_f32 = {
    "nab", 1, FINITE_INPUTS, TOLERANCE_SUM, 1, 0, 0, {1, 4096, 768, 0}, NULL, run_linear_thin};

/* variant: bit 0 A transposed, bit 1 B transposed, bit 2 accumulate */
static void run_gemm_wide(table *k, shape *s, void **op) {
    static _Alignas(64) float scratch[SLUICE__WIDE_SCRATCH];
    bool ta = s->variant & 1, tb = s->variant & 2;
    sluice__product p = {ta, tb, s->variant & 4, s->rows, s->dim, s->depth, op[1], ta ? s->rows : s->depth,
                         op[2], tb ? s->depth : s->dim, op[0], s->dim};
    k->gemm_wide_f32(&p, scratch);
}
const sluice__kernel_case sluice__case_gemm_wide_f32 = {
    "nab", 8, FINITE_INPUTS, TOLERANCE_SUM, 1, 0, 0, {512, 256, 64, 2}, NULL, run_gemm_wide};

/* op: y, weights (floats, then blocks of the variant's type), inputs (floats, then rounded). */
static void prepare_quant_linear(shape *s, void **op) {
    sluice__quant type = (sluice__quant)s->variant;
    int64_t columns = quant_depth(s);
    size_t weights = (size_t)(s->dim * sluice__quant_row_bytes(type, columns));
    size_t inputs = sluice__quant_input_bytes(s->rows, columns);
    void *blocks = sluice__calloc(1, weights, SLUICE__MEM_OTHER), *rounded = sluice__calloc(1, inputs, SLUICE__MEM_OTHER);
    if (blocks && rounded) {
        sluice__quantize(blocks, type, op[1], s->dim * columns);
        memcpy(op[1], blocks, weights);
        sluice_quant_input_ref(rounded, op[2], columns, s->rows, columns);
        memcpy(op[2], rounded, inputs);
    }
    sluice__free(blocks);
    sluice__free(rounded);
}
static void run_quant_linear(table *k, shape *s, void **op) {
    const sluice__quant_matrix w = {(sluice__quant)s->variant, s->dim, quant_depth(s), op[1]};
    void *scratch = sluice__scratch((size_t)sluice__quant_scratch_bytes(w.columns) / sizeof(float));
    if (scratch) k->quant_linear(op[0], s->dim, op[2], s->rows, &w, 0, (s->dim + 15) / 16, scratch);
}
/* variant: the type. Integer sums are exact; the float sum over parts is not. */
const sluice__kernel_case sluice__case_quant_linear = {"npq", SLUICE__QUANTS, FINITE_INPUTS, TOLERANCE_SUM, 1, 0, 0,
                                                       {64, 1024, 1024, SLUICE__QUANT_Q8_0}, prepare_quant_linear,
                                                       run_quant_linear};

/* The rounded rows take 1.625 bytes a value, with those that fill a tile less than the floats of operand 0. */
static void run_quant_input(table *k, shape *s, void **op) {
    k->quant_input(op[0], op[1], quant_depth(s), s->rows, quant_depth(s));
}
const sluice__kernel_case sluice__case_quant_input = {
    "qq", 1, ALL_INPUTS, TOLERANCE_EXACT, 0, 0, 6, {64, 1024, 1024, 0}, NULL, run_quant_input};

/* Random floats become as many 16-bit ones in the first half of the operand. */
static void make_halves(void *op, int64_t count, bool brain) {
    for (int64_t i = 0; i < count; i++) {
        float x;
        memcpy(&x, (char *)op + 4 * i, 4);
        uint16_t half = brain ? sluice__float_to_brain(x) : sluice__float_to_half(x);
        memcpy((char *)op + 2 * i, &half, 2);
    }
}

static void prepare_thin_f16(shape *s, void **op) { make_halves(op[2], s->dim * s->depth, false); }
static void prepare_thin_bf16(shape *s, void **op) { make_halves(op[2], s->dim * s->depth, true); }
static void run_linear_thin_f16(table *k, shape *s, void **op) {
    k->linear_thin_f16(op[0], s->dim, op[1], s->depth, op[2], s->rows, s->dim, s->depth);
}
static void run_linear_thin_bf16(table *k, shape *s, void **op) {
    k->linear_thin_bf16(op[0], s->dim, op[1], s->depth, op[2], s->rows, s->dim, s->depth);
}
const sluice__kernel_case sluice__case_linear_thin_f16 = {
    "nab", 1, FINITE_INPUTS, TOLERANCE_SUM, 1, 0, 0, {1, 4096, 768, 0}, prepare_thin_f16, run_linear_thin_f16};
const sluice__kernel_case sluice__case_linear_thin_bf16 = {
    "nab", 1, FINITE_INPUTS, TOLERANCE_SUM, 1, 0, 0, {1, 4096, 768, 0}, prepare_thin_bf16, run_linear_thin_bf16};

static void prepare_pairs(shape *s, void **op) {
    make_halves(op[1], s->rows * s->depth, true);
    make_halves(op[2], s->dim * s->depth, true);
}
static void run_linear_pairs(table *k, shape *s, void **op) {
    k->linear_pairs_bf16(op[0], s->dim, op[1], s->depth, op[2], s->rows, s->dim, s->depth);
}
const sluice__kernel_case sluice__case_linear_pairs_bf16 = {
    "nab", 1, FINITE_INPUTS, TOLERANCE_SUM, 1, 0, 0, {1, 4096, 768, 0}, prepare_pairs, run_linear_pairs};

static void prepare_f16(shape *s, void **op) { make_halves(op[1], count_of(s), false); }
static void prepare_bf16(shape *s, void **op) { make_halves(op[1], count_of(s), true); }
static void run_widen_f16(table *k, shape *s, void **op) { k->widen_f16(op[0], op[1], count_of(s)); }
static void run_widen_bf16(table *k, shape *s, void **op) { k->widen_bf16(op[0], op[1], count_of(s)); }
const sluice__kernel_case sluice__case_widen_f16 = {
    "nn", 1, FINITE_INPUTS, TOLERANCE_EXACT, 0, 0, 6, {16, 1024, 0, 0}, prepare_f16, run_widen_f16};
const sluice__kernel_case sluice__case_widen_bf16 = {
    "nn", 1, FINITE_INPUTS, TOLERANCE_EXACT, 0, 0, 6, {16, 1024, 0, 0}, prepare_bf16, run_widen_bf16};

/* bf16 numbers lie two to an element; an odd count leaves half of the last one alone. */
static void run_bf16_from_f32(table *k, shape *s, void **op) { k->bf16_from_f32(op[0], op[1], count_of(s)); }
static void prepare_bf16_from_f32(shape *s, void **op) { memset(op[0], 0, (size_t)count_of(s) * sizeof(float)); }
const sluice__kernel_case sluice__case_bf16_from_f32 = {
    "nn", 1, ALL_INPUTS, TOLERANCE_EXACT, 0, 0, 6, {16, 1024, 0, 0}, prepare_bf16_from_f32, run_bf16_from_f32};

static void run_bf16_round(table *k, shape *s, void **op) { k->bf16_round_f32(op[0], op[1], count_of(s)); }
const sluice__kernel_case sluice__case_bf16_round_f32 = {
    "nn", 1, ALL_INPUTS, TOLERANCE_EXACT, 0, 0, 8, {16, 1024, 0, 0}, NULL, run_bf16_round};

/* variant: bit 0 A transposed, bit 1 B transposed, bit 2 accumulate, bits 3 and 4 A and B stored as bf16 (then the first half
 * of the operand is the matrix) */
static void run_gemm_bf16(table *k, shape *s, void **op) {
    static _Alignas(64) float scratch[SLUICE__BF16_SCRATCH];
    bool ta = s->variant & 1, tb = s->variant & 2;
    sluice__bf16_product p = {.trans_a = ta, .trans_b = tb, .accumulate = s->variant & 4, .m = s->rows, .n = s->dim,
                              .k = s->depth, .a = {op[1], ta ? s->rows : s->depth, s->variant & 8},
                              .b = {op[2], tb ? s->depth : s->dim, s->variant & 16}, .c = op[0], .ldc = s->dim};
    k->gemm_bf16(&p, scratch);
}
static void prepare_gemm_bf16(shape *s, void **op) {
    if (s->variant & 8) make_halves(op[1], s->rows * s->depth, true);
    if (s->variant & 16) make_halves(op[2], s->dim * s->depth, true);
}
const sluice__kernel_case sluice__case_gemm_bf16 = {
    "nab", 32, FINITE_INPUTS, TOLERANCE_SUM, 1, 0, 0, {512, 256, 64, 2}, prepare_gemm_bf16, run_gemm_bf16};
