/* SPDX-License-Identifier: Apache-2.0 */
/* train: going on from what was trained: with gates that a model did not have (from random weights, or open), with
 * another RoPE base and longer windows, with the optimiser's moments kept; and decay branches, which are the runs that
 * were planned so from the start, bit for bit. */
#include "base/file.h"
#include "base/json.h"
#include "sluice/train.h"
#include "support/test_support.h"
#include "train/adapt.h"
#include "train/options.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[128];
static const char small[] = "{\"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 2}";

static void make_text(void) {
    static const char *const words[] = {"the ", "light ", "was ", "upon ", "waters, ", "and ", "evening ", "came.\n"};
    static char text[50000];
    size_t used = 0;
    char path[160];
    for (unsigned r = 1; used < 40000;)
        used += (size_t)sprintf(text + used, "%s", words[(r = r * 1103515245u + 12345u) >> 16 & 7]);
    snprintf(path, sizeof path, "%s/book.txt", dir);
    assert_ok(sluice__write_file(path, text, used, NULL));
}

static sluice_train_params params(const char *out) {
    sluice_train_params p = sluice_train_params_default();
    snprintf(p.text, sizeof p.text, "%s/book.txt", dir);
    snprintf(p.output_dir, sizeof p.output_dir, "%s/%s", dir, out);
    p.train_tokenizer_vocab_size = 280;
    p.seq_len = 16;
    p.per_device_train_batch_size = 2;
    p.max_steps = 6;
    p.warmup_steps = 2;
    p.eval_steps = 0;
    p.max_eval_samples = 4;
    p.probe_steps = 0;
    p.tensorboard = false;
    return p;
}

static sluice_status job(const sluice_train_params *p, const char *options, sluice_error *err) {
    sluice_train_result r;
    return sluice_train_job(&r, p, options, NULL, false, err);
}

static void job_ok(const sluice_train_params *p, const char *options) {
    sluice_error err = {0};
    assert_ok_err(job(p, options, &err), &err);
}

static void refused(const sluice_train_params *p, const char *options, const char *word) {
    sluice_error err = {0};
    assert_int_not_equal(job(p, options, &err), SLUICE_OK);
    if (!strstr(err.message, word)) fail_msg("\"%s\" lacks \"%s\"", err.message, word);
    if (sluice__is_dir(p->output_dir)) fail_msg("%s: written", p->output_dir);
}

static sluice_model *load(const char *where) {
    char path[200];
    sluice_model *m;
    sluice_error err = {0};
    snprintf(path, sizeof path, "%s/%s", dir, where);
    assert_ok_err(sluice_model_load(&m, path, NULL, &err), &err);
    return m;
}

static void assert_same(const char *one, const char *other) {
    sluice_model *a = load(one), *b = load(other);
    assert_int_equal(sluice_model_num_tensors(a), sluice_model_num_tensors(b));
    for (int i = 0; i < sluice_model_num_tensors(a); i++) {
        sluice_tensor_info x = sluice_model_tensor(a, i), y = sluice_model_tensor(b, i);
        assert_memory_equal(x.data, y.data, (size_t)x.count * sizeof(float));
    }
    sluice_model_free(a);
    sluice_model_free(b);
}

/* ---- decay branches ---- */

static void a_branch_is_the_run_planned_so(void **state) {
    (void)state;
    sluice_train_params stable = params("stable"), planned = params("planned"), branch = params("branch");
    stable.lr_scheduler_type = SLUICE_LR_WARMUP_STABLE_DECAY;
    stable.max_steps = 40;
    stable.num_decay_steps = 8;
    stable.save_steps = 12;
    stable.save_total_limit = 0;
    planned = stable;
    snprintf(planned.output_dir, sizeof planned.output_dir, "%s/planned", dir);
    planned.max_steps = 12 + 6;
    planned.num_decay_steps = 6;
    job_ok(&stable, small);
    job_ok(&planned, small);
    branch = stable;
    snprintf(branch.output_dir, sizeof branch.output_dir, "%s/branch", dir);
    snprintf(branch.decay_from, sizeof branch.decay_from, "%s/stable/checkpoints/step-12", dir);
    branch.num_decay_steps = 6;
    job_ok(&branch, small);
    assert_same("branch/model", "planned/model");
    /* From the command line the options of the run come with the checkpoint. */
    char command[1024], *output;
    snprintf(command, sizeof command,
             "%s train --quiet --decay-from %s/stable/checkpoints/step-12 --num-decay-steps 6 --output-dir %s/shell",
             SLUICE_PROGRAM, dir, dir);
    if (test_run(command, &output) != 0) fail_msg("%s", output);
    free(output);
    sluice_model *m = load("shell/model");
    assert_non_null(m);
    sluice_model_free(m);
}

static void branches_leave_from_the_stable_phase_only(void **state) {
    (void)state;
    sluice_train_params p = params("nowhere");
    p.lr_scheduler_type = SLUICE_LR_WARMUP_STABLE_DECAY;
    p.num_decay_steps = 4;
    snprintf(p.decay_from, sizeof p.decay_from, "%s/stable/checkpoints/step-36", dir);
    refused(&p, small, "in the decay already");
    snprintf(p.decay_from, sizeof p.decay_from, "%s/stable/model", dir);
    refused(&p, small, "trainer_state.json");
    snprintf(p.decay_from, sizeof p.decay_from, "%s/stable/checkpoints/step-12", dir);
    p.overwrite_output_dir = true;
    refused(&p, small, "overwrite_output_dir");
    p.overwrite_output_dir = false;
    refused(&p, small, "max_steps: found 6, which has no effect with decay_from");
    p.max_steps = 40;
    p.weight_decay = 0.3;
    refused(&p, small, "weight_decay");
}

/* ---- another base, longer windows ---- */

static void rope_base_and_length_may_change(void **state) {
    (void)state;
    sluice_train_params p = params("first");
    job_ok(&p, small);
    sluice_train_params q = params("longer");
    snprintf(q.model_name_or_path, sizeof q.model_name_or_path, "%s/first/model", dir);
    q.seq_len = 64;
    q.max_steps = 3;
    job_ok(&q, "{\"rope_theta\": 500000.0}");
    sluice_model *m = load("longer/model");
    assert_true(sluice_model_config(m)->layers[1].rope.theta == 500000.0);
    assert_int_equal(sluice_model_config(m)->max_position_embeddings, 64);
    sluice_model_free(m);
    q = params("refused");
    snprintf(q.model_name_or_path, sizeof q.model_name_or_path, "%s/first/model", dir);
    refused(&q, "{\"rms_norm_eps\": 0.01}", "rms_norm_eps");
    refused(&q, "{\"hidden_size\": 32}", "hidden_size");
    refused(&q, "{\"partial_rotary_factor\": 0.5}", "partial_rotary_factor");
}

/* A configuration whose base stands inside rope_parameters takes the option all the same. */
static void an_option_reaches_into_rope_parameters(void **state) {
    (void)state;
    sluice_train_params p = params("unused");
    sluice_config c;
    snprintf(p.config_name, sizeof p.config_name, "%s/first/model", dir);
    sluice_error err = {0};
    assert_ok_err(sluice_train_model_config(&c, NULL, &p, "{\"rope_theta\": 777.0}", 280, &err), &err);
    assert_true(c.layers[0].rope.theta == 777.0);
    sluice_config_free(&c);
}

/* ---- moments ---- */

static void moments_are_kept_or_not(void **state) {
    (void)state;
    sluice_train_params p = params("fresh");
    snprintf(p.model_name_or_path, sizeof p.model_name_or_path, "%s/first/checkpoints/step-6", dir);
    p.max_steps = 2;
    job_ok(&p, NULL);
    snprintf(p.output_dir, sizeof p.output_dir, "%s/kept", dir);
    p.keep_optimizer = true;
    job_ok(&p, NULL);
    sluice_model *a = load("fresh/model"), *b = load("kept/model");
    sluice_tensor_info x = sluice_model_tensor(a, 0), y = sluice_model_tensor(b, 0);
    assert_true(memcmp(x.data, y.data, (size_t)x.count * sizeof(float)) != 0);
    sluice_model_free(a);
    sluice_model_free(b);
    snprintf(p.output_dir, sizeof p.output_dir, "%s/gated-kept", dir);
    job_ok(&p, "{\"gate_position\": \"sdpa\"}"); /* the gate's moments start at 0 */
    snprintf(p.output_dir, sizeof p.output_dir, "%s/unkept", dir);
    snprintf(p.model_name_or_path, sizeof p.model_name_or_path, "%s/first/model", dir);
    p.optim = SLUICE_OPTIM_ADAMW;
    sluice_error err = {0};
    assert_int_not_equal(job(&p, NULL, &err), SLUICE_OK);
    assert_non_null(strstr(err.message, "trainer_state.json"));
    snprintf(p.model_name_or_path, sizeof p.model_name_or_path, "%s/first/checkpoints/step-6", dir);
    snprintf(p.output_dir, sizeof p.output_dir, "%s/other-optimiser", dir);
    p.optim = SLUICE_OPTIM_LION;
    assert_int_not_equal(job(&p, NULL, &err), SLUICE_OK);
    assert_non_null(strstr(err.message, "adamw"));
    p.optim = SLUICE_OPTIM_ADAMW;
    p.model_name_or_path[0] = '\0';
    refused(&p, NULL, "keep_optimizer");
}

/* ---- gates added ---- */

static double heldout_loss(const sluice_model *m, const sluice_dataset *d, const sluice_train_params *p) {
    sluice_trainer *t;
    sluice_eval_record r;
    sluice_train_params q = *p;
    q.output_dir[0] = '\0';
    assert_ok(sluice_trainer_new(&t, &q, (sluice_model *)(uintptr_t)m, d, NULL, "test", NULL));
    assert_ok(sluice_trainer_evaluate(t, 0, &r, NULL));
    sluice_trainer_free(t);
    return r.loss;
}

static sluice_dataset *random_data(const sluice_train_params *p) {
    static int32_t ids[2000];
    int64_t length = 2000;
    sluice_dataset *d;
    for (int i = 0; i < 2000; i++) ids[i] = (i * i + 7 * i) % 280;
    assert_ok(sluice_dataset_from_tokens(&d, p, ids, &length, 1, 280, -1, -1, NULL));
    return d;
}

static double loss_with(const char *options, int start, const sluice_dataset *d, const sluice_train_params *p) {
    sluice_model *from = load("first/model"), *m;
    sluice_config c;
    sluice_error err = {0};
    assert_ok_err(sluice__config_adapt(&c, sluice_model_config(from), options, 16, &err), &err);
    assert_ok_err(sluice__model_adapt(&m, from, &c, 5, start, &err), &err);
    double loss = heldout_loss(m, d, p);
    sluice_config_free(&c);
    sluice_model_free(m);
    return loss;
}

static void an_open_start_changes_nothing(void **state) {
    (void)state;
    static const char *const open[] = {
        "{\"gate_position\": \"sdpa\"}",
        "{\"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"}",
        "{\"gate_position\": \"sdpa\", \"gate_sharing\": \"shared\", \"gate_act\": \"ns_sigmoid\"}",
        "{\"gate_position\": \"sdpa\", \"gate_act\": \"softplus\"}",
        "{\"gate_position\": \"sdpa\", \"gate_input\": \"none\"}",
        "{\"gate_position\": \"value\"}",
        "{\"gate_position\": \"output\"}",
        "{\"gate_position\": \"sdpa\", \"gate_op\": \"add\", \"gate_act\": \"silu\"}",
        "{\"gate_position\": \"key\", \"gate_op\": \"add\", \"gate_act\": \"identity\"}"};
    static const char *const closed[] = {"{\"gate_position\": \"query\"}",
                                         "{\"gate_position\": \"key\"}",
                                         "{\"gate_position\": \"sdpa\", \"gate_act\": \"silu\"}",
                                         "{\"gate_position\": \"sdpa\", \"gate_op\": \"add\"}"};
    sluice_train_params p = params("unused");
    p.append_eos = false;
    sluice_dataset *d = random_data(&p);
    double before = loss_with("{}", SLUICE_GATE_START_RANDOM, d, &p);
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        double after = loss_with(open[i], SLUICE_GATE_START_OPEN, d, &p);
        if (fabs(after - before) > 1e-6) fail_msg("%s: %.9g becomes %.9g", open[i], before, after);
    }
    assert_true(fabs(loss_with(open[0], SLUICE_GATE_START_RANDOM, d, &p) - before) > 1e-4);
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++) {
        sluice_model *from = load("first/model"), *m;
        sluice_config c;
        sluice_error err = {0};
        assert_ok(sluice__config_adapt(&c, sluice_model_config(from), closed[i], 16, NULL));
        assert_int_not_equal(sluice__model_adapt(&m, from, &c, 5, SLUICE_GATE_START_OPEN, &err), SLUICE_OK);
        assert_null(m);
        assert_non_null(strstr(err.message, "gate_start"));
        sluice_config_free(&c);
    }
    sluice_dataset_free(d);
}

static void a_gate_is_added_trained_and_kept(void **state) {
    (void)state;
    sluice_train_params p = params("gated");
    snprintf(p.model_name_or_path, sizeof p.model_name_or_path, "%s/first/model", dir);
    p.max_steps = 4;
    p.lr_scheduler_type = SLUICE_LR_CONSTANT;
    job_ok(&p, "{\"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"}");
    sluice_model *m = load("gated/model");
    assert_int_equal(sluice_model_config(m)->layers[1].gate.position, SLUICE_GATE_SDPA);
    assert_int_equal(sluice_model_config(m)->layers[1].gate.granularity, SLUICE_GATE_HEADWISE);
    sluice_model_free(m);
    char path[200];
    snprintf(path, sizeof path, "%s/gated/model/tokenizer.json", dir);
    assert_true(sluice__is_file(path)); /* the model's own went along */
    snprintf(p.output_dir, sizeof p.output_dir, "%s/gated", dir);
    snprintf(p.resume_from_checkpoint, sizeof p.resume_from_checkpoint, "last");
    p.max_steps = 6;
    job_ok(&p, "{\"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"}"); /* resumed, not added again */
    p = params("changed");
    snprintf(p.model_name_or_path, sizeof p.model_name_or_path, "%s/gated/model", dir);
    refused(&p, "{\"gate_position\": \"value\"}", "gate_position");
    refused(&p, "{\"gate_position\": \"none\"}", "gate_position");
}

/* By name, with the reason, before the text is looked for. */
static void families_without_backward_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *config, *family, *reason;
    } cases[] = {
        {"{\"model_type\": \"gpt_oss\", \"num_key_value_heads\": 1, \"head_dim\": 8, \"hidden_size\": 16, \"num_attention_heads\": 2, \"intermediate_size\": 32, "
         "\"num_hidden_layers\": 1, \"vocab_size\": 280}", "gpt_oss", "has"},
        {"{\"model_type\": \"qwen3_next\", \"hidden_size\": 16, \"num_attention_heads\": 2, \"head_dim\": 8, "
         "\"num_hidden_layers\": 4, \"vocab_size\": 280}", "qwen3_next", "linear attention"}};
    for (int i = 0; i < 2; i++) {
        sluice_train_params p = params("never");
        char path[200];
        snprintf(p.model_name_or_path, sizeof p.model_name_or_path, "%s/family-%d", dir, i);
        snprintf(p.text, sizeof p.text, "%s/no-such-text", dir);
        snprintf(path, sizeof path, "%s/config.json", p.model_name_or_path);
        assert_ok(sluice__make_dirs(p.model_name_or_path, NULL));
        assert_ok(sluice__write_file(path, cases[i].config, strlen(cases[i].config), NULL));
        refused(&p, NULL, cases[i].family);
        refused(&p, NULL, "cannot be trained");
        refused(&p, NULL, cases[i].reason);
    }
}

static int set_up(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "%s", test_temp_dir());
    make_text();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_branch_is_the_run_planned_so),
        cmocka_unit_test(branches_leave_from_the_stable_phase_only),
        cmocka_unit_test(rope_base_and_length_may_change),
        cmocka_unit_test(an_option_reaches_into_rope_parameters),
        cmocka_unit_test(moments_are_kept_or_not),
        cmocka_unit_test(an_open_start_changes_nothing),
        cmocka_unit_test(a_gate_is_added_trained_and_kept),
        cmocka_unit_test(families_without_backward_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
