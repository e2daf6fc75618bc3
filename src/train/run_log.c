/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.jsonl and TensorBoard events. Lines are appended and never changed; only when a run goes back to a
 * checkpoint are the lines behind it cut off, so that every step stands once in the file. */
#include "train/run_log.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/progress.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a complete line belongs to a step that is kept; lines that are no JSON end what is kept. */
static bool keep_line(const char *line, size_t size, int64_t step) {
    json_t *o = json_loadb(line, size, 0, NULL);
    json_t *at = json_object_get(o, "step");
    bool keep = json_is_integer(at) && json_integer_value(at) <= step;
    json_decref(o);
    return keep;
}

/* Length of the part of metrics.jsonl up to `step`. */
static sluice_status kept_length(off_t *length, const char *path, int64_t step, sluice_error *err) {
    sluice__map map;
    *length = 0;
    if (!sluice__is_file(path)) return SLUICE_OK;
    SLUICE__TRY(sluice__map_open(&map, path, err));
    const char *text = (const char *)map.data, *end = text + map.size, *line = text;
    while (line < end) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        if (!newline || !keep_line(line, (size_t)(newline - line), step)) break;
        line = newline + 1;
    }
    *length = line - text;
    sluice__map_close(&map);
    return SLUICE_OK;
}

static sluice_status open_lines(sluice__run_log *log, int64_t step, sluice_error *err) {
    off_t length;
    SLUICE__TRY(kept_length(&length, log->path, step, err));
    if (sluice__is_file(log->path) && truncate(log->path, length) != 0)
        return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot shorten: %s", log->path, strerror(errno));
    log->jsonl = fopen(log->path, "abe");
    if (log->jsonl) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot open for writing: %s", log->path, strerror(errno));
}

sluice_status sluice__run_log_open(sluice__run_log *log, const char *dir, int64_t step, bool tensorboard,
                                   sluice_error *err) {
    *log = (sluice__run_log){.path = sluice__path_join(dir, "metrics.jsonl"), .has_board = tensorboard};
    if (!log->path) return sluice__no_memory(err, strlen(dir), "a path");
    bool earlier = sluice__is_file(log->path);
    sluice_status st = open_lines(log, step, err);
    if (st == SLUICE_OK && tensorboard) st = sluice__tensorboard_open(&log->board, dir, earlier ? step + 1 : -1, err);
    if (st != SLUICE_OK) sluice__run_log_close(log, NULL);
    log->last_flush = sluice__now();
    return st;
}

sluice_status sluice__run_log_rewind(sluice__run_log *log, const char *dir, int64_t step, sluice_error *err) {
    bool board = log->has_board;
    SLUICE__TRY(sluice__run_log_close(log, err));
    return sluice__run_log_open(log, dir, step, board, err);
}

/* ---- lines ---- */

static void number(FILE *f, const char *key, double v) {
    if (isfinite(v)) fprintf(f, ", \"%s\": %.9g", key, v);
    else fprintf(f, ", \"%s\": null", key);
}

static void numbers(FILE *f, const char *key, const double *v, int n) {
    fprintf(f, ", \"%s\": [", key);
    for (int i = 0; i < n; i++) {
        if (isfinite(v[i])) fprintf(f, "%s%.7g", i ? ", " : "", v[i]);
        else fprintf(f, "%snull", i ? ", " : "");
    }
    fputc(']', f);
}

static void router_numbers(sluice__run_log *log, const sluice_step_record *r) {
    number(log->jsonl, "balance_loss", r->balance_loss);
    number(log->jsonl, "z_loss", r->z_loss);
    number(log->jsonl, "router_entropy", r->router_entropy);
    number(log->jsonl, "max_expert_load", r->max_expert_load);
    fprintf(log->jsonl, ", \"dead_experts\": %d", r->dead_experts);
}

/* Of one layer: the largest load relative to an even share, or the number of experts without a token; NaN in a
 * layer without experts. */
static double largest_load(const double *load, int experts) {
    double sum = 0, most = 0;
    for (int e = 0; e < experts; e++) {
        sum += load[e];
        most = fmax(most, load[e]);
    }
    return sum > 0 ? most / sum * experts : NAN;
}

static double dead(const double *load, int experts) {
    double sum = 0, n = 0;
    for (int e = 0; e < experts; e++) {
        sum += load[e];
        n += load[e] == 0;
    }
    return sum > 0 ? n : NAN;
}

static void layer_numbers(FILE *f, const sluice_step_record *r, const char *key,
                          double (*of)(const double *load, int experts)) {
    fprintf(f, ", \"%s\": [", key);
    for (int l = 0; l < r->num_layers; l++) {
        double v = of(r->expert_load + (int64_t)l * r->num_experts, r->num_experts);
        if (isfinite(v)) fprintf(f, "%s%.7g", l ? ", " : "", v);
        else fprintf(f, "%snull", l ? ", " : "");
    }
    fputc(']', f);
}

void sluice__run_log_router(sluice__run_log *log, const sluice_step_record *r) {
    FILE *f = log->jsonl;
    fprintf(f, "{\"type\": \"router\", \"step\": %" PRId64, r->step);
    numbers(f, "entropy", r->layer_entropy, r->num_layers);
    layer_numbers(f, r, "max_load", largest_load);
    layer_numbers(f, r, "dead_experts", dead);
    fputs(", \"expert_load\": [", f);
    for (int l = 0; l < r->num_layers; l++) {
        fputs(l ? ", [" : "[", f);
        for (int e = 0; e < r->num_experts; e++)
            fprintf(f, "%s%.0f", e ? ", " : "", r->expert_load[(int64_t)l * r->num_experts + e]);
        fputc(']', f);
    }
    fputs("]}\n", f);
}

void sluice__run_log_step(sluice__run_log *log, const sluice_step_record *r) {
    static const char *const verdicts[] = {"ok", "spike", "skipped", "rewound"};
    FILE *f = log->jsonl;
    fprintf(f, "{\"type\": \"train\", \"step\": %" PRId64, r->step);
    number(f, "loss", r->loss);
    number(f, "grad_norm", r->grad_norm);
    number(f, "learning_rate", r->learning_rate);
    number(f, "tokens_per_second", r->tokens_per_second);
    fprintf(f, ", \"tokens\": %" PRId64, r->tokens);
    if (r->routed) router_numbers(log, r);
    if (r->verdict != SLUICE_STEP_OK) fprintf(f, ", \"verdict\": \"%s\"", verdicts[r->verdict]);
    fputs("}\n", f);
    if (!log->has_board) return;
    sluice__tensorboard_scalar(&log->board, "train/loss", r->loss);
    sluice__tensorboard_scalar(&log->board, "train/grad_norm", r->grad_norm);
    sluice__tensorboard_scalar(&log->board, "train/learning_rate", r->learning_rate);
    if (r->tokens_per_second > 0)
        sluice__tensorboard_scalar(&log->board, "train/tokens_per_second", r->tokens_per_second);
    sluice__tensorboard_scalar(&log->board, "train/tokens", (double)r->tokens);
    if (r->routed) {
        sluice__tensorboard_scalar(&log->board, "router/balance_loss", r->balance_loss);
        sluice__tensorboard_scalar(&log->board, "router/z_loss", r->z_loss);
        sluice__tensorboard_scalar(&log->board, "router/entropy", r->router_entropy);
        sluice__tensorboard_scalar(&log->board, "router/max_expert_load", r->max_expert_load);
        sluice__tensorboard_scalar(&log->board, "router/dead_experts", r->dead_experts);
    }
    sluice__tensorboard_event(&log->board, r->step);
}

void sluice__run_log_eval(sluice__run_log *log, const sluice_eval_record *r) {
    FILE *f = log->jsonl;
    fprintf(f, "{\"type\": \"eval\", \"step\": %" PRId64, r->step);
    number(f, "loss", r->loss);
    number(f, "perplexity", r->perplexity);
    if (r->bytes) number(f, "bits_per_byte", r->bits_per_byte);
    fprintf(f, ", \"tokens\": %" PRId64 ", \"bytes\": %" PRId64 "}\n", r->tokens, r->bytes);
    if (!log->has_board) return;
    sluice__tensorboard_scalar(&log->board, "eval/loss", r->loss);
    sluice__tensorboard_scalar(&log->board, "eval/perplexity", r->perplexity);
    if (r->bytes) sluice__tensorboard_scalar(&log->board, "eval/bits_per_byte", r->bits_per_byte);
    sluice__tensorboard_event(&log->board, r->step);
}

static void board_layers(sluice__tensorboard *t, const char *group, const double *v, int n) {
    char tag[64];
    for (int i = 0; i < n; i++) {
        if (!isfinite(v[i])) continue;
        snprintf(tag, sizeof tag, "%s/layer_%02d", group, i);
        sluice__tensorboard_scalar(t, tag, v[i]);
    }
}

void sluice__run_log_probe(sluice__run_log *log, const sluice_probe_record *r) {
    FILE *f = log->jsonl;
    fprintf(f, "{\"type\": \"probe\", \"step\": %" PRId64, r->step);
    numbers(f, "first_token_share", r->first_token_share, r->num_layers);
    numbers(f, "first_token_share_from_quarter", r->first_token_share_from_quarter, r->num_layers);
    numbers(f, "max_abs_residual", r->max_abs_residual, r->num_layers);
    numbers(f, "max_abs_attn_out", r->max_abs_attn_out, r->num_layers);
    numbers(f, "max_abs_ffn_out", r->max_abs_ffn_out, r->num_layers);
    numbers(f, "gate_mean", r->gate_mean, r->num_layers);
    fputs("}\n", f);
    if (!log->has_board) return;
    board_layers(&log->board, "first_token_share", r->first_token_share, r->num_layers);
    board_layers(&log->board, "max_abs_residual", r->max_abs_residual, r->num_layers);
    board_layers(&log->board, "max_abs_attn_out", r->max_abs_attn_out, r->num_layers);
    board_layers(&log->board, "max_abs_ffn_out", r->max_abs_ffn_out, r->num_layers);
    board_layers(&log->board, "gate_mean", r->gate_mean, r->num_layers);
    sluice__tensorboard_event(&log->board, r->step);
}

void sluice__run_log_event(sluice__run_log *log, const char *type, int64_t step, double loss, const char *text) {
    FILE *f = log->jsonl;
    json_t *quoted = json_string_nocheck(text);
    char *dump = quoted ? json_dumps(quoted, JSON_ENCODE_ANY) : NULL;
    fprintf(f, "{\"type\": \"%s\", \"step\": %" PRId64, type, step);
    number(f, "loss", loss);
    fprintf(f, ", \"text\": %s}\n", dump ? dump : "null");
    free(dump);
    json_decref(quoted);
}

sluice_status sluice__run_log_flush(sluice__run_log *log, bool sync, sluice_error *err) {
    log->last_flush = sluice__now();
    if (fflush(log->jsonl) != 0 || ferror(log->jsonl) || (sync && fsync(fileno(log->jsonl)) != 0))
        return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot write: %s", log->path, strerror(errno));
    return log->has_board ? sluice__tensorboard_flush(&log->board, err) : SLUICE_OK;
}

sluice_status sluice__run_log_tick(sluice__run_log *log, sluice_error *err) {
    return sluice__now() - log->last_flush > 1 ? sluice__run_log_flush(log, false, err) : SLUICE_OK;
}

sluice_status sluice__run_log_close(sluice__run_log *log, sluice_error *err) {
    if (!log->path) return SLUICE_OK;
    sluice_status st = log->jsonl ? sluice__run_log_flush(log, false, err) : SLUICE_OK;
    if (log->jsonl) fclose(log->jsonl);
    sluice_status board = sluice__tensorboard_close(&log->board, st == SLUICE_OK ? err : NULL);
    sluice__free(log->path);
    *log = (sluice__run_log){0};
    return st == SLUICE_OK ? board : st;
}
