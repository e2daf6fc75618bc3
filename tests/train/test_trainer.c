/* SPDX-License-Identifier: Apache-2.0 */
/* train: the trainer on a tiny model and a synthetic language: it learns; micro-batches equal one batch; a resumed
 * run is the uninterrupted one bit for bit; spikes and NaN are handled as asked; foreign and damaged checkpoints
 * are refused. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "sluice/cpu.h"
#include "train/trainer.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { V = 32, T = 16, TOKENS = 6000 };

/* Every token mostly determines the next; the tokens in [from, from + count) are noise. */
static sluice_dataset *make_data(const sluice_train_params *p, int64_t from, int64_t count, uint64_t seed) {
    static _Thread_local int32_t ids[TOKENS];
    sluice__rng r = {seed, 1, 0};
    sluice_dataset *d;
    sluice_error err = {0};
    int64_t length = TOKENS;
    for (int64_t i = 0; i < TOKENS; i++) {
        bool noise = (i >= from && i < from + count) || sluice__rng_below(&r, 10) == 0;
        ids[i] = noise || !i ? (int32_t)sluice__rng_below(&r, V) : (ids[i - 1] * 5 + 7) % V;
    }
    assert_ok_err(sluice_dataset_from_tokens(&d, p, ids, &length, 1, V, -1, -1, &err), &err);
    return d;
}

static sluice_train_params base_params(void) {
    sluice_train_params p = sluice_train_params_default();
    p.seq_len = T;
    p.append_eos = false;
    p.max_steps = 40;
    p.learning_rate = 5e-3;
    p.per_device_train_batch_size = 4;
    p.tensorboard = false;
    p.probe_steps = 10;
    p.eval_steps = 20;
    p.max_eval_samples = 5;
    p.save_steps = 0;
    return p;
}

static sluice_model *make_model(const char *extra) {
    char text[512];
    snprintf(text, sizeof text,
             "{\"vocab_size\": %d, \"hidden_size\": 16, \"intermediate_size\": 24, \"num_hidden_layers\": 2, "
             "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 8, \"gate_position\": \"sdpa\", "
             "\"gate_granularity\": \"headwise\", \"initializer_range\": 0.1%s}",
             V, extra);
    sluice_config c;
    sluice_model *m;
    sluice_error err = {0};
    assert_ok_err(sluice_config_parse(&c, text, "test", &err), &err);
    assert_ok_err(sluice_model_new(&m, &c, 3, &err), &err);
    sluice_config_free(&c);
    return m;
}

typedef struct fixture {
    sluice_train_params p;
    sluice_model *model;
    sluice_dataset *data;
    sluice_trainer *trainer;
} fixture;

static fixture make_from(sluice_train_params p, const char *extra, int64_t noise_from, int64_t noise_count) {
    fixture f = {p, make_model(extra), make_data(&p, noise_from, noise_count, 9), NULL};
    sluice_error err = {0};
    assert_ok_err(sluice_trainer_new(&f.trainer, &f.p, f.model, f.data, NULL, "test", &err), &err);
    return f;
}

static fixture make(sluice_train_params p, int64_t noise_from, int64_t noise_count) {
    return make_from(p, "", noise_from, noise_count);
}

static fixture make_with(sluice_train_params p, const char *extra) { return make_from(p, extra, 0, 0); }

static void unmake(fixture *f) {
    sluice_trainer_free(f->trainer);
    sluice_dataset_free(f->data);
    sluice_model_free(f->model);
}

static void assert_same_weights(const sluice_model *a, const sluice_model *b) {
    for (int i = 0; i < sluice_model_num_tensors(a); i++) {
        sluice_tensor_info x = sluice_model_tensor(a, i), y = sluice_model_tensor(b, i);
        assert_memory_equal(x.data, y.data, (size_t)x.count * sizeof(float));
    }
}

static void it_learns(void **state) {
    (void)state;
    fixture f = make(base_params(), 0, 0);
    sluice_eval_record before, after;
    sluice_error err = {0};
    assert_ok_err(sluice_trainer_evaluate(f.trainer, 0, &before, &err), &err);
    assert_int_equal(before.tokens, sluice_dataset_get_info(f.data).heldout_tokens - 1);
    assert_ok_err(sluice_trainer_run(f.trainer, NULL, &err), &err);
    assert_ok_err(sluice_trainer_evaluate(f.trainer, 0, &after, &err), &err);
    assert_float_equal(before.loss, log(V), 0.5);
    assert_true(after.loss < before.loss - 1);
    assert_float_equal(after.perplexity, exp(after.loss), 1e-9);
    assert_int_equal(sluice_trainer_step(f.trainer, NULL, &err), SLUICE_ERR_ARGUMENT);
    unmake(&f);
}

static void micro_batches_equal_one_batch(void **state) {
    (void)state;
    sluice_train_params p = base_params();
    p.max_steps = 8;
    p.document_mask = true;
    fixture whole = make(p, 0, 0);
    p.per_device_train_batch_size = 1;
    p.gradient_accumulation_steps = 4;
    fixture parts = make(p, 0, 0);
    sluice_error err = {0};
    for (int i = 0; i < 8; i++) {
        sluice_step_record a, b;
        assert_ok_err(sluice_trainer_step(whole.trainer, &a, &err), &err);
        assert_ok_err(sluice_trainer_step(parts.trainer, &b, &err), &err);
        assert_float_equal(a.loss, b.loss, 1e-5);
        assert_float_equal(a.grad_norm, b.grad_norm, 1e-4 * a.grad_norm);
        assert_int_equal(a.tokens, b.tokens);
    }
    unmake(&whole);
    unmake(&parts);
}

/* ---- resuming ---- */

typedef struct stopper {
    int64_t at;
    const sluice_trainer *trainer;
} stopper;

static bool stop_at(void *user) {
    stopper *s = user;
    return sluice_trainer_current_step(s->trainer) == s->at;
}

static void run_until(sluice_train_params p, int64_t stop) {
    fixture f = make(p, 0, 0);
    stopper s = {stop, f.trainer};
    sluice_train_callbacks call = {.user = &s, .stop_requested = stop_at};
    sluice_error err = {0};
    assert_int_equal(sluice_trainer_run(f.trainer, &call, &err), SLUICE_INTERRUPTED);
    assert_non_null(strstr(err.message, "step-"));
    unmake(&f);
}

/* metrics.jsonl without the figures that depend on the clock. */
static char *metrics(const char *dir) {
    char path[256], *text, *out;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    assert_ok(sluice__read_file(&text, NULL, path, 1 << 20, NULL));
    out = text;
    for (char *p = text; *p;) {
        if (!strncmp(p, ", \"tokens_per_second\"", 21)) p += 2 + strcspn(p + 2, ",");
        else *out++ = *p++;
    }
    *out = '\0';
    return text;
}

/* Muon, and a mixture of experts with several passes an update: the run in pieces ends with the same bits and log
 * lines. */
static void check_resumed(sluice_train_params p, const char *extra, const char *name, const char *line) {
    sluice_train_params q = p;
    sluice_error err = {0};
    snprintf(p.output_dir, sizeof p.output_dir, "%s/%s-whole", test_temp_dir(), name);
    snprintf(q.output_dir, sizeof q.output_dir, "%s/%s-parts", test_temp_dir(), name);
    snprintf(q.resume_from_checkpoint, sizeof q.resume_from_checkpoint, "last");
    fixture whole = make_with(p, extra);
    assert_ok_err(sluice_trainer_run(whole.trainer, NULL, &err), &err);
    for (int part = 0; part < 2; part++) {
        fixture f = make_with(q, extra);
        assert_ok_err(sluice_trainer_begin(f.trainer, &err), &err);
        for (int i = 0; part == 0 && i < 13; i++) assert_ok_err(sluice_trainer_step(f.trainer, NULL, &err), &err);
        if (part == 0) assert_ok_err(sluice_trainer_save(f.trainer, &err), &err);
        else assert_ok_err(sluice_trainer_run(f.trainer, NULL, &err), &err);
        if (part == 1) assert_same_weights(whole.model, f.model);
        unmake(&f);
    }
    char *log = metrics(p.output_dir);
    if (!strstr(log, line)) fail_msg("%s: no %s in the log", name, line);
    sluice__free(log);
    unmake(&whole);
}

static void other_optimisers_and_layers_resume(void **state) {
    (void)state;
    sluice_train_params p = base_params();
    p.max_steps = 30;
    p.optim = SLUICE_OPTIM_MUON;
    p.muon_learning_rate = 0.01;
    check_resumed(p, "", "muon", "\"loss\"");
    p.muon_adjust = SLUICE_MUON_ORIGINAL;
    p.gradient_accumulation_steps = 2;
    static const char experts[] = ", \"num_experts\": 4, \"moe_intermediate_size\": 8, \"num_shared_experts\": 1";
    check_resumed(p, experts, "experts", "\"balance_loss\"");
    p.optim = SLUICE_OPTIM_ADAMW;
    p.muon_learning_rate = 0;
    p.router_balance = SLUICE_BALANCE_RUNNING;
    check_resumed(p, experts, "running", "\"expert_load\"");
    check_resumed(p, ", \"switch_head\": \"v\", \"switch_experts\": 3", "switch", "\"loss\"");
    p.optim = SLUICE_OPTIM_LION;
    p.learning_rate = 1e-3;
    check_resumed(p, "", "lion", "\"loss\"");
    p.gradient_accumulation_steps = 4;
    snprintf(p.batch_size_warmup, sizeof p.batch_size_warmup, "1:6,2:10"); /* the run is cut in the second stage */
    check_resumed(p, "", "warmup", "\"loss\"");
    p.dtype = SLUICE_DTYPE_BF16;
    check_resumed(p, experts, "bf16", "\"expert_load\"");
}

/* A run in bf16 learns, evaluates in bf16, keeps fp32 weights in its checkpoints, and does not go on in another format;
 * the two names of one are the same. */
static void bf16_is_a_format_of_the_run(void **state) {
    (void)state;
    sluice_train_params p = base_params();
    sluice_error err = {0};
    p.dtype = SLUICE_DTYPE_BF16;
    snprintf(p.output_dir, sizeof p.output_dir, "%s/run", test_temp_dir());
    fixture f = make(p, 0, 0);
    sluice_eval_record before, after;
    assert_ok_err(sluice_trainer_evaluate(f.trainer, 0, &before, &err), &err);
    assert_ok_err(sluice_trainer_run(f.trainer, NULL, &err), &err);
    assert_ok_err(sluice_trainer_evaluate(f.trainer, 0, &after, &err), &err);
    assert_true(after.loss < before.loss - 1);
    snprintf(p.resume_from_checkpoint, sizeof p.resume_from_checkpoint, "last");
    sluice_trainer_free(f.trainer); /* it holds the directory */
    f.trainer = NULL;
    static const int formats[] = {SLUICE_DTYPE_BFLOAT16, SLUICE_DTYPE_FLOAT32, SLUICE_DTYPE_FP32};
    for (int i = 0; i < 3; i++) {
        p.dtype = formats[i];
        fixture again = make(p, 0, 0);
        sluice_status st = sluice_trainer_begin(again.trainer, &err);
        assert_int_equal(st, i ? SLUICE_ERR_CONFIG : SLUICE_OK);
        if (i) assert_non_null(strstr(err.message, "dtype"));
        else assert_same_weights(again.model, f.model);
        unmake(&again);
    }
    unmake(&f);
}

/* An update of the warm-up sees the windows that follow those of the update before it: a warm-up of single passes is the
 * run of single passes. */
static void a_batch_warmup_is_a_run_of_small_batches(void **state) {
    (void)state;
    sluice_train_params small = base_params(), warm = base_params();
    small.max_steps = warm.max_steps = 8;
    warm.gradient_accumulation_steps = 4;
    snprintf(warm.batch_size_warmup, sizeof warm.batch_size_warmup, "1:8");
    fixture a = make(small, 0, 0), b = make(warm, 0, 0);
    sluice_step_record x, y;
    for (int i = 0; i < 8; i++) {
        assert_ok(sluice_trainer_step(a.trainer, &x, NULL));
        assert_ok(sluice_trainer_step(b.trainer, &y, NULL));
        assert_true(x.loss == y.loss && x.tokens == y.tokens);
    }
    assert_same_weights(a.model, b.model);
    unmake(&a);
    unmake(&b);
    warm.max_steps = 9;
    fixture c = make(warm, 0, 0);
    for (int i = 0; i < 9; i++) assert_ok(sluice_trainer_step(c.trainer, &y, NULL));
    assert_int_equal(y.tokens, (8 + 4) * 4 * T);
    unmake(&c);
}

/* The logged balance loss of one update is that of the whole batch, in one pass or in four, and so is what follows
 * from it. */
static void passes_do_not_change_the_balance_loss(void **state) {
    (void)state;
    double loss[2], balance[2];
    for (int i = 0; i < 2; i++) {
        sluice_train_params p = base_params();
        p.per_device_train_batch_size = i ? 1 : 4;
        p.gradient_accumulation_steps = i ? 4 : 1;
        fixture f = make_with(p, ", \"num_experts\": 4, \"moe_intermediate_size\": 8, \"router_aux_loss_coef\": 0.5");
        sluice_step_record r = {0};
        for (int s = 0; s < 3; s++) assert_ok(sluice_trainer_step(f.trainer, &r, NULL));
        assert_true(r.routed && r.num_layers == 2 && r.num_experts == 4);
        double sum = 0;
        for (int e = 0; e < 8; e++) sum += r.expert_load[e];
        assert_true(sum == 2.0 * 4 * T * 2);
        loss[i] = r.loss;
        balance[i] = r.balance_loss;
        unmake(&f);
    }
    assert_true(fabs(loss[0] - loss[1]) < 1e-5 && fabs(balance[0] - balance[1]) < 1e-5);
}

static void a_resumed_run_is_the_uninterrupted_one(void **state) {
    (void)state;
    sluice_train_params p = base_params();
    snprintf(p.output_dir, sizeof p.output_dir, "%s/whole", test_temp_dir());
    fixture whole = make(p, 0, 0);
    sluice_error err = {0};
    assert_ok_err(sluice_trainer_run(whole.trainer, NULL, &err), &err);
    sluice_train_params q = p;
    snprintf(q.output_dir, sizeof q.output_dir, "%s/parts", test_temp_dir());
    snprintf(q.resume_from_checkpoint, sizeof q.resume_from_checkpoint, "last");
    run_until(q, 17); /* nothing there yet: starts at the beginning */
    run_until(q, 20);
    q.save_total_limit = 1;
    fixture parts = make(q, 0, 0);
    assert_ok_err(sluice_trainer_run(parts.trainer, NULL, &err), &err);
    assert_same_weights(whole.model, parts.model);
    char *a = metrics(p.output_dir), *b = metrics(q.output_dir);
    assert_string_equal(a, b);
    assert_non_null(strstr(a, "\"first_token_share\""));
    sluice__free(a);
    sluice__free(b);
    int64_t newest;
    assert_ok(sluice__checkpoint_newest(q.output_dir, &newest, NULL));
    assert_int_equal(newest, 40);
    unmake(&whole);
    unmake(&parts);
    parts = make(q, 0, 0); /* a finished run: nothing left but to say so again */
    assert_ok_err(sluice_trainer_run(parts.trainer, NULL, &err), &err);
    assert_int_equal(sluice_trainer_current_step(parts.trainer), 40);
    a = metrics(q.output_dir);
    b = metrics(p.output_dir);
    assert_string_equal(a, b);
    sluice__free(a);
    sluice__free(b);
    unmake(&parts);
}

static void begin_fails(sluice_train_params p, const char *model_extra, uint64_t data_seed, const char *word) {
    sluice_error err = {0};
    fixture f = {p, make_model(model_extra), make_data(&p, 0, 0, data_seed), NULL};
    assert_ok_err(sluice_trainer_new(&f.trainer, &f.p, f.model, f.data, NULL, "test", &err), &err);
    if (sluice_trainer_begin(f.trainer, &err) == SLUICE_OK) fail_msg("began in spite of: %s", word);
    if (!strstr(err.message, word)) fail_msg("expected \"%s\" in: %s", word, err.message);
    unmake(&f);
}

static void foreign_and_damaged_checkpoints_are_refused(void **state) {
    (void)state;
    sluice_train_params p = base_params(), q;
    sluice_error err = {0};
    snprintf(p.output_dir, sizeof p.output_dir, "%s/run", test_temp_dir());
    run_until(p, 5);
    begin_fails(p, "", 9, "holds a run already");
    snprintf(p.resume_from_checkpoint, sizeof p.resume_from_checkpoint, "true");
    begin_fails(p, ", \"rms_norm_eps\": 1e-5", 9, "rms_norm_eps");
    begin_fails(p, "", 10, "hash");
    q = p, q.weight_decay = 0.2;
    begin_fails(q, "", 9, "weight_decay");
    q = p, q.learning_rate = 1e-2;
    begin_fails(q, "", 9, "learning_rate");
    char path[512];
    snprintf(q.resume_from_checkpoint, sizeof path, "%s/checkpoints/step-99", p.output_dir);
    begin_fails(q, "", 9, "no such checkpoint");
    char *step = sluice__checkpoint_path(p.output_dir, 5), *other = sluice__checkpoint_path(p.output_dir, 7);
    static const char *const files[] = {"config.json", "model.safetensors", "optimizer.safetensors",
                                        "trainer_state.json"};
    for (int i = 0; i < 4; i++) { /* a file is missing; half of it is missing */
        char *text;
        size_t size;
        snprintf(path, sizeof path, "%s/%s", step, files[i]);
        assert_ok(sluice__read_file(&text, &size, path, 1 << 24, NULL));
        remove(path);
        begin_fails(p, "", 9, files[i]);
        assert_ok(sluice__write_file(path, text, size / 2, NULL));
        begin_fails(p, "", 9, files[i]);
        assert_ok(sluice__write_file(path, text, size, NULL));
        sluice__free(text);
    }
    char backup[512], *left = sluice__temporary_name(other); /* what a kill leaves goes away, a user's copy stays */
    snprintf(path, sizeof path, "%s", left);
    sluice__free(left);
    snprintf(backup, sizeof backup, "%s.old-backup", other);
    assert_ok(sluice__make_dirs(path, NULL));
    assert_ok(sluice__make_dirs(backup, NULL));
    fixture f = make(p, 0, 0);
    assert_ok_err(sluice_trainer_begin(f.trainer, &err), &err);
    assert_false(sluice__is_dir(path));
    assert_true(sluice__is_dir(backup));
    assert_int_equal(sluice_trainer_current_step(f.trainer), 5);
    begin_fails(p, "", 9, "another run is writing");
    unmake(&f);
    sluice__free(step);
    sluice__free(other);
}

static void old_checkpoints_go_only_after_new_ones_came(void **state) {
    (void)state;
    sluice_train_params p = base_params();
    snprintf(p.output_dir, sizeof p.output_dir, "%s/run", test_temp_dir());
    p.save_steps = 3;
    p.save_total_limit = 2;
    fixture f = make(p, 0, 0);
    sluice_error err = {0};
    assert_ok_err(sluice_trainer_run(f.trainer, NULL, &err), &err);
    static const int64_t there[] = {39, 40}, gone[] = {3, 36};
    for (int i = 0; i < 2; i++) {
        char *a = sluice__checkpoint_path(p.output_dir, there[i]),
             *b = sluice__checkpoint_path(p.output_dir, gone[i]);
        assert_true(sluice__is_dir(a));
        assert_false(sluice__is_dir(b));
        sluice__free(a);
        sluice__free(b);
    }
    unmake(&f);
    p.overwrite_output_dir = true;
    p.max_steps = 1;
    f = make(p, 0, 0);
    assert_ok_err(sluice_trainer_run(f.trainer, NULL, &err), &err);
    int64_t newest;
    assert_ok(sluice__checkpoint_newest(p.output_dir, &newest, NULL));
    assert_int_equal(newest, 1);
    unmake(&f);
}

/* ---- spikes and NaN ---- */

/* Sequential windows of 4 x 16 tokens: batch 60 is noise, everything before is predictable. */
static sluice_train_params spike_params(int on_spike) {
    sluice_train_params p = base_params();
    p.window_order = SLUICE_WINDOWS_SEQUENTIAL;
    p.split = SLUICE_SPLIT_NONE;
    p.max_steps = 80;
    p.loss_spike_threshold = 1;
    p.loss_spike_start = 30;
    p.on_spike = on_spike;
    p.probe_steps = 0;
    p.save_steps = 25;
    snprintf(p.output_dir, sizeof p.output_dir, "%s/run", test_temp_dir());
    return p;
}

static void spikes_are_handled_as_asked(void **state) {
    (void)state;
    sluice_error err = {0};
    int64_t from = 60 * 4 * T;
    fixture f = make(spike_params(SLUICE_ON_SPIKE_LOG), from, 4 * T);
    assert_ok_err(sluice_trainer_run(f.trainer, NULL, &err), &err);
    assert_true(f.trainer->state.spikes >= 1);
    assert_int_equal(f.trainer->state.spike_events, 1);
    assert_int_equal(f.trainer->state.batch, 80);
    unmake(&f);
    f = make(spike_params(SLUICE_ON_SPIKE_SKIP), from, 4 * T);
    assert_ok_err(sluice_trainer_run(f.trainer, NULL, &err), &err);
    assert_int_equal(f.trainer->state.skipped, 1);
    assert_int_equal(f.trainer->state.batch, 81);
    unmake(&f);
    f = make(spike_params(SLUICE_ON_SPIKE_REWIND), from, 4 * T);
    assert_ok_err(sluice_trainer_run(f.trainer, NULL, &err), &err);
    assert_int_equal(f.trainer->state.rewinds, 1);
    assert_int_equal(f.trainer->state.batch, 80 + 60 - 50 + 1); /* back to step 50 */
    char *lines = metrics(f.p.output_dir), *first = strstr(lines, "\"step\": 55,");
    assert_non_null(strstr(lines, "\"rewind\""));
    assert_null(strstr(first + 1, "\"step\": 55,"));
    sluice__free(lines);
    unmake(&f);
    f = make(spike_params(SLUICE_ON_SPIKE_STOP), from, 4 * T);
    assert_int_equal(sluice_trainer_run(f.trainer, NULL, &err), SLUICE_ERR_NUMERIC);
    assert_non_null(strstr(err.message, "step 61: loss spike"));
    assert_non_null(strstr(err.message, "checkpoints/step-60 is the state before it"));
    sluice_train_params p = f.p;
    unmake(&f);
    p.on_spike = SLUICE_ON_SPIKE_SKIP; /* the checkpoint before the spike was written: continue behind it */
    snprintf(p.resume_from_checkpoint, sizeof p.resume_from_checkpoint, "last");
    f = make(p, from, 4 * T);
    assert_ok_err(sluice_trainer_begin(f.trainer, &err), &err);
    assert_int_equal(sluice_trainer_current_step(f.trainer), 60);
    assert_ok_err(sluice_trainer_run(f.trainer, NULL, &err), &err);
    assert_int_equal(f.trainer->state.skipped, 1);
    unmake(&f);
}

static float *weight(sluice_model *m, const char *name) {
    int i = sluice_model_find_tensor(m, name);
    assert_true(i >= 0);
    return sluice_model_tensor(m, i).data;
}

static void expect_nan(fixture *f, const char *word) {
    sluice_error err = {0};
    assert_int_equal(sluice_trainer_run(f->trainer, NULL, &err), SLUICE_ERR_NUMERIC);
    if (!strstr(err.message, word)) fail_msg("expected \"%s\" in: %s", word, err.message);
}

static void nan_guard_names_the_first_bad_tensor(void **state) {
    (void)state;
    fixture f = make(base_params(), 0, 0);
    weight(f.model, "model.layers.1.mlp.down_proj.weight")[5] = NAN;
    expect_nan(&f, "weight model.layers.1.mlp.down_proj.weight, element 5");
    unmake(&f);
    f = make(base_params(), 0, 0); /* finite weights, an overflow on the way */
    weight(f.model, "model.layers.0.post_attention_layernorm.weight")[3] = 3e38f;
    expect_nan(&f, "layers.0 MLP output");
    unmake(&f);
    sluice_train_params p = base_params();
    p.learning_rate = 1e30;
    p.warmup_ratio = 0;
    f = make(p, 0, 0);
    expect_nan(&f, "not finite");
    unmake(&f);
    p.on_nan = SLUICE_ON_NAN_SKIP; /* weights beyond repair: skipping gives up */
    f = make(p, 0, 0);
    expect_nan(&f, "step");
    unmake(&f);
    p.on_nan = SLUICE_ON_NAN_REWIND;
    p.max_rewinds = 2;
    snprintf(p.output_dir, sizeof p.output_dir, "%s/run", test_temp_dir());
    f = make(p, 0, 0);
    expect_nan(&f, "gave up after 2 rewinds");
    assert_int_equal(f.trainer->state.rewinds, 2);
    unmake(&f);
}

/* ---- several at a time ---- */

static void *train_in_thread(void *user) {
    fixture *f = user;
    sluice_set_num_threads(1);
    return sluice_trainer_run(f->trainer, NULL, NULL) == SLUICE_OK ? f : NULL;
}

static void trainers_in_threads_do_not_meet(void **state) {
    (void)state;
    fixture alone = make(base_params(), 0, 0), f[3];
    assert_ok(sluice_trainer_run(alone.trainer, NULL, NULL));
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) f[i] = make(base_params(), 0, 0);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, train_in_thread, &f[i]), 0);
    for (int i = 0; i < 3; i++) {
        void *done;
        pthread_join(threads[i], &done);
        assert_ptr_equal(done, &f[i]);
        assert_same_weights(alone.model, f[i].model);
        unmake(&f[i]);
    }
    unmake(&alone);
}

static void impossible_trainers_are_refused(void **state) {
    (void)state;
    sluice_train_params p = base_params();
    sluice_error err = {0};
    sluice_trainer *t;
    sluice_dataset *d = make_data(&p, 0, 0, 1);
    sluice_model *m = make_model("");
    p.on_spike = SLUICE_ON_SPIKE_REWIND;
    assert_int_equal(sluice_trainer_new(&t, &p, m, d, NULL, NULL, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "output_dir"));
    p = base_params();
    p.seq_len = T + 1;
    assert_int_equal(sluice_trainer_new(&t, &p, m, d, NULL, NULL, &err), SLUICE_ERR_ARGUMENT);
    p = base_params();
    p.warmup_steps = 41;
    assert_int_equal(sluice_trainer_new(&t, &p, m, d, NULL, NULL, &err), SLUICE_ERR_ARGUMENT);
    assert_null(t);
    sluice_dataset_free(d);
    sluice_model_free(m);
}

int main(void) {
    sluice_set_num_threads(1); /* tiny passes: a team would only wait */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_learns),
        cmocka_unit_test(micro_batches_equal_one_batch),
        cmocka_unit_test(a_resumed_run_is_the_uninterrupted_one),
        cmocka_unit_test(other_optimisers_and_layers_resume),
        cmocka_unit_test(bf16_is_a_format_of_the_run),
        cmocka_unit_test(a_batch_warmup_is_a_run_of_small_batches),
        cmocka_unit_test(passes_do_not_change_the_balance_loss),
        cmocka_unit_test(foreign_and_damaged_checkpoints_are_refused),
        cmocka_unit_test(old_checkpoints_go_only_after_new_ones_came),
        cmocka_unit_test(spikes_are_handled_as_asked),
        cmocka_unit_test(nan_guard_names_the_first_bad_tensor),
        cmocka_unit_test(trainers_in_threads_do_not_meet),
        cmocka_unit_test(impossible_trainers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
