/* SPDX-License-Identifier: Apache-2.0 */
/* Longer windows: the model as it was trained and after it went on with a raised RoPE base, each
 * plain and with YaRN, at multiples of the first training length. */

const STAGE_NAMES = {trained: "as trained", longer: "base raised"};

const stagesOf = (run) => list(run.raw, "extension", "stages");

function hasExtension(study) {
    return study.arms.some((arm) => arm.runs.some((run) => stagesOf(run).length));
}

/* "trained" and "longer" as they stand in the results, each with its window length. */
function stageOptions(study) {
    const found = new Map();
    for (const arm of study.arms)
        for (const run of arm.runs)
            for (const stage of stagesOf(run)) {
                const name = text(stage, "name");
                if (name && !found.has(name)) found.set(name, number(stage, "seq_len"));
            }
    return [...found].map(([name, length]) => ({
        label: (STAGE_NAMES[name] || plain(name, 30)) + (length !== null ? ", " + length + " tokens" : ""),
        value: name,
    }));
}

function stageRows(run, name, rope) {
    const stage = stagesOf(run).find((s) => text(s, "name") === name);
    return list(stage, "rows")
        .filter((row) => (text(row, "rope") || "plain") === rope && number(row, "length") !== null)
        .sort((a, b) => a.length - b.length);
}

function extensionSection(study) {
    return section(
        "extension",
        "Longer windows",
        "The trained model goes on with longer windows and a raised RoPE base, then YaRN stretches its " +
            "positions without training. Loss is that of plain held-out text, the same tokens at every " +
            "length; recall is the share of tags in that text whose digit the model repeats when asked at " +
            "the end of the window.",
        el(
            "div",
            {class: "grid"},
            extensionFigure(study, PERPLEXITY),
            extensionFigure(study, RECALL),
            reachFigure(study),
        ),
        extensionTable(study),
    );
}

const PERPLEXITY = {
    id: "fig-extension-perplexity",
    title: "Perplexity by length of the window",
    caption:
        "On a logarithmic axis. Solid: positions as trained. Dashed: YaRN with the factor of the longest " +
        "length, at all lengths.",
    key: "perplexity",
    y: {label: "perplexity", log: true, format: (v) => significant(v, 4)},
};
const RECALL = {
    id: "fig-extension-recall",
    title: "Recall by length of the window",
    caption:
        "Share of questions whose answer has the largest logit of all tokens; a guess among digits would be " +
        "right in one of ten.",
    key: "recall",
    y: {label: "recall", min: 0, max: 1, format: (v) => significant(v, 3)},
    marks: [{y: 0.1, label: "a guessed digit"}],
};

function ropeSeries(arms, name, rope, pointsOf) {
    const dash = rope === "yarn" ? [5, 4] : [];
    const all = armSeries(arms, (run) => stageRows(run, name, rope).map(pointsOf), {dots: true, dash, single: true});
    if (rope === "yarn") for (const s of all) [s.label, s.kind] = [s.label + ", YaRN", "yarn"];
    return all;
}

function ropeLegend(arms, series) {
    return armLegend(arms, series).concat([
        {label: "plain", dash: []},
        {label: "YaRN", mark: "dash"},
    ]);
}

function extensionFigure(study, kind) {
    const options = stageOptions(study);
    return figure({
        id: kind.id,
        title: kind.title,
        caption: kind.caption,
        controls: [selectControl("stage", "Model", options.slice().reverse())],
        draw: (host, fig) => {
            const arms = shownArms(study);
            const point = (row) => ({x: row.length, y: number(row, kind.key)});
            const series = ["plain", "yarn"].flatMap((rope) => ropeSeries(arms, fig.values.stage, rope, point));
            if (!series.length) return {empty: whyNoRuns(study, kind.key + " by length")};
            linePlot(host, fig, {
                label: kind.title,
                series,
                x: {only: true, log: true, names: count, label: "tokens in the window"},
                y: kind.y,
                marks: kind.marks,
            });
            return {legend: ropeLegend(arms, series), csv: seriesCsv(series, "length", kind.key)};
        },
    });
}

/* Loss by position inside the longest window: where a model stops making use of what lies far back. */
function reachFigure(study) {
    const options = stageOptions(study);
    const longest = (run, name, rope) => stageRows(run, name, rope).at(-1);
    const points = (row) => {
        const edges = list(row, "position", "edges");
        return list(row, "position", "loss").map((y, i) => ({x: edges[i + 1] ?? i, y: isNumber(y) ? y : null}));
    };
    return figure({
        id: "fig-extension-position",
        title: "Loss by position in the longest window",
        caption: "Mean over ranges of positions, each drawn at its end.",
        controls: [selectControl("stage", "Model", options.slice().reverse())],
        draw: (host, fig) => {
            const arms = shownArms(study);
            const of = (rope) =>
                armSeries(arms, (run) => points(longest(run, fig.values.stage, rope)), {
                    dots: true,
                    dash: rope === "yarn" ? [5, 4] : [],
                    single: true,
                });
            const yarn = of("yarn");
            for (const s of yarn) [s.label, s.kind] = [s.label + ", YaRN", "yarn"];
            const series = of("plain").concat(yarn);
            if (!series.length) return {empty: whyNoRuns(study, "loss by position")};
            linePlot(host, fig, {
                label: "Loss by position in the longest window",
                series,
                x: {only: true, log: true, names: count, label: "position"},
                y: {label: "loss, nats per token", format: (v) => significant(v, 4)},
            });
            return {legend: ropeLegend(arms, series), csv: seriesCsv(series, "position", "loss")};
        },
    });
}

function valueCell(value, digits) {
    return {value, text: isNumber(value) ? significant(value, digits) : NONE};
}

/* One row for every arm, model and kind of positions; perplexity and recall at every length. */
function extensionTable(study) {
    const lengths = [...new Set(study.arms.flatMap((arm) => arm.runs.flatMap((run) =>
        stagesOf(run).flatMap((stage) => list(stage, "rows").map((row) => number(row, "length"))))))]
        .filter(isNumber).sort((a, b) => a - b);
    const at = (arm, name, rope, length, key) =>
        mean(countedRuns(arm).map((run) => {
            const row = stageRows(run, name, rope).find((r) => r.length === length);
            return row ? number(row, key) : null;
        }));
    const columns = [{label: "Arm"}].concat(
        lengths.map((n) => ({label: "PPL " + count(n), unit: "perplexity"})),
        lengths.map((n) => ({label: "Recall " + count(n), unit: "share"})),
    );
    const rows = [];
    for (const arm of study.arms)
        for (const {value: name} of stageOptions(study))
            for (const rope of ["plain", "yarn"]) {
                const cells = ["perplexity", "recall"].flatMap((key) =>
                    lengths.map((n) => valueCell(at(arm, name, rope, n, key), key === "recall" ? 3 : 4)),
                );
                if (!cells.some((c) => isNumber(c.value))) continue;
                rows.push({name: arm.name + ", " + name + (rope === "yarn" ? ", YaRN" : ""), style: arm.style, cells});
            }
    return dataTable({
        id: "table-extension",
        label: "Perplexity and recall at every length",
        note: "Means over seeds. trained: before the base was raised; longer: after it.",
        columns,
        rows,
    });
}
