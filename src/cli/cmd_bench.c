/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice bench kernels|train|infer|tokenize`: speeds beside what the machine reaches in the same run. */
#include "cli/bench.h"
#include "base/memory.h"
#include "sluice/cpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const default_shapes[] = {"124M:4x64", "124M:4x256", "124M:1x1024", "small:16x256", NULL};

enum { DEFAULT_STEPS = 8, DEFAULT_WARMUP = 2 };
#define DEFAULT_SECONDS 0.2
#define DEFAULT_GATES "none,headwise,elementwise"
#define DEFAULT_DTYPE "float32"

typedef struct options {
    cli_common common;
    double seconds;
    char *shape, *gates, *dtypes, *optim;
    int steps, warmup, profile, reader;
    sluice_bench_profile *profiles; /* of train or infer; NULL without --profile */
    sluice_bench_infer_params infer; /* its models: from the command line */
} options;

/* Collects rows as JSON, or prints them. */
typedef struct sink {
    json_t *rows; /* NULL: print */
    double peak;  /* of products, GFLOP/s; 0 when rows have no share of it */
} sink;

static void take_row(void *user, const sluice_bench_row *row) {
    sink *s = user;
    if (s->rows) {
        json_array_append_new(s->rows, json_pack("{s:s, s:s, s:f, s:s, s:f}", "name", row->name,
                                                 s->peak > 0 ? "what" : "level", row->level, "rate", row->rate,
                                                 "unit", row->unit, "seconds", row->seconds));
    } else if (s->peak > 0) {
        printf("%-20s %-38s %8.1f %s  %5.1f %% of peak  %10.1f us\n", row->name, row->level, row->rate, row->unit,
               100 * row->rate / s->peak, 1e6 * row->seconds);
    } else {
        printf("%-24s %-7s %8.2f %s\n", row->name, row->level, row->rate, row->unit);
    }
}

void bench_print_machine(const sluice_bench_machine *m) {
    printf("product 2048^3 fp32: %.1f GFLOP/s   copy: %.1f GB/s (read + written)   read: %.1f GB/s   %d thread%s\n",
           m->gemm_gflops, m->copy_gbs, m->read_gbs, m->threads, m->threads == 1 ? "" : "s");
}

json_t *bench_machine_json(const sluice_bench_machine *m) {
    char cpu[256];
    sluice_cpu_describe(cpu, sizeof cpu);
    return json_pack("{s:s, s:i, s:f, s:f, s:f}", "cpu", cpu, "threads", m->threads, "gemm_gflops", m->gemm_gflops,
                     "copy_gbs", m->copy_gbs, "read_gbs", m->read_gbs);
}

int bench_print_json(json_t *root) {
    int rc = json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) == 0 ? CLI_OK : CLI_FAILED;
    printf("\n");
    json_decref(root);
    return rc;
}

static int bench_kernels(const options *o, sluice_error *err) {
    sluice_bench_machine m;
    if (sluice_bench_machine_run(&m, err) != SLUICE_OK) return cli_fail("bench", err);
    sink kernels = {.rows = o->common.json ? json_array() : NULL},
         products = {kernels.rows ? json_array() : NULL, m.gemm_gflops};
    if (!kernels.rows) bench_print_machine(&m), printf("\nkernels, one thread:\n");
    sluice_status st = sluice_bench_kernels(o->seconds, take_row, &kernels, err);
    if (!kernels.rows) printf("\nmatrix products, %d thread%s:\n", m.threads, m.threads == 1 ? "" : "s");
    if (st == SLUICE_OK) st = sluice_bench_products(o->seconds, take_row, &products, err);
    if (st != SLUICE_OK) {
        json_decref(kernels.rows);
        json_decref(products.rows);
        return cli_fail("bench", err);
    }
    if (!kernels.rows) return CLI_OK;
    return bench_print_json(json_pack("{s:o, s:o, s:o}", "machine", bench_machine_json(&m), "kernels", kernels.rows, "products",
                                products.rows));
}

/* base: what the row is compared with, NULL: nothing. Without a gate of the same dtype; or the same gate in another. */
static void print_train_row(const sluice_bench_train_row *r, const sluice_bench_machine *m,
                            const sluice_bench_train_row *base) {
    double floor = 28.0 * (double)r->parameters / m->copy_gbs / 1e9;
    printf("%-13s %-20s %-8s %8.1f tok/s (median %.1f)  %5.1f %% of peak  step %.2f ms  optimizer %.1f ms = %.2f x floor",
           r->shape, r->gate, r->dtype, (double)r->tokens / r->best_seconds, (double)r->tokens / r->median_seconds,
           100 * r->flops / r->best_seconds / 1e9 / m->gemm_gflops, 1e3 * r->best_seconds, 1e3 * r->adamw_seconds,
           r->adamw_seconds / floor);
    if (base && strcmp(base->gate, r->gate) == 0)
        printf("  %.2f x %s", base->best_seconds / r->best_seconds, base->dtype);
    else if (base)
        printf("  %+.1f %% time for %+.1f %% products", 100 * (r->best_seconds / base->best_seconds - 1),
               100 * (r->flops / base->flops - 1));
    printf("\n");
}

/* peak: bytes that all models of the call held together at most. */
static json_t *train_row_json(const sluice_bench_train_row *r, const sluice_bench_machine *m, int64_t peak) {
    return json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "shape", r->shape, "gate", r->gate, "dtype", r->dtype,
                     "parameters", (json_int_t)r->parameters, "tokens_per_second",
                     (double)r->tokens / r->best_seconds, "tokens_per_second_median",
                     (double)r->tokens / r->median_seconds, "step_ms", 1e3 * r->best_seconds, "share_of_gemm_peak",
                     r->flops / r->best_seconds / 1e9 / m->gemm_gflops, "adamw_ms", 1e3 * r->adamw_seconds,
                     "adamw_over_floor", r->adamw_seconds * m->copy_gbs * 1e9 / (28.0 * (double)r->parameters), "flops", r->flops,
                     "peak_bytes", (json_int_t)peak);
}

static const sluice_bench_train_row *base_of(const sluice_bench_train_row *r, int i) {
    for (int j = 0; j < i; j++)
        if (!strcmp(r[j].dtype, r[i].dtype) && !strcmp(r[j].gate, "none")) return &r[j];
    for (int j = 0; j < i; j++)
        if (!strcmp(r[j].gate, r[i].gate)) return &r[j];
    return NULL;
}

/* One shape: the machine again, right before, then its gates in turn. */
static sluice_status bench_shape(const options *o, const char *shape, json_t *rows, sluice_bench_machine *m,
                                 sluice_error *err) {
    sluice_bench_train_params p = {.shape = shape,
                                   .gates = o->gates,
                                   .dtypes = o->dtypes,
                                   .optim = o->optim ? o->optim : "adamw",
                                   .steps = o->steps,
                                   .warmup = o->warmup,
                                   .profiles = o->profiles};
    sluice_bench_train_row r[SLUICE_BENCH_ROWS];
    sluice_bench_machine after;
    int count;
    sluice_status st = sluice_bench_train_check(&p, err);
    if (st == SLUICE_OK) st = sluice_bench_machine_run(m, err);
    sluice__mem_peak_restart();
    if (st == SLUICE_OK) st = sluice_bench_train(&p, r, &count, err);
    int64_t peak = sluice__mem_peak();
    if (st == SLUICE_OK) st = sluice_bench_machine_run(&after, err);
    if (st != SLUICE_OK) return st;
    if (after.gemm_gflops > m->gemm_gflops) m->gemm_gflops = after.gemm_gflops;
    if (after.copy_gbs > m->copy_gbs) m->copy_gbs = after.copy_gbs;
    if (!rows) bench_print_machine(m);
    for (int i = 0; i < count; i++) {
        json_t *row = rows ? train_row_json(&r[i], m, peak) : NULL;
        if (!row) print_train_row(&r[i], m, base_of(r, i));
        if (p.profiles && row) json_object_set_new(row, "profile", bench_profile_json(&p.profiles[i], m));
        else if (p.profiles) bench_print_profile("step", &p.profiles[i], m);
        if (row) json_array_append_new(rows, row);
    }
    return SLUICE_OK;
}

static int bench_train(const options *o, sluice_error *err) {
    const char *one[] = {o->shape, NULL};
    const char *const *shapes = o->shape ? one : default_shapes;
    json_t *rows = o->common.json ? json_array() : NULL;
    sluice_bench_machine m = {0};
    for (; *shapes; shapes++) {
        if (bench_shape(o, *shapes, rows, &m, err) == SLUICE_OK) continue;
        json_decref(rows);
        cli_fail("bench", err);
        return err->code == SLUICE_ERR_ARGUMENT ? CLI_USAGE : CLI_FAILED;
    }
    return rows ? bench_print_json(json_pack("{s:o, s:o}", "machine", bench_machine_json(&m), "train", rows)) : CLI_OK;
}

/* An option that was given (differs from its default) and means nothing for what is measured: bit k, kind k; NULL. */
static const char *idle_option(const options *o, int kind) {
    const sluice_bench_infer_params d = sluice_bench_infer_default();
    enum { KERNELS = 1, TRAIN = 2, INFER = 4, TOKENIZE = 8 };
    const struct {
        const char *name;
        int kinds;
        bool given;
    } all[] = {{"--seconds", KERNELS, o->seconds != DEFAULT_SECONDS},
               {"--shape", TRAIN, o->shape != NULL},
               {"--gates", TRAIN, strcmp(o->gates, DEFAULT_GATES) != 0},
               {"--dtype", TRAIN, strcmp(o->dtypes, DEFAULT_DTYPE) != 0},
               {"--optim", TRAIN, o->optim != NULL},
               {"--steps", TRAIN, o->steps != DEFAULT_STEPS},
               {"--warmup", TRAIN, o->warmup != DEFAULT_WARMUP},
               {"--prefill", INFER, o->infer.prefill != d.prefill},
               {"--decode", INFER, o->infer.decode != d.decode},
               {"--depth", INFER, o->infer.depth != d.depth},
               {"--parallel", INFER, o->infer.parallel != d.parallel},
               {"--reader", INFER, o->reader},
               {"--repeat", INFER | TOKENIZE, o->infer.repeat != d.repeat}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].given && !(all[i].kinds >> kind & 1)) return all[i].name;
    return NULL;
}

/* The words behind the options: what to measure, and what with. */
static int run_bench(options *o, poptContext ctx) {
    static const char *const words[] = {"kernels", "train", "infer", "tokenize"};
    const char *what = poptGetArg(ctx), **args = poptGetArgs(ctx);
    int kind = 0, count = 0, rc;
    while (args && args[count]) count++;
    while (kind < 4 && (!what || strcmp(what, words[kind]))) kind++;
    if (kind == 4) return cli_usage("bench", "found %s, expected kernels, train, infer or tokenize", what ? what : "nothing");
    if (kind < 2 && count) return cli_usage("bench", "%s takes no further words, found \"%s\"", what, args[0]);
    if (kind == 2 && !count) return cli_usage("bench", "infer: which models? Give directories or .gguf files");
    if (kind == 3 && count != 2)
        return cli_usage("bench", "tokenize: found %d words behind it, expected a tokenizer and a text file", count);
    if (!(o->seconds > 0 && o->seconds <= 3600))
        return cli_usage("bench", "--seconds: found %g, expected above 0, at most 3600", o->seconds);
    if (o->infer.repeat < 1 || o->infer.repeat > 10000)
        return cli_usage("bench", "--repeat: found %d, expected 1..10000", o->infer.repeat);
    if (o->profile && kind != 1 && kind != 2) return cli_usage("bench", "--profile: found %s, expected train or infer", what);
    const char *idle = idle_option(o, kind);
    if (idle) return cli_usage("bench", "%s has no effect on bench %s", idle, what);
    if ((rc = cli_start(&o->common)) != CLI_OK) return rc;
    sluice_error err = {0};
    o->infer.models = args;
    o->infer.num_models = count;
    size_t profiles = kind == 1 ? SLUICE_BENCH_ROWS : 2 * (size_t)count;
    o->infer.reader = o->reader;
    o->infer.profiles = o->profiles = o->profile ? calloc(profiles, sizeof *o->profiles) : NULL;
    if (o->profile && !o->profiles) {
        sluice_error none = {.code = SLUICE_ERR_MEMORY};
        return cli_fail("bench", &none);
    }
    if (kind == 0) return bench_kernels(o, &err);
    if (kind == 1) return bench_train(o, &err);
    if (kind == 2) return bench_infer(&o->infer, o->common.json, &err);
    return bench_tokenize(args[0], args[1], o->infer.repeat, o->common.json, &err);
}

int cmd_bench(int argc, const char **argv) {
    options o = {.seconds = DEFAULT_SECONDS, .steps = DEFAULT_STEPS, .warmup = DEFAULT_WARMUP,
                 .infer = sluice_bench_infer_default()};
    char *gates = NULL, *dtypes = NULL;
    struct poptOption table[] = {
        {"seconds", '\0', POPT_ARG_DOUBLE | POPT_ARGFLAG_SHOW_DEFAULT, &o.seconds, 0,
         "kernels: time to try each kernel and product", "S"},
        {"shape", '\0', POPT_ARG_STRING, &o.shape, 0,
         "train: MODEL:BATCHxTOKENS, MODEL 124M, small, moe or d512 (default: 124M:4x64, 124M:4x256, 124M:1x1024, "
         "small:16x256)",
         "SHAPE"},
        {"gates", '\0', POPT_ARG_STRING, &gates, 0,
         "train: comma-separated list of none, headwise, elementwise (default: these), g2-elementwise and the other "
         "variants of `sluice info --variants`, or all",
         "LIST"},
        {"dtype", '\0', POPT_ARG_STRING, &dtypes, 0,
         "train: comma-separated list of float32, bf16 (default: float32)", "LIST"},
        {"optim", '\0', POPT_ARG_STRING, &o.optim, 0, "train: adamw or muon (default: adamw)", "WORD"},
        {"steps", '\0', POPT_ARG_INT | POPT_ARGFLAG_SHOW_DEFAULT, &o.steps, 0, "train: timed steps of each", "N"},
        {"warmup", '\0', POPT_ARG_INT | POPT_ARGFLAG_SHOW_DEFAULT, &o.warmup, 0,
         "train: steps before timing starts", "N"},
        {"profile", '\0', POPT_ARG_NONE, &o.profile, 0,
         "train, infer: the time of every operator, and its share of what the machine reaches", NULL},
        {"prefill", '\0', POPT_ARG_INT | POPT_ARGFLAG_SHOW_DEFAULT, &o.infer.prefill, 0,
         "infer: tokens of the prompt; 0 leaves this out", "N"},
        {"decode", '\0', POPT_ARG_INT | POPT_ARGFLAG_SHOW_DEFAULT, &o.infer.decode, 0,
         "infer: tokens after it, one by one; 0 leaves this out", "N"},
        {"depth", '\0', POPT_ARG_INT | POPT_ARGFLAG_SHOW_DEFAULT, &o.infer.depth, 0,
         "infer: tokens that decoding finds in the cache", "N"},
        {"parallel", '\0', POPT_ARG_INT | POPT_ARGFLAG_SHOW_DEFAULT, &o.infer.parallel, 0,
         "infer: sequences that decode together; tokens per second are those of all", "N"},
        {"reader", '\0', POPT_ARG_NONE, &o.reader, 0,
         "infer: read other memory in turn with decoding, and report that bandwidth", NULL},
        {"repeat", '\0', POPT_ARG_INT | POPT_ARGFLAG_SHOW_DEFAULT, &o.infer.repeat, 0,
         "infer, tokenize: timed runs, of which the best counts", "N"},
        CLI_COMMON_OPTIONS(&o.common),
        POPT_TABLEEND};
    int rc;
    poptContext ctx = cli_parse(
        argc, argv, table, "kernels|train|infer|tokenize [OPTIONS] [MODEL... | TOKENIZER FILE]",
        "Measures this machine. `kernels`: the peak of matrix products, the copy bandwidth, every kernel in "
        "every version, the products of training and decoding. `train`: training steps of fixed models, in "
        "tokens a second, as a share of the peak measured in the same run, with and without gates, in fp32 and bf16, in turn. "
        "`infer`: prefill and decode of models, which take turns, and the bytes of weights read in a second. `tokenize`: the "
        "loading of a tokenizer, and the encoding of a file.",
        "  sluice bench kernels\n  sluice bench train --threads 2 --shape 124M:4x64 --json\n"
        "  sluice bench train --shape small:16x256 --gates none --profile\n"
        "  sluice bench infer model.gguf run/model --prefill 512 --decode 128\n"
        "  sluice bench tokenize tokenizer.json book.txt", &rc);
    if (!ctx) return rc;
    o.gates = gates ? gates : DEFAULT_GATES;
    o.dtypes = dtypes ? dtypes : DEFAULT_DTYPE;
    rc = run_bench(&o, ctx);
    free(gates);
    free(dtypes);
    free(o.shape);
    free(o.profiles);
    free(o.optim);
    free(o.common.cpu);
    poptFreeContext(ctx);
    return rc;
}
