/* SPDX-License-Identifier: Apache-2.0 */
/* What the two formats of torch.save share. */
#ifndef SLUICE_MODEL_TORCH_BIN_INTERNAL_H
#define SLUICE_MODEL_TORCH_BIN_INTERNAL_H
#include <zip.h>
#include "base/file.h"
#include "model/pickle.h"
#include "model/torch_bin.h"

enum { SLUICE__MAX_PICKLE = 32 << 20 };

/* One storage of the old format. */
typedef struct legacy_storage {
    const char *key;
    int key_length;
    const unsigned char *data;
    size_t bytes;
} legacy_storage;

struct sluice__torch_bin {
    char *path;
    sluice__map map;
    zip_t *zip;               /* NULL for the old format */
    char *root;               /* ARCHIVE in the zip */
    char *data_pickle;        /* bytes of data.pkl */
    legacy_storage *storages; /* sorted by key */
    int num_storages;
    sluice__pickle *pickle;
    sluice__bin_tensor *tensors; /* sorted by name */
    int count;
};

/* An error "<path>: <what>". */
sluice_status sluice__torch_bin_bad(const sluice__torch_bin *bin, sluice_error *err, const char *what);
/* Takes the tensors out of the dictionary. */
sluice_status sluice__torch_bin_list(sluice__torch_bin *bin, sluice__pickle_value dict, sluice_error *err);

/* The old format (torch_legacy.c). */
sluice_status sluice__torch_bin_read_legacy(sluice__torch_bin *bin, sluice_error *err);
legacy_storage *sluice__torch_bin_find_storage(const sluice__torch_bin *bin, const char *key, int length);
#endif
