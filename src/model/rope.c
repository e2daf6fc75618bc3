/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary position embedding (Su et al. 2021) and the ways to stretch it: position interpolation (Chen et al.
 * 2023), dynamic NTK, YaRN (Peng et al. 2023), Llama 3's smoothing by wavelength, LongRoPE (Ding et al. 2024).
 * Frequencies follow the code of transformers, computed in double; angles are formed in double and rounded
 * once, so that position 100000 is as exact as 1. */
#include "base/memory.h"
#include "model/weights.h"
#include <math.h>

static const double pi = 3.14159265358979323846;

/* Dynamic NTK: the base grows with the length so that the slowest component just covers it. */
static double dynamic_theta(const sluice_rope_spec *r, int64_t length) {
    double trained = (double)r->original_max_position_embeddings,
           now = length > trained ? (double)length : trained;
    if (r->rotary_dim <= 2) return r->theta; /* one frequency, which does not depend on the base */
    double stretch = r->factor * now / trained - (r->factor - 1);
    return r->theta * pow(stretch, (double)r->rotary_dim / (r->rotary_dim - 2));
}

/* The component (not an integer) that turns `rotations` times over the trained length. */
static double yarn_component(const sluice_rope_spec *r, double rotations) {
    double length = (double)r->original_max_position_embeddings;
    return r->rotary_dim * log(length / (rotations * 2 * pi)) / (2 * log(r->theta));
}

/* Fast components keep their frequency, slow ones are interpolated, with a linear ramp between. */
static void yarn(const sluice_rope_spec *r, double *inv_freq) {
    double low = yarn_component(r, r->beta_fast), high = yarn_component(r, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, r->rotary_dim - 1);
    if (low == high) high += 0.001;
    for (int i = 0; i < r->rotary_dim / 2; i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        inv_freq[i] = inv_freq[i] / r->factor * ramp + inv_freq[i] * (1 - ramp);
    }
}

static double yarn_mscale(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static double yarn_attention_factor(const sluice_rope_spec *r) {
    if (r->mscale > 0 && r->mscale_all_dim > 0)
        return yarn_mscale(r->factor, r->mscale) / yarn_mscale(r->factor, r->mscale_all_dim);
    return yarn_mscale(r->factor, 1);
}

static void llama3(const sluice_rope_spec *r, double *inv_freq) {
    double length = (double)r->original_max_position_embeddings;
    for (int i = 0; i < r->rotary_dim / 2; i++) {
        double wavelength = 2 * pi / inv_freq[i];
        if (wavelength < length / r->high_freq_factor) continue;
        double smooth = (length / wavelength - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
        smooth = wavelength > length / r->low_freq_factor ? 0 : smooth;
        inv_freq[i] = (1 - smooth) * inv_freq[i] / r->factor + smooth * inv_freq[i];
    }
}

static double longrope_attention_factor(const sluice_rope_spec *r) {
    return r->factor <= 1 ? 1 : sqrt(1 + log(r->factor) / log((double)r->original_max_position_embeddings));
}

void sluice__rope_inv_freq(const sluice_rope_spec *r, int64_t length, double *inv_freq,
                           double *attention_factor) {
    int half = r->rotary_dim / 2;
    double theta = r->type == SLUICE_ROPE_DYNAMIC ? dynamic_theta(r, length) : r->theta, factor = 1;
    for (int i = 0; i < half; i++) inv_freq[i] = pow(theta, -2.0 * i / r->rotary_dim);
    switch (r->type) {
    case SLUICE_ROPE_DEFAULT:
    case SLUICE_ROPE_DYNAMIC: break;
    case SLUICE_ROPE_LINEAR:
        for (int i = 0; i < half; i++) inv_freq[i] /= r->factor;
        break;
    case SLUICE_ROPE_YARN:
        yarn(r, inv_freq);
        factor = yarn_attention_factor(r);
        break;
    case SLUICE_ROPE_LLAMA3: llama3(r, inv_freq); break;
    case SLUICE_ROPE_LONGROPE: {
        const double *stretch = length > r->original_max_position_embeddings ? r->long_factor : r->short_factor;
        for (int i = 0; i < half; i++) inv_freq[i] /= stretch[i];
        factor = longrope_attention_factor(r);
        break;
    }
    }
    bool scaled = r->type == SLUICE_ROPE_YARN || r->type == SLUICE_ROPE_LONGROPE;
    *attention_factor = scaled && r->attention_factor > 0 ? r->attention_factor : factor;
}

sluice_status sluice__rope_tables(const sluice_rope_spec *r, int64_t count, int64_t length, float *cos_out,
                                  float *sin_out, sluice_error *err) {
    int half = r->rotary_dim / 2;
    double *inv_freq = sluice__calloc((size_t)half, sizeof *inv_freq, SLUICE__MEM_OTHER), factor;
    if (!inv_freq) return sluice__no_memory(err, (size_t)half * sizeof *inv_freq, "RoPE frequencies");
    sluice__rope_inv_freq(r, length, inv_freq, &factor);
#pragma omp parallel for schedule(static) if (count > 512)
    for (int64_t p = 0; p < count; p++) {
        for (int i = 0; i < half; i++) {
            double angle = (double)p * inv_freq[i];
            cos_out[p * half + i] = (float)(cos(angle) * factor);
            sin_out[p * half + i] = (float)(sin(angle) * factor);
        }
    }
    sluice__free(inv_freq);
    return SLUICE_OK;
}
