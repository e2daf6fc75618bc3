/* SPDX-License-Identifier: Apache-2.0 */
/* sluice convert: from one kind of model file to another. */
#include "cli/cli.h"
#include "base/memory.h"
#include "base/progress.h"
#include "sluice/convert.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct options {
    cli_common common;
    char *dtype, *shard;
    char **overrides; /* ends with NULL; NULL without any */
} options;

/* "5GB", "500MB", "123456"; -1 when it is none. Decimal units, as in transformers. */
static int64_t parse_size(const char *text) {
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
    char *end;
    double value = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (end != text && !strcmp(end, units[i].unit) && value >= 1 && value * units[i].factor < 1e18)
            return (int64_t)(value * units[i].factor);
    return -1;
}

static bool is_gguf_name(const char *path) {
    size_t n = strlen(path);
    return n >= 5 && !strcasecmp(path + n - 5, ".gguf");
}

static int print_result(const options *o, const char *to, const sluice_convert_result *r) {
    char bytes[32], count[32];
    if (o->common.json) {
        json_t *j = json_pack("{s:s, s:i, s:I, s:I, s:s, s:i}", "path", to, "tensors", r->tensors, "parameters",
                              (json_int_t)r->parameters, "bytes", (json_int_t)r->bytes, "types", r->types, "kept_wider",
                              r->kept_wider);
        int bad = !j || json_dumpf(j, stdout, JSON_INDENT(2)) != 0 || printf("\n") < 0;
        json_decref(j);
        return bad ? CLI_FAILED : CLI_OK;
    }
    if (!o->common.quiet) {
        printf("written: %s: %d tensors, %s values, %s: %s\n", to, r->tensors,
               sluice__format_count(count, (double)r->parameters), sluice__format_bytes(bytes, (double)r->bytes), r->types);
        if (r->kept_wider)
            printf("%d matri%s a wider type: rows are not whole blocks of the type asked for\n", r->kept_wider,
                   r->kept_wider == 1 ? "x has" : "ces have");
    }
    return CLI_OK;
}

static int run(const options *o, const char *from, const char *to, int64_t shard) {
    sluice_convert_params p = sluice_convert_params_default();
    sluice_convert_result result;
    sluice_error err = {0};
    p.dtype = o->dtype;
    p.max_shard_size = shard;
    p.overrides = (const char *const *)o->overrides;
    while (o->overrides && o->overrides[p.num_overrides]) p.num_overrides++;
    p.gguf = is_gguf_name(to);
    sluice_progress_enable(!o->common.quiet && !o->common.json);
    if (sluice_convert(from, to, &p, &result, &err) != SLUICE_OK) {
        cli_fail("convert", &err);
        return err.code == SLUICE_ERR_ARGUMENT ? CLI_USAGE : CLI_FAILED;
    }
    return print_result(o, to, &result);
}

static const char about[] =
    "Writes the model FROM (a directory with safetensors or pytorch_model.bin, or a .gguf file) as TO: a GGUF file when its\n"
    "name ends in .gguf, otherwise a directory with safetensors. Types: F32, F16, BF16; in GGUF also Q8_0, Q4_0, Q4_1, Q5_0,\n"
    "Q5_1, Q4_K, Q5_K, Q6_K for matrices, while norms, biases and routers stay F32 and embedding and head get at least Q6_K.\n"
    "Without --dtype every tensor keeps its type. TO appears complete or not at all; a directory that holds something is not\n"
    "replaced.";
static const char example[] =
    "  sluice convert Qwen3-0.6B qwen3-q8_0.gguf --dtype Q8_0\n"
    "  sluice convert model.gguf model-hf --dtype BF16 --max-shard-size 2GB\n"
    "  sluice convert run/model small.gguf --dtype Q4_K --override 'attn_.*=Q8_0' --override 'blk\\.0\\.=F16'";

int cmd_convert(int argc, const char **argv) {
    options o = {0};
    struct poptOption table[] = {
        {"dtype", 't', POPT_ARG_STRING, &o.dtype, 0, "element or block type of matrices (default: as in FROM)", "TYPE"},
        {"override", '\0', POPT_ARG_ARGV, &o.overrides, 0,
         "type of the tensors whose name in TO matches (POSIX extended regular expression); may be repeated, the first that "
         "matches counts",
         "REGEX=TYPE"},
        {"max-shard-size", '\0', POPT_ARG_STRING, &o.shard, 0,
         "size of one safetensors file, for example 5GB (default: one file)", "SIZE"},
        CLI_COMMON_OPTIONS(&o.common),
        POPT_TABLEEND};
    int code;
    poptContext ctx = cli_parse(argc, argv, table, "[OPTIONS] FROM TO", about, example, &code);
    if (!ctx) return code;
    const char *from = poptGetArg(ctx), *to = poptGetArg(ctx);
    int64_t shard = o.shard ? parse_size(o.shard) : 0;
    if (!from || !to || poptPeekArg(ctx)) code = cli_usage("convert", "expected FROM and TO");
    else if (shard < 0) code = cli_usage("convert", "--max-shard-size: found \"%s\", expected for example 500MB or 5GB", o.shard);
    else if (o.shard && is_gguf_name(to)) code = cli_usage("convert", "--max-shard-size is for directories, not GGUF files");
    else if ((code = cli_start(&o.common)) == CLI_OK) code = run(&o, from, to, shard);
    cli_finish(ctx, table);
    return code;
}
