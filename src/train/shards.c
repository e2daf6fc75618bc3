/* SPDX-License-Identifier: Apache-2.0 */
/* Reading Megatron's .bin/.idx pair. Both files are mapped; everything the .idx says is checked against the size of the
 * .bin once, so that later accesses need no checks:
 *
 *   9 bytes  "MMIDIDX\0\0"        u64  version 1        u8  type code (4 = int32, 8 = uint16)
 *   u64  sequences S              u64  documents D + 1
 *   i32[S]  tokens of each sequence
 *   i64[S]  byte offset of each sequence in the .bin
 *   i64[D+1]  first sequence of each document, and S at the end
 *
 * The arrays are not aligned, hence the memcpy loads. Sequences have to follow each other without gaps, as Megatron
 * writes them. */
#include "train/shards.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include <math.h>
#include <string.h>

struct sluice_shard {
    sluice__map bin, idx;
    char *bin_path, *idx_path;
    const unsigned char *sizes, *pointers, *first; /* the three arrays */
    int64_t sequences, documents, tokens;
    int token_bytes;
    bool has_hash;
    uint64_t hash;
};

static int64_t load_i64(const unsigned char *p, int64_t i) {
    int64_t v;
    memcpy(&v, p + 8 * i, 8);
    return v;
}

static int64_t load_i32(const unsigned char *p, int64_t i) {
    int32_t v;
    memcpy(&v, p + 4 * i, 4);
    return v;
}

static sluice_status check_header(sluice_shard *s, sluice_error *err) {
    const unsigned char *p = s->idx.data;
    uint64_t version, sequences, documents, left;
    if (s->idx.size < SLUICE__IDX_HEADER || memcmp(p, SLUICE__IDX_MAGIC, 9))
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: no Megatron index: expected it to begin with MMIDIDX",
                            s->idx_path);
    memcpy(&version, p + 9, 8);
    memcpy(&sequences, p + 18, 8);
    memcpy(&documents, p + 26, 8);
    if (version != 1)
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: version: found %llu, expected 1", s->idx_path,
                            (unsigned long long)version);
    s->token_bytes = p[17] == SLUICE__IDX_UINT16 ? 2 : p[17] == SLUICE__IDX_INT32 ? 4 : 0;
    if (!s->token_bytes)
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED,
                            "%s: token type: found code %u, expected %d (int32) or %d (uint16)", s->idx_path, p[17],
                            SLUICE__IDX_INT32, SLUICE__IDX_UINT16);
    left = s->idx.size - SLUICE__IDX_HEADER;
    if (sequences > left / 12 || documents > (left - 12 * sequences) / 8 || documents < 1)
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: %zu bytes are too few for %llu sequences and %llu documents",
                            s->idx_path, s->idx.size, (unsigned long long)sequences, (unsigned long long)documents);
    s->sequences = (int64_t)sequences;
    s->documents = (int64_t)documents - 1;
    s->sizes = p + SLUICE__IDX_HEADER;
    s->pointers = s->sizes + 4 * sequences;
    s->first = s->pointers + 8 * sequences;
    return SLUICE_OK;
}

static sluice_status check_arrays(sluice_shard *s, sluice_error *err) {
    int64_t at = 0, room = (int64_t)(s->bin.size / (size_t)s->token_bytes);
    for (int64_t i = 0; i < s->sequences; i++) {
        int64_t size = load_i32(s->sizes, i), pointer = load_i64(s->pointers, i);
        if (size < 0 || size > room - at)
            return sluice__fail(err, SLUICE_ERR_FORMAT,
                                "%s: sequence %lld: %lld tokens at token %lld, but %s holds %lld", s->idx_path,
                                (long long)i, (long long)size, (long long)at, s->bin_path, (long long)room);
        if (pointer != at * s->token_bytes)
            return sluice__fail(err, SLUICE_ERR_FORMAT,
                                "%s: sequence %lld: offset: found %lld, expected %lld (sequences without gaps)",
                                s->idx_path, (long long)i, (long long)pointer, (long long)at * s->token_bytes);
        at += size;
    }
    s->tokens = at;
    for (int64_t d = 0, last = 0; d <= s->documents; d++) {
        int64_t first = load_i64(s->first, d), most = d == 0 ? 0 : s->sequences,
                least = d == s->documents ? s->sequences : last;
        if (first < least || first > most)
            return sluice__fail(err, SLUICE_ERR_FORMAT,
                                "%s: document %lld: first sequence: found %lld, expected %lld..%lld", s->idx_path,
                                (long long)d, (long long)first, (long long)least, (long long)most);
        last = first;
    }
    return SLUICE_OK;
}

/* PREFIX.json is ours and may be missing; when it is there it has to be right. */
static sluice_status read_sidecar(sluice_shard *s, const char *prefix, sluice_error *err) {
    char *path = sluice__asprintf("%s.json", prefix);
    if (!path) return sluice__no_memory(err, strlen(prefix), "a path");
    json_t *root = NULL;
    const char *hash = NULL;
    sluice_status st = SLUICE_OK;
    if (sluice__is_file(path)) {
        st = sluice__json_load(&root, path, err);
        sluice__json view = sluice__json_view(root, path);
        if (st == SLUICE_OK) st = sluice__json_string(&view, "tokenizer_hash", false, &hash, err);
        char *end = NULL;
        if (hash) s->hash = strtoull(hash, &end, 16);
        s->has_hash = hash && end && end > hash && !*end;
        if (hash && !s->has_hash)
            st = sluice__json_fail(&view, "tokenizer_hash", err, "found \"%.40s\", expected hexadecimal digits", hash);
    }
    json_decref(root);
    sluice__free(path);
    return st;
}

static sluice_status open_files(sluice_shard *s, const char *path, sluice_error *err) {
    size_t n = strlen(path);
    if (n > 4 && (!strcmp(path + n - 4, ".bin") || !strcmp(path + n - 4, ".idx"))) n -= 4;
    char *prefix = sluice__strndup(path, n);
    s->bin_path = sluice__asprintf("%.*s.bin", (int)n, path);
    s->idx_path = sluice__asprintf("%.*s.idx", (int)n, path);
    sluice_status st = prefix && s->bin_path && s->idx_path ? SLUICE_OK : sluice__no_memory(err, n, "a path");
    if (st == SLUICE_OK) st = sluice__map_open(&s->idx, s->idx_path, err);
    if (st == SLUICE_OK) st = sluice__map_open(&s->bin, s->bin_path, err);
    if (st == SLUICE_OK) st = check_header(s, err);
    if (st == SLUICE_OK) st = check_arrays(s, err);
    if (st == SLUICE_OK) st = read_sidecar(s, prefix, err);
    sluice__free(prefix);
    return st;
}

sluice_status sluice_shard_open(sluice_shard **out, const char *path, sluice_error *err) {
    *out = NULL;
    sluice_shard *s = sluice__calloc(1, sizeof *s, SLUICE__MEM_DATA);
    if (!s) return sluice__no_memory(err, sizeof *s, "a shard");
    sluice_status st = open_files(s, path, err);
    if (st == SLUICE_OK)
        *out = s;
    else
        sluice_shard_close(s);
    return st;
}

void sluice_shard_close(sluice_shard *shard) {
    if (!shard) return;
    sluice__map_close(&shard->bin);
    sluice__map_close(&shard->idx);
    sluice__free(shard->bin_path);
    sluice__free(shard->idx_path);
    sluice__free(shard);
}

const void *sluice__shard_data(const sluice_shard *s) {
    return s->bin.data;
}

int64_t sluice_shard_num_documents(const sluice_shard *shard) {
    return shard->documents;
}
int64_t sluice_shard_num_tokens(const sluice_shard *shard) {
    return shard->tokens;
}
int sluice_shard_token_bytes(const sluice_shard *shard) {
    return shard->token_bytes;
}

static int64_t sequence_start(const sluice_shard *s, int64_t sequence) {
    return sequence == s->sequences ? s->tokens : load_i64(s->pointers, sequence) / s->token_bytes;
}

void sluice_shard_document(const sluice_shard *shard, int64_t d, int64_t *start, int64_t *count) {
    *start = sequence_start(shard, load_i64(shard->first, d));
    *count = sequence_start(shard, load_i64(shard->first, d + 1)) - *start;
}

void sluice_shard_read(const sluice_shard *shard, int64_t start, int64_t count, int32_t *out) {
    const unsigned char *p = shard->bin.data + start * shard->token_bytes;
    if (shard->token_bytes == 4) {
        memcpy(out, p, (size_t)count * 4);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        uint16_t v;
        memcpy(&v, p + 2 * i, 2);
        out[i] = v;
    }
}

bool sluice_shard_tokenizer_hash(const sluice_shard *shard, uint64_t *hash) {
    if (shard->has_hash) *hash = shard->hash;
    return shard->has_hash;
}

/* ---- statistics ---- */
enum { BLOCK = 4096, MAX_ID = 16 << 20 };

static sluice_status count_ids(const sluice_shard *s, int64_t *counts, sluice_shard_stats *out, sluice_error *err) {
    int32_t block[BLOCK];
    out->min_id = INT32_MAX;
    out->max_id = -1;
    for (int64_t at = 0; at < s->tokens; at += BLOCK) {
        int64_t n = s->tokens - at < BLOCK ? s->tokens - at : BLOCK;
        sluice_shard_read(s, at, n, block);
        for (int64_t i = 0; i < n; i++) {
            int32_t id = block[i];
            if (id < 0 || id >= MAX_ID)
                return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: token %lld: found id %d, expected 0..%d", s->bin_path,
                                    (long long)(at + i), id, MAX_ID - 1);
            counts[id]++;
            if (id < out->min_id) out->min_id = id;
            if (id > out->max_id) out->max_id = id;
        }
    }
    return SLUICE_OK;
}

sluice_status sluice_shard_statistics(const sluice_shard *shard, int32_t unk_id, sluice_shard_stats *out,
                                      sluice_error *err) {
    *out = (sluice_shard_stats){.documents = shard->documents, .tokens = shard->tokens};
    int64_t *counts = sluice__calloc(shard->token_bytes == 2 ? 65536 : MAX_ID, sizeof *counts, SLUICE__MEM_DATA);
    if (!counts) return sluice__no_memory(err, MAX_ID * sizeof *counts, "token counts");
    sluice_status st = count_ids(shard, counts, out, err);
    for (int64_t d = 0; d < shard->documents; d++) {
        int64_t start, count;
        sluice_shard_document(shard, d, &start, &count);
        if (d == 0 || count < out->shortest) out->shortest = count;
        if (count > out->longest) out->longest = count;
    }
    for (int32_t id = 0; st == SLUICE_OK && id <= out->max_id; id++) {
        if (!counts[id]) continue;
        double share = (double)counts[id] / (double)shard->tokens;
        out->distinct++;
        out->entropy -= share * log2(share);
    }
    if (unk_id >= 0 && unk_id <= out->max_id) out->unk_tokens = counts[unk_id];
    if (!shard->tokens) out->min_id = -1;
    sluice__free(counts);
    return st;
}
