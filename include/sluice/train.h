/* SPDX-License-Identifier: Apache-2.0 */
/* Training. From small to large:
 *   parameters   one struct, filled from defaults, key=value pairs, a JSON file (listed in train_options.def);
 *   dataset      tokens in documents, a held-out part, windows in an order that is a pure function of seed and index;
 *   trainer      model + dataset + optimiser: step, run, evaluate, save, resume;
 *   job          all of `sluice train`: texts to tokenizer to dataset to model to trainer to a run directory.
 * Several trainers may run at once in different threads of a process; they share nothing but datasets and tokenizers,
 * which are immutable. Same machine, seed and number of threads: the same bits; a resumed run continues bit for bit. */
#ifndef SLUICE_TRAIN_H
#define SLUICE_TRAIN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sluice/config.h"
#include "sluice/model.h"
#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_tokenizer sluice_tokenizer; /* sluice/tokenizer.h */

enum { SLUICE_TRAIN_PATH = 1024, SLUICE_TRAIN_LIST = 8192 };

/* Values of the CHOICE options, in the order of their words in train_options.def. */
enum { SLUICE_SPLIT_AUTO, SLUICE_SPLIT_DOCUMENT, SLUICE_SPLIT_PARTS, SLUICE_SPLIT_NONE };
enum { SLUICE_BOS_NONE, SLUICE_BOS_DOCUMENT, SLUICE_BOS_WINDOW };
enum { SLUICE_WINDOWS_SHUFFLE, SLUICE_WINDOWS_SEQUENTIAL, SLUICE_WINDOWS_RANDOM };
enum { SLUICE_LR_LINEAR, SLUICE_LR_COSINE, SLUICE_LR_COSINE_WITH_MIN_LR, SLUICE_LR_CONSTANT,
       SLUICE_LR_CONSTANT_WITH_WARMUP, SLUICE_LR_WARMUP_STABLE_DECAY, SLUICE_LR_WSD };
enum { SLUICE_GATE_START_RANDOM, SLUICE_GATE_START_OPEN };
enum { SLUICE_OPTIM_ADAMW, SLUICE_OPTIM_MUON, SLUICE_OPTIM_LION };
enum { SLUICE_MUON_ORIGINAL, SLUICE_MUON_MATCH_RMS_ADAMW };
enum { SLUICE_BALANCE_GLOBAL, SLUICE_BALANCE_RUNNING, SLUICE_BALANCE_MICRO };
enum { SLUICE_DTYPE_FLOAT32, SLUICE_DTYPE_FP32, SLUICE_DTYPE_BFLOAT16, SLUICE_DTYPE_BF16 };
enum { SLUICE_ON_SPIKE_LOG, SLUICE_ON_SPIKE_STOP, SLUICE_ON_SPIKE_SKIP, SLUICE_ON_SPIKE_REWIND };
enum { SLUICE_ON_NAN_STOP, SLUICE_ON_NAN_SKIP, SLUICE_ON_NAN_REWIND };

/* All options. Fields, units, ranges, defaults and meaning: train_options.def. Plain data: copy it freely. */
typedef struct sluice_train_params {
#define SLUICE_FIELD_INT(name) int64_t name;
#define SLUICE_FIELD_REAL(name) double name;
#define SLUICE_FIELD_BOOL(name) bool name;
#define SLUICE_FIELD_CHOICE(name) int name;
#define SLUICE_FIELD_PATH(name) char name[SLUICE_TRAIN_PATH];
#define SLUICE_FIELD_LIST(name) char name[SLUICE_TRAIN_LIST];
#define OPTION(kind, name, def, least, most, choices, resume, unit, help) SLUICE_FIELD_##kind(name)
#include "sluice/train_options.def"
#undef OPTION
#undef SLUICE_FIELD_INT
#undef SLUICE_FIELD_REAL
#undef SLUICE_FIELD_BOOL
#undef SLUICE_FIELD_CHOICE
#undef SLUICE_FIELD_PATH
#undef SLUICE_FIELD_LIST
} sluice_train_params;

sluice_train_params sluice_train_params_default(void);
/* Sets one option from text; dashes in the key count as underscores. Numbers out of range, unknown words and
 * unknown keys are refused with a message that names the option. A LIST takes several values separated by line
 * ends. */
sluice_status sluice_train_params_set(sluice_train_params *p, const char *key, const char *value, sluice_error *err);
/* Combinations that cannot work: more warm-up than updates, min_lr above learning_rate, nothing to train on, ... */
sluice_status sluice_train_params_check(const sluice_train_params *p, sluice_error *err);

/* The lists behind train_options.def and model_options.def, for programs that build a command line or a form. */
typedef enum sluice_option_kind {
    SLUICE_OPTION_INT,
    SLUICE_OPTION_REAL,
    SLUICE_OPTION_BOOL,
    SLUICE_OPTION_CHOICE,
    SLUICE_OPTION_PATH,
    SLUICE_OPTION_LIST
} sluice_option_kind;
typedef struct sluice_option {
    const char *name; /* with underscores */
    sluice_option_kind kind;
    const char *choices; /* "a|b|c" or NULL */
    const char *unit, *help;
} sluice_option;
int sluice_train_num_options(void);
sluice_option sluice_train_option(int index);
/* The value as text (what sluice_train_params_set takes) into out. */
void sluice_train_option_value(const sluice_train_params *p, int index, char *out, size_t size);
int sluice_model_num_options(void);
sluice_option sluice_model_option(int index);
const char *sluice_model_option_default(int index); /* "" when it follows from other options */

/* ---- data ------------------------------------------------------------------------------------------------- */

/* Tokens of a training and a held-out part. Immutable; shared by threads. */
typedef struct sluice_dataset sluice_dataset;

/* Reads p->text, p->shards, p->validation_text with this tokenizer (NULL is allowed for shards alone; `vocab_size`
 * then bounds the ids). p names the split, BOS, EOS, order and seeds; everything is checked here: empty text, text
 * shorter than one window, ids outside the vocabulary. */
sluice_status sluice_dataset_load(sluice_dataset **out, const sluice_train_params *p, const sluice_tokenizer *tokenizer,
                                  int vocab_size, sluice_error *err);
/* The same from documents in memory. */
typedef struct sluice_document {
    const char *data;
    size_t size;
} sluice_document;
sluice_status sluice_dataset_from_text(sluice_dataset **out, const sluice_train_params *p,
                                       const sluice_tokenizer *tokenizer, const sluice_document *documents,
                                       int64_t count, sluice_error *err);
/* The same from token ids: document d is the doc_lengths[d] ids behind those of d - 1. bos, eos: ids or -1. */
sluice_status sluice_dataset_from_tokens(sluice_dataset **out, const sluice_train_params *p, const int32_t *ids,
                                         const int64_t *doc_lengths, int64_t num_documents, int vocab_size, int bos,
                                         int eos, sluice_error *err);
/* The same tokens and the same split with windows in the order of another seed. Borrows from `dataset`, which must
 * live longer. */
sluice_status sluice_dataset_reorder(sluice_dataset **out, const sluice_dataset *dataset, uint64_t data_seed,
                                     sluice_error *err);
void sluice_dataset_free(sluice_dataset *dataset);

/* A tokenizer trained on the text that p trains on; held-out text is not looked at. */
sluice_status sluice_train_tokenizer(sluice_tokenizer **out, const sluice_train_params *p, int vocab_size,
                                     sluice_error *err);
sluice_status sluice_train_tokenizer_on_text(sluice_tokenizer **out, const sluice_train_params *p, int vocab_size,
                                             const sluice_document *documents, int64_t count, sluice_error *err);

typedef struct sluice_dataset_info {
    int64_t train_documents, train_tokens, train_windows; /* tokens with BOS and EOS of documents */
    int64_t heldout_documents, heldout_tokens;
    int64_t heldout_windows; /* windows of seq_len; the last may be partly unscored */
    int64_t heldout_bytes; /* of text behind the scored held-out tokens; 0 when unknown (no tokenizer) */
    int seq_len, vocab_size;
    uint64_t hash; /* of tokens, documents and split */
} sluice_dataset_info;
sluice_dataset_info sluice_dataset_get_info(const sluice_dataset *dataset);

/* One window: all arrays [seq_len]; labels are shifted, -1 = not scored. positions and key_start may be NULL unless
 * the dataset was made with document_mask. */
typedef struct sluice_window {
    int32_t *ids, *labels, *positions, *key_start;
} sluice_window;
/* The training window with global index `sample` (0, 1, 2, ... over all epochs): a pure function of data_seed and
 * index, so every arm, split into micro-batches or resumed run sees the same order. */
void sluice_dataset_train_window(const sluice_dataset *dataset, int64_t sample, sluice_window *out);
/* Held-out window `index`, 0 <= index < heldout_windows. */
void sluice_dataset_heldout_window(const sluice_dataset *dataset, int64_t index, sluice_window *out);
/* `count` held-out tokens from position `start` of the held-out stream, with the BOS and EOS of documents. */
void sluice_dataset_heldout_tokens(const sluice_dataset *dataset, int64_t start, int64_t count, int32_t *out);
/* Bytes of text behind token id; 0 for special tokens and without a tokenizer. */
int sluice_dataset_token_bytes(const sluice_dataset *dataset, int32_t id);

/* ---- model configuration ---------------------------------------------------------------------------------- */

/* Completes a flat JSON object of model options (may be NULL or "{}") with the defaults of model_options.def, on
 * top of p->config_name when given, and parses it. vocab_size: of the tokenizer, used when the options have none
 * (0: required). Options that the model would not follow are refused. *json (may be NULL) receives the completed
 * text, to be freed with sluice_train_free_text. */
sluice_status sluice_train_model_config(sluice_config *out, char **json, const sluice_train_params *p,
                                        const char *model_options, int vocab_size, sluice_error *err);
/* Puts the ids of the tokenizer's special tokens into the JSON object *model_options where it has none. */
sluice_status sluice_train_add_token_ids(char **model_options, const sluice_tokenizer *tokenizer, sluice_error *err);
void sluice_train_free_text(char *text);

/* ---- trainer ---------------------------------------------------------------------------------------------- */

/* Bytes that training takes. Printed first, and refused when it does not fit. */
typedef struct sluice_train_plan {
    int64_t parameters;
    int64_t weights, gradients, optimizer, activations, data; /* bytes */
    int64_t total;     /* to be allocated: the tokens of the dataset, part of `data`, are in memory already */
    int64_t available; /* that could be allocated now */
} sluice_train_plan;
sluice_train_plan sluice_train_get_plan(const sluice_config *config, const sluice_train_params *p,
                                        const sluice_dataset *dataset);
/* SLUICE_ERR_MEMORY with advice when total is more than available. */
sluice_status sluice_train_check_plan(const sluice_train_plan *plan, const sluice_train_params *p, sluice_error *err);

typedef enum sluice_step_verdict {
    SLUICE_STEP_OK,
    SLUICE_STEP_SPIKE,  /* flagged, update done all the same */
    SLUICE_STEP_SKIPPED,/* the batch was left out, no update */
    SLUICE_STEP_REWOUND /* went back to a checkpoint */
} sluice_step_verdict;

typedef struct sluice_step_record {
    int64_t step;          /* of the update, from 1 */
    double loss;           /* mean nats over the scored tokens of the step, before the update */
    double grad_norm;      /* before clipping */
    double learning_rate;
    double tokens_per_second; /* since the last logged step; 0 when not measured yet */
    int64_t tokens;           /* input tokens seen so far, skipped batches included */
    sluice_step_verdict verdict;
    bool spike, spike_event; /* by the rule of docs/training.md */
    bool routed;             /* the model has experts, and what follows is filled in */
    double balance_loss, z_loss; /* sums over layers, not weighted by their coefficients and not part of `loss` */
    double router_entropy;   /* of the routers' softmax, mean over tokens and layers, as a share of log num_experts */
    double max_expert_load;  /* most selections of an expert relative to an even share, over all layers */
    int dead_experts;        /* that no token of the step chose, in all layers together */
    int num_layers, num_experts;  /* shape of: */
    const double *expert_load;    /* [num_layers, num_experts] selections of the step; valid until the next one */
    const double *layer_entropy;  /* [num_layers] router_entropy of each layer; NaN in layers without experts */
} sluice_step_record;

typedef struct sluice_eval_record {
    int64_t step;
    double loss, perplexity;
    double bits_per_byte; /* 0 when bytes are unknown */
    int64_t tokens, bytes; /* scored */
} sluice_eval_record;

/* One look at a fixed held-out batch. Arrays [num_layers], valid during the call. */
typedef struct sluice_probe_record {
    int64_t step;
    int num_layers;
    const double *first_token_share; /* attention on key 0; mean over queries but the first, heads, windows */
    const double *first_token_share_from_quarter; /* the same over the queries t >= seq_len / 4 */
    const double *max_abs_residual;               /* of the residual stream after the layer */
    const double *max_abs_attn_out, *max_abs_ffn_out; /* of what attention and MLP add to it */
    const double *gate_mean;                      /* NaN in layers without a gate */
} sluice_probe_record;

/* Any of them may be NULL. A status other than OK ends the run with it. */
typedef struct sluice_train_callbacks {
    void *user;
    sluice_status (*on_step)(void *user, const sluice_step_record *r, sluice_error *err);  /* every update */
    sluice_status (*on_eval)(void *user, const sluice_eval_record *r, sluice_error *err);
    sluice_status (*on_probe)(void *user, const sluice_probe_record *r, sluice_error *err);
    bool (*stop_requested)(void *user); /* asked before every update; true = write a checkpoint, return INTERRUPTED */
} sluice_train_callbacks;

typedef struct sluice_trainer sluice_trainer;

/* Model, dataset and tokenizer (may be NULL; goes into checkpoints) are borrowed and must outlive the trainer,
 * which changes the model's weights. p->output_dir "" = a trainer that writes nothing. label: for the progress
 * line. Nothing is written before run, save or resume. */
sluice_status sluice_trainer_new(sluice_trainer **out, const sluice_train_params *p, sluice_model *model,
                                 const sluice_dataset *dataset, const sluice_tokenizer *tokenizer, const char *label,
                                 sluice_error *err);
void sluice_trainer_free(sluice_trainer *trainer);

/* Creates or continues the run directory: starts at p->resume_from_checkpoint when given, refuses a directory that
 * holds another run (unless overwrite_output_dir). Called by run when it was not called before. */
sluice_status sluice_trainer_begin(sluice_trainer *trainer, sluice_error *err);
/* All updates that are left, with logs, evaluations, probes and checkpoints as p says. Returns SLUICE_OK when all
 * were done, SLUICE_INTERRUPTED after stop_requested (a checkpoint was written), SLUICE_ERR_NUMERIC when on_nan or
 * on_spike stopped it (the message names the tensor). callbacks may be NULL. */
sluice_status sluice_trainer_run(sluice_trainer *trainer, const sluice_train_callbacks *callbacks, sluice_error *err);
/* One update and nothing else. */
sluice_status sluice_trainer_step(sluice_trainer *trainer, sluice_step_record *out, sluice_error *err);
/* On held-out windows: `samples` of them spread evenly, 0 = all. Fails without a held-out part. */
sluice_status sluice_trainer_evaluate(sluice_trainer *trainer, int64_t samples, sluice_eval_record *out,
                                      sluice_error *err);
/* Writes <output_dir>/checkpoints/step-N. */
sluice_status sluice_trainer_save(sluice_trainer *trainer, sluice_error *err);
/* Writes the model and tokenizer as a Hugging Face directory, atomically. */
sluice_status sluice_trainer_save_model(sluice_trainer *trainer, const char *dir, sluice_error *err);

int64_t sluice_trainer_current_step(const sluice_trainer *trainer); /* updates done */
int64_t sluice_trainer_total_steps(const sluice_trainer *trainer);

/* ---- the whole job ---------------------------------------------------------------------------------------- */

typedef struct sluice_train_result {
    sluice_dataset_info data;
    sluice_train_plan plan;
    int64_t steps;
    double seconds, loss; /* training loss of the last logged step */
    sluice_eval_record eval; /* last evaluation; tokens 0 when nothing is held out */
    int64_t spikes, spike_events, skipped, rewinds;
    char model_dir[SLUICE_TRAIN_PATH + 16];
} sluice_train_result;

/* Everything that `sluice train` does behind its command line. model_options: flat JSON object or NULL. plan_only:
 * stop after the memory plan. */
sluice_status sluice_train_job(sluice_train_result *out, const sluice_train_params *p, const char *model_options,
                               const sluice_train_callbacks *callbacks, bool plan_only, sluice_error *err);
/* Reads a JSON file of options: train options and model options side by side, or the config.json of an earlier run.
 * Train options go to p; *model_options (may come in as NULL) is extended with the others; free with
 * sluice_train_free_text. */
sluice_status sluice_train_read_options(sluice_train_params *p, char **model_options, const char *path,
                                        sluice_error *err);
/* The options of the run that wrote the checkpoint `dir`, where to write excepted, and its model's configuration; what
 * decay_from wants before other options are set. */
sluice_status sluice_train_read_checkpoint(sluice_train_params *p, char **model_options, const char *dir,
                                           sluice_error *err);
/* Sets one model option in the JSON object *model_options from text, checked by kind. */
sluice_status sluice_train_set_model_option(char **model_options, const char *key, const char *value,
                                            sluice_error *err);

#ifdef __cplusplus
}
#endif
#endif
