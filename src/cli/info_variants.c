/* SPDX-License-Identifier: Apache-2.0 */
/* sluice info --variants: what every row of the paper's tables would cost on top of a configuration. */
#include "cli/info.h"
#include "base/progress.h"
#include "sluice/variants.h"
#include <math.h>
#include <stdio.h>

/* Weights, gradients and the two moments of AdamW, in fp32. */
enum { TRAINING_BYTES = 16, WEIGHT_BYTES = 4 };

static json_t *millions(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static void add_counts(json_t *o, const sluice_config *c, const sluice_config *base, long long context) {
    int64_t n = sluice_config_num_parameters(c), from = sluice_config_num_parameters(base);
    double flops = sluice_config_forward_flops(c, context);
    int width = sluice_config_equal_width(c, from, NULL);
    json_object_set_new(o, "parameters", json_integer(n));
    json_object_set_new(o, "added_parameters", json_integer(n - from));
    json_object_set_new(o, "active_parameters", json_integer(sluice_config_num_active_parameters(c)));
    json_object_set_new(o, "forward_flops_per_token", json_real(flops));
    json_object_set_new(o, "flops_ratio", json_real(flops / sluice_config_forward_flops(base, context)));
    json_object_set_new(o, "weight_bytes", json_integer(WEIGHT_BYTES * n));
    json_object_set_new(o, "training_bytes", json_integer(TRAINING_BYTES * n));
    json_object_set_new(o, "cache_bytes", json_integer(sluice_config_cache_bytes(c, context)));
    json_object_set_new(o, "equal_width", width ? json_integer(width) : json_null());
}

json_t *info_variants(const sluice_config *config, long long context) {
    json_t *list = json_array();
    sluice_config base;
    sluice_error err = {0};
    if (!context) context = config->max_position_embeddings < 4096 ? config->max_position_embeddings : 4096;
    if (!list || sluice_variant_config(&base, config, 0, &err) != SLUICE_OK) return list;
    bool papers = sluice_config_is_15a2b(&base);
    for (int i = 0; i < sluice_num_variants(); i++) {
        sluice_variant v = sluice_variant_at(i);
        sluice_config c;
        json_t *o = json_pack("{s:s, s:s, s:s, s:I}", "name", v.name, "label", v.label, "row", v.row, "context",
                              (json_int_t)context);
        if (papers) json_object_set_new(o, "paper_added_millions", millions(v.paper_millions));
        if (papers && v.note) json_object_set_new(o, "note", json_string(v.note));
        if (sluice_variant_config(&c, &base, i, &err) == SLUICE_OK) {
            add_counts(o, &c, &base, context);
            sluice_config_free(&c);
        } else {
            json_object_set_new(o, "refused", json_string(err.message));
        }
        json_array_append_new(list, o);
    }
    sluice_config_free(&base);
    return list;
}

static double real(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }
static const char *text(const json_t *o, const char *key) {
    const char *t = json_string_value(json_object_get(o, key));
    return t ? t : "";
}

/* "201", "1.6", "0.003": millions as the paper prints them. */
static void put_millions(double v, const char *none) {
    if (!isfinite(v)) printf(" %9s", none);
    else printf(" %9.*f", fabs(v) >= 10 || v == 0 ? 0 : fabs(v) >= 0.05 ? 1 : 3, v);
}

static void print_variant(const json_t *o, bool papers) {
    char parameters[32], active[32], flops[32], training[32], cache[32];
    printf("%-38s", text(o, "label"));
    if (json_object_get(o, "refused")) {
        printf("  - %s\n", text(o, "refused"));
        return;
    }
    put_millions(real(o, "added_parameters") / 1e6, "-");
    const json_t *paper = json_object_get(o, "paper_added_millions");
    if (papers) put_millions(json_is_number(paper) ? json_number_value(paper) : NAN, "-");
    printf("  %-8s %-8s %-8s %6.3f  %-9s %-9s", sluice__format_count(parameters, real(o, "parameters")),
           sluice__format_count(active, real(o, "active_parameters")),
           sluice__format_count(flops, real(o, "forward_flops_per_token")), real(o, "flops_ratio"),
           sluice__format_bytes(training, real(o, "training_bytes")),
           sluice__format_bytes(cache, real(o, "cache_bytes")));
    if (json_is_integer(json_object_get(o, "equal_width"))) printf(" %6.0f", real(o, "equal_width"));
    else printf(" %6s", "-");
    printf("  %s%s\n", text(o, "row"), json_object_get(o, "note") ? " *" : "");
}

void info_print_variants(const json_t *list) {
    const json_t *first = json_array_get(list, 0);
    bool papers = json_object_get(first, "paper_added_millions") != NULL;
    printf("\n%-38s %9s", "variant", "+M");
    if (papers) printf(" %9s", "paper +M");
    printf("  %-8s %-8s %-8s %6s  %-9s %-9s %6s  %s\n", "weights", "active", "FLOPs", "ratio", "training", "cache", "equal",
           "paper");
    for (size_t i = 0; i < json_array_size(list); i++) print_variant(json_array_get(list, i), papers);
    printf("+M: parameters over the baseline, millions. FLOPs: of one token, mean of a pass over %.0f tokens; ratio: to the "
           "baseline.\ntraining: weights, gradients, moments in fp32. cache: keys and values of %.0f tokens. equal: MLP "
           "width%s for as many\nparameters as the baseline.\n",
           real(first, "context"), real(first, "context"), papers ? " of an expert" : "");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        if (json_object_get(o, "note")) printf("* %s: %s\n", text(o, "label"), text(o, "note"));
    }
}
