/* SPDX-License-Identifier: Apache-2.0 */
/* What keeps a study's directory consistent: a lock against a second study at the same time, and one plan file an arm
 * that says with which settings and data its runs were made. */
#ifndef SLUICE_STUDY_PLAN_H
#define SLUICE_STUDY_PLAN_H
#include "study/material.h"
#include "study/recipe.h"

typedef struct sluice__study_lock {
    int fd;
} sluice__study_lock;
sluice_status sluice__study_lock_take(sluice__study_lock *lock, const char *dir, sluice_error *err);
void sluice__study_lock_release(sluice__study_lock *lock);
/* After a failure: removes the lock's file and the directory when nothing else came to lie in it. */
void sluice__study_dir_withdraw(const char *dir);

/* Refuses a directory whose arms were made with other settings or data, naming the first difference; arms and seeds may
 * be added. With overwrite an earlier study is accepted, whatever its settings. Files of somebody else under our names are
 * refused in any case. Changes nothing. */
sluice_status sluice__plan_check(const char *dir, const sluice__recipe *recipe, const sluice__material *material,
                                 bool overwrite, sluice_error *err);
/* Says which arms lie in the directory that the recipe, as it was asked for, leaves out of results and report. */
void sluice__plan_tell_others(const char *dir, const sluice__recipe *recipe);
/* Writes the plans of arms that have none. */
sluice_status sluice__plan_write(const char *dir, const sluice__recipe *recipe, const sluice__material *material,
                                 sluice_error *err);
/* Dotted path of the first place where a and b differ and both values as short text; false when they are equal. */
bool sluice__json_difference(const json_t *a, const json_t *b, char path[256], char a_text[64], char b_text[64]);
/* Removes what an earlier study left in the directory. */
sluice_status sluice__plan_remove(const char *dir, sluice_error *err);
#endif
