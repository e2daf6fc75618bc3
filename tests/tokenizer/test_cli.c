/* SPDX-License-Identifier: Apache-2.0 */
/* The program: sluice tokenize train, encode, decode, pack, info; exit codes and messages. */
#include "tokenizer/check.h"
#include "base/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TOKENIZER "-t '" SLUICE_TEST_DATA "/tokenizer/small.json' "

static const char *dir;

static char *run(int expected, const char *command) {
    char line[2048], *out;
    snprintf(line, sizeof line, "cd '%s' && %s", dir, command);
    int code = test_run(line, &out);
    if (code != expected) fail_msg("%s\nexit code %d, expected %d\n%s", command, code, expected, out);
    return out;
}

static void prints(int expected, const char *command, const char *part) {
    char *out = run(expected, command);
    if (!strstr(out, part)) fail_msg("%s\nprinted \"%s\", which lacks \"%s\"", command, out, part);
    free(out);
}

static void exactly(const char *command, const char *text) {
    char *out = run(0, command);
    assert_string_equal(out, text);
    free(out);
}

#define SLUICE SLUICE_PROGRAM " tokenize "

static void usage(void **state) {
    (void)state;
    static const char *const names[] = {"train", "encode", "decode", "pack", "info"};
    prints(2, SLUICE, "train a byte-level BPE");
    prints(0, SLUICE "--help", "SUBCOMMAND");
    prints(2, SLUICE "frobnicate", "unknown subcommand \"frobnicate\"");
    for (int i = 0; i < 5; i++) {
        char command[256];
        snprintf(command, sizeof command, SLUICE "%s --help", names[i]);
        prints(0, command, "Example:");
        snprintf(command, sizeof command, SLUICE "%s --no-such-option", names[i]);
        prints(2, command, "--no-such-option");
    }
    prints(2, SLUICE "encode --text x", "--tokenizer: missing");
    prints(2, SLUICE "info", "nothing to look at");
    prints(2, SLUICE "pack " TOKENIZER "x.txt", "--output: missing");
    prints(2, SLUICE "pack " TOKENIZER "-o x", "no text given");
    prints(2, SLUICE "train x.txt", "--output: missing");
    prints(2, SLUICE "train -o x --separator a --split-blank-lines x.txt", "exclude each other");
    prints(1, "echo {} > config.json && echo a b > t.txt && " SLUICE "train -o config.json t.txt", "config.json: exists and is not a tokenizer.json");
    prints(2, SLUICE "train -o x --format html x.txt", "found \"html\"");
    prints(2, SLUICE "train -o x --special-tokens 'a,,b' x.txt", "--special-tokens");
}

static void encode_decode(void **state) {
    (void)state;
    exactly(SLUICE "encode " TOKENIZER "--text 'the cat' --no-add-special-tokens --json",
            "{\"source\": \"--text\", \"bytes\": 7, \"ids\": [307, 360]}\n");
    exactly(SLUICE "encode " TOKENIZER "--text 'the cat' --no-add-special-tokens", "307 360\n");
    exactly("printf 'the cat' | " SLUICE "encode " TOKENIZER, "0 307 360\n");
    exactly("printf '\\377<mask>' | " SLUICE "encode " TOKENIZER "--no-add-special-tokens --tokens",
            "189\t\"\\xff\"\n405\t\"<mask>\"\n");
    exactly("printf '\"the cat\"\\n\"\"\\n' | " SLUICE "encode " TOKENIZER "--lines --no-add-special-tokens",
            "[307,360]\n[]\n");
    prints(1, "echo '{}' | " SLUICE "encode " TOKENIZER "--lines", "line 1: expected a JSON string");
    exactly(SLUICE "decode " TOKENIZER "307 360", "the cat\n");
    exactly(SLUICE "decode " TOKENIZER "--json 0,307,360", "\"<s>the cat\"\n");
    exactly(SLUICE "decode " TOKENIZER "--json --skip-special-tokens 0,307,360", "\"the cat\"\n");
    exactly("printf '[307, 360]\\n[]\\n' | " SLUICE "decode " TOKENIZER "--lines", "\"the cat\"\n\"\"\n");
    prints(1, SLUICE "decode " TOKENIZER "1 two", "found \"two\", expected ids of the tokenizer, 0..407");
    prints(1, SLUICE "decode " TOKENIZER "408", "found \"408\"");
    prints(1, SLUICE "decode " TOKENIZER "999999999999999999999", "expected ids");
    prints(1, SLUICE "encode -t none.json --text x", "none.json");
    prints(1, SLUICE "encode " TOKENIZER "none.txt", "none.txt: cannot open");
}

static void train_pack_info(void **state) {
    (void)state;
    exactly("printf 'the cat sat on the mat\\n\\nthe dog sat on the log\\n' > a.txt && " SLUICE
            "train -q --vocab-size 270 -o tok a.txt && ls tok",
            "tokenizer.json\ntokenizer_config.json\n");
    prints(0, SLUICE "train --vocab-size 270 --json -o b.json a.txt", "\"vocab_size\": 270, \"merges\": 13");
    prints(0, SLUICE "train --vocab-size 99999 -o tok2 a.txt", "warning: the text has pairs for");
    prints(0, SLUICE "info tok", "Split(qwen2) ByteLevel; hand-written matchers");
    prints(0, SLUICE "info --json tok", "\"fast_matcher\": true");
    prints(0, SLUICE "pack -t tok --append-eod --split-blank-lines -o s a.txt", "2 documents");
    prints(0, SLUICE "info -t tok s", "matches        yes");
    prints(0, SLUICE "info --json -t tok s.idx", "\"documents\": 2");
    prints(0, SLUICE "info -t tok2 s", "matches        no");
    prints(0, SLUICE "pack -t tok --json --eod-token the -o s2 a.txt", "\"documents\": 1");
    prints(2, SLUICE "pack -t tok --eod-token nothing -o s3 a.txt", "no token \"nothing\"");
    prints(0, "gzip -k a.txt && cat a.txt.gz | " SLUICE "pack -t tok -o s4 - && cmp s4.bin s4.bin && ls s4.json",
           "s4.json");
    prints(1, SLUICE "info -t b.json none", "none.idx");
    prints(0, "ls", "tok");
    exactly("ls | grep -c tmp || true", "0\n");
}

static void failures(void **state) {
    (void)state;
    prints(0, "printf 'bad \\377' > bad.txt && " SLUICE "train -q --vocab-size 300 -o t3 bad.txt",
           "bad.txt, document from line 1: bytes that are not UTF-8 are kept");
    prints(1, SLUICE "pack -q -t t3 -o e bad.txt", "bad.txt: line 1: byte 0xFF is not UTF-8");
    prints(1, SLUICE "train -q --vocab-size 100 -o t4 bad.txt", "vocab_size: found 100");
    prints(1, SLUICE "train -q -o /proc/none bad.txt", "/proc/none");
    prints(1, SLUICE "train -q -o t5 none.txt", "none.txt: cannot open");
    prints(1, ": > empty.txt && " SLUICE "pack -q -t t3 -o e empty.txt", "no text");
    prints(1, SLUICE "pack -q -t t3 -o bad.txt/e bad.txt --allow-invalid-utf8", "bad.txt: exists and is not a directory");
    exactly("ls e.* no 2>/dev/null | wc -l", "0\n");
    if (access("/dev/full", W_OK) == 0) prints(1, SLUICE "info t3 > /dev/full", "cannot write");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(usage), cmocka_unit_test(encode_decode),
                                       cmocka_unit_test(train_pack_info), cmocka_unit_test(failures)};
    dir = test_temp_dir();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
