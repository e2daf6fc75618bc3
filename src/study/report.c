/* SPDX-License-Identifier: Apache-2.0 */
/* The report. The page is a template, style sheets and scripts from assets/report/, Chart.js and
 * the results; all drawing happens in the browser. This side checks the shape of the results, so
 * that somebody who edits or merges a results.json learns here, by the name of the field, what the
 * page could not have drawn. A field that is absent or null is always fine unless it is marked as
 * needed: runs that diverged or failed lack most of them. */
#include "study/report.h"
#include "base/json.h"
#include "base/page.h"
#include "study/report_trim.h"
#include <stdio.h>
#include <string.h>

typedef enum field_kind {
    OBJECT,
    OBJECTS,
    STRING,
    STRINGS,
    NUMBER,
    NUMBERS,
    ROWS,
    ARRAY
} field_kind;

/* One field of an object; `inside` lists the fields of the object, or of each object of an array.
 * Tables end with {0}. */
typedef struct field {
    const char *key;
    field_kind kind;
    bool needed;
    const struct field *inside;
} field;

static const field SHARES[] = {{.key = "all", .kind = NUMBER},
                               {.key = "from_1", .kind = NUMBER},
                               {.key = "from_4", .kind = NUMBER},
                               {.key = "from_quarter", .kind = NUMBER},
                               {0}};
static const field HEAD_SHARES[] = {{.key = "all", .kind = NUMBERS},
                                    {.key = "from_1", .kind = NUMBERS},
                                    {.key = "from_4", .kind = NUMBERS},
                                    {.key = "from_quarter", .kind = NUMBERS},
                                    {0}};
static const field GATE[] = {{.key = "mean", .kind = NUMBER},
                             {.key = "hist", .kind = NUMBERS},
                             {.key = "heads_mean", .kind = NUMBERS},
                             {0}};
static const field VALUE_NORM[] = {
    {.key = "token_0", .kind = NUMBERS}, {.key = "others", .kind = NUMBERS}, {0}};
static const field PEAK[] = {{.key = "token_0", .kind = NUMBER},
                             {.key = "others", .kind = NUMBER},
                             {.key = "median", .kind = NUMBER},
                             {0}};
static const field LAYER[] = {{.key = "f_attn", .kind = OBJECT, .inside = SHARES},
                              {.key = "f_attn_heads", .kind = OBJECT, .inside = HEAD_SHARES},
                              {.key = "max_abs", .kind = OBJECT},
                              {.key = "first_token_peak", .kind = OBJECT, .inside = PEAK},
                              {.key = "value_norm", .kind = OBJECT, .inside = VALUE_NORM},
                              {.key = "gate", .kind = OBJECT, .inside = GATE},
                              {.key = "sparsity", .kind = OBJECT},
                              {0}};
static const field INSPECT[] = {{.key = "f_attn_mean", .kind = OBJECT, .inside = SHARES},
                                {.key = "m_act_mean", .kind = NUMBER},
                                {.key = "gate_mean", .kind = NUMBER},
                                {.key = "layers", .kind = OBJECTS, .inside = LAYER},
                                {0}};
static const field ROUTER_LAYER[] = {{.key = "entropy", .kind = NUMBER},
                                     {.key = "max_load", .kind = NUMBER},
                                     {.key = "load", .kind = NUMBERS},
                                     {0}};
static const field ROUTER[] = {{.key = "experts", .kind = NUMBER},
                               {.key = "entropy", .kind = NUMBER},
                               {.key = "max_load", .kind = NUMBER},
                               {.key = "dead_experts", .kind = NUMBER},
                               {.key = "balance_loss", .kind = NUMBER},
                               {.key = "z_loss", .kind = NUMBER},
                               {.key = "layers", .kind = OBJECTS, .inside = ROUTER_LAYER},
                               {0}};
static const field ROUTER_COURSE[] = {{.key = "step", .kind = NUMBERS},
                                      {.key = "entropy", .kind = ROWS},
                                      {.key = "max_load", .kind = ROWS},
                                      {.key = "dead_experts", .kind = ROWS},
                                      {0}};
static const field TRAIN[] = {
    {.key = "seconds", .kind = NUMBER},        {.key = "tokens_per_s", .kind = NUMBER},
    {.key = "step", .kind = NUMBERS},          {.key = "loss", .kind = NUMBERS},
    {.key = "grad_norm", .kind = NUMBERS},     {.key = "learning_rate", .kind = NUMBERS},
    {.key = "probe_step", .kind = NUMBERS},    {.key = "first_token_share", .kind = ROWS},
    {.key = "max_abs_residual", .kind = ROWS}, {.key = "gate_mean", .kind = ROWS},
    {.key = "max_abs_attn_out", .kind = ROWS}, {.key = "max_abs_ffn_out", .kind = ROWS},
    {.key = "spikes", .kind = OBJECT},         {.key = "router", .kind = OBJECT, .inside = ROUTER_COURSE},
    {0}};
static const field EVAL[] = {{.key = "loss", .kind = NUMBER},
                             {.key = "perplexity", .kind = NUMBER},
                             {.key = "bits_per_byte", .kind = NUMBER},
                             {0}};
static const field MAP[] = {{.key = "text", .kind = STRING},
                            {.key = "tokens", .kind = STRINGS},
                            {.key = "layers", .kind = ARRAY},
                            {.key = "gate", .kind = ARRAY},
                            {0}};
static const field POSITION[] = {
    {.key = "edges", .kind = NUMBERS}, {.key = "loss", .kind = NUMBERS}, {0}};
static const field LENGTH[] = {{.key = "length", .kind = NUMBER, .needed = true},
                               {.key = "rope", .kind = STRING},
                               {.key = "loss", .kind = NUMBER},
                               {.key = "perplexity", .kind = NUMBER},
                               {0}};
static const field STAGE_ROW[] = {{.key = "length", .kind = NUMBER, .needed = true},
                                  {.key = "rope", .kind = STRING},
                                  {.key = "loss", .kind = NUMBER},
                                  {.key = "perplexity", .kind = NUMBER},
                                  {.key = "position", .kind = OBJECT, .inside = POSITION},
                                  {.key = "recall", .kind = NUMBER},
                                  {.key = "recall_by_depth", .kind = NUMBERS},
                                  {0}};
static const field STAGE[] = {{.key = "name", .kind = STRING, .needed = true},
                              {.key = "seq_len", .kind = NUMBER},
                              {.key = "rope_theta", .kind = NUMBER},
                              {.key = "rows", .kind = OBJECTS, .inside = STAGE_ROW},
                              {0}};
static const field EXTENSION[] = {
    {.key = "stages", .kind = OBJECTS, .inside = STAGE}, {.key = "train", .kind = OBJECT, .inside = TRAIN}, {0}};
static const field SAMPLE[] = {
    {.key = "prompt", .kind = STRING}, {.key = "text", .kind = STRING}, {0}};
static const field RUN[] = {{.key = "seed", .kind = NUMBER, .needed = true},
                            {.key = "status", .kind = STRING, .needed = true},
                            {.key = "error", .kind = STRING},
                            {.key = "train", .kind = OBJECT, .inside = TRAIN},
                            {.key = "eval", .kind = OBJECT, .inside = EVAL},
                            {.key = "inspect", .kind = OBJECT, .inside = INSPECT},
                            {.key = "router", .kind = OBJECT, .inside = ROUTER},
                            {.key = "attention_map", .kind = OBJECT, .inside = MAP},
                            {.key = "position", .kind = OBJECT, .inside = POSITION},
                            {.key = "length", .kind = OBJECTS, .inside = LENGTH},
                            {.key = "extension", .kind = OBJECT, .inside = EXTENSION},
                            {.key = "samples", .kind = OBJECTS, .inside = SAMPLE},
                            {0}};
static const field RUNG[] = {
    {.key = "of", .kind = STRING}, {.key = "label", .kind = STRING}, {.key = "learning_rate", .kind = NUMBER}, {0}};
static const field RUNG_RESULT[] = {{.key = "learning_rate", .kind = NUMBER},
                                    {.key = "loss", .kind = NUMBER},
                                    {.key = "spike_score", .kind = NUMBER},
                                    {.key = "m_act", .kind = NUMBER},
                                    {.key = "runs", .kind = NUMBER},
                                    {.key = "finished", .kind = NUMBER},
                                    {.key = "converged", .kind = NUMBER},
                                    {0}};
static const field LADDER[] = {{.key = "of", .kind = STRING},
                               {.key = "label", .kind = STRING},
                               {.key = "largest", .kind = NUMBER},
                               {.key = "best_rate", .kind = NUMBER},
                               {.key = "best_loss", .kind = NUMBER},
                               {.key = "rungs", .kind = OBJECTS, .inside = RUNG_RESULT},
                               {0}};
static const field ARM[] = {{.key = "name", .kind = STRING, .needed = true},
                            {.key = "label", .kind = STRING},
                            {.key = "gate", .kind = OBJECT},
                            {.key = "config", .kind = OBJECT},
                            {.key = "parameters", .kind = NUMBER},
                            {.key = "rung", .kind = OBJECT, .inside = RUNG},
                            {.key = "runs", .kind = OBJECTS, .needed = true, .inside = RUN},
                            {0}};
static const field DIFFERENCE[] = {{.key = "per_seed", .kind = NUMBERS},
                                   {.key = "mean", .kind = NUMBER},
                                   {.key = "sd", .kind = NUMBER},
                                   {0}};
static const field COMPARISON[] = {
    {.key = "arm", .kind = STRING, .needed = true},
    {.key = "against", .kind = STRING, .needed = true},
    {.key = "seeds", .kind = NUMBERS},
    {.key = "loss_difference", .kind = OBJECT, .inside = DIFFERENCE},
    {.key = "share_difference", .kind = OBJECT, .inside = DIFFERENCE},
    {.key = "seconds_ratio", .kind = NUMBER},
    {.key = "parameters_difference", .kind = NUMBER},
    {0}};
static const field FINDING[] = {{.key = "id", .kind = STRING},
                                {.key = "verdict", .kind = STRING, .needed = true},
                                {.key = "text", .kind = STRING, .needed = true},
                                {0}};
static const field ROOT[] = {{.key = "title", .kind = STRING},
                             {.key = "created", .kind = STRING},
                             {.key = "seconds", .kind = NUMBER},
                             {.key = "recipe", .kind = OBJECT},
                             {.key = "machine", .kind = OBJECT},
                             {.key = "data", .kind = OBJECT},
                             {.key = "uniform_share", .kind = OBJECT, .inside = SHARES},
                             {.key = "arms", .kind = OBJECTS, .needed = true, .inside = ARM},
                             {.key = "comparisons", .kind = OBJECTS, .inside = COMPARISON},
                             {.key = "findings", .kind = OBJECTS, .inside = FINDING},
                             {.key = "ladders", .kind = OBJECTS, .inside = LADDER},
                             {0}};

static bool is_kind(const json_t *v, field_kind kind) {
    switch (kind) {
    case OBJECT:
        return json_is_object(v);
    case STRING:
        return json_is_string(v);
    case NUMBER:
        return json_is_number(v);
    default:
        return json_is_array(v);
    }
}

/* Whether an element of an array is what the array's kind asks for. What is missing or not finite
 * arrives as null, which a list that is needed (arms, runs) may not hold. */
static bool is_element(const json_t *v, const field *f) {
    if (json_is_null(v)) return !f->needed;
    switch (f->kind) {
    case OBJECTS:
        return json_is_object(v);
    case STRINGS:
        return json_is_string(v);
    case NUMBERS:
        return json_is_number(v);
    case ROWS:
        return json_is_array(v);
    default:
        return true;
    }
}

static const char *const KIND_NAMES[] = {
    "an object", "an array of objects", "a string",           "an array of strings",
    "a number",  "an array of numbers", "an array of arrays", "an array"};

static sluice_status check_object(const sluice__json *in, const field *fields, sluice_error *err);

static sluice_status check_field(const sluice__json *in, const field *f, sluice_error *err) {
    sluice__json at = sluice__json_get(in, f->key);
    if (!at.value) return f->needed ? sluice__json_fail(in, f->key, err, "missing") : SLUICE_OK;
    if (!is_kind(at.value, f->kind))
        return sluice__json_fail(&at, NULL, err, "expected %s", KIND_NAMES[f->kind]);
    if (f->kind == OBJECT) return f->inside ? check_object(&at, f->inside, err) : SLUICE_OK;
    for (size_t i = 0; i < json_array_size(at.value); i++) {
        if (!is_element(json_array_get(at.value, i), f))
            return sluice__json_fail(&at, NULL, err, "element %zu: expected %s", i,
                                     KIND_NAMES[f->kind]);
        sluice__json element = sluice__json_at(&at, i);
        if (f->inside && element.value) SLUICE__TRY(check_object(&element, f->inside, err));
    }
    return SLUICE_OK;
}

static sluice_status check_object(const sluice__json *in, const field *fields, sluice_error *err) {
    for (; fields->key; fields++) SLUICE__TRY(check_field(in, fields, err));
    return SLUICE_OK;
}

static sluice_status check_results(const sluice__json *root, sluice_error *err) {
    static const char *const formats[] = {"sluice-study-1", NULL};
    int format;
    SLUICE__TRY(sluice__json_choice(root, "format", true, formats, &format, err));
    SLUICE__TRY(check_object(root, ROOT, err));
    if (json_array_size(json_object_get(root->value, "arms")) == 0)
        return sluice__json_fail(root, "arms", err, "no arm; a report needs at least one");
    return SLUICE_OK;
}

/* In the order of need: what draws, then the sections of the page, then the start. */
static const char *const SCRIPTS[] = {
    "report/draw/dom.js",
    "report/draw/get.js",
    "report/draw/format.js",
    "report/draw/theme.js",
    "report/draw/svg.js",
    "report/draw/figure.js",
    "report/draw/plot.js",
    "report/draw/dots.js",
    "report/draw/heat.js",
    "report/draw/tokenmap.js",
    "report/draw/table.js",
    "report/draw/page.js",
    "report/study/data.js",
    "report/study/head.js",
    "report/study/summary.js",
    "report/study/training.js",
    "report/study/sink.js",
    "report/study/activations.js",
    "report/study/gates.js",
    "report/study/sparsity.js",
    "report/study/experts.js",
    "report/study/stability.js",
    "report/study/attention.js",
    "report/study/length.js",
    "report/study/extension.js",
    "report/study/cost.js",
    "report/study/samples.js",
    "report/study/definitions.js",
    "report/study/settings.js",
    "report/study/main.js",
    NULL,
};
static const char *const STYLES[] = {"report/style.css", NULL};

static sluice_status write_page(const json_t *root, const char *html_path, sluice_error *err) {
    const char *title = json_string_value(json_object_get(root, "title"));
    sluice__page page = {.template_name = "report/page.html",
                         .title = title && *title ? title : "Study report",
                         .styles = STYLES,
                         .scripts = SCRIPTS,
                         .data = root};
    return sluice__page_write(&page, html_path, err);
}

sluice_status sluice__report_write(const char *results_json_text, size_t size,
                                   const char *html_path, sluice_error *err) {
    json_t *root;
    SLUICE__TRY(sluice__json_parse(&root, results_json_text, size, "results.json", err));
    sluice__json view = sluice__json_view(root, "results.json");
    sluice_status st = check_results(&view, err);
    if (st == SLUICE_OK) st = sluice__report_trim(root, err);
    if (st == SLUICE_OK) st = write_page(root, html_path, err);
    json_decref(root);
    return st;
}
