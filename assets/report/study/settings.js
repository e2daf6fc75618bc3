/* SPDX-License-Identifier: Apache-2.0 */
/* Exact settings, versions and definitions. */

function settingsSection(study) {
    return section(
        "settings",
        "Settings and definitions",
        null,
        machineTable(study),
        armSettings(study),
        rawBlocks(study),
        el("h3", null, "Definitions"),
        el(
            "dl",
            {class: "definitions"},
            DEFINITIONS.map(([term, meaning]) => [el("dt", null, term), el("dd", null, meaning)]),
        ),
    );
}

function machineTable(study) {
    const raw = study.raw;
    const n = (...path) => number(raw, ...path);
    const rows = [
        ["Sluice", text(raw, "sluice_version")],
        ["Results format", text(raw, "format")],
        ["Processor", text(raw, "machine", "cpu")],
        ["Instruction sets", text(raw, "machine", "features")],
        ["Threads", n("machine", "threads")],
        ["Arms at the same time", n("machine", "parallel_arms")],
        ["Memory", n("machine", "memory_bytes") === null ? null : bytes(n("machine", "memory_bytes"))],
        ["Text", text(raw, "data", "source")],
        [
            "Text size",
            n("data", "bytes") === null
                ? null
                : bytes(n("data", "bytes")) +
                  (n("data", "documents") === null
                      ? ""
                      : " in " +
                        n("data", "documents") +
                        (n("data", "documents") === 1 ? " document" : " documents")),
        ],
        ["Training tokens", n("data", "train_tokens") === null ? null : count(n("data", "train_tokens"))],
        ["Held-out tokens", n("data", "heldout_tokens") === null ? null : count(n("data", "heldout_tokens"))],
        ["Vocabulary", n("data", "vocab_size")],
        ["Window", n("data", "seq_len") === null ? null : n("data", "seq_len") + " tokens"],
        [
            "Seeds",
            seedOptions(study)
                .map((s) => s.value)
                .join(", ") || null,
        ],
    ].filter(([, value]) => value !== null);
    return el(
        "dl",
        {class: "facts wide", id: "machine"},
        rows.map(([key, value]) =>
            el("div", null, el("dt", null, key), el("dd", null, el("bdi", null, plain(value, 300)))),
        ),
    );
}

const MOST_SETTINGS = 24;

/* Settings in which arms differ, one column per setting: what they share is in the configuration below. */
function armSettings(study) {
    const flat = study.arms.map((arm) =>
        flatten({
            gate: get(arm.raw, "gate"),
            config: get(arm.raw, "config"),
            options: get(arm.raw, "options"),
        }),
    );
    const all = new Set(flat.flatMap((m) => [...m.keys()]));
    /* A configuration repeats its gate under keys of its own, and options repeat the configuration. */
    const repeated = (key) =>
        /^(config|options)\.gate_/.test(key) ||
        (key.startsWith("options.") && all.has(key.replace("options", "config")));
    const differing = [...all].filter(
        (key) => !repeated(key) && new Set(flat.map((m) => m.get(key))).size > 1,
    );
    const keys = differing.slice(0, MOST_SETTINGS);
    if (!keys.length) return null;
    const rows = study.arms.map((arm, i) => ({
        name: arm.name,
        style: arm.style,
        note: arm.label && arm.label !== arm.name ? arm.label : null,
        cells: keys.map((key) => ({
            value: flat[i].get(key),
            text: flat[i].has(key) ? plain(flat[i].get(key), 40) : NONE,
        })),
    }));
    return dataTable({
        id: "tab-arms",
        label: "Settings in which the arms differ",
        caption: "Settings in which the arms differ",
        rows,
        columns: [{label: "Arm"}].concat(keys.map((key) => ({label: plain(key, 60)}))),
        note:
            differing.length > keys.length
                ? "The first " +
                  keys.length +
                  " of " +
                  differing.length +
                  " differing settings; the blocks below have all."
                : null,
    });
}

/* Map from dotted path to text; arrays count as one value. */
function flatten(value, path = "", out = new Map()) {
    if (value !== null && typeof value === "object" && !Array.isArray(value))
        for (const [key, inner] of Object.entries(value)) flatten(inner, path ? path + "." + key : key, out);
    else if (value !== undefined) out.set(path, typeof value === "string" ? value : JSON.stringify(value));
    return out;
}

function rawBlocks(study) {
    const block = (title, value) =>
        el(
            "details",
            null,
            el("summary", null, el("bdi", null, plain(title, 80))),
            el(
                "pre",
                {tabindex: "0"},
                value === undefined || value === null ? "not recorded" : JSON.stringify(value, null, 2),
            ),
        );
    const runs = study.arms.flatMap((arm) =>
        arm.runs.map((run) => ({
            arm: arm.name,
            seed: run.seed,
            status: run.status,
            error: text(run.raw, "error"),
            model: text(run.raw, "model_dir"),
        })),
    );
    return el(
        "div",
        {class: "raw"},
        block("Recipe", get(study.raw, "recipe")),
        study.arms.map((arm) =>
            block("Configuration and options of " + arm.name, {
                gate: get(arm.raw, "gate"),
                config: get(arm.raw, "config"),
                options: get(arm.raw, "options"),
            }),
        ),
        block("Runs and where their models are", runs),
    );
}
