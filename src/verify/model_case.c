/* SPDX-License-Identifier: Apache-2.0 */
/* Forward cases: the whole prompt at once with everything that was recorded; then the same logits from the cache, for
 * every way of splitting the prompt that decode.json lists and for two that are always tried; then greedy decoding. */
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "layers/transformer.h"
#include "verify/cases.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Absolute, for every tensor: about ten times what fp32 against fp64 shows. The output of linear attention is normed
 * per head, which enlarges rounding where a head's output is nearly zero. */
static const double LOGIT_LIMIT = 3e-4, LINEAR_LOGIT_LIMIT = 1e-3;
enum { MAX_GREEDY = 4096 };

static double logit_limit(const sluice_model *model) {
    const sluice_config *c = sluice_model_config(model);
    for (int i = 0; i < c->num_hidden_layers; i++)
        if (sluice_layer_is_linear(&c->layers[i])) return LINEAR_LOGIT_LIMIT;
    return LOGIT_LIMIT;
}

typedef struct prompt {
    int batch, seq_len;
    int32_t *ids;
} prompt;

static sluice_status read_prompt(prompt *out, const sluice__safetensors *golden, sluice_error *err) {
    const sluice__st_tensor *t = sluice__safetensors_find(golden, "input_ids");
    const char *path = sluice__safetensors_path(golden);
    if (!t) return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: input_ids is missing", path);
    bool flat = t->ndim == 1;
    if ((t->ndim != 2 && !flat) || t->count < 1 || t->count > INT32_MAX / 2)
        return sluice__fail(err, SLUICE_ERR_FORMAT,
                            "%s: input_ids: found %lld values in %d dimensions, expected [batch, tokens]", path,
                            (long long)t->count, t->ndim);
    *out = (prompt){flat ? 1 : (int)t->shape[0], (int)t->shape[t->ndim - 1], NULL};
    return sluice__golden_ids(&out->ids, golden, t, err);
}

/* Everything of one golden file, computed in one pass. */
static sluice_status whole(const sluice__verify_run *run, const sluice_model *model, const sluice__safetensors *golden,
                           const prompt *p, const char *label, sluice__results *results) {
    SLUICE__TRY(sluice__results_add_ids(results, "input_ids", 2, (int64_t[]){p->batch, p->seq_len}, p->ids, run->err));
    sluice__verify_input in = {p->batch, p->seq_len, p->ids, NULL, NULL};
    sluice_status st = sluice__verify_forward(run, model, golden, &in, results);
    if (st != SLUICE_OK) return sluice__fail_in(run->err, st, "%s", sluice__safetensors_path(golden));
    for (int i = 0; i < sluice__safetensors_count(golden); i++) {
        const sluice__st_tensor *t = sluice__safetensors_at(golden, i);
        if (!strcmp(t->name, "input_ids")) continue;
        SLUICE__TRY(sluice__report_tensor(run, label, t, sluice__results_find(results, t->name), SLUICE_VERIFY_MAX_ABS,
                                          logit_limit(model)));
    }
    return SLUICE_OK;
}

typedef struct cached_run {
    const sluice_model *model;
    sluice__workspace *ws;
    sluice__cache *cache;
    float *logits; /* [B,chunk,V] of one call */
} cached_run;

static void cached_end(cached_run *c) {
    sluice__workspace_free(c->ws);
    sluice__cache_free(c->cache);
    sluice__free(c->logits);
    *c = (cached_run){0};
}

static sluice_status cached_begin(cached_run *c, const sluice_model *model, int batch, int capacity, int largest,
                                  sluice_error *err) {
    *c = (cached_run){.model = model};
    size_t count = sluice__mul_size(sluice__mul_size((size_t)batch, (size_t)largest),
                                    (size_t)sluice_model_config(model)->vocab_size);
    SLUICE__TRY(sluice__workspace_new(&c->ws, model, batch, largest, SLUICE__INFER, err));
    sluice_status st = sluice__cache_new(&c->cache, model, batch, capacity, err);
    c->logits = sluice__calloc(count, sizeof *c->logits, SLUICE__MEM_OTHER);
    if (st == SLUICE_OK && !c->logits) st = sluice__no_memory(err, sluice__mul_size(count, sizeof(float)), "logits");
    if (st != SLUICE_OK) cached_end(c);
    return st;
}

/* Feeds tokens first..first+n-1 of every row; their logits go to c->logits [B,n,V]. ids: room for B*n. */
static sluice_status feed(cached_run *c, const prompt *p, int first, int n, int32_t *ids, sluice_error *err) {
    for (int b = 0; b < p->batch; b++)
        memmove(ids + (size_t)b * n, p->ids + (size_t)b * p->seq_len + first, (size_t)n * sizeof *ids);
    sluice__input in = {p->batch, n, ids, NULL, NULL, NULL};
    return sluice__forward(c->model, c->ws, &in, c->cache, NULL, SLUICE__LOGITS_ALL, c->logits, err);
}

/* Largest difference of c->logits from the golden logits of tokens first.. */
static double logits_error(const cached_run *c, const prompt *p, const float *golden, int first, int n) {
    int64_t vocab = sluice_model_config(c->model)->vocab_size;
    double worst = 0;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < n * vocab; i++) {
            double d = fabs((double)golden[(b * p->seq_len + first) * vocab + i] - c->logits[b * n * vocab + i]);
            if (!(d <= worst)) worst = isnan(worst) ? worst : d;
        }
    return worst;
}

/* Logits of the prompt in chunks (the last size repeats) against golden [B,T,V]. */
static sluice_status split(const sluice__verify_run *run, const sluice_model *model, const prompt *p,
                           const float *golden, const int *chunks, int num_chunks, const char *name) {
    int largest = 0;
    for (int i = 0; i < num_chunks; i++)
        if (chunks[i] > largest) largest = chunks[i] < p->seq_len ? chunks[i] : p->seq_len;
    cached_run c;
    SLUICE__TRY(cached_begin(&c, model, p->batch, p->seq_len, largest, run->err));
    int32_t *ids = sluice__calloc((size_t)p->batch * (size_t)largest, sizeof *ids, SLUICE__MEM_OTHER);
    sluice_status st =
        ids ? SLUICE_OK
            : sluice__no_memory(run->err, (size_t)p->batch * (size_t)largest * sizeof *ids, "token ids");
    double worst = 0;
    for (int first = 0, i = 0; st == SLUICE_OK && first < p->seq_len; i++) {
        int n = chunks[i < num_chunks ? i : num_chunks - 1];
        if (n > p->seq_len - first) n = p->seq_len - first;
        st = feed(&c, p, first, n, ids, run->err);
        double error = st == SLUICE_OK ? logits_error(&c, p, golden, first, n) : 0;
        if (!(error <= worst)) worst = isnan(worst) ? worst : error;
        first += n;
    }
    sluice__free(ids);
    cached_end(&c);
    return st == SLUICE_OK ? sluice__report_value(run, SLUICE_VERIFY_MAX_ABS, worst, logit_limit(model), "%s", name) : st;
}

static sluice_status listed_split(const sluice__verify_run *run, const sluice_model *model, const prompt *p,
                                  const float *golden, const sluice__json *entry) {
    enum { MAX_CHUNKS = 1024 };
    int chunks[MAX_CHUNKS];
    char name[120] = "decode.json: chunks";
    sluice__json list = sluice__json_get(entry, "chunks");
    size_t n = json_array_size(list.value);
    if (n < 1 || n > MAX_CHUNKS)
        return sluice__json_fail(entry, "chunks", run->err, "expected a list of 1..%d chunk lengths", MAX_CHUNKS);
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list.value, i);
        json_int_t chunk = json_is_integer(value) ? json_integer_value(value) : 0;
        if (chunk < 1 || chunk > INT32_MAX)
            return sluice__json_fail(entry, "chunks", run->err, "entry %zu: expected a length of at least 1", i);
        chunks[i] = (int)chunk;
        size_t at = strlen(name);
        snprintf(name + at, sizeof name - at, "%s %d", i ? "," : "", chunks[i]);
    }
    return split(run, model, p, golden, chunks, (int)n, name);
}

static sluice_status listed_splits(const sluice__verify_run *run, const sluice_model *model, const prompt *p,
                                   const float *golden, const char *path) {
    json_t *root;
    SLUICE__TRY(sluice__json_load(&root, path, run->err));
    sluice__json file = sluice__json_view(root, path), splits = sluice__json_get(&file, "splits");
    sluice_status st = SLUICE_OK;
    if (!json_is_array(splits.value)) st = sluice__json_fail(&file, "splits", run->err, "expected a list");
    for (size_t i = 0; st == SLUICE_OK && i < json_array_size(splits.value); i++) {
        sluice__json entry = sluice__json_at(&splits, i);
        st = listed_split(run, model, p, golden, &entry);
    }
    json_decref(root);
    return st;
}

/* Whether rotary frequencies change while this prompt is fed in pieces: then keys of the cache keep those of their time,
 * and no split has to give the logits of the whole. */
static bool frequencies_change(const sluice_model *model, int seq_len) {
    const sluice_config *c = sluice_model_config(model);
    for (int i = 0; i < c->num_hidden_layers; i++) {
        const sluice_rope_spec *r = &c->layers[i].rope;
        bool by_length = r->type == SLUICE_ROPE_DYNAMIC || r->type == SLUICE_ROPE_LONGROPE;
        if (r->enabled && by_length && seq_len > r->original_max_position_embeddings) return true;
    }
    return false;
}

static sluice_status splits(const sluice__verify_run *run, const sluice_model *model,
                            const sluice__safetensors *golden, const prompt *p) {
    const sluice__st_tensor *t = sluice__safetensors_find(golden, "logits");
    if (!t || t->count != (int64_t)p->batch * p->seq_len * sluice_model_config(model)->vocab_size)
        return SLUICE_OK; /* reported */
    if (frequencies_change(model, p->seq_len)) return SLUICE_OK;
    float *logits;
    SLUICE__TRY(sluice__golden_values(&logits, golden, t, run->err));
    int one = 1, half = (p->seq_len + 1) / 2;
    sluice_status st = split(run, model, p, logits, &one, 1, "logits, one token at a time");
    if (st == SLUICE_OK) st = split(run, model, p, logits, &half, 1, "logits, in two halves");
    char *path = sluice__path_join(run->dir, "decode.json");
    if (!path && st == SLUICE_OK) st = sluice__no_memory(run->err, strlen(run->dir), "a path");
    if (st == SLUICE_OK && sluice__is_file(path)) st = listed_splits(run, model, p, logits, path);
    sluice__free(path);
    sluice__free(logits);
    return st;
}

/* Reads the list of ids under `key` into ids [MAX_GREEDY]; returns its length or -1 with the error set. */
static int read_ids(const sluice__verify_run *run, const sluice__json *file, const char *key, int32_t *ids) {
    sluice__json list = sluice__json_get(file, key);
    size_t n = json_array_size(list.value);
    if (n < 1 || n > MAX_GREEDY) {
        sluice__json_fail(file, key, run->err, "expected a list of 1..%d token ids", MAX_GREEDY);
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list.value, i);
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id > INT32_MAX) {
            sluice__json_fail(file, key, run->err, "entry %zu: expected a token id", i);
            return -1;
        }
        ids[i] = (int32_t)id;
    }
    return (int)n;
}

static int32_t arg_max(const float *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Whether the recorded token is not the likeliest one. Under a tolerance of X logits of both sides lie X apart, so that the
 * recorded token may be 2 X below the largest logit here without contradicting it. */
static bool differs(const sluice__verify_run *run, const float *logits, int vocab, int32_t recorded) {
    int best = arg_max(logits, vocab);
    double slack = run->params->tolerance > 0 ? 2 * run->params->tolerance : 0;
    if (best == recorded || recorded >= vocab) return best != recorded;
    return !(slack > 0 && (double)logits[best] - logits[recorded] <= slack);
}

/* Number of tokens that differ from the recorded ones; each step goes on from the recorded token. */
static sluice_status greedy_steps(const sluice__verify_run *run, const sluice_model *model, int32_t *prompt_ids,
                                  int prompt_len, const int32_t *tokens, int num_tokens) {
    int vocab = sluice_model_config(model)->vocab_size, wrong = 0;
    cached_run c;
    SLUICE__TRY(cached_begin(&c, model, 1, prompt_len + num_tokens, prompt_len, run->err));
    prompt p = {1, prompt_len, prompt_ids};
    int32_t *ids = prompt_ids;
    sluice_status st = feed(&c, &p, 0, prompt_len, ids, run->err);
    const float *last = c.logits + (int64_t)(prompt_len - 1) * vocab;
    for (int i = 0; st == SLUICE_OK && i < num_tokens; i++) {
        wrong += differs(run, last, vocab, tokens[i]);
        last = c.logits;
        int32_t next = tokens[i];
        p = (prompt){1, 1, &next};
        if (i + 1 < num_tokens) st = feed(&c, &p, 0, 1, ids, run->err);
    }
    cached_end(&c);
    if (st != SLUICE_OK) return sluice__fail_in(run->err, st, "%s/greedy.json", run->dir);
    return sluice__report_value(run, SLUICE_VERIFY_MISMATCHES, wrong, 0, "greedy.json: %d tokens", num_tokens);
}

static sluice_status greedy(const sluice__verify_run *run, const sluice_model *model) {
    char *path = sluice__path_join(run->dir, "greedy.json");
    if (!path) return sluice__no_memory(run->err, strlen(run->dir), "a path");
    sluice_status st = SLUICE_OK;
    json_t *root = NULL;
    int32_t *ids = sluice__calloc(2 * MAX_GREEDY, sizeof *ids, SLUICE__MEM_OTHER);
    if (!ids) SLUICE__TRY_GOTO(sluice__no_memory(run->err, 2 * MAX_GREEDY * sizeof *ids, "token ids"), done);
    if (!sluice__is_file(path)) goto done;
    SLUICE__TRY_GOTO(sluice__json_load(&root, path, run->err), done);
    sluice__json file = sluice__json_view(root, path);
    int prompt_len = read_ids(run, &file, "prompt", ids);
    int num_tokens = prompt_len < 0 ? -1 : read_ids(run, &file, "tokens", ids + MAX_GREEDY);
    st = num_tokens < 0 ? SLUICE_ERR_FORMAT : greedy_steps(run, model, ids, prompt_len, ids + MAX_GREEDY, num_tokens);
done:
    json_decref(root);
    sluice__free(ids);
    sluice__free(path);
    return st;
}

/* dump.safetensors and ".len5" -> dump.len5.safetensors */
static char *dump_name(const char *path, const char *label) {
    static const char ending[] = ".safetensors";
    size_t n = strlen(path), e = sizeof ending - 1;
    bool has = n > e && !strcmp(path + n - e, ending);
    return sluice__asprintf("%.*s%s%s", (int)(has ? n - e : n), path, label, has ? ending : "");
}

static sluice_status dump(const sluice__verify_run *run, const sluice__results *results, const char *label) {
    if (!run->params->dump_path) return SLUICE_OK;
    char *path = dump_name(run->params->dump_path, label);
    if (!path) return sluice__no_memory(run->err, strlen(run->params->dump_path), "a path");
    sluice_status st = sluice__results_write(run, results, path);
    sluice__free(path);
    return st;
}

/* file: golden.safetensors or golden.<label>.safetensors */
static sluice_status one_golden(const sluice__verify_run *run, const sluice_model *model, const char *file) {
    bool main_golden = !strcmp(file, "golden.safetensors");
    const char *label = file + strlen("golden");
    char suffix[128], prefix[160];
    snprintf(suffix, sizeof suffix, "%.*s", (int)(strlen(label) - strlen(".safetensors")), label);
    snprintf(prefix, sizeof prefix, "%s%s", main_golden ? "" : file, main_golden ? "" : ": ");
    char *path = sluice__path_join(run->dir, file);
    if (!path) return sluice__no_memory(run->err, strlen(run->dir), "a path");
    sluice__safetensors *golden = NULL;
    sluice__results results = {0};
    prompt p = {0};
    sluice_status st;
    SLUICE__TRY_GOTO(sluice__safetensors_open(&golden, path, run->err), done);
    SLUICE__TRY_GOTO(read_prompt(&p, golden, run->err), done);
    SLUICE__TRY_GOTO(whole(run, model, golden, &p, prefix, &results), done);
    SLUICE__TRY_GOTO(dump(run, &results, suffix), done);
    if (main_golden) st = splits(run, model, golden, &p);
done:
    sluice__free(p.ids);
    sluice__results_free(&results);
    sluice__safetensors_close(golden);
    sluice__free(path);
    return st;
}

static int is_labelled_golden(const struct dirent *entry) {
    size_t n = strlen(entry->d_name), e = strlen(".safetensors"), g = strlen("golden.");
    return n > g + e && !strncmp(entry->d_name, "golden.", g) && !strcmp(entry->d_name + n - e, ".safetensors");
}

static sluice_status labelled_goldens(const sluice__verify_run *run, const sluice_model *model) {
    struct dirent **list = NULL;
    int n = scandir(run->dir, &list, is_labelled_golden, alphasort);
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < n; i++) {
        if (st == SLUICE_OK) st = one_golden(run, model, list[i]->d_name);
        free(list[i]);
    }
    free(list);
    return st;
}

sluice_status sluice__verify_model(const sluice__verify_run *run, const sluice_model *model) {
    SLUICE__TRY(one_golden(run, model, "golden.safetensors"));
    SLUICE__TRY(labelled_goldens(run, model));
    return greedy(run, model);
}
